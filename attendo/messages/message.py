"""One message in both languages."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


class Message(NamedTuple):
    """Both texts have the same placeholders.

    `phrases` has Chinese for values that are English words, by placeholder. `status` is that of HTTP, for a message of the
    server.
    """

    en: str
    zh: str
    phrases: Mapping[str, Mapping[str, str]] = {}
    status: int = 0
