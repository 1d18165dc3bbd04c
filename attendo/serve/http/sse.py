"""Server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Send

from attendo.serve.http.errors import to_api_error

T = TypeVar("T")
Event = tuple[str, Any]  # name and data
Events = AsyncGenerator[Event, None]


class EventStream(StreamingResponse):
    """Event stream that ends its request as soon as the client disconnects, not at garbage collection."""

    media_type = "text/event-stream"

    def __init__(
        self,
        body: AsyncGenerator[bytes, None],
        source: "Closable",
        status_code: int = 200,  # FastAPI reads this default for the OpenAPI description
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`source` is the stream that `body` reads. A generator that has not started does not close what it reads."""
        super().__init__(body, status_code, headers)
        self._source = source

    async def stream_response(self, send: Send) -> None:
        assert isinstance(self.body_iterator, AsyncGenerator)
        async with aclosing(self._source), aclosing(self.body_iterator):
            await super().stream_response(send)


class Closable(Protocol):
    async def aclose(self) -> None: ...


class PrefetchedStream(AsyncIterator[T]):
    """A stream whose first item has arrived. Closing it closes the stream, even if no item was read."""

    def __init__(self, first: T, rest: AsyncGenerator[T, None]) -> None:
        self._pending, self._rest = [first], rest

    async def __anext__(self) -> T:
        return self._pending.pop() if self._pending else await anext(self._rest)

    async def aclose(self) -> None:
        await self._rest.aclose()


async def await_first(items: AsyncGenerator[T, None]) -> PrefetchedStream[T]:
    """Wait for the first item of a stream, then return all. An earlier error becomes a response with its own status."""
    return PrefetchedStream(await anext(items), items)


def event_stream(events: PrefetchedStream[Event]) -> EventStream:
    """Return a stream of these events. A failure sends a last event `error` with the body of an error response."""
    return EventStream(_encode_events(events), events)


async def _encode_events(events: AsyncIterator[Event]) -> AsyncGenerator[bytes, None]:
    try:
        async for name, content in events:
            yield _encode_event(name, content)
    except Exception as error:
        yield _encode_event("error", to_api_error(error).content())


def _encode_event(name: str, content: Any) -> bytes:
    # JSON contains no raw line break, so one data line is enough.
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(content, inf_nan_mode="null"))
