"""A server that puts hostile text into models, languages, checkpoints, pieces, outputs, errors and metrics."""

import json
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from stub_server import make_trace

from attendo.serve.explorer import catalogue_routes
from attendo.serve.http.middleware import SECURITY_HEADERS

FAILS = "error:"  # a text with this prefix is answered with an error whose message is the rest


def hostile_app(words: Sequence[str]) -> ASGIApp:
    """An app with one model per word and the headers of the real server."""
    app = FastAPI()
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "heads": 1, "parameters": 1, "has_training": True}

    @app.get("/api/v1/models")
    async def models() -> Any:
        named = [
            {"name": word, "direction": f"{word} → {word}", "checkpoints": [word], "samples": [word, f"2{word}"]}
            for word in words
        ]
        return {"models": [{**each, **sizes} for each in named]}

    @app.post("/api/v1/answer")
    async def answer(request: Request) -> Response:
        text = (await request.json())["text"]
        if text.startswith(FAILS):
            return _error(text.removeprefix(FAILS))
        token = {"piece": text, "log_probability": -0.5}
        best = {"text": text, "pieces": [text], "tokens": [token], "log_probability": -1.0, "score": -0.5}
        others = {"source": {"pieces": [text]}, "alternatives": [f"other {text}"], "unknown": [text]}
        events = (("text", {"text": text, "whole": text}), ("done", {"hypotheses": [best, best], **others}))
        stream = "".join(f"event: {name}\ndata: {json.dumps(content)}\n\n" for name, content in events)
        return Response(stream, media_type="text/event-stream")

    @app.post("/api/v1/trace")
    async def trace(request: Request) -> Response:
        text = (await request.json())["text"]
        if text.startswith(FAILS):
            return _error(text.removeprefix(FAILS))
        body = json.dumps(make_trace(1, 1, 3)).replace('"w"', json.dumps(text))
        for n in range(3):
            body = body.replace(f'"w{n}"', json.dumps(text))
        return Response(body.replace('"whole answer"', json.dumps(text)), media_type="application/json")

    @app.get("/api/v1/training")
    async def training() -> Any:
        steps = [{"step": n, "loss": 1 / n, "learning_rate": 0.1, "tokens": 9, "seconds": n} for n in (1, 2)]
        rows = [{"step": n, "loss": 1 / n, **{word: float(n) for word in words}} for n in (1, 2)]
        return {"metrics": steps, "validations": rows, "best": 2, "every": 1, "steps": 2}

    app.include_router(catalogue_routes.page_routes())
    return _with_headers(app)


def _error(text: str) -> JSONResponse:
    error = {"code": "bad_setting", "message": text, "message_zh": text, "choices": [text], "choices_zh": [text]}
    return JSONResponse({"error": {**error, "texts": [[text, text]]}}, 400)


def _with_headers(app: ASGIApp) -> ASGIApp:
    more = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items() if name != "cache-control"]

    async def with_headers(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await app(scope, receive, send_with_headers)

    return with_headers
