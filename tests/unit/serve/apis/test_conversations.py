"""Conversations: turns joined as the model learned to read them, whole and streamed, asked by real clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from piped import QUIET, TURNS, answering
from real_server import on_a_port
from small_server import Asking
from sse import Streamed

import attendo
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard

CHAT = "/v1/chat/completions"
ROLES = ("user", "assistant", "user", "assistant")
MESSAGES: Any = [{"role": role, "content": text} for role, text in zip(ROLES[:3], TURNS, strict=False)]
SOURCE = "<turn>".join(TURNS[:3])


def serving(turns: bool = True, settings: ServeSettings | None = None, **about: Any) -> Asking:
    model = answering(turns, task="conversation", **about)
    return Asking(ModelSpec("talk", model), settings=settings)


def said(source: str, turns: bool = True) -> str:
    return answering(turns, task="conversation").generate([source])[0].text


def answered(server: Asking, messages: Any = MESSAGES, **fields: Any) -> dict[str, Any]:
    told: dict[str, Any] = server.client.post(CHAT, json={"messages": messages, **fields}).json()
    return told


def content(told: dict[str, Any]) -> str:
    text: str = told["choices"][0]["message"]["content"]
    return text


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with on_a_port(serving().app) as address:
        yield address


@pytest.mark.short(1)
@pytest.mark.parametrize(("with_symbol", "between"), [(True, "<turn>"), (False, "\n")])
def test_turns_are_joined_by_the_symbol_where_the_tokenizer_has_it(with_symbol: bool, between: str) -> None:
    source = between.join(TURNS[:3])
    told = answered(serving(with_symbol))
    assert content(told) == said(source, with_symbol)
    tokenizer = answering(with_symbol, task="conversation").source_tokenizer
    assert told["usage"]["prompt_tokens"] == len(tokenizer.encode(source))
    assert said(SOURCE) != said("\n".join(TURNS[:3])) != said(TURNS[2])


@pytest.mark.slow
def test_no_more_turns_are_read_than_the_model_learned_from() -> None:
    assert content(answered(serving(context_turns=2))) == said("<turn>".join(TURNS[1:3]))
    assert content(answered(serving(context_turns=1))) == said(TURNS[2])
    assert content(answered(serving(context_turns=50))) == said(SOURCE)


def test_what_a_model_is_served_as_keeps_its_turns() -> None:
    model = answering(True, context_turns=2)
    server = Asking(ModelSpec("talk", model, about=ModelCard(task="conversation", context_turns=2)))
    assert content(answered(server)) == said("<turn>".join(TURNS[1:3]))


def test_nobody_says_more_than_one_turn() -> None:
    forged = {"role": "user", "content": "<turn>".join(TURNS[:3])}
    told = answered(serving(), [forged])
    assert content(told) == said("[turn]".join(TURNS[:3])) != said(SOURCE)


@pytest.mark.slow
def test_turns_are_read_as_far_back_as_they_fit() -> None:
    encode = answering(True, task="conversation").source_tokenizer.encode
    for first in range(3):
        source = "<turn>".join(TURNS[first:3])
        short = serving(settings=ServeSettings(max_source_tokens=len(encode(source))))
        assert content(answered(short)) == said(source)
        narrow = serving(settings=ServeSettings(max_characters=len(source)))
        assert content(answered(narrow)) == said(source)


def test_a_stream_says_the_same() -> None:
    body = {"messages": MESSAGES, "stream": True}
    assert Streamed(serving().client.post(CHAT, json=body).text).text() == said(SOURCE)


@pytest.mark.short(1)
@pytest.mark.parametrize("fields", [{"max_tokens": 2}, {"stop": [" "]}, {"max_completion_tokens": 1, "n": 2}])
def test_limits_and_counts_are_those_of_the_answer_to_the_last_turn(fields: dict[str, Any]) -> None:
    server, model = serving(), answering(True, task="conversation")
    told = answered(server, **fields)
    texts = [each["message"]["content"] for each in told["choices"]]
    if "stop" in fields:
        assert texts == [said(SOURCE).split(" ")[0]]
        assert told["choices"][0]["finish_reason"] == "stop"
    else:
        most = fields.get("max_tokens", 1)
        assert [each["finish_reason"] for each in told["choices"]] == ["length"] * len(texts)
        assert texts[0] == model.generate([SOURCE], max_length=most, beam=fields.get("n", 1))[0].text
    read, written = len(model.source_tokenizer.encode(SOURCE)), sum(len(each.split()) for each in texts)
    assert told["usage"] == {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    if "n" not in fields:
        body = {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}, **fields}
        streamed = Streamed(server.client.post(CHAT, json=body).text)
        assert (streamed.text(), streamed.usage) == (texts[0], told["usage"])
        assert streamed.reasons() == [told["choices"][0]["finish_reason"]]


@pytest.mark.filterwarnings(QUIET)
def test_a_pipeline_says_the_same() -> None:
    model = answering(True, task="conversation", context_turns=2)
    ((told,),) = [attendo.pipeline("conversational", model)(MESSAGES)]
    assert told["generated_text"][-1]["content"] == content(answered(serving(context_turns=2)))


def test_the_library_of_openai_talks(address: str) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        messages = MESSAGES[:1]
        for asked in (TURNS[1], TURNS[2]):
            told = client.chat.completions.create(model="talk", messages=messages)
            assert told.choices[0].message.content == said("<turn>".join(each["content"] for each in messages))
            answer = {"role": "assistant", "content": told.choices[0].message.content}
            messages = [*messages, answer, {"role": "user", "content": asked}]
        chunks = client.chat.completions.create(model="talk", messages=messages, stream=True)
        streamed = "".join(each.choices[0].delta.content or "" for each in chunks)
        assert streamed == said("<turn>".join(each["content"] for each in messages))


@pytest.mark.slow
def test_the_library_of_hugging_face_talks(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
    for base in (address, f"{address}/hf/models/talk"):
        with hub.InferenceClient(base_url=base, api_key="any") as client:
            assert client.chat_completion(MESSAGES).choices[0].message.content == said(SOURCE)
            chunks = client.chat_completion(MESSAGES, stream=True)
            assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == said(SOURCE)
