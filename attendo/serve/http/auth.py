"""API keys: read from a file or the environment, and required of a request."""

import hmac
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi import Depends
from starlette.requests import Request

from attendo.errors import UsageError
from attendo.serve.http.errors import ApiError

_SCHEMES = ("bearer", "deepl-auth-key")
_MIN_KEY_LENGTH = 8
_KEY_PATTERN = re.compile(r"[!-~]+")  # printable ASCII, valid in a header


def key_dependency(keys: Sequence[str]) -> Any:
    """Return a FastAPI dependency that requires one of these keys in the headers."""

    async def check(request: Request) -> None:
        require_key(keys, bearer_token(request))

    return Depends(check)


def require_key(keys: Sequence[str], key: str | None) -> None:
    """Raise `ApiError` unless the key is one of `keys`. If there are none, any request passes."""
    if not keys:
        return
    if not key:
        raise ApiError("no_key")
    encoded_key = key.encode(errors="surrogatepass")  # a body may contain a lone surrogate
    # Compare with all keys in constant time, so the duration reveals neither a prefix nor which key matched.
    fitting = [hmac.compare_digest(encoded_key, each.encode()) for each in keys]
    if not any(fitting):
        raise ApiError("bad_key")


def bearer_token(request: Request) -> str | None:
    """Return the key from Authorization (Bearer, or DeepL-Auth-Key) or X-API-Key."""
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() in _SCHEMES and key.strip():
        return key.strip()
    return request.headers.get("x-api-key", "").strip() or None


def read_keys(file: Path | None, environment: str | None) -> tuple[str, ...]:
    """Read keys from a file, one per line with # comments, and from a variable, separated by commas or spaces."""
    lines: list[tuple[str, str]] = []
    if file is not None:
        try:
            file_lines = file.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("key_file_unreadable", path=file, reason=getattr(error, "strerror", "not UTF-8")) from None
        lines += [(f"{file}, line {number}", line.strip()) for number, line in enumerate(file_lines, start=1)]
    lines += [("ATTENDO_KEYS", each) for each in re.split(r"[,\s]+", environment or "")]
    keys = [(origin, key) for origin, key in lines if key and not key.startswith("#")]
    for origin, key in keys:
        check_key(key, origin)
    if file is not None and not keys:
        raise UsageError("key_file_without_keys", path=file)
    return tuple(dict.fromkeys(key for _, key in keys))


def check_key(key: str, origin: str) -> None:
    """Raise `UsageError` if a key is too short or not valid in a header. The error does not contain the key."""
    if not _KEY_PATTERN.fullmatch(key) or len(key) < _MIN_KEY_LENGTH:
        raise UsageError("invalid_api_key", place=origin, min_length=_MIN_KEY_LENGTH)
