"""The result of a check: level, numbers and advice."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from attendo.errors import AttendoError, DataError, LocalizedText, ModelError

Level = Literal["ok", "note", "warning", "fault"]
MAX_EXAMPLES = 3
_TEXTS = ("check", "found", "advice")


@dataclass(frozen=True)
class Finding:
    """A result of a check. A note is information, a warning suggests a change, a fault makes training useless."""

    check: str
    level: Level
    found: str
    advice: str = ""  # the setting to change or the lines to fix
    examples: tuple[str, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    about: Literal["network", "data"] = "data"
    stops: bool = True  # whether `attendo train` stops at this fault

    @property
    def line(self) -> str:
        """The finding in one line, without examples."""
        template = "{check}: {found}; {advice}" if self.advice else "{check}: {found}"
        return LocalizedText(template, **{name: _make_localised(getattr(self, name)) for name in _TEXTS})

    def as_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "stops"}

    def to_error(self) -> AttendoError:
        """Return the error that reports this finding as a fault."""
        return (DataError if self.about == "data" else ModelError)("doctor_fault", line=self.line)


def _make_localised(text: str) -> LocalizedText:
    """Return a plain text as one whose Chinese is in the catalogue."""
    return text if isinstance(text, LocalizedText) else LocalizedText(text.replace("{", "{{").replace("}", "}}"))


def format_count(count: int, things: str) -> str:
    """Return a count with its noun, such as `1 pair` or `2,000 pairs`."""
    return LocalizedText(f"{{count:,}} {things.removesuffix('s') if count == 1 else things}", count=count)


def format_share(ratio: float) -> str:
    """Format a ratio as a percentage with two significant digits."""
    percent = 100 * ratio
    return f"{percent:.0f}%" if percent >= 10 or percent == 0 else f"{percent:.2g}%"
