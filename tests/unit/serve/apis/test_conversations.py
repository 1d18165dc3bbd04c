"""Conversations: turns are joined as in training, for plain and streamed responses and for real clients."""

from collections.abc import Iterator
from typing import Any

import pytest
from piped import QUIET, TURNS, answering
from real_server import serve_on_port
from small_server import SmallServer
from sse import StreamedResponse

import attendo
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard

CHAT = "/v1/chat/completions"
ROLES = ("user", "assistant", "user", "assistant")
MESSAGES: Any = [{"role": role, "content": text} for role, text in zip(ROLES[:3], TURNS, strict=False)]
SOURCE = "<turn>".join(TURNS[:3])


def make_server(turns: bool = True, settings: ServeSettings | None = None, **about: Any) -> SmallServer:
    model = answering(turns, task="conversation", **about)
    return SmallServer(ModelSpec("talk", model), settings=settings)


def generate_text(source: str, turns: bool = True) -> str:
    return answering(turns, task="conversation").generate([source])[0].text


def post_chat(server: SmallServer, messages: Any = MESSAGES, **fields: Any) -> dict[str, Any]:
    completion: dict[str, Any] = server.client.post(CHAT, json={"messages": messages, **fields}).json()
    return completion


def message_text(completion: dict[str, Any]) -> str:
    text: str = completion["choices"][0]["message"]["content"]
    return text


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve_on_port(make_server().app) as address:
        yield address


@pytest.mark.short(1)
@pytest.mark.parametrize(("with_symbol", "separator"), [(True, "<turn>"), (False, "\n")])
def test_turns_are_joined_by_the_separator_token_if_known(with_symbol: bool, separator: str) -> None:
    source = separator.join(TURNS[:3])
    completion = post_chat(make_server(with_symbol))
    assert message_text(completion) == generate_text(source, with_symbol)
    tokenizer = answering(with_symbol, task="conversation").source_tokenizer
    assert completion["usage"]["prompt_tokens"] == len(tokenizer.encode(source))
    assert generate_text(SOURCE) != generate_text("\n".join(TURNS[:3])) != generate_text(TURNS[2])


@pytest.mark.slow
def test_context_turns_limits_the_turns_read() -> None:
    assert message_text(post_chat(make_server(context_turns=2))) == generate_text("<turn>".join(TURNS[1:3]))
    assert message_text(post_chat(make_server(context_turns=1))) == generate_text(TURNS[2])
    assert message_text(post_chat(make_server(context_turns=50))) == generate_text(SOURCE)


def test_a_given_model_card_keeps_context_turns() -> None:
    model = answering(True, context_turns=2)
    server = SmallServer(ModelSpec("talk", model, about=ModelCard(task="conversation", context_turns=2)))
    assert message_text(post_chat(server)) == generate_text("<turn>".join(TURNS[1:3]))


def test_a_separator_in_a_message_adds_no_turn() -> None:
    forged = {"role": "user", "content": "<turn>".join(TURNS[:3])}
    completion = post_chat(make_server(), [forged])
    assert message_text(completion) == generate_text("[turn]".join(TURNS[:3])) != generate_text(SOURCE)


@pytest.mark.slow
def test_the_latest_turns_that_fit_are_read() -> None:
    encode = answering(True, task="conversation").source_tokenizer.encode
    for first in range(3):
        source = "<turn>".join(TURNS[first:3])
        short = make_server(settings=ServeSettings(max_source_tokens=len(encode(source))))
        assert message_text(post_chat(short)) == generate_text(source)
        narrow = make_server(settings=ServeSettings(max_characters=len(source)))
        assert message_text(post_chat(narrow)) == generate_text(source)


def test_a_stream_joins_to_the_generated_text() -> None:
    body = {"messages": MESSAGES, "stream": True}
    assert StreamedResponse(make_server().client.post(CHAT, json=body).text).text() == generate_text(SOURCE)


@pytest.mark.short(1)
@pytest.mark.parametrize("fields", [{"max_tokens": 2}, {"stop": [" "]}, {"max_completion_tokens": 1, "n": 2}])
def test_limits_and_usage_cover_the_last_answer(fields: dict[str, Any]) -> None:
    server, model = make_server(), answering(True, task="conversation")
    completion = post_chat(server, **fields)
    texts = [each["message"]["content"] for each in completion["choices"]]
    if "stop" in fields:
        assert texts == [generate_text(SOURCE).split(" ")[0]]
        assert completion["choices"][0]["finish_reason"] == "stop"
    else:
        limit = fields.get("max_tokens", 1)
        assert [each["finish_reason"] for each in completion["choices"]] == ["length"] * len(texts)
        assert texts[0] == model.generate([SOURCE], max_length=limit, beam=fields.get("n", 1))[0].text
    read, written = len(model.source_tokenizer.encode(SOURCE)), sum(len(each.split()) for each in texts)
    assert completion["usage"] == {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}
    if "n" not in fields:
        body = {"messages": MESSAGES, "stream": True, "stream_options": {"include_usage": True}, **fields}
        stream = StreamedResponse(server.client.post(CHAT, json=body).text)
        assert (stream.text(), stream.usage) == (texts[0], completion["usage"])
        assert stream.reasons() == [completion["choices"][0]["finish_reason"]]


@pytest.mark.filterwarnings(QUIET)
def test_the_pipeline_returns_the_same_text() -> None:
    model = answering(True, task="conversation", context_turns=2)
    ((generated,),) = [attendo.pipeline("conversational", model)(MESSAGES)]
    assert generated["generated_text"][-1]["content"] == message_text(post_chat(make_server(context_turns=2)))


def test_openai_client_runs_a_conversation(address: str) -> None:
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        messages = MESSAGES[:1]
        for text in (TURNS[1], TURNS[2]):
            completion = client.chat.completions.create(model="talk", messages=messages)
            assert completion.choices[0].message.content == generate_text(
                "<turn>".join(each["content"] for each in messages)
            )
            answer = {"role": "assistant", "content": completion.choices[0].message.content}
            messages = [*messages, answer, {"role": "user", "content": text}]
        chunks = client.chat.completions.create(model="talk", messages=messages, stream=True)
        stream = "".join(each.choices[0].delta.content or "" for each in chunks)
        assert stream == generate_text("<turn>".join(each["content"] for each in messages))


@pytest.mark.slow
def test_hugging_face_client_runs_a_conversation(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
    for base in (address, f"{address}/hf/models/talk"):
        with hub.InferenceClient(base_url=base, api_key="any") as client:
            assert client.chat_completion(MESSAGES).choices[0].message.content == generate_text(SOURCE)
            chunks = client.chat_completion(MESSAGES, stream=True)
            assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == generate_text(
                SOURCE
            )
