"""What a check found: how bad it is, with which numbers, and what to change."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from attendo.errors import AttendoError, DataError, ModelError

Level = Literal["ok", "note", "warning", "fault"]
MAX_EXAMPLES = 3
_MAX_TEXT_CHARACTERS = 60  # characters of a sentence


@dataclass(frozen=True)
class Finding:
    """A note is worth knowing, a warning worth a change; with a fault training would be wasted."""

    check: str
    level: Level
    found: str
    advice: str = ""  # which setting to change, which lines to mend
    examples: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    about: Literal["network", "data"] = "data"
    stops: bool = True  # whether `attendo train` stops at it, if it is a fault

    @property
    def line(self) -> str:
        """All but the examples."""
        return f"{self.check}: {self.found}" + (f"; {self.advice}" if self.advice else "")

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "stops"}

    def to_error(self) -> AttendoError:
        """To stop with, where a fault may not pass."""
        return (DataError if self.about == "data" else ModelError)("doctor_fault", line=self.line)


def shorten(text: str) -> str:
    """Short enough to stand in a line of a report."""
    text = " ".join(text.split())
    return text if len(text) <= _MAX_TEXT_CHARACTERS else f"{text[: _MAX_TEXT_CHARACTERS - 1]}…"


def format_count(count: int, things: str) -> str:
    """`1 pair`, `2,000 pairs`."""
    return f"{count:,} {things.removesuffix('s') if count == 1 else things}"


def format_share(ratio: float) -> str:
    """A share of 1, with as many digits as it needs."""
    percent = 100 * ratio
    return f"{percent:.0f}%" if percent >= 10 or percent == 0 else f"{percent:.2g}%"
