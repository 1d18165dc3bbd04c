"""Server-sent events: answers that come bit by bit."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Send

from attendo.serve.http.errors import to_api_error

Event = tuple[str, Any]  # its name and what it tells


Events = AsyncGenerator[Event, None]


class EventStream(StreamingResponse):
    """Whoever leaves while something is being sent ends the work at once, not when the memory is swept."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        assert isinstance(self.body_iterator, AsyncGenerator)
        async with aclosing(self.body_iterator):
            await super().stream_response(send)


def event_stream(events: Events) -> EventStream:
    """Trouble on the way is the last event, named `error`, with what an answer that failed would have held."""
    return EventStream(_encode_events(events))


async def await_first_event(events: Events) -> Events:
    """The same, once the first has come: what is refused before it is an answer of its own, with its own status."""
    first = await anext(events)

    async def all_of_them() -> Events:
        async with aclosing(events):
            yield first
            async for event in events:
                yield event

    return all_of_them()


async def _encode_events(events: Events) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        try:
            async for name, content in events:
                yield _encode_event(name, content)
        except Exception as error:
            yield _encode_event("error", to_api_error(error).content())


def _encode_event(name: str, content: Any) -> bytes:
    # JSON has no bare line break, so one line of data holds all of it.
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(content, inf_nan_mode="null"))
