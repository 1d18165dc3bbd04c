"""Answers as server-sent events, as OpenAI sends them: chunks, and at the end [DONE]."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from pydantic_core import to_json
from starlette.responses import StreamingResponse

from attendo.serve.errors import refusal_of
from attendo.serve.openai.answering import Answering, Choice
from attendo.serve.openai.prompts import Prompt
from attendo.serve.openai.replies import Letterhead, Usage, usage_of

DONE = b"data: [DONE]\n\n"


async def streamed(
    answering: Answering, prompts: Sequence[Prompt], letterhead: Letterhead, with_usage: bool, path: str
) -> StreamingResponse:
    """What cannot be met is refused before it begins; trouble behind that is an event of its own, and the last one."""
    chunks = _chunks(answering, prompts, letterhead, with_usage)
    first = await anext(chunks)
    # Proxies would gather what is to be seen as it comes.
    headers = {"x-accel-buffering": "no"}
    return StreamingResponse(_events(first, chunks, path), media_type="text/event-stream", headers=headers)


async def _events(first: Any, chunks: AsyncGenerator[Any, None], path: str) -> AsyncIterator[bytes]:
    async with aclosing(chunks):
        yield _event(first)
        try:
            async for chunk in chunks:
                yield _event(chunk)
        except Exception as error:
            yield _event(refusal_of(error).content(path))
        yield DONE


async def _chunks(
    answering: Answering, prompts: Sequence[Prompt], letterhead: Letterhead, with_usage: bool
) -> AsyncGenerator[dict[str, Any], None]:
    """The prompts one after the other, told apart by their index."""
    nothing = {"usage": None} if with_usage else {}
    choices: list[Choice] = []
    for index, prompt in enumerate(prompts):
        begun = False
        async with aclosing(answering.stream(prompt)) as told:
            async for new in told:
                if not begun and letterhead.kind == "chatcmpl":
                    yield letterhead.chunk([_begin(index)]) | nothing
                begun = True
                if isinstance(new, str):
                    yield letterhead.chunk([_part(letterhead, index, new)]) | nothing
                else:
                    choices.append(new)
                    yield letterhead.chunk([_end(letterhead, index, new)]) | nothing
    if with_usage:
        usage: Usage = usage_of(answering.prompt_tokens(prompts), choices)
        yield letterhead.chunk([]) | {"usage": usage.model_dump()}


def _begin(index: int) -> dict[str, Any]:
    delta = {"role": "assistant", "content": ""}
    return {"index": index, "delta": delta, "finish_reason": None, "logprobs": None}


def _part(letterhead: Letterhead, index: int, text: str) -> dict[str, Any]:
    told = {"delta": {"content": text}} if letterhead.kind == "chatcmpl" else {"text": text}
    return {"index": index, **told, "finish_reason": None, "logprobs": None}


def _end(letterhead: Letterhead, index: int, choice: Choice) -> dict[str, Any]:
    told: dict[str, Any] = {"delta": {}} if letterhead.kind == "chatcmpl" else {"text": ""}
    return {"index": index, **told, "finish_reason": choice.finish_reason, "logprobs": None}


def _event(content: Any) -> bytes:
    # JSON has no bare line break, so one line of data holds all of it.
    return b"data: %b\n\n" % to_json(content)
