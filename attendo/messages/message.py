"""One message in both languages."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Language = Literal["en", "zh"]


class Message(NamedTuple):
    """Both texts have the same placeholders. `phrases` has Chinese for values that are English words, by placeholder."""

    en: str
    zh: str
    phrases: Mapping[str, Mapping[str, str]] = {}
