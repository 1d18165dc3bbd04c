"""What a refusal says, in both languages."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """Both languages have the same gaps to fill."""

    status: int
    english: str
    chinese: str

    def filled(self, values: dict[str, Any]) -> tuple[str, str]:
        return self.english.format(**values), self.chinese.format(**values)
