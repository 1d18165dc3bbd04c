"""A document on its way: who may ask for it, and what has become of it."""

import asyncio
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Literal

from attendo.serve.documents.formats import Kind
from attendo.serve.shelf import Served


@dataclass(eq=False)
class Document:
    """The id finds it, and nobody without the key learns that it is there."""

    kind: Kind
    served: Served
    number: str = field(default_factory=lambda: secrets.token_hex(16).upper())
    key: str = field(default_factory=lambda: secrets.token_hex(32).upper())
    status: Literal["queued", "translating", "done", "error"] = "queued"
    characters: int = 0  # that were translated
    error: str | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ended_at: float | None = None  # by `time.monotonic`

    @property
    def source_file(self) -> str:
        return f"{self.number}.source"

    @property
    def result_file(self) -> str:
        return f"{self.number}.result"

    def opened_by(self, key: str) -> bool:
        """In a time that does not tell how much of the key is right."""
        return hmac.compare_digest(key.encode(errors="surrogatepass"), self.key.encode())
