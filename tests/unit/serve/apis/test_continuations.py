"""Models that go on with a text: clients hear what is new, and count only that."""

from collections.abc import Iterator
from typing import Any

import pytest
from error_codes import fragment
from piped import continuing
from real_server import on_a_port
from small_server import Asking, error_of, parsed_events
from sse import Streamed
from test_libretranslate import refused

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings

COMPLETE = "/v1/completions"
TEXT, OTHER = "the cat sat", "I saw"


def serving(**settings: Any) -> Asking:
    return Asking(ModelSpec("lm", continuing()), settings=ServeSettings(**settings))


@pytest.fixture(scope="module")
def server() -> Asking:
    return serving()


def new(text: str, **options: Any) -> str:
    """What the model adds, by the library."""
    whole = continuing().generate([text], **options)[0].text
    assert whole.startswith(text)
    return whole.removeprefix(text)


def completed(server: Asking, prompt: Any = TEXT, **fields: Any) -> dict[str, Any]:
    answered = server.client.post(COMPLETE, json={"prompt": prompt, **fields})
    assert answered.status_code == 200, answered.text
    told: dict[str, Any] = answered.json()
    return told


def texts(told: dict[str, Any]) -> list[str]:
    return [each["text"] for each in told["choices"]]


def test_a_completion_is_what_is_new_and_its_tokens_are_counted_alone(server: Asking) -> None:
    told = completed(server, [TEXT, OTHER])
    assert texts(told) == [new(TEXT), new(OTHER)]
    said = len(new(TEXT)) + len(new(OTHER))
    read = len(TEXT) + len(OTHER)
    assert told["usage"] == {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}


def test_a_limit_is_of_new_tokens(server: Asking) -> None:
    told = completed(server, [TEXT, OTHER], max_tokens=3)
    assert texts(told) == [new(TEXT, max_length=len(TEXT) + 3), new(OTHER, max_length=len(OTHER) + 3)]
    assert [each["finish_reason"] for each in told["choices"]] == ["length", "length"]
    assert told["usage"]["completion_tokens"] == 6


def test_the_limit_of_the_server_is_of_all_tokens() -> None:
    (choice,) = completed(serving(max_output_tokens=len(TEXT) + 2), max_tokens=9)["choices"]
    assert choice["text"] == new(TEXT, max_length=len(TEXT) + 2)
    assert choice["finish_reason"] == "length"


def test_a_text_may_begin_with_nothing(server: Asking) -> None:
    assert texts(completed(server, "")) == [new("")] != [""]


def test_a_stream_tells_what_is_new(server: Asking) -> None:
    for fields in ({}, {"max_tokens": 2}, {"temperature": 1, "seed": 3}):
        whole = completed(server, **fields)
        body = {"prompt": TEXT, "stream": True, "stream_options": {"include_usage": True}, **fields}
        streamed = Streamed(server.client.post(COMPLETE, json=body).text)
        assert streamed.text() == whole["choices"][0]["text"]
        assert streamed.reasons() == [whole["choices"][0]["finish_reason"]]
        assert streamed.usage == whole["usage"]


def test_several_answers_are_all_without_the_text(server: Asking) -> None:
    found = continuing().generate([TEXT], beam=3, n_best=3)[0].hypotheses
    assert texts(completed(server, n=3)) == [each.text.removeprefix(TEXT) for each in found]


def test_the_prompt_is_said_again_where_it_is_asked_for(server: Asking) -> None:
    plain, told = completed(server, [TEXT, OTHER]), completed(server, [TEXT, OTHER], echo=True)
    assert texts(told) == [TEXT + new(TEXT), OTHER + new(OTHER)]
    assert told["usage"] == plain["usage"]
    assert texts(completed(server, echo=False)) == texts(completed(server, echo=None)) == [new(TEXT)]
    for fields in ({"max_tokens": 2}, {"n": 2}, {"stop": new(TEXT)[1]}, {"stop": TEXT[0]}):
        alone, whole = completed(server, **fields), completed(server, echo=True, **fields)
        assert texts(whole) == [TEXT + each for each in texts(alone)]
        assert whole["usage"] == alone["usage"]


def test_a_stream_says_the_prompt_again_too(server: Asking) -> None:
    whole = completed(server, [TEXT, OTHER], echo=True, stop="e")
    body = {"prompt": [TEXT, OTHER], "stream": True, "stream_options": {"include_usage": True}}
    streamed = Streamed(server.client.post(COMPLETE, json={**body, "echo": True, "stop": "e"}).text)
    assert [streamed.text(0), streamed.text(1)] == texts(whole)
    assert streamed.usage == whole["usage"]


def test_a_chat_goes_on_with_the_last_turn(server: Asking) -> None:
    told = server.client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": TEXT}]}).json()
    assert told["choices"][0]["message"]["content"] == new(TEXT)


def test_hugging_face_hears_what_is_new(server: Asking) -> None:
    def told(**body: Any) -> Any:
        return server.client.post("/hf/models/lm", json=body).json()

    assert told(inputs=[TEXT, OTHER]) == [{"generated_text": new(TEXT)}, {"generated_text": new(OTHER)}]
    limited = {"max_new_tokens": 2, "min_new_tokens": 2}
    expected = new(TEXT, max_length=len(TEXT) + 2, min_length=len(TEXT) + 2)
    assert told(inputs=TEXT, parameters=limited) == [{"generated_text": expected}]
    whole = {"max_length": len(TEXT) + 1}
    assert told(inputs=TEXT, parameters=whole) == [{"generated_text": new(TEXT, **whole)}]
    many = server.client.post("/hf/models/lm", json={"inputs": ["a"] * 51})
    assert "51 texts" in refused(many, 413)


def generated(server: Asking, **fields: Any) -> list[dict[str, Any]]:
    answered = server.raw("generate", **fields)
    assert answered.status_code == 200, answered.text
    results: list[dict[str, Any]] = answered.json()["results"]
    return results


def test_our_own_api_tells_what_is_new_and_the_text_only_where_it_is_asked_for(server: Asking) -> None:
    found = continuing().generate([TEXT, OTHER], beam=3, n_best=2)
    asked = {"texts": [TEXT, OTHER], "beam": 3, "n_best": 2}
    for echo in (False, True):
        told = generated(server, echo=echo, **asked)
        for text, each, result in zip((TEXT, OTHER), told, found, strict=True):
            own = 0 if echo else len(text)
            for one, hypothesis in zip(each["hypotheses"], result.hypotheses, strict=True):
                assert one["text"] == hypothesis.text[own:]
                assert (one["ids"], one["pieces"]) == ([*hypothesis.ids[own:]], [*hypothesis.pieces[own:]])
                assert one["score"] == pytest.approx(hypothesis.score)
            assert each["text"] == each["hypotheses"][0]["text"]
    assert generated(server, texts=[""])[0]["text"] == new("")


@pytest.mark.parametrize("echo", [False, True])
def test_its_streams_tell_the_same(server: Asking, echo: bool) -> None:
    answered = server.raw("generate", texts=[TEXT], stream=True, echo=echo)
    *parts, (_, whole) = parsed_events(answered.text)
    assert whole["results"] == generated(server, texts=[TEXT], echo=echo)
    assert "".join(part["text"] for _, part in parts) == TEXT * echo + new(TEXT)


def test_a_text_above_max_length_is_told_in_both_languages(server: Asking) -> None:
    error = error_of(server.raw("generate", texts=[OTHER, TEXT], max_length=8), 400, "bad_setting")
    assert fragment("prompt_longer_than_max_length", text="text 2 of 2", tokens=11) in error["message"]
    assert "第 2 段" in error["message_zh"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with on_a_port(serving().app) as address:
        yield address


def test_the_libraries_of_openai_and_hugging_face_get_texts(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    openai, hub = pytest.importorskip("openai"), pytest.importorskip("huggingface_hub")
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        told = client.completions.create(model="lm", prompt=TEXT, max_tokens=2)
        assert told.choices[0].text == new(TEXT, max_length=len(TEXT) + 2)
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
    with hub.InferenceClient(model=f"{address}/hf/models/lm", token="any") as client:
        assert client.text_generation(TEXT, max_new_tokens=2) == new(TEXT, max_length=len(TEXT) + 2)
