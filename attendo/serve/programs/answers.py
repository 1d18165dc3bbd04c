"""/generate: answers to texts, with every option of decoding, batched with whatever else is asked of the model."""

import asyncio
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from attendo.serve.continuations import added_bits, without_text
from attendo.serve.errors import Refusal, answer
from attendo.serve.events import Events, begun, event_stream
from attendo.serve.office import Office
from attendo.serve.openapi import OF_MODELS, events_or, refusals
from attendo.serve.programs.replies import GenerateReply
from attendo.serve.programs.requests import GenerateRequest
from attendo.serve.shelf import Served
from attendo.serve.strict_json import StrictRoute
from attendo.text_model import Result
from attendo.text_model.plain import plain_result


def routes(office: Office) -> APIRouter:
    router = APIRouter(route_class=StrictRoute, tags=["programs"])

    @router.post(
        "/generate",
        response_model=None,
        responses={
            **refusals("ours", *OF_MODELS, "too_many_texts", "alignments_too_large"),
            **events_or(GenerateReply),
        },
    )
    async def generate(asked: GenerateRequest) -> Response:
        """Answers to texts, in their order. Settings are the model's own unless given."""
        if asked.stream:
            # What cannot be meant is refused before the stream begins.
            return event_stream(await begun(_events(office, asked)))
        served = office.served(asked.model)
        results = await office.answer(served, asked.texts, **asked.given())
        if asked.alignments:  # up to two million numbers: while they are written down, others are answered
            return await asyncio.to_thread(lambda: answer(_whole(served, results, asked)))
        return answer(_whole(served, results, asked))

    return router


async def _events(office: Office, asked: GenerateRequest) -> Events:
    """What is new of the text each time, then all that an answer without a stream would have told."""
    if len(asked.texts) != 1:
        raise Refusal("one_text_a_stream", count=len(asked.texts))
    served, found = office.served(asked.model), list[Result]()
    async with aclosing(office.stream(served, asked.texts[0], done=found.append, **asked.given())) as streamed:
        parts = streamed if asked.echo else added_bits(served.model, asked.texts[0], streamed)
        async with aclosing(parts):
            async for new in parts:
                yield "text", {"text": new}
    yield "done", _whole(served, found, asked)


def _whole(served: Served, results: list[Result], asked: GenerateRequest) -> dict[str, Any]:
    several = asked.n_best is not None
    told = results if asked.echo else [without_text(served.model, each) for each in results]
    return {"model": served.name, "results": [plain_result(each, several) for each in told]}
