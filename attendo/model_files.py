"""Reads the files of model folders. Whatever is wrong with a file is a `ModelError` that names it."""

import json
import re
from pathlib import Path
from typing import Any

from attendo.errors import ModelError, cut_text

RESTORE = "restore it from a copy"
COPY_AGAIN = "copy the folder again"
_MOST_BYTES = 512 * 1024**2  # of a JSON or text file: the largest vocabularies have some 40 MB
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_bytes(path: Path, fix: str = RESTORE) -> bytes:
    """All of a file, unless it is missing, no plain file or far too large."""
    try:
        if path.exists() and not path.is_file():  # a pipe would never end
            raise ModelError(f"{path} cannot be read: it is not a plain file; {fix}")
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise ModelError(f"{path} is too large: {size:,} bytes, where at most {_MOST_BYTES:,} are read; {fix}")
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}; {fix}") from None


def read_text(path: Path, fix: str = RESTORE) -> str:
    """A text in UTF-8."""
    try:
        return read_bytes(path, fix).decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"{path} is damaged: it is not UTF-8; {fix}") from None


def read_json(path: Path, fix: str = RESTORE) -> dict[str, Any]:
    """A JSON object."""
    try:
        content = parse_json(read_bytes(path, fix))
    except ValueError as error:
        raise ModelError(f"{path} is damaged: it is not JSON ({error}); {fix}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} is damaged: it is not a JSON object; {fix}")
    return content


def parse_json(content: bytes) -> Any:
    """A JSON value whose texts can be written as UTF-8; the text of a `ValueError` is a short reason."""
    try:
        parsed = json.loads(content.decode("utf-8"))
        if _SURROGATE.search(content):
            json.dumps(parsed, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except UnicodeEncodeError:
        raise ValueError("a text holds half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise ValueError(cut_text(str(error))) from None
    except ValueError:  # of int()
        raise ValueError("a number has too many digits") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return parsed
