"""Reads and writes files of model folders. Every fault in a file raises a `ModelError` that names it."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

from attendo.errors import ModelError, cut_text

RESTORE = "restore it from a copy"
COPY_AGAIN = "copy the folder again"
_MAX_FILE_BYTES = 512 * 1024**2  # of a JSON or text file: the largest vocabularies have about 40 MB
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_bytes(path: Path, fix: str = RESTORE) -> bytes:
    """Read a file. Raise if it is missing, not a regular file or larger than 512 MiB."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe might never end
            raise ModelError("not_a_regular_file", path=path, fix=fix)
        if (size := path.stat().st_size) > _MAX_FILE_BYTES:
            raise ModelError("model_file_too_large", path=path, size=size, limit=_MAX_FILE_BYTES, fix=fix)
        return path.read_bytes()
    except OSError as error:
        raise ModelError("model_file_unreadable", path=path, reason=error.strerror or error, fix=fix) from None


def read_text(path: Path, fix: str = RESTORE) -> str:
    """Read a UTF-8 text file."""
    try:
        return read_bytes(path, fix).decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError("model_file_not_utf8", path=path, fix=fix) from None


def read_json(path: Path, fix: str = RESTORE) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        content = parse_json(read_bytes(path, fix))
    except ValueError as error:
        raise ModelError("json_syntax_invalid", path=path, reason=error, fix=fix) from None
    if not isinstance(content, dict):
        raise ModelError("json_not_an_object", path=path, fix=fix)
    return content


def write_json(path: Path, content: Any) -> None:
    """Write a JSON value as `format_json` formats it."""
    path.write_text(format_json(content), "utf-8")


def format_json(content: Any) -> str:
    """Format a JSON value with an indent of 2 and a final newline. Letters of all scripts stay readable."""
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def json_sha256(content: Any) -> str:
    """Return the SHA-256 of a JSON value. The order of its keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def checksum_file(path: Path) -> dict[str, Any]:
    """Return the size and SHA-256 of a file, as manifests list them."""
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def parse_json(content: bytes) -> Any:
    """Parse a JSON value whose strings can be encoded as UTF-8.

    The text of a `ValueError` is a short reason.
    """
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
    except ValueError:  # from int()
        raise ValueError("a number has too many digits") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return parsed
