"""Parses event streams in OpenAI's format."""

import json
from typing import Any

from small_server import SmallServer


class StreamedResponse:
    """A stream that was read to its end, which is [DONE] or an error. `text` joins the chunks of one choice."""

    def __init__(self, body: str) -> None:
        lines = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
        assert body.endswith("\n\n")
        self.is_done = lines[-1] == "[DONE]"
        self.chunks: list[dict[str, Any]] = [json.loads(line) for line in lines[: -1 if self.is_done else None]]
        assert self.is_done != ("error" in self.chunks[-1])

    def text(self, index: int = 0) -> str:
        return "".join(
            choice["delta"].get("content", "") if "delta" in choice else choice["text"]
            for choice in self._choices(index)
        )

    def reasons(self, index: int = 0) -> list[str]:
        return [choice["finish_reason"] for choice in self._choices(index) if choice["finish_reason"]]

    @property
    def usage(self) -> Any:
        *others, last = self.chunks
        assert all(chunk["usage"] is None for chunk in others)
        assert last["choices"] == []
        return last["usage"]

    def _choices(self, index: int) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices", ()) if choice["index"] == index]


def post_stream(server: SmallServer, path: str, **fields: Any) -> StreamedResponse:
    response = server.client.post(path, json={**fields, "stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return StreamedResponse(response.text)
