"""OpenAI's client and Hugging Face's chat client, unmodified, against a server on a port."""

from collections.abc import Iterator
from typing import Any

import pytest
from late_import import LateModule, needs
from real_server import serve_on_port
from three_models import ENGLISH, KEY, make_server, models

pytestmark = needs("openai")
openai: Any = LateModule("openai")
MESSAGES: Any = [{"role": "system", "content": "Translate."}, {"role": "user", "content": ENGLISH}]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve_on_port(make_server(keys=(KEY,)).app) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def chinese() -> str:
    return models()["forth"].generate([ENGLISH])[0].text


def test_client_lists_and_retrieves_models(client: Any) -> None:
    assert [each.id for each in client.models.list()] == ["forth", "back", "plain"]
    assert client.models.retrieve("back").id == "back"
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("none")
    assert (error.value.code, error.value.param) == ("model_not_found", "model")


def test_client_gets_a_chat_completion(client: Any, chinese: str) -> None:
    completion = client.chat.completions.create(model="forth", messages=MESSAGES)
    assert completion.choices[0].message.content == chinese
    assert completion.choices[0].message.role == "assistant"
    assert completion.choices[0].finish_reason in ("stop", "length")
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


def test_client_streams_a_chat_completion(client: Any, chinese: str) -> None:
    plain = client.chat.completions.create(model="forth", messages=MESSAGES)
    chunks = [
        *client.chat.completions.create(
            model="forth", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
        )
    ]
    assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == chinese
    assert chunks[-1].usage == plain.usage
    assert chunks[-2].choices[0].finish_reason == plain.choices[0].finish_reason


def test_client_completes_prompts(client: Any, chinese: str) -> None:
    completion = client.completions.create(model="forth", prompt=[ENGLISH, "the cat sat"])
    assert completion.choices[0].text == chinese
    assert [each.index for each in completion.choices] == [0, 1]
    chunks = client.completions.create(model="forth", prompt=ENGLISH, stream=True)
    assert "".join(each.choices[0].text for each in chunks) == chinese


def test_errors_raise_the_client_exceptions(address: str, client: Any) -> None:
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


def test_hugging_face_chats_without_a_model_name(address: str, chinese: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
    with hub.InferenceClient(base_url=address, api_key=KEY) as client:
        completion = client.chat_completion(MESSAGES)
        assert completion.choices[0].message.content == chinese
        chunks = client.chat_completion(MESSAGES, stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in chunks if each.choices) == chinese
