"""Hugging Face's API: by task, by model, at the root."""

from typing import Any

import pytest
from error_codes import fragment, message
from polyglot import CHINESE, ENGLISH, asking, models, said
from small_server import Asking
from test_libretranslate import refused, told

from attendo.serve.apis.huggingface import parse_parameters, to_generate_options
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text.model_card import ModelCard


@pytest.fixture(scope="module")
def server() -> Asking:
    return asking()


def asked(server: Asking, path: str = "/hf/translation", inputs: Any = ENGLISH, **parameters: Any) -> Any:
    body = {"inputs": inputs, **({"parameters": parameters} if parameters else {})}
    return server.client.post(path, json=body)


def test_a_translation(server: Asking) -> None:
    expected = {"translation_text": said("forth").strip()}
    assert told(asked(server)) == [expected]
    assert told(asked(server, inputs=[ENGLISH, ENGLISH])) == [expected, expected]
    assert told(asked(server, inputs=f"{ENGLISH}\n")) == [{"translation_text": expected["translation_text"] + "\n"}]


@pytest.mark.parametrize(("source", "target"), [("en_XX", "zh_CN"), ("eng_Latn", "zho_Hans"), (None, "ZH")])
def test_languages_choose_the_model(server: Asking, source: str | None, target: str) -> None:
    assert told(asked(server, src_lang=source, tgt_lang=target)) == [{"translation_text": said("forth").strip()}]
    back = told(asked(server, inputs=CHINESE, src_lang=source and target, tgt_lang="en"))
    assert back == [{"translation_text": said("back", CHINESE).strip()}]


def test_a_summary_is_of_the_whole_text(server: Asking) -> None:
    text = "the cat sat. a dog ran home."
    assert told(asked(server, "/hf/summarization", text)) == [{"summary_text": said("short", text)}]
    first = told(asked(asking("forth", "plain"), "/hf/summarization"))
    assert first == [{"summary_text": said("plain")}]


def test_a_model_for_something_else_is_not_asked() -> None:
    words = message("hf_task", task="{}", served="{}")
    translating = refused(asked(asking("forth", "back"), "/hf/summarization"))
    assert translating == words.format("summarization", "forth (translation), back (translation)")
    assert refused(asked(asking("short"))) == words.format("translation", "short (summarization)")
    unsaid = ModelSpec("unsaid", models()["forth"], about=ModelCard(source_language="en", target_language="zh"))
    assert "unsaid (translation)" in refused(asked(Asking(unsaid), "/hf/summarization"))


def test_a_model_does_what_it_is_for(server: Asking) -> None:
    assert told(asked(server, "/hf/models/back", CHINESE)) == [{"translation_text": said("back", CHINESE).strip()}]
    assert told(asked(server, "/hf/models/short")) == [{"summary_text": said("short")}]
    plain = dict.fromkeys(("translation_text", "summary_text", "generated_text"), said("plain"))
    assert told(asked(server, "/hf/models/plain")) == [plain]
    assert told(asked(asking("plain"), "/")) == [plain]
    forth = [{"translation_text": said("forth").strip()}]
    assert told(asked(server, "/")) == told(asked(server, "/hf")) == forth
    assert told(asked(server, "/", CHINESE, tgt_lang="en")) == [{"translation_text": said("back", CHINESE).strip()}]


def test_parameters_of_decoding_are_met(server: Asking) -> None:
    expected = [{"summary_text": said("short", beam=4, max_length=3)}]
    assert told(asked(server, "/hf/summarization", generate_parameters={"num_beams": 4, "max_length": 3})) == expected
    assert told(asked(server, "/hf/summarization", num_beams=4.0, max_new_tokens=3, min_length=0)) == expected
    sampled = told(asked(server, "/hf/summarization", do_sample=True, temperature=2, top_k=5, seed=3))
    assert sampled == [{"summary_text": said("short", sample=True, temperature=2.0, top_k=5, seed=3)}]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"num_beams": "4"}, "num_beams cannot be '4'"),
        ({"num_beams": 1.5}, "num_beams cannot be 1.5"),
        ({"num_beams": True}, "num_beams cannot be True"),
        ({"num_beams": 1e300}, "num_beams cannot be 1e+300"),
        ({"num_beams": 0}, "beam"),
        ({"num_beams": 13}, fragment("above_limit", name="beam", value=13, most=12)),
        ({"max_length": 513}, fragment("above_limit", name="max_length", value=513, most=512)),
        ({"do_sample": "yes"}, "do_sample cannot be 'yes'"),
        ({"temperature": 0.5}, fragment("sampling_option_without_sample", option="temperature")),
        ({"generate_parameters": []}, message("field_dict_type", name="generate_parameters")),
        ({"src_lang": 7}, "src_lang cannot be 7"),
        ({"frobnicate": 1, "watermark": True}, "not used by the model: ['frobnicate', 'watermark']"),
        ({"num_return_sequences": 2}, "not used by the model: ['num_return_sequences']"),
        ({"src_lang": "en", "tgt_lang": "zz"}, fragment("unknown_language", language="zz")),
        ({"src_lang": "zz", "tgt_lang": "zh"}, fragment("unknown_language", language="zz")),
        ({"src_lang": "en", "tgt_lang": "en"}, "from en to en"),
        ({"src_lang": "zh"}, fragment("hf_languages", model="forth", source="en", target="zh")),
    ],
)
def test_what_cannot_be_met_is_named(server: Asking, parameters: dict[str, Any], words: str) -> None:
    assert words in refused(asked(server, **parameters))


@pytest.mark.parametrize("inputs", [None, 7, [], [7], {"a": "b"}, [["a"]]])
def test_inputs_are_texts(server: Asking, inputs: Any) -> None:
    assert refused(asked(server, inputs=inputs)) == message("hf_inputs")


@pytest.mark.parametrize("body", ["", "{", "[]", "3", '{"inputs": "\\ud800"}'])
def test_a_body_is_a_json_object(server: Asking, body: str) -> None:
    assert "not JSON" in refused(server.client.post("/hf/translation", content=body))


def test_limits_hold(server: Asking) -> None:
    assert "51 texts" in refused(asked(server, inputs=["a"] * 51), 413)
    assert "5001 characters" in refused(asked(server, inputs="a" * 5_001), 413)
    assert message("field_dict_type", name="parameters") in refused(
        server.client.post("/hf/translation", json={"inputs": "a", "parameters": "b"})
    )
    assert "stream" in refused(server.client.post("/hf/translation", json={"inputs": "a", "stream": True}))


def test_models_are_known_by_name(server: Asking) -> None:
    assert fragment("unknown_model", name="other") in refused(asked(server, "/hf/models/other"), 404)
    assert fragment("hf_languages", model="back", source="zh", target="en") in refused(
        asked(server, "/hf/models/back", src_lang="en", tgt_lang="zh")
    )


def test_a_key_is_asked_for() -> None:
    server = asking(keys=("good",))
    for path in ("/hf/translation", "/hf/summarization", "/hf/models/forth"):
        refused(asked(server, path), 401)
        body = {"inputs": ENGLISH}
        assert told(server.client.post(path, json=body, headers={"authorization": "Bearer good"}))
    for path in ("/", "/hf", "/hf/v1/chat/completions", "/hf/models/forth/v1/chat/completions"):
        assert asked(server, path).status_code == 401


def test_the_page_stays_at_the_root(server: Asking) -> None:
    assert server.client.get("/").headers["content-type"].startswith("text/html")


def test_chat_is_refused_as_elsewhere(server: Asking) -> None:
    chat = {"model": "dummy", "messages": [{"role": "user", "content": ENGLISH}]}
    assert fragment("unknown_model", name="other") in refused(
        server.client.post("/hf/models/other/v1/chat/completions", json=chat), 404
    )
    assert "messages" in refused(server.client.post("/hf/v1/chat/completions", json={}))


def test_parameters_apart_win_over_those_among_the_others() -> None:
    body = {"parameters": {"num_beams": 2, "top_k": 1, "src_lang": "en", "generate_parameters": {"num_beams": 3}}}
    found = parse_parameters(body)
    assert (found.source, found.target) == ("en", None)
    assert to_generate_options(found.decoding) == {"beam": 3, "top_k": 1}
    assert to_generate_options({"truncation": "longest_first", "use_cache": True, "stop": [], "seed": None}) == {}
