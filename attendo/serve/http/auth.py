"""API keys: read from a file or the environment, and required of a request."""

import hmac
import re
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request

from attendo.errors import UsageError
from attendo.serve.http.errors import ApiError

if TYPE_CHECKING:
    from attendo.serve.scheduling.gateway import ModelGateway

_SCHEMES = ("bearer", "deepl-auth-key")
_MIN_KEY_LENGTH = 8
_KEY_PATTERN = re.compile(r"[!-~]+")  # what a header can carry


def require_key(gateway: "ModelGateway", key: str | None) -> None:
    """Lets pass, or raises a refusal. Where no keys are set, everybody passes, also with a key."""
    keys = gateway.settings.keys
    if not keys:
        return
    if not key:
        raise ApiError("no_key")
    given = key.encode(errors="surrogatepass")  # a body may hold half of a pair
    # All of them, each in a time that tells nothing: neither how much of a key is right nor which one it was.
    fitting = [hmac.compare_digest(given, each.encode()) for each in keys]
    if not any(fitting):
        raise ApiError("bad_key")


def bearer_token(request: Request) -> str | None:
    """The key in the headers: as OpenAI's and Hugging Face's clients send it, as DeepL's do, or in X-API-Key."""
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() in _SCHEMES and key.strip():
        return key.strip()
    return request.headers.get("x-api-key", "").strip() or None


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


def check_key(key: str, origin: str) -> None:
    """Whether it is one that a header can carry and nobody guesses; the key itself is not for a terminal."""
    if not _KEY_PATTERN.fullmatch(key) or len(key) < _MIN_KEY_LENGTH:
        raise UsageError("invalid_api_key", place=origin, min_length=_MIN_KEY_LENGTH)
