"""Which pages of other servers may ask from a browser: none, unless the settings name them."""

from collections.abc import Iterable, Mapping

from attendo.serve.settings import ServeSettings

# Authorization must be named: the star leaves it out.
_ALLOWED = {
    "access-control-allow-methods": "GET, HEAD, POST",
    "access-control-allow-headers": "Authorization, *",
    "access-control-max-age": "600",
}
_SHOWN = {"access-control-expose-headers": "X-Request-ID, Retry-After"}


def cors_headers(settings: ServeSettings, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """For the answer to a request with these headers.

    Credentials are never allowed: keys are sent by whoever knows them, so no page can use those of its visitors.
    """
    if not settings.cors_origins:
        return {}
    every = "*" in settings.cors_origins
    vary = {} if every else {"vary": "Origin"}  # lest a cache hand the answer for one page to another
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    if len(origins) != 1 or not (every or origins[0] in settings.cors_origins):
        return vary
    return {"access-control-allow-origin": "*" if every else origins[0], **vary, **_SHOWN}


def preflight(method: str, headers: Iterable[tuple[bytes, bytes]], allowed: Mapping[str, str]) -> dict[str, str] | None:
    """What a browser that asks first is told; None where this is no such request, or nothing is allowed."""
    asks = method == "OPTIONS" and any(name == b"access-control-request-method" for name, _ in headers)
    return dict(_ALLOWED) if asks and "access-control-allow-origin" in allowed else None
