"""The keys of a server, as whoever runs it keeps them."""

import re
from pathlib import Path

from attendo.errors import UsageError

_SHORTEST = 8
_KEY = re.compile(r"[!-~]+")  # what a header can carry


def read_keys(file: Path | None, environment: str | None) -> tuple[str, ...]:
    """One a line, where a line that begins with # is none; or of a variable, with commas or spaces between them."""
    lines: list[tuple[str, str]] = []
    if file is not None:
        try:
            written = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("key_file_unreadable", path=file, reason=getattr(error, "strerror", "not UTF-8")) from None
        lines += [(f"{file}, line {number}", line.strip()) for number, line in enumerate(written, start=1)]
    lines += [("ATTENDO_KEYS", each) for each in re.split(r"[,\s]+", environment or "")]
    keys = [(place, key) for place, key in lines if key and not key.startswith("#")]
    for place, key in keys:
        check_key(key, place)
    if file is not None and not keys:
        raise UsageError("key_file_without_keys", path=file)
    return tuple(dict.fromkeys(key for _, key in keys))


def check_key(key: str, place: str) -> None:
    """Whether it is one that a header can carry and nobody guesses; the key itself is not for a terminal."""
    if not _KEY.fullmatch(key) or len(key) < _SHORTEST:
        raise UsageError("invalid_api_key", place=place, min_length=_SHORTEST)
