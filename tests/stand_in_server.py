"""A fake server for the load client, with faults that a test can switch on."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send


@dataclass
class StandIn:
    """Returns every text in capitals after `delay` seconds. More than `most` requests at a time get 429."""

    delay: float = 0.0
    most: int = 1000  # requests at a time
    status: int = 200
    wrong_when_busy: bool = False
    breaks_off: bool = False
    nonsense: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    left: int = 0  # clients that disconnected
    busy: int = 0
    busiest: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        fixed = {"/languages": [{"code": "en", "targets": ["zh", "de"]}, {"code": "de", "targets": ["en"]}]}
        fixed |= {"/v1/models": {"data": [{"id": "small"}]}, "/readyz": {"ready": True}}
        if scope["path"] in fixed:
            await _send_response(send, 200, json.dumps(fixed[scope["path"]]).encode())
        else:
            self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
            self.asked.append(json.loads(body))
            await self._work(scope["path"], self.asked[-1], receive, send)

    async def _work(self, path: str, request: dict[str, Any], receive: Receive, send: Send) -> None:
        if self.busy >= self.most:
            await _send_response(send, 429, b"{}")
            return
        self.busy += 1
        self.busiest = max(self.busy, self.busiest)
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            done, _ = await asyncio.wait({disconnect}, timeout=self.delay)
            if done:
                self.left += 1
            elif path == "/v1/chat/completions":
                await self._stream(request, send)
            else:
                await _send_response(send, self.status, json.dumps(self._make_body(path, request)).encode())
        finally:
            disconnect.cancel()
            self.busy -= 1

    def _make_body(self, path: str, request: dict[str, Any]) -> dict[str, Any]:
        if self.nonsense:
            return {}
        if path == "/translate":
            text = request["q"].upper()
            return {"translatedText": "wrong" if self.wrong_when_busy and self.busy > 1 else text}
        words = request["texts"][0].upper().split()
        return {"results": [{"text": " ".join(words), "ids": list(range(len(words)))}]}

    async def _stream(self, request: dict[str, Any], send: Send) -> None:
        words = request["messages"][0]["content"].upper().split()
        events: list[Any] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        events += [{"choices": [{"delta": {"content": f"{word} "}}]} for word in words]
        events += [{"choices": [], "usage": {"completion_tokens": len(words)}}]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for event in events:
            await send(_part(b"data: %b\n\n" % json.dumps(event).encode()))
            await asyncio.sleep(0.01)
        await send(_part(b"" if self.breaks_off else b"data: [DONE]\n\n", more=False))


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_response(send: Send, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"%d" % len(body))]})
    await send(_part(body, more=False))


def _part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


@contextmanager
def listening(stand_in: StandIn) -> Iterator[str]:
    """Run the server in a thread and yield its address."""
    config = uvicorn.Config(stand_in, port=0, lifespan="off", log_config=None, log_level="error", ws="none", http="h11")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.005)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
