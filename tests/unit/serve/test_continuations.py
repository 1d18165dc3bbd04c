"""Models that go on with a text: clients hear what is new, and count only that."""

from collections.abc import Iterator
from typing import Any

import pytest
from piped import continuing
from real_server import on_a_port
from small_server import Asking
from sse import Streamed
from test_libretranslate import refused

from attendo.serve.settings import ServeSettings
from attendo.serve.shelf import NamedModel

COMPLETE = "/v1/completions"
TEXT, OTHER = "the cat sat", "I saw"


def serving(**settings: Any) -> Asking:
    return Asking(NamedModel("lm", continuing()), settings=ServeSettings(**settings))


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
    (choice,) = completed(serving(answer_tokens=len(TEXT) + 2), max_tokens=9)["choices"]
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
