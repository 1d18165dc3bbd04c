"""Who may ask: everybody, or whoever has one of the keys that the settings name."""

import hmac
from typing import TYPE_CHECKING

from starlette.requests import Request

from attendo.serve.errors import Refusal

if TYPE_CHECKING:
    from attendo.serve.office import Office

_SCHEMES = ("bearer", "deepl-auth-key")


def admitted(office: "Office", key: str | None) -> None:
    """Lets pass, or raises a refusal. Where no keys are set, everybody passes, also with a key."""
    keys = office.settings.keys
    if not keys:
        return
    if not key:
        raise Refusal("no_key")
    given = key.encode(errors="surrogatepass")  # a body may hold half of a pair
    # All of them, each in a time that tells nothing: neither how much of a key is right nor which one it was.
    fitting = [hmac.compare_digest(given, each.encode()) for each in keys]
    if not any(fitting):
        raise Refusal("bad_key")


def bearer(request: Request) -> str | None:
    """The key in the headers: as OpenAI's and Hugging Face's clients send it, as DeepL's do, or in X-API-Key."""
    scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
    if scheme.lower() in _SCHEMES and key.strip():
        return key.strip()
    return request.headers.get("x-api-key", "").strip() or None
