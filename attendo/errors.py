"""Errors that the user can fix, each with the exit code of the command line."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import accumulate, islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attendo.messages import Language

_LARGEST_SHOWN = 10**30  # integers above this are cut in messages
MAX_VALUE_LENGTH = 80  # characters of a value in a message
_MAX_MESSAGE_LENGTH = 2000  # characters of a message: enough for a command with two long paths
_NO_OPTIONS: Mapping[str, str] = {}
_MAX_LIST_LENGTH = 300  # characters of an error list, unless the first error alone is longer


def shorten(value: object, max_length: int = MAX_VALUE_LENGTH) -> str:
    """Return the `repr` of a value, cut to `max_length` characters, for a message."""
    try:
        return cut_text(repr(value[: max_length + 1] if isinstance(value, str) else value), max_length)
    except (ValueError, RecursionError):  # an integer with thousands of digits, or deeply nested lists
        return f"a large {type(value).__name__}"


def cut_text(text: str, max_length: int = MAX_VALUE_LENGTH) -> str:
    """Return a text without quotes, cut to `max_length` characters, for a message."""
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def cut_line(text: str, max_length: int = 60) -> str:
    """Return a text on one line, without repeated spaces, cut to `max_length` characters."""
    return cut_text(" ".join(text.split()), max_length)


def list_names(names: Iterable[str], max_names: int = 8, separator: str = ", ") -> str:
    """Join the first `max_names` names, each cut to a short length. `…` replaces the others."""
    shown = [cut_text(name) for name in islice(names, max_names + 1)]
    return separator.join((*shown[:max_names], "…") if len(shown) > max_names else shown)


class AttendoError(Exception):
    """An error that the user can fix. `code` identifies it and `values` fill its message.

    The text is in `attendo.messages`. It is one line that names the thing, the value and the fix.
    """

    exit_code = 1
    option_names: Mapping[str, str] = _NO_OPTIONS  # options of the command, by setting; for `str`

    def __init__(self, code: str, /, **values: object) -> None:
        super().__init__(code)
        self.code, self.values = code, values

    def __str__(self) -> str:
        return self.text("en", self.option_names)

    def text(self, language: "Language", option_names: Mapping[str, str] = _NO_OPTIONS) -> str:
        """Return the message in one language. Values with a text of their own use the same language.

        A setting in `option_names` is called by the name of its option.
        """
        return cut_text(render_message(self.code, self.values, language, option_names), _MAX_MESSAGE_LENGTH)


class Localized(ABC):
    """A value of a message that has a text in each language."""

    def __str__(self) -> str:
        return self.text("en")

    @abstractmethod
    def text(self, language: "Language", option_names: Mapping[str, str] = _NO_OPTIONS) -> str:
        """Return the text in one language."""


class MessagePart(Localized):
    """A phrase inside a message that has a text in each language, such as the line of a file."""

    def __init__(self, code: str, /, **values: object) -> None:
        self.code, self.values = code, values

    def text(self, language: "Language", option_names: Mapping[str, str] = _NO_OPTIONS) -> str:
        return render_message(self.code, self.values, language, option_names)


class LocalizedText(str, Localized):
    """A text of the program's output. It is English as a string; `text` has the Chinese of its template.

    Files and JSON have the English text. The Chinese templates are in `attendo/messages/zh`.
    """

    template: str
    values: Mapping[str, object]

    def __new__(cls, template: str, /, **values: object) -> "LocalizedText":
        text = super().__new__(cls, template.format_map(values))
        text.template, text.values = template, values
        return text

    def __add__(self, other: str) -> "LocalizedText":
        return LocalizedText("{first}{second}", first=self, second=other)

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, object]]:  # for copies
        return (self.template,), dict(self.values)

    def text(self, language: "Language", option_names: Mapping[str, str] = _NO_OPTIONS) -> str:
        if language == "en":
            return str.__str__(self)
        from attendo.messages import translate

        values = {name: to_text(value, language, option_names) for name, value in self.values.items()}
        return translate(self.template).format_map(values)


def join_texts(texts: Iterable[str], separator: str = ", ") -> LocalizedText:
    """Join texts into one. A separator `, ` or `; ` is a Chinese one in Chinese."""
    values = {f"text{number}": text for number, text in enumerate(texts)}
    join = LocalizedText(separator) if separator.isspace() or separator in (", ", "; ") else separator
    parts = [f"{{{name}}}" for name in values]
    return LocalizedText("{join}".join(parts), join=join, **values)


class ErrorList(Localized):
    """Several errors, joined into one value of a message. Errors beyond `max_length` characters are only counted."""

    def __init__(self, errors: "Sequence[AttendoError | MessagePart]", max_length: int = _MAX_LIST_LENGTH) -> None:
        self.errors, self.max_length = errors, max_length  # characters

    def text(self, language: "Language", option_names: Mapping[str, str] = _NO_OPTIONS) -> str:
        texts = [error.text(language, option_names) for error in self.errors]
        ends = accumulate(len(text) for text in texts)
        count = max(1, sum(end <= self.max_length for end in ends))
        more = [AttendoError("more_faults", count=len(texts) - count).text(language)] if len(texts) > count else []
        return ("; " if language == "en" else "；").join([*texts[:count], *more])


def render_message(
    code: str, values: Mapping[str, object], language: "Language", option_names: Mapping[str, str] = _NO_OPTIONS
) -> str:
    """Return the text of a code. Errors, error lists and message parts use the same language and option names."""
    from attendo.messages import render

    texts = {name: to_text(value, language, option_names) for name, value in values.items()}
    return render(code, texts, language, option_names)


def to_text(value: object, language: "Language", option_names: Mapping[str, str] = _NO_OPTIONS) -> object:
    """Return the value of a message in a language, if it has a text in each. A very large integer is shortened."""
    if isinstance(value, AttendoError | Localized):
        return value.text(language, option_names)
    return shorten(value) if isinstance(value, int) and abs(value) > _LARGEST_SHOWN else value


class UsageError(AttendoError, ValueError):
    """A setting, an option or an argument is invalid."""

    exit_code = 2


class DataError(AttendoError):
    """A text or data file is unusable."""

    exit_code = 3


class ModelError(AttendoError):
    """A model folder or checkpoint is missing, damaged or incompatible."""

    exit_code = 4


def require_package(package: str, extra: str, purpose: str) -> None:
    """Raise a `UsageError` that names the pip command if a package is missing. The package is not imported."""
    if find_spec(package) is None:
        raise UsageError("package_missing", purpose=purpose, package=package, extra=extra)
