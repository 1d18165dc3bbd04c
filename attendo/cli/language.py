"""The language of help, output and errors on the command line."""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING
from unicodedata import east_asian_width

from attendo.errors import AttendoError, Localized, LocalizedText

if TYPE_CHECKING:
    from attendo.messages import Language

VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # of the system; the first that is not empty counts
_WIDTHS = {"W": 2, "F": 2}  # columns of East Asian wide and full-width characters
# The usage errors of typer, which has English texts only.
USAGE_ERRORS = (
    "No such command {name}. Did you mean {names}?",
    "No such command {name}.",
    "Missing command.",
    "Missing argument {name}. Choose from:{choices}",
    "Missing argument {name}.",
    "Missing option {name}. Choose from:{choices}",
    "Missing option {name}.",
    "No such option: {name} (Possible options: {names})",
    "No such option: {name}",
    "Option {name} requires an argument.",
    "Option {name} does not take a value.",
    "Got unexpected extra argument(s) ({words})",
    "Invalid value for {name}: {reason}",
    "{command} has no commands: leave out {name}",
)
_current: "Language" = "en"


def choose_language(arguments: Sequence[str], environment: Mapping[str, str]) -> "Language":
    """Return the language of `--lang`, of ATTENDO_LANG or of the system's locale, in this order.

    The locale counts only if standard output and standard error can show Chinese.
    """
    words = list(takewhile(lambda word: word != "--", arguments))
    given = [word.partition("=")[2] for word in words if word.startswith("--lang=")]
    given += [words[n + 1] for n, word in enumerate(words[:-1]) if word == "--lang"]
    for value in (*given, environment.get("ATTENDO_LANG", "")):
        if value == "zh":
            return "zh"
        if value == "en":
            return "en"
    locale = next(filter(None, (environment.get(name) for name in VARIABLES)), "")
    return "zh" if locale.lower().startswith("zh") and all(map(_shows_chinese, (sys.stdout, sys.stderr))) else "en"


def use_language(language: "Language") -> None:
    """Set the language of this process. Characters that an output cannot show are escaped."""
    global _current
    _current = language
    if language == "zh" and not _shows_chinese(sys.stdout):
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def current_language() -> "Language":
    """Return the language of this process: English, unless the command line has chosen Chinese."""
    return _current


def say(template: str, /, **values: object) -> str:
    """Return a text of the output in the current language."""
    return localise(LocalizedText(template, **values))


def localise(text: object) -> str:
    """Return a text that has several languages in the current one. Plain strings are not changed."""
    return text.text(_current) if isinstance(text, Localized | AttendoError) else str(text)


def translate(text: str) -> str:
    """Return a plain English text, such as the help of an option, in the current language."""
    if _current == "en" or isinstance(text, Localized):
        return localise(text)
    from attendo.messages import translate

    return translate(text)


def list_names(names: Iterable[object]) -> str:
    """Return the names as a list in the current language."""
    return ("、" if _current == "zh" else ", ").join(map(str, names))


def translate_usage_error(message: str) -> str:
    """Return the message of a usage error in the current language."""
    if _current == "en":
        return message
    for template in USAGE_ERRORS:
        pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+)", re.escape(template))
        if found := re.fullmatch(pattern, message, re.DOTALL):
            values = {name: " ".join(value.split()) for name, value in found.groupdict().items()}
            return LocalizedText(template, **values).text("zh")
    return message


def count_columns(text: str) -> int:
    """Return the width of a text in a terminal. A Chinese character has two columns."""
    return len(text) if text.isascii() else sum(_WIDTHS.get(east_asian_width(each), 1) for each in text)


def pad_columns(text: str, width: int, align_right: bool = False) -> str:
    """Fill a text with spaces to a number of columns."""
    room = " " * (width - count_columns(text))
    return room + text if align_right else text + room


def _shows_chinese(stream: object) -> bool:
    try:
        "中文，“”".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
