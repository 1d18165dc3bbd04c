"""Streamed responses equal plain ones, including the usage, and end with [DONE] or an error."""

import asyncio
import gc
import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_server import serve_on_port
from small_server import SmallServer, long_model, random_model
from sse import StreamedResponse, post_stream
from three_models import ENGLISH, make_server
from tiny import PATIENCE
from worker_helpers import make_sentences, run_with_worker, wait_until

from attendo.serve.apis.openai.completion import StopSequenceFilter
from attendo.serve.app import create_app
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
WITH_USAGE = {"stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server()


def chat_body(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def check_stream(server: SmallServer, text: str, **fields: Any) -> StreamedResponse:
    """S15: the joined chunks, the finish reason and the usage equal those of the plain response."""
    body = {"model": "forth", **chat_body(text), **fields}
    plain = server.client.post(CHAT, json=body).json()
    stream = post_stream(server, CHAT, **body, **WITH_USAGE)
    (choice,) = plain["choices"]
    assert stream.text() == choice["message"]["content"]
    assert stream.reasons() == [choice["finish_reason"]]
    assert stream.usage == plain["usage"]
    assert stream.usage["total_tokens"] == stream.usage["prompt_tokens"] + stream.usage["completion_tokens"]
    return stream


def test_joined_chunks_equal_the_plain_text(server: SmallServer) -> None:
    for text in [*make_sentences(4), f"{ENGLISH}. the cat sat.\n\n 7 \na dog ran home", "", " "]:
        check_stream(server, text)


@pytest.mark.slow
def test_S15_two_hundred_streams_equal_plain_texts(server: SmallServer) -> None:
    texts = make_sentences(200)
    assert len(texts) == 200
    for number, text in enumerate(texts):
        fields = ({}, {"temperature": 1, "seed": number}, {"max_tokens": 3}, {"stop": ["着", "猫 家"]})[number % 4]
        check_stream(server, text, **fields)


@pytest.mark.short(2)
@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": 1.3, "top_p": 0.95, "seed": 11},
        {"max_tokens": 3},
        {"max_tokens": 9},
        {"max_tokens": 60},
        {"stop": ["着 着", "家"]},
        {"model": "back", "stop": ["the"]},
    ],
)
def test_streams_equal_plain_texts_with_options(server: SmallServer, fields: dict[str, Any]) -> None:
    for text in (ENGLISH, "the cat sat. a dog ran home. I love NLP"):
        check_stream(server, text, **fields)


def test_a_beam_can_be_streamed() -> None:
    model = TextModel(replace(random_model(3).stored_model, generation={"beam": 4, "max_length_extra": 6}))
    server = SmallServer(ModelSpec("forth", model))
    for text in make_sentences(2):
        check_stream(server, text)


def test_the_first_chunk_has_a_role_and_the_last_a_reason(server: SmallServer) -> None:
    stream = post_stream(server, CHAT, model="forth", **chat_body(ENGLISH))
    first, *_, last = stream.chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["delta"] == {}
    assert stream.reasons() == [last["choices"][0]["finish_reason"]]
    assert len({chunk["id"] for chunk in stream.chunks}) == 1
    assert {chunk["object"] for chunk in stream.chunks} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in stream.chunks)


def test_chunks_have_the_index_of_their_prompt(server: SmallServer) -> None:
    prompts = [ENGLISH, "the cat sat"]
    plain = server.client.post(COMPLETE, json={"model": "forth", "prompt": prompts}).json()
    stream = post_stream(server, COMPLETE, model="forth", prompt=prompts, **WITH_USAGE)
    assert [stream.text(0), stream.text(1)] == [each["text"] for each in plain["choices"]]
    assert stream.usage == plain["usage"]
    assert {chunk["object"] for chunk in stream.chunks} == {"text_completion"}


def test_bad_streaming_requests_get_an_error_status(server: SmallServer) -> None:
    too_long = {"model": "forth", "stream": True, **chat_body("a" * 5_001)}
    assert server.client.post(CHAT, json=too_long).status_code == 413
    unknown = {"model": "none", "stream": True, **chat_body("a")}
    assert server.client.post(CHAT, json=unknown).status_code == 404


def test_an_error_while_streaming_is_the_last_event() -> None:
    for seconds in (0.5, 2.0, 8.0, 32.0):  # the first word takes longer on a busy machine
        settings = ServeSettings(deadline_seconds=seconds, max_output_tokens=5_000)
        server = SmallServer(ModelSpec("slow", long_model(5_000)), settings=settings)
        stream = post_stream(server, CHAT, **chat_body(ENGLISH))
        if stream.text():
            break
    assert stream.text()
    assert stream.reasons() == []
    assert stream.chunks[-1]["error"]["code"] == "too_late"
    assert stream.chunks[-1]["error"]["type"] == "server_error"
    assert not stream.is_done


def test_chunks_are_sent_at_once_and_end_on_disconnect() -> None:
    settings = ServeSettings(deadline_seconds=PATIENCE, max_output_tokens=1_000)
    server = SmallServer(ModelSpec("slow", long_model(1_000)), settings=settings)
    worker = server.app.gateway.registry.all()[0].worker
    with serve_on_port(server.app) as address:
        host, port = address.removeprefix("http://").split(":")
        body = json.dumps({"stream": True, **chat_body(ENGLISH)})
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json"
            connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            received = b""
            while received.count(b"data: ") < 3:
                received += connection.recv(4096)
            assert b"[DONE]" not in received
            assert worker.num_running == 1
        _wait_until(lambda: worker.num_running == 0)


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "the condition was never met"
        time.sleep(0.01)


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=4), st.data())
def test_text_ends_at_the_first_stop_for_any_chunks(text: str, sequences: list[str], data: st.DataObject) -> None:
    stops, emitted = StopSequenceFilter(sequences), ""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        emitted += stops.push(text[begin:end])
        visible = min((text[:end].find(each) for each in sequences if each in text[:end]), default=end)
        assert text[:visible].startswith(emitted)
    emitted += stops.flush()
    found = [text.find(each) for each in sequences if each in text]
    assert emitted == text[: min(found, default=len(text))]
    assert stops.reached == bool(found)


def test_stop_filter_emits_safe_text_at_once() -> None:
    stops = StopSequenceFilter(["stop", "."])
    assert [stops.push(each) for each in ("a s", "to", "ne s", "top b")] == ["a ", "", "stone ", ""]
    assert stops.reached
    assert stops.flush() == ""
    pending = StopSequenceFilter(["stop"])
    assert pending.push("sto") + pending.flush() == "sto"


@pytest.mark.parametrize("disconnect_at", [1, 2, 4])  # 1: after the headers, before the first chunk is sent
def test_a_disconnect_ends_the_request_without_garbage_collection(disconnect_at: int) -> None:
    limits = ServeSettings(max_output_tokens=20_000, deadline_seconds=3000)  # the answer itself takes far too long
    app = create_app([ModelSpec("slow", long_model(20_000))], limits)
    worker = app.gateway.registry.all()[0].worker
    body = json.dumps({"model": "slow", "stream": True, **chat_body("the cat sat")}).encode()
    scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": CHAT, "raw_path": CHAT.encode()}
    scope |= {
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 1),
    }
    scope["headers"] = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    sent: list[Any] = []

    async def work() -> None:
        disconnected, messages = asyncio.Event(), [{"type": "http.request", "body": body}]

        async def receive() -> dict[str, Any]:
            if messages:
                return messages.pop()
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) == disconnect_at:
                assert worker.num_running == 1
                disconnected.set()
                await asyncio.sleep(PATIENCE)  # the response is cancelled here

        await app(scope, receive, send)
        await wait_until(lambda: worker.num_running == 0)

    gc.disable()
    try:
        run_with_worker(worker, work())
    finally:
        gc.enable()
    assert len(sent) == disconnect_at
