"""Every route of a server, with a plausible request for each."""

from typing import Any

from fastapi.routing import iter_route_contexts

from attendo.serve.app import Application

OPEN = {
    "/livez",
    "/readyz",
    "/health",
    "/metrics",
    "/",
    "/page/{path}",
    "/documentation/{path}",
    "/api/v1/openapi.json",
}


def list_routes(app: Application) -> list[tuple[str, str]]:
    """(method, path) of every route. Path parameters stay in braces."""
    inner: Any = app.app
    found = [
        (method, str(each.path).replace(":path}", "}"))
        for each in iter_route_contexts(inner.routes)
        for method in sorted(each.methods or ())
    ]
    return sorted(set(found))


def fill_path(path: str, value: str = "x") -> str:
    """The path with `value` for every parameter."""
    parts = [part.partition("}") for part in path.split("{")]
    return parts[0][0] + "".join(value + rest for _, _, rest in parts[1:])


def make_body(path: str, text: str, target: str = "zh") -> dict[str, Any]:
    """A body that clients of this API would send. It may have an extra field, which the API rejects."""
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
