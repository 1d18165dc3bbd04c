"""Models that continue a text: responses and token counts cover only the new part."""

from collections.abc import Iterator
from typing import Any

import pytest
from error_codes import fragment
from piped import continuing
from real_server import serve_on_port
from small_server import SmallServer, check_error, parse_events
from sse import StreamedResponse
from test_libretranslate import read_error

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings

COMPLETE = "/v1/completions"
TEXT, OTHER = "the cat sat", "I saw"


def make_server(**settings: Any) -> SmallServer:
    return SmallServer(ModelSpec("lm", continuing()), settings=ServeSettings(**settings))


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server()


def new_text(text: str, **options: Any) -> str:
    """The text that the library adds."""
    text_with_prompt = continuing().generate([text], **options)[0].text
    assert text_with_prompt.startswith(text)
    return text_with_prompt.removeprefix(text)


def complete(server: SmallServer, prompt: Any = TEXT, **fields: Any) -> dict[str, Any]:
    response = server.client.post(COMPLETE, json={"prompt": prompt, **fields})
    assert response.status_code == 200, response.text
    completion: dict[str, Any] = response.json()
    return completion


def choice_texts(completion: dict[str, Any]) -> list[str]:
    return [each["text"] for each in completion["choices"]]


def test_a_completion_has_and_counts_only_new_tokens(server: SmallServer) -> None:
    completion = complete(server, [TEXT, OTHER])
    assert choice_texts(completion) == [new_text(TEXT), new_text(OTHER)]
    written = len(new_text(TEXT)) + len(new_text(OTHER))
    read = len(TEXT) + len(OTHER)
    assert completion["usage"] == {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def test_max_tokens_counts_new_tokens(server: SmallServer) -> None:
    completion = complete(server, [TEXT, OTHER], max_tokens=3)
    assert choice_texts(completion) == [
        new_text(TEXT, max_length=len(TEXT) + 3),
        new_text(OTHER, max_length=len(OTHER) + 3),
    ]
    assert [each["finish_reason"] for each in completion["choices"]] == ["length", "length"]
    assert completion["usage"]["completion_tokens"] == 6


def test_the_server_limit_counts_all_tokens() -> None:
    (choice,) = complete(make_server(max_output_tokens=len(TEXT) + 2), max_tokens=9)["choices"]
    assert choice["text"] == new_text(TEXT, max_length=len(TEXT) + 2)
    assert choice["finish_reason"] == "length"


def test_an_empty_prompt_is_continued(server: SmallServer) -> None:
    assert choice_texts(complete(server, "")) == [new_text("")] != [""]


def test_a_stream_has_only_the_new_text(server: SmallServer) -> None:
    for fields in ({}, {"max_tokens": 2}, {"temperature": 1, "seed": 3}):
        plain = complete(server, **fields)
        body = {"prompt": TEXT, "stream": True, "stream_options": {"include_usage": True}, **fields}
        stream = StreamedResponse(server.client.post(COMPLETE, json=body).text)
        assert stream.text() == plain["choices"][0]["text"]
        assert stream.reasons() == [plain["choices"][0]["finish_reason"]]
        assert stream.usage == plain["usage"]


def test_several_choices_omit_the_prompt(server: SmallServer) -> None:
    found = continuing().generate([TEXT], beam=3, n_best=3)[0].hypotheses
    assert choice_texts(complete(server, n=3)) == [each.text.removeprefix(TEXT) for each in found]


def test_echo_returns_the_prompt(server: SmallServer) -> None:
    plain, echoed = complete(server, [TEXT, OTHER]), complete(server, [TEXT, OTHER], echo=True)
    assert choice_texts(echoed) == [TEXT + new_text(TEXT), OTHER + new_text(OTHER)]
    assert echoed["usage"] == plain["usage"]
    assert choice_texts(complete(server, echo=False)) == choice_texts(complete(server, echo=None)) == [new_text(TEXT)]
    for fields in ({"max_tokens": 2}, {"n": 2}, {"stop": new_text(TEXT)[1]}, {"stop": TEXT[0]}):
        without_echo, with_echo = complete(server, **fields), complete(server, echo=True, **fields)
        assert choice_texts(with_echo) == [TEXT + each for each in choice_texts(without_echo)]
        assert with_echo["usage"] == without_echo["usage"]


def test_a_stream_with_echo_returns_the_prompt(server: SmallServer) -> None:
    plain = complete(server, [TEXT, OTHER], echo=True, stop="e")
    body = {"prompt": [TEXT, OTHER], "stream": True, "stream_options": {"include_usage": True}}
    stream = StreamedResponse(server.client.post(COMPLETE, json={**body, "echo": True, "stop": "e"}).text)
    assert [stream.text(0), stream.text(1)] == choice_texts(plain)
    assert stream.usage == plain["usage"]


def test_a_chat_continues_the_last_turn(server: SmallServer) -> None:
    completion = server.client.post(
        "/v1/chat/completions", json={"messages": [{"role": "user", "content": TEXT}]}
    ).json()
    assert completion["choices"][0]["message"]["content"] == new_text(TEXT)


def test_hugging_face_gets_only_the_new_text(server: SmallServer) -> None:
    def post(**body: Any) -> Any:
        return server.client.post("/hf/models/lm", json=body).json()

    assert post(inputs=[TEXT, OTHER]) == [{"generated_text": new_text(TEXT)}, {"generated_text": new_text(OTHER)}]
    new_token_limits = {"max_new_tokens": 2, "min_new_tokens": 2}
    expected = new_text(TEXT, max_length=len(TEXT) + 2, min_length=len(TEXT) + 2)
    assert post(inputs=TEXT, parameters=new_token_limits) == [{"generated_text": expected}]
    total_limit = {"max_length": len(TEXT) + 1}
    assert post(inputs=TEXT, parameters=total_limit) == [{"generated_text": new_text(TEXT, **total_limit)}]
    response = server.client.post("/hf/models/lm", json={"inputs": ["a"] * 51})
    assert "51 texts" in read_error(response, 413)


def generate(server: SmallServer, **fields: Any) -> list[dict[str, Any]]:
    response = server.raw("generate", **fields)
    assert response.status_code == 200, response.text
    results: list[dict[str, Any]] = response.json()["results"]
    return results


def test_the_native_api_omits_the_prompt_unless_echo(server: SmallServer) -> None:
    found = continuing().generate([TEXT, OTHER], beam=3, n_best=2)
    options = {"texts": [TEXT, OTHER], "beam": 3, "n_best": 2}
    for echo in (False, True):
        results = generate(server, echo=echo, **options)
        for text, each, result in zip((TEXT, OTHER), results, found, strict=True):
            start = 0 if echo else len(text)
            for one, hypothesis in zip(each["hypotheses"], result.hypotheses, strict=True):
                assert one["text"] == hypothesis.text[start:]
                assert (one["ids"], one["pieces"]) == ([*hypothesis.ids[start:]], [*hypothesis.pieces[start:]])
                assert one["score"] == pytest.approx(hypothesis.score)
            assert each["text"] == each["hypotheses"][0]["text"]
    assert generate(server, texts=[""])[0]["text"] == new_text("")


@pytest.mark.parametrize("echo", [False, True])
def test_native_streams_equal_plain_responses(server: SmallServer, echo: bool) -> None:
    response = server.raw("generate", texts=[TEXT], stream=True, echo=echo)
    *parts, (_, final) = parse_events(response.text)
    assert final["results"] == generate(server, texts=[TEXT], echo=echo)
    assert "".join(part["text"] for _, part in parts) == TEXT * echo + new_text(TEXT)


def test_a_prompt_above_max_length_is_an_error_in_both_languages(server: SmallServer) -> None:
    error = check_error(server.raw("generate", texts=[OTHER, TEXT], max_length=8), 400, "bad_setting")
    assert fragment("prompt_longer_than_max_length", text="text 2 of 2", tokens=11) in error["message"]
    assert "第 2 段" in error["message_zh"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with serve_on_port(make_server().app) as address:
        yield address


def test_openai_and_hugging_face_clients_get_completions(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    openai, hub = pytest.importorskip("openai"), pytest.importorskip("huggingface_hub")
    with openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0) as client:
        completion = client.completions.create(model="lm", prompt=TEXT, max_tokens=2)
        assert completion.choices[0].text == new_text(TEXT, max_length=len(TEXT) + 2)
    monkeypatch.setattr(pytest.importorskip("huggingface_hub.constants"), "HF_HUB_OFFLINE", False)
    with hub.InferenceClient(model=f"{address}/hf/models/lm", token="any") as client:
        assert client.text_generation(TEXT, max_new_tokens=2) == new_text(TEXT, max_length=len(TEXT) + 2)
