"""OpenAI's API: request and response formats, the meaning of parameters, and rejected requests."""

from typing import Any

import pytest
from error_codes import message
from small_server import SmallServer, random_model
from three_models import CHINESE, ENGLISH, KEY, make_server, models

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard
from attendo.text_model import TextModel

CHAT, COMPLETE = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server()


@pytest.fixture(scope="module")
def model() -> TextModel:
    return models()["forth"]


@pytest.fixture(scope="module")
def plain(model: TextModel) -> str:
    return model.generate([ENGLISH])[0].text


def user(text: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


def chat(server: SmallServer, text: Any = ENGLISH, **fields: Any) -> dict[str, Any]:
    response = server.client.post(CHAT, json={"model": "forth", "messages": user(text), **fields})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def chat_texts(server: SmallServer, text: Any = ENGLISH, **fields: Any) -> list[str]:
    return [each["message"]["content"] for each in chat(server, text, **fields)["choices"]]


def check_error(response: Any, status: int, param: str | None, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert (error["param"], error["code"]) == (param, code)
    return error


def test_models_are_listed_and_retrieved(server: SmallServer) -> None:
    listed = server.client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [each["id"] for each in listed["data"]] == ["forth", "back", "plain"]
    assert server.client.get("/v1/models/back").json() == listed["data"][1]
    assert listed["data"][1]["object"] == "model"
    check_error(server.client.get("/v1/models/none"), 404, "model", "model_not_found")


def test_a_chat_has_the_openai_format(server: SmallServer, model: TextModel) -> None:
    completion = chat(server)
    result = model.generate([ENGLISH])[0]
    reason = "length" if result.cut else "stop"
    message = {"role": "assistant", "content": result.text}
    assert completion.pop("id").startswith("chatcmpl-")
    assert isinstance(completion.pop("created"), int)
    source, target = len(model.source_tokenizer.encode(ENGLISH)), len(result.ids)
    assert completion == {
        "object": "chat.completion",
        "model": "forth",
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": source, "completion_tokens": target, "total_tokens": source + target},
    }


def test_completions_accept_one_or_several_prompts(server: SmallServer, model: TextModel) -> None:
    texts = [each.text for each in model.generate([ENGLISH, "a dog ran home"])]
    one = server.client.post(COMPLETE, json={"model": "forth", "prompt": ENGLISH}).json()
    assert (one["object"], one["id"][:5]) == ("text_completion", "cmpl-")
    assert [each["text"] for each in one["choices"]] == texts[:1]
    both = server.client.post(COMPLETE, json={"model": "forth", "prompt": [ENGLISH, "a dog ran home"]}).json()
    assert [(each["index"], each["text"]) for each in both["choices"]] == [(0, texts[0]), (1, texts[1])]
    assert both["usage"]["prompt_tokens"] == 7


def test_the_first_model_is_the_default(server: SmallServer) -> None:
    without = server.client.post(CHAT, json={"messages": user(ENGLISH)}).json()
    dummy = server.client.post(CHAT, json={"model": "dummy", "messages": user(ENGLISH)}).json()
    assert without["model"] == dummy["model"] == "forth"


def test_a_reached_limit_is_reported_as_length(server: SmallServer, model: TextModel) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        (choice,) = chat(server, **{name: 1})["choices"]
        assert choice["message"]["content"] == model.generate([ENGLISH], max_length=1)[0].text
        assert choice["finish_reason"] == "length"
    assert chat(server)["choices"][0]["finish_reason"] == "stop"


def test_temperature_samples_and_a_seed_repeats(server: SmallServer, model: TextModel) -> None:
    samples = chat_texts(server, temperature=1.5, top_p=0.9, seed=3, n=4)
    assert len(set(samples)) > 1
    assert samples == chat_texts(server, temperature=1.5, top_p=0.9, seed=3, n=4)
    expected = model.generate([ENGLISH], sample=True, temperature=1.5, top_p=0.9, seed=3, n_best=4)[0]
    assert samples == [each.text for each in expected.hypotheses]
    without_seed = {tuple(chat_texts(server, temperature=2, n=8)) for _ in range(3)}
    assert len(without_seed) > 1


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": None}, {"seed": 5}, {"top_p": 1}, {"top_p": 0}])
def test_without_temperature_decoding_is_unchanged(server: SmallServer, plain: str, fields: dict[str, Any]) -> None:
    assert chat_texts(server, **fields) == [plain]


def test_a_seed_may_be_any_64_bit_integer(server: SmallServer) -> None:
    for seed in (-(2**63), 2**63 - 1):
        assert chat_texts(server, temperature=1, seed=seed) == chat_texts(server, temperature=1, seed=seed)


def test_n_returns_the_best_of_a_beam(server: SmallServer, model: TextModel) -> None:
    expected = model.generate([ENGLISH], beam=3, n_best=3)[0].hypotheses
    completion = chat(server, n=3)
    assert [each["message"]["content"] for each in completion["choices"]] == [each.text for each in expected]
    assert [each["index"] for each in completion["choices"]] == [0, 1, 2]
    assert completion["usage"]["completion_tokens"] == sum(len(each.ids) for each in expected)


def test_a_stop_sequence_ends_a_text(server: SmallServer, plain: str) -> None:
    words = plain.split(" ")
    (choice,) = chat(server, stop=[words[1], "never said"])["choices"]
    assert choice["message"]["content"] == plain[: plain.index(words[1])]
    assert choice["finish_reason"] == "stop"
    assert chat_texts(server, stop="never said") == [plain]


def test_a_translation_keeps_lines_and_splits_sentences(server: SmallServer, model: TextModel) -> None:
    first, second, third = (each.text for each in model.generate(["the cat sat.", "a dog ran home.", "I love NLP"]))
    (text,) = chat_texts(server, "the cat sat. a dog ran home.\n\n  12!\nI love NLP\n")
    assert text == f"{first} {second}\n\n  12!\n{third}\n"
    assert chat_texts(server, "") == [""]
    assert chat(server, " \n")["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}


def test_the_next_sentence_gets_the_rest_of_the_limit(server: SmallServer, model: TextModel) -> None:
    first, text = model.generate(["the cat sat."])[0], "the cat sat. a dog ran home. I love NLP"
    assert not first.cut
    for extra in (1, 2):
        completion = chat(server, text, max_tokens=len(first.ids) + extra)
        second = model.generate(["a dog ran home."], max_length=extra)[0]
        left = extra - len(second.ids)
        third = f" {model.generate(['I love NLP'], max_length=left)[0].text}" if left else ""
        assert completion["choices"][0]["message"]["content"] == f"{first.text} {second.text}{third}"
        assert completion["choices"][0]["finish_reason"] == ("stop" if left else "length")
        assert completion["usage"]["completion_tokens"] == len(first.ids) + extra


def test_other_models_do_not_split_texts(server: SmallServer) -> None:
    text = "the cat sat. a dog ran home.\nI love NLP"
    assert chat_texts(server, text, model="plain") == [models()["plain"].generate([text])[0].text]


def test_content_may_be_a_list_of_parts(server: SmallServer, plain: str) -> None:
    assert chat_texts(server, [{"type": "text", "text": ENGLISH}]) == [plain]
    parts = [{"type": "text", "text": ENGLISH}, {"type": "text", "text": "a dog ran home"}]
    assert chat_texts(server, parts) == chat_texts(server, f"{ENGLISH}\na dog ran home")


def test_a_translation_uses_only_the_last_turn(server: SmallServer, plain: str) -> None:
    turns = [{"role": "system", "content": "Be brief."}, *user("a dog"), {"role": "assistant", "content": "狗"}]
    completion = server.client.post(CHAT, json={"model": "forth", "messages": [*turns, *user(ENGLISH)]}).json()
    assert [each["message"]["content"] for each in completion["choices"]] == [plain]


@pytest.mark.slow
def test_a_conversation_uses_the_latest_turns_that_fit() -> None:
    model = random_model(9)
    talk = ModelSpec("talk", model, about=ModelCard(task="conversation"))
    turns = [*user("a dog ran home"), {"role": "assistant", "content": "the cat sat"}, *user("I love NLP")]
    for source in ("a dog ran home\nthe cat sat\nI love NLP", "the cat sat\nI love NLP", "I love NLP"):
        server = SmallServer(talk, settings=ServeSettings(max_source_tokens=len(model.source_tokenizer.encode(source))))
        completion = server.client.post(CHAT, json={"messages": turns}).json()
        assert completion["choices"][0]["message"]["content"] == model.generate([source])[0].text
        assert completion["usage"]["prompt_tokens"] == len(model.source_tokenizer.encode(source))


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "me", "store": True, "metadata": {}, "reasoning_effort": "low", "verbosity": "low"},
        {"tools": [], "tool_choice": "none", "functions": None, "response_format": {"type": "text"}},
        {"frequency_penalty": 0, "presence_penalty": 0.0, "logit_bias": {}, "logprobs": False, "top_logprobs": None},
        {"service_tier": "auto", "prediction": None, "parallel_tool_calls": True, "unheard_of": None},
        {"safety_identifier": "me", "prompt_cache_key": "k", "prompt_cache_retention": "24h"},
    ],
)
def test_harmless_parameters_are_ignored(server: SmallServer, plain: str, fields: dict[str, Any]) -> None:
    assert chat_texts(server, **fields) == [plain]


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("functions", [{"name": "f"}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("modalities", ["text", "audio"]),
        ("logprobs", True),
        ("logprobs", 0),
        ("top_logprobs", 2),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -1),
        ("logit_bias", {"5": 1}),
        ("web_search_options", {}),
    ],
)
def test_unsupported_parameters_are_rejected_by_name(server: SmallServer, param: str, value: Any) -> None:
    response = server.client.post(CHAT, json={"model": "forth", "messages": user(ENGLISH), param: value})
    assert check_error(response, 400, param, "unmet_parameter")["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("param", "suggestion"),
    [
        ("max_tokns", " (did you mean max_tokens?)"),
        ("top_k", " (did you mean top_p?)"),
        ("repetition_penalty", ""),
        ("beam", ""),
        ("beam_width", ""),
        ("min_tokens", " (did you mean max_tokens?)"),
        ("unheard_of", ""),
        ("x" * 1_000, ""),
    ],
)
def test_unknown_parameters_are_rejected_with_a_suggestion(server: SmallServer, param: str, suggestion: str) -> None:
    for path, body in ((CHAT, {"messages": user(ENGLISH)}), (COMPLETE, {"prompt": ENGLISH})):
        error = check_error(server.client.post(path, json={**body, param: 1}), 400, param[:100], "unknown_parameter")
        assert error["message"] == message("unknown_parameter", name=param[:100], suggestion=suggestion)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_options": {"include_usag": True}}, "stream_options.include_usag"),
        ({"temperature": 2.5}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 1.5}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": 2**64}, "seed"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": user([{"type": "image_url"}])}, "messages.0.content.parts.0.type"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ],
)
def test_invalid_values_are_rejected(server: SmallServer, fields: dict[str, Any], param: str) -> None:
    response = server.client.post(CHAT, json={"model": "forth", "messages": user(ENGLISH), **fields})
    check_error(response, 400, param, "bad_request")


@pytest.mark.parametrize(
    ("fields", "status", "param", "code"),
    [
        ({"model": "none"}, 404, "model", "model_not_found"),
        ({"max_tokens": 513}, 400, "max_tokens", "above_limit"),
        ({"max_completion_tokens": 10**20}, 400, "max_completion_tokens", "above_limit"),
        ({"n": 13}, 400, "n", "above_limit"),
        ({"n": 2, "stream": True}, 400, "n", "one_stream"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, 400, "messages", "no_user_turn"),
        ({"messages": [{"role": "system", "content": "x"}]}, 400, "messages", "no_user_turn"),
        ({"messages": [*user("a"), {"role": "assistant", "content": "b"}]}, 400, "messages", "no_user_turn"),
        ({"messages": user("a" * 5_001)}, 413, None, "text_too_long"),
        ({"messages": user("a! " * 1_100)}, 413, None, "too_many_sentences"),
    ],
)
def test_requests_above_a_limit_are_rejected(
    server: SmallServer, fields: dict[str, Any], status: int, param: str | None, code: str
) -> None:
    response = server.client.post(CHAT, json={"model": "forth", "messages": user(ENGLISH), **fields})
    check_error(response, status, param, code)


@pytest.mark.parametrize("prompt", [[], None, 7, [1, 2, 3], [[1, 2]], {"a": 1}])
def test_a_prompt_must_be_text(server: SmallServer, prompt: Any) -> None:
    response = server.client.post(COMPLETE, json={"model": "forth", "prompt": prompt})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("prompt")


@pytest.mark.parametrize(("param", "value"), [("suffix", "x"), ("best_of", 3), ("logprobs", 1)])
def test_completions_reject_unsupported_parameters(server: SmallServer, param: str, value: Any) -> None:
    response = server.client.post(COMPLETE, json={"model": "forth", "prompt": CHINESE, param: value})
    check_error(response, 400, param, "unmet_parameter")


def test_too_many_prompts_are_rejected(server: SmallServer) -> None:
    check_error(server.client.post(COMPLETE, json={"prompt": ["a"] * 51}), 413, None, "too_many_texts")


def test_every_route_requires_a_key() -> None:
    client = make_server("forth", keys=(KEY,)).client
    right, wrong = ({"authorization": f"Bearer {key}"} for key in (KEY, f"{KEY}x"))
    for method, path in (("GET", "/v1/models"), ("GET", "/v1/models/forth"), ("POST", CHAT), ("POST", COMPLETE)):
        check_error(client.request(method, path, json={}), 401, None, "invalid_api_key")
        check_error(client.request(method, path, json={}, headers=wrong), 401, None, "invalid_api_key")
    assert client.get("/v1/models", headers=right).status_code == 200
    assert client.post(CHAT, json={"messages": user(ENGLISH)}, headers=right).status_code == 200
