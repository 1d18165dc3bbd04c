"""Every route of a server, as requests that could be meant."""

from typing import Any

from fastapi.routing import iter_route_contexts

from attendo.serve.http.middleware import RequestGuard

OPEN = {"/livez", "/readyz", "/health", "/metrics", "/", "/page/{path}", "/api/v1/openapi.json"}


def routes_of(app: RequestGuard) -> list[tuple[str, str]]:
    """(method, path) with names in braces for what differs."""
    inside: Any = app.app
    found = [
        (method, str(each.path).replace(":path}", "}"))
        for each in iter_route_contexts(inside.routes)
        for method in sorted(each.methods or ())
    ]
    return sorted(set(found))


def filled(path: str, value: str = "x") -> str:
    """With `value` for every name in braces."""
    parts = [part.partition("}") for part in path.split("{")]
    return parts[0][0] + "".join(value + rest for _, _, rest in parts[1:])


def body_of(path: str, text: str, target: str = "zh") -> dict[str, Any]:
    """What its own clients would send to this path, and a little more; a field too many is refused, which is fine."""
    if path.startswith("/v2/"):
        return {"text": [text], "target_lang": target.upper(), "document_key": "x"}
    if path == "/v1/chat/completions":
        return {"model": "forth", "messages": [{"role": "user", "content": text}], "max_tokens": 4}
    if path == "/v1/completions":
        return {"model": "forth", "prompt": text, "max_tokens": 4}
    if path == "/api/v1/generate":
        return {"texts": [text]}
    if path == "/api/v1/score":
        return {"pairs": [{"source": text, "target": text}]}
    if path.startswith("/api/"):
        return {"text": text}
    if path in ("/", "/hf") or path.startswith("/hf/"):
        return {"inputs": text}
    return {"q": text, "source": "en", "target": target}
