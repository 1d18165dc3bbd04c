"""The gate before a small application that has a path of each API and does what it is told."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Literal

from fastapi import FastAPI, Request
from pydantic import BaseModel, ConfigDict
from starlette.testclient import TestClient

from attendo.serve.http import metrics
from attendo.serve.http.access_log import LogFormatter
from attendo.serve.http.auth import bearer_token, require_key
from attendo.serve.http.errors import ApiError, ApiName, handle_errors
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.http.middleware import RequestGuard
from attendo.serve.settings import ServeSettings

PATHS: dict[ApiName, str] = {
    "ours": "/api/v1/small",
    "deepl": "/v2/translate",
    "openai": "/v1/chat/completions",
    "huggingface": "/hf/translation",
    "libretranslate": "/translate",
}
LOCAL = ("127.0.0.1", 50_000)


class Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = ""
    refuse: str = ""  # the code of a refusal
    fail: str = ""  # the message of an error that nobody expected


class SmallGate:
    """A guard with a client before it and an office behind it."""

    def __init__(self, client: tuple[str, int] = LOCAL, models: tuple[Any, ...] = (), **settings: Any) -> None:
        self.office: Any = SimpleNamespace(
            settings=ServeSettings(**settings),
            metrics=ServerMetrics(),
            draining=False,
            is_full=False,
            registry=SimpleNamespace(all=lambda: models),
        )
        app = FastAPI()
        for path in PATHS.values():
            app.post(path)(self._answer)
        app.get("/things/{name}")(self._thing)
        app.include_router(metrics.routes(self.office))
        handle_errors(app, ["text", "refuse", "fail"])
        self.app = RequestGuard(app, self.office)
        self.client = TestClient(self.app, base_url="http://localhost", client=client)

    async def _answer(self, request: Request, asked: Asked) -> dict[str, str]:
        require_key(self.office, bearer_token(request))
        if asked.refuse:
            values = {"waiting": 1, "most": 1, "host": "x", "detail": "x", "detail_zh": "x"}
            raise ApiError(asked.refuse, {"param": "text"}, name="nobody", known="small", **values)
        if asked.fail:
            raise ValueError(asked.fail)
        self.office.metrics.count_tokens("small", 3, 4)
        return {"text": asked.text}

    async def _thing(self, name: str) -> dict[str, str]:
        return {"name": name}

    def post(self, shape: ApiName = "ours", headers: dict[str, str] | None = None, **asked: str) -> Any:
        return self.client.post(PATHS[shape], json=asked, headers=headers)

    def numbers(self) -> dict[str, float]:
        """What the tally would tell, by names with labels."""
        lines = self.client.get("/metrics").text.splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}


@contextmanager
def written(kind: Literal["text", "json"] = "text", level: int = logging.DEBUG) -> Iterator[io.StringIO]:
    """What a server would write about itself: everything but the lines of the clients in this process."""
    lines, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(lines)
    handler.setFormatter(LogFormatter(kind))
    handler.addFilter(lambda record: not record.name.startswith(("httpx", "httpcore", "urllib3", "openai")))
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
