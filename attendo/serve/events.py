"""Server-sent events: answers that come bit by bit."""

from collections.abc import AsyncIterator
from typing import Any

from pydantic_core import to_json
from starlette.responses import StreamingResponse

from attendo.serve.errors import refusal_of

Event = tuple[str, Any]  # its name and what it tells


def event_stream(events: AsyncIterator[Event]) -> StreamingResponse:
    """Trouble on the way is the last event, named `error`, with what an answer that failed would have held."""
    return StreamingResponse(_written(events), media_type="text/event-stream")


async def _written(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    try:
        async for name, content in events:
            yield _line(name, content)
    except Exception as error:
        yield _line("error", refusal_of(error).content())


def _line(name: str, content: Any) -> bytes:
    # JSON has no bare line break, so one line of data holds all of it.
    return b"event: %b\ndata: %b\n\n" % (name.encode(), to_json(content, inf_nan_mode="null"))
