"""A server whose every word is hostile: models, languages, checkpoints, pieces, answers, errors and metrics."""

import json
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from stub_server import trace_of

from attendo.serve.explorer import catalogue_routes
from attendo.serve.http.middleware import SECURITY_HEADERS

FAILS = "error:"  # a text that begins so is answered with an error that says the rest


def hostile_app(words: Sequence[str]) -> ASGIApp:
    """One model for each word. The headers are those of the real server."""
    app = FastAPI()
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "heads": 1, "parameters": 1, "has_training": True}

    @app.get("/api/v1/models")
    async def models() -> Any:
        told = [
            {"name": word, "direction": f"{word} → {word}", "checkpoints": [word], "samples": [word, f"2{word}"]}
            for word in words
        ]
        return {"models": [{**each, **sizes} for each in told]}

    @app.post("/api/v1/answer")
    async def answer(asked: Request) -> Response:
        text = (await asked.json())["text"]
        if text.startswith(FAILS):
            return _error(text.removeprefix(FAILS))
        token = {"piece": text, "log_probability": -0.5}
        best = {"text": text, "pieces": [text], "tokens": [token], "log_probability": -1.0, "score": -0.5}
        others = {"source": {"pieces": [text]}, "alternatives": [f"other {text}"], "unknown": [text]}
        events = (("text", {"text": text, "whole": text}), ("done", {"hypotheses": [best, best], **others}))
        stream = "".join(f"event: {name}\ndata: {json.dumps(content)}\n\n" for name, content in events)
        return Response(stream, media_type="text/event-stream")

    @app.post("/api/v1/trace")
    async def trace(asked: Request) -> Response:
        text = (await asked.json())["text"]
        if text.startswith(FAILS):
            return _error(text.removeprefix(FAILS))
        whole = json.dumps(trace_of(1, 1, 3)).replace('"w"', json.dumps(text))
        for n in range(3):
            whole = whole.replace(f'"w{n}"', json.dumps(text))
        return Response(whole.replace('"whole answer"', json.dumps(text)), media_type="application/json")

    @app.get("/api/v1/training")
    async def training() -> Any:
        steps = [{"step": n, "loss": 1 / n, "learning_rate": 0.1, "tokens": 9, "seconds": n} for n in (1, 2)]
        rows = [{"step": n, "loss": 1 / n, **{word: float(n) for word in words}} for n in (1, 2)]
        return {"metrics": steps, "validations": rows, "best": 2, "every": 1, "steps": 2}

    app.include_router(catalogue_routes.page_routes())
    return _with_headers(app)


def _error(text: str) -> JSONResponse:
    told = {"code": "bad_setting", "message": text, "message_zh": text, "choices": [text], "choices_zh": [text]}
    return JSONResponse({"error": {**told, "texts": [[text, text]]}}, 400)


def _with_headers(app: ASGIApp) -> ASGIApp:
    more = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items() if name != "cache-control"]

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        await app(scope, receive, sent)

    return answered
