"""A `RequestGuard` in front of a small application with one path per API."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict
from starlette.testclient import TestClient

from attendo.serve.http.access_log import LogFormatter
from attendo.serve.http.auth import bearer_token, require_key
from attendo.serve.http.errors import ApiError, ApiName, handle_errors
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.scheduling import monitoring
from attendo.serve.settings import ServeSettings

PATHS: dict[ApiName, str] = {
    "ours": "/api/v1/small",
    "deepl": "/v2/translate",
    "openai": "/v1/chat/completions",
    "huggingface": "/hf/translation",
    "libretranslate": "/translate",
}
LOCAL = ("127.0.0.1", 50_000)


class EchoRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = ""
    refuse: str = ""  # code of an error to raise
    fail: str = ""  # message of an unexpected exception


class GuardedApp:
    """A guard with a test client and a stub gateway."""

    def __init__(self, client: tuple[str, int] = LOCAL, models: tuple[Any, ...] = (), **settings: Any) -> None:
        self.gateway: Any = SimpleNamespace(
            settings=ServeSettings(**settings),
            metrics=ServerMetrics(),
            draining=False,
            is_full=False,
            registry=SimpleNamespace(all=lambda: models),
        )
        app = FastAPI()
        for path in PATHS.values():
            app.post(path)(self._echo)
        app.get("/things/{name}")(self._get_thing)
        app.include_router(monitoring.routes(self.gateway))
        handle_errors(app, ["text", "refuse", "fail"])
        self.app = RequestGuard(app, self.gateway)
        self.client = TestClient(self.app, base_url="http://localhost", client=client)

    async def _echo(self, request: Request, body: EchoRequest) -> dict[str, str]:
        require_key(self.gateway.settings.keys, bearer_token(request))
        if body.refuse:
            values = {"waiting": 1, "most": 1, "host": "x", "detail": "x", "detail_zh": "x"}
            raise ApiError(body.refuse, {"param": "text"}, name="nobody", known="small", **values)
        if body.fail:
            raise ValueError(body.fail)
        self.gateway.metrics.count_tokens("small", 3, 4)
        return {"text": body.text}

    async def _get_thing(self, name: str) -> dict[str, str]:
        return {"name": name}

    def post(self, api: ApiName = "ours", headers: dict[str, str] | None = None, **fields: str) -> Any:
        return self.client.post(PATHS[api], json=fields, headers=headers)

    def metric_values(self) -> dict[str, float]:
        """The value of every metric, by name with labels."""
        lines = self.client.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


@contextmanager
def capture_log(log_format: Literal["text", "json"] = "text", level: int = logging.DEBUG) -> Iterator[io.StringIO]:
    """Captures the log of the server, without the records of HTTP clients in this process."""
    lines, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(LogFormatter(log_format))
    handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore", "urllib3", "openai")))
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
