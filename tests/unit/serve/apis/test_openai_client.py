"""OpenAI's own library, and Hugging Face's chat, against a server on a port: unmodified."""

from collections.abc import Iterator
from typing import Any

import pytest
from both_ways import ENGLISH, KEY, asking, models
from late_import import LateModule, needs
from real_server import on_a_port

pytestmark = needs("openai")
openai: Any = LateModule("openai")
MESSAGES: Any = [{"role": "system", "content": "Translate."}, {"role": "user", "content": ENGLISH}]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with on_a_port(asking(keys=(KEY,)).app) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def chinese() -> str:
    return models()["forth"].generate([ENGLISH])[0].text


def test_models(client: Any) -> None:
    assert [each.id for each in client.models.list()] == ["forth", "back", "plain"]
    assert client.models.retrieve("back").id == "back"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("none")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")


def test_chat(client: Any, chinese: str) -> None:
    told = client.chat.completions.create(model="forth", messages=MESSAGES)
    assert told.choices[0].message.content == chinese
    assert told.choices[0].message.role == "assistant"
    assert told.choices[0].finish_reason in ("stop", "length")
    assert told.usage.total_tokens == told.usage.prompt_tokens + told.usage.completion_tokens


def test_streamed_chat(client: Any, chinese: str) -> None:
    plain = client.chat.completions.create(model="forth", messages=MESSAGES)
    chunks = [
        *client.chat.completions.create(
            model="forth", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    ]
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == chinese
    assert chunks[-1].usage == plain.usage
    assert chunks[-2].choices[0].finish_reason == plain.choices[0].finish_reason


def test_completions(client: Any, chinese: str) -> None:
    told = client.completions.create(model="forth", prompt=[ENGLISH, "the cat sat"])
    assert told.choices[0].text == chinese
    assert [each.index for each in told.choices] == [0, 1]
    chunks = client.completions.create(model="forth", prompt=ENGLISH, stream=True)
    assert "".join(each.choices[0].text for each in chunks) == chinese


def test_errors_are_those_that_the_library_knows(address: str, client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(
            model="forth", messages=MESSAGES, tools=[{"type": "function", "function": {"name": "f"}}]
        )
    assert error.value.param == "tools"
    wrong = openai.OpenAI(base_url=f"{address}/v1", api_key="wrong", max_retries=0)
    with wrong, pytest.raises(openai.AuthenticationError):
        wrong.models.list()
    with pytest.raises(openai.APIStatusError) as too_long:
        client.chat.completions.create(model="forth", messages=[{"role": "user", "content": "a" * 5_001}])
    assert too_long.value.status_code == 413


def test_hugging_face_chats_without_naming_a_model(address: str, chinese: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
    with hub.InferenceClient(base_url=address, api_key=KEY) as client:
        told = client.chat_completion(MESSAGES)
        assert told.choices[0].message.content == chinese
        chunks = client.chat_completion(MESSAGES, stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == chinese
