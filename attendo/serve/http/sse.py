"""Server-sent events."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeVar

from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Send

from attendo.serve.http.errors import to_api_error

T = TypeVar("T")
Event = tuple[str, Any]  # name and data
Events = AsyncGenerator[Event, None]


class EventStream(StreamingResponse):
    """Event stream that closes its generator as soon as the client disconnects, not at garbage collection."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        assert isinstance(self.body_iterator, AsyncGenerator)
        async with aclosing(self.body_iterator):
            await super().stream_response(send)


def event_stream(events: Events) -> EventStream:
    """Return a stream of these events. A failure sends a last event `error` with the body of an error response."""
    return EventStream(_encode_events(events))


async def await_first(items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Wait for the first item of a stream, then return all. An earlier error becomes a response with its own status."""
    first = await anext(items)

    async def iterate_all() -> AsyncGenerator[T, None]:
        async with aclosing(items):
            yield first
            async for item in items:
                yield item

    return iterate_all()


async def _encode_events(events: Events) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        try:
            async for name, content in events:
                yield _encode_event(name, content)
        except Exception as error:
            yield _encode_event("error", to_api_error(error).content())


def _encode_event(name: str, content: Any) -> bytes:
    # JSON contains no raw line break, so one data line is enough.
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(content, inf_nan_mode="null"))
