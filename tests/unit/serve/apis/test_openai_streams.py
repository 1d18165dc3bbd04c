"""Streamed answers are the plain ones, bit by bit: to the last usage and [DONE], or to an error."""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from batcher_users import sentences
from both_ways import ENGLISH, asking
from hypothesis import given
from hypothesis import strategies as st
from real_server import on_a_port
from small_server import Asking, random_model
from sse import Streamed, streamed
from tiny import PATIENCE

from attendo.serve.apis.openai.completion import StopSequenceFilter
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"
WITH_USAGE = {"stream_options": {"include_usage": True}}


@pytest.fixture(scope="module")
def server() -> Asking:
    return asking()


def patient_model() -> TextModel:
    """Never says less than 400 tokens."""
    generation = {"min_length_extra": 400, "max_length_factor": 0.0, "max_length_extra": 400}
    return TextModel(replace(random_model().stored_model, generation=generation))


def of_user(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def check_equal(server: Asking, text: str, **fields: Any) -> Streamed:
    """S15: chunks joined are the plain text, and all that is told with it is the same."""
    asked = {"model": "forth", **of_user(text), **fields}
    plain = server.client.post(CHAT, json=asked).json()
    told = streamed(server, CHAT, **asked, **WITH_USAGE)
    (choice,) = plain["choices"]
    assert told.text() == choice["message"]["content"]
    assert told.reasons() == [choice["finish_reason"]]
    assert told.usage == plain["usage"]
    assert told.usage["total_tokens"] == told.usage["prompt_tokens"] + told.usage["completion_tokens"]
    return told


def test_chunks_joined_are_the_plain_text(server: Asking) -> None:
    for text in [*sentences(4), f"{ENGLISH}. the cat sat.\n\n 7 \na dog ran home", "", " "]:
        check_equal(server, text)


@pytest.mark.slow
def test_S15_two_hundred_streams_are_the_plain_texts(server: Asking) -> None:
    texts = sentences(200)
    assert len(texts) == 200
    for number, text in enumerate(texts):
        fields = ({}, {"temperature": 1, "seed": number}, {"max_tokens": 3}, {"stop": ["着", "猫 家"]})[number % 4]
        check_equal(server, text, **fields)


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
def test_whatever_ends_it_both_are_the_same(server: Asking, fields: dict[str, Any]) -> None:
    for text in (ENGLISH, "the cat sat. a dog ran home. I love NLP"):
        check_equal(server, text, **fields)


def test_a_beam_streams_too() -> None:
    model = TextModel(replace(random_model(3).stored_model, generation={"beam": 4, "max_length_extra": 6}))
    server = Asking(ModelSpec("forth", model))
    for text in sentences(2):
        check_equal(server, text)


def test_the_first_chunk_has_the_role_and_the_last_a_reason(server: Asking) -> None:
    told = streamed(server, CHAT, model="forth", **of_user(ENGLISH))
    first, *_, last = told.chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert last["choices"][0]["delta"] == {}
    assert told.reasons() == [last["choices"][0]["finish_reason"]]
    assert len({chunk["id"] for chunk in told.chunks}) == 1
    assert {chunk["object"] for chunk in told.chunks} == {"chat.completion.chunk"}
    assert all("usage" not in chunk for chunk in told.chunks)


def test_prompts_are_told_apart_by_their_index(server: Asking) -> None:
    prompts = [ENGLISH, "the cat sat"]
    plain = server.client.post(COMPLETE, json={"model": "forth", "prompt": prompts}).json()
    told = streamed(server, COMPLETE, model="forth", prompt=prompts, **WITH_USAGE)
    assert [told.text(0), told.text(1)] == [each["text"] for each in plain["choices"]]
    assert told.usage == plain["usage"]
    assert {chunk["object"] for chunk in told.chunks} == {"text_completion"}


def test_what_cannot_be_met_is_refused_by_its_status(server: Asking) -> None:
    too_long = {"model": "forth", "stream": True, **of_user("a" * 5_001)}
    assert server.client.post(CHAT, json=too_long).status_code == 413
    unknown = {"model": "none", "stream": True, **of_user("a")}
    assert server.client.post(CHAT, json=unknown).status_code == 404


def test_an_error_on_the_way_is_the_last_event() -> None:
    for seconds in (0.5, 2.0, 8.0, 32.0):  # on a busy machine the first word takes longer
        server = Asking(ModelSpec("slow", patient_model()), settings=ServeSettings(deadline_seconds=seconds))
        told = streamed(server, CHAT, **of_user(ENGLISH))
        if told.text():
            break
    assert told.text()
    assert told.reasons() == []
    assert told.chunks[-1]["error"]["code"] == "too_late"
    assert told.chunks[-1]["error"]["type"] == "server_error"
    assert not told.is_done


def test_a_stream_is_not_held_back_and_ends_with_its_client() -> None:
    server = Asking(ModelSpec("slow", patient_model()))
    batcher = server.app.gateway.registry.all()[0].worker
    with on_a_port(server.app) as address:
        host, port = address.removeprefix("http://").split(":")
        body = json.dumps({"stream": True, **of_user(ENGLISH)})
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json"
            connection.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            received = b""
            while received.count(b"data: ") < 3:
                received += connection.recv(4096)
            assert b"[DONE]" not in received
            assert batcher.num_running == 1
        _until(lambda: batcher.num_running == 0)


def _until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.01)


@given(st.text("ab", max_size=20), st.lists(st.text("ab", min_size=1, max_size=4), max_size=4), st.data())
def test_a_text_ends_at_the_first_stop_however_it_is_cut(text: str, sequences: list[str], data: st.DataObject) -> None:
    stops, told = StopSequenceFilter(sequences), ""
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    for begin, end in zip([0, *places], [*places, len(text)], strict=True):
        told += stops.push(text[begin:end])
        shown = min((text[:end].find(each) for each in sequences if each in text[:end]), default=end)
        assert text[:shown].startswith(told)
    told += stops.flush()
    found = [text.find(each) for each in sequences if each in text]
    assert told == text[: min(found, default=len(text))]
    assert stops.reached == bool(found)


def test_what_can_be_told_is_told_at_once() -> None:
    stops = StopSequenceFilter(["stop", "."])
    assert [stops.push(each) for each in ("a s", "to", "ne s", "top b")] == ["a ", "", "stone ", ""]
    assert stops.reached
    assert stops.flush() == ""
    held = StopSequenceFilter(["stop"])
    assert held.push("sto") + held.flush() == "sto"
