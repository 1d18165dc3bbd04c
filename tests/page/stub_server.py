"""A server that breaks streams on request and sends attention maps of any size."""

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse

from attendo.serve.explorer import catalogue_routes

CSP = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data: blob:"
ANSWER = {
    "source": {"pieces": ["a"]},
    "hypotheses": [
        {"text": "whole answer", "pieces": ["whole", "answer"], "tokens": [], "log_probability": -1.0, "score": -0.5}
    ],
    "alternatives": [],
}


class Stub:
    """The next `breaks` streams end in the middle. `layers`, `heads` and `tokens` are the sizes of the maps."""

    def __init__(self, layers: int = 1, heads: int = 1, tokens: int = 4) -> None:
        self.layers, self.heads, self.tokens = layers, heads, tokens
        self.breaks = 0
        self.max_words = 10**9
        self.app = FastAPI()
        self.app.get("/api/v1/models")(self.models)
        self.app.post("/api/v1/answer")(self.answer)
        self.app.post("/api/v1/trace")(self.trace)
        self.app.include_router(catalogue_routes.page_routes())

    async def models(self) -> dict[str, Any]:
        sizes = {"encoder_layers": self.layers, "decoder_layers": self.layers, "heads": self.heads, "parameters": 1}
        return {"models": [{"name": "stub", "checkpoints": [], "has_training": False, "samples": ["a b"], **sizes}]}

    async def answer(self) -> StreamingResponse:
        async def events() -> AsyncIterator[str]:
            yield 'event: text\ndata: {"text": "whole", "whole": "whole"}\n\n'
            if self.breaks:
                self.breaks -= 1
                await asyncio.sleep(0.2)
                raise ConnectionError("the power is gone")
            yield f"event: done\ndata: {json.dumps(ANSWER)}\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")

    async def trace(self, request: Request) -> JSONResponse:
        """Random weights. A text with more than `max_words` words is rejected as by the real server."""
        words = (await request.json())["text"].split()
        if len(words) > self.max_words:
            error = {"code": "too_long", "message": "the source is too long", "message_zh": "源句太长"}
            choices = {"choices": [f"first {self.max_words} tokens"], "choices_zh": [f"前 {self.max_words} 个词元"]}
            return JSONResponse({"error": {**error, **choices, "texts": [" ".join(words[: self.max_words])]}}, 413)
        return JSONResponse(make_trace(self.layers, self.heads, self.tokens))


def make_trace(layers: int, heads: int, tokens: int) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    shape = (layers, heads, tokens, tokens)
    maps, parts = {}, []
    for number, kind in enumerate(("encoder_self", "decoder_self", "cross")):
        weights = draw.random(shape) ** 8
        parts.append((weights / weights.sum(-1, keepdims=True)).astype("<f2").tobytes())
        maps[kind] = {"shape": shape, "offset": number * int(np.prod(shape)), "layers": list(range(layers))}
    pieces, words = [f"w{n}" for n in range(tokens)], [[n] for n in range(tokens)]
    token = {"piece": "w", "log_probability": -0.1, "entropy": 0.5}
    numbers = [[dict.fromkeys(("entropy", "distance", "diagonality", "special"), 0.5)] * heads] * layers
    return {
        "source": {"pieces": pieces, "words": words},
        "first": 0,
        "target": {
            **dict.fromkeys(("read", "predicted", "rows"), pieces),
            **dict.fromkeys(("words", "read_words", "row_words"), words),
        },
        "text": "whole answer",
        "log_probability": -1.0,
        "loss": 0.1,
        "tokens": [token] * tokens,
        "maps": {"dtype": "float16", "layers": list(range(layers)), **maps},
        "block": base64.b64encode(b"".join(parts)).decode(),
        "numbers": dict.fromkeys(maps, numbers),
        "rollout": {"shape": shape[2:], "values": [1 / tokens] * tokens**2},
    }


def half(bits: int) -> float:
    """The float16 number with these 16 bits."""
    return float(struct.unpack("<e", struct.pack("<H", bits))[0])
