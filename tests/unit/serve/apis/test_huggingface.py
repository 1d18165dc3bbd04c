"""Hugging Face's API: routes by task, by model and at the root."""

from typing import Any

import pytest
from error_codes import fragment, message
from four_models import CHINESE, ENGLISH, generate_text, make_server, models
from small_server import SmallServer
from test_libretranslate import read_error, read_json

from attendo.serve.apis.huggingface import parse_parameters, to_generate_options
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text.model_card import ModelCard


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server()


def post(server: SmallServer, path: str = "/hf/translation", inputs: Any = ENGLISH, **parameters: Any) -> Any:
    body = {"inputs": inputs, **({"parameters": parameters} if parameters else {})}
    return server.client.post(path, json=body)


def test_translation_returns_one_object_per_text(server: SmallServer) -> None:
    expected = {"translation_text": generate_text("forth").strip()}
    assert read_json(post(server)) == [expected]
    assert read_json(post(server, inputs=[ENGLISH, ENGLISH])) == [expected, expected]
    assert read_json(post(server, inputs=f"{ENGLISH}\n")) == [{"translation_text": expected["translation_text"] + "\n"}]


@pytest.mark.parametrize(("source", "target"), [("en_XX", "zh_CN"), ("eng_Latn", "zho_Hans"), (None, "ZH")])
def test_language_parameters_choose_the_model(server: SmallServer, source: str | None, target: str) -> None:
    assert read_json(post(server, src_lang=source, tgt_lang=target)) == [
        {"translation_text": generate_text("forth").strip()}
    ]
    back = read_json(post(server, inputs=CHINESE, src_lang=source and target, tgt_lang="en"))
    assert back == [{"translation_text": generate_text("back", CHINESE).strip()}]


def test_a_summary_reads_all_sentences(server: SmallServer) -> None:
    text = "the cat sat. a dog ran home."
    assert read_json(post(server, "/hf/summarization", text)) == [{"summary_text": generate_text("short", text)}]
    first = read_json(post(make_server("forth", "plain"), "/hf/summarization"))
    assert first == [{"summary_text": generate_text("plain")}]


def test_a_model_with_another_task_is_rejected() -> None:
    template = message("hf_task", task="{}", served="{}")
    translating = read_error(post(make_server("forth", "back"), "/hf/summarization"))
    assert translating == template.format("summarization", "forth (translation), back (translation)")
    assert read_error(post(make_server("short"))) == template.format("translation", "short (summarization)")
    untasked = ModelSpec("unsaid", models()["forth"], about=ModelCard(source_language="en", target_language="zh"))
    assert "unsaid (translation)" in read_error(post(SmallServer(untasked), "/hf/summarization"))


def test_a_model_route_uses_the_task_of_the_model(server: SmallServer) -> None:
    assert read_json(post(server, "/hf/models/back", CHINESE)) == [
        {"translation_text": generate_text("back", CHINESE).strip()}
    ]
    assert read_json(post(server, "/hf/models/short")) == [{"summary_text": generate_text("short")}]
    plain = dict.fromkeys(("translation_text", "summary_text", "generated_text"), generate_text("plain"))
    assert read_json(post(server, "/hf/models/plain")) == [plain]
    assert read_json(post(make_server("plain"), "/")) == [plain]
    forth = [{"translation_text": generate_text("forth").strip()}]
    assert read_json(post(server, "/")) == read_json(post(server, "/hf")) == forth
    assert read_json(post(server, "/", CHINESE, tgt_lang="en")) == [
        {"translation_text": generate_text("back", CHINESE).strip()}
    ]


def test_generation_parameters_are_applied(server: SmallServer) -> None:
    expected = [{"summary_text": generate_text("short", beam=4, max_length=3)}]
    assert (
        read_json(post(server, "/hf/summarization", generate_parameters={"num_beams": 4, "max_length": 3})) == expected
    )
    assert read_json(post(server, "/hf/summarization", num_beams=4.0, max_new_tokens=3, min_length=0)) == expected
    sampled = read_json(post(server, "/hf/summarization", do_sample=True, temperature=2, top_k=5, seed=3))
    assert sampled == [{"summary_text": generate_text("short", sample=True, temperature=2.0, top_k=5, seed=3)}]


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
def test_unsupported_parameters_are_named(server: SmallServer, parameters: dict[str, Any], words: str) -> None:
    assert words in read_error(post(server, **parameters))


@pytest.mark.parametrize("inputs", [None, 7, [], [7], {"a": "b"}, [["a"]]])
def test_inputs_must_be_texts(server: SmallServer, inputs: Any) -> None:
    assert read_error(post(server, inputs=inputs)) == message("hf_inputs")


@pytest.mark.parametrize("body", ["", "{", "[]", "3", '{"inputs": "\\ud800"}'])
def test_a_body_must_be_a_json_object(server: SmallServer, body: str) -> None:
    assert "not JSON" in read_error(server.client.post("/hf/translation", content=body))


def test_limits_are_enforced(server: SmallServer) -> None:
    assert "51 texts" in read_error(post(server, inputs=["a"] * 51), 413)
    assert "5001 characters" in read_error(post(server, inputs="a" * 5_001), 413)
    assert message("field_dict_type", name="parameters") in read_error(
        server.client.post("/hf/translation", json={"inputs": "a", "parameters": "b"})
    )
    assert "stream" in read_error(server.client.post("/hf/translation", json={"inputs": "a", "stream": True}))


def test_unknown_models_and_languages_are_rejected(server: SmallServer) -> None:
    assert fragment("unknown_model", name="other") in read_error(post(server, "/hf/models/other"), 404)
    assert fragment("hf_languages", model="back", source="zh", target="en") in read_error(
        post(server, "/hf/models/back", src_lang="en", tgt_lang="zh")
    )


def test_a_key_is_required() -> None:
    server = make_server(keys=("good",))
    for path in ("/hf/translation", "/hf/summarization", "/hf/models/forth"):
        read_error(post(server, path), 401)
        body = {"inputs": ENGLISH}
        assert read_json(server.client.post(path, json=body, headers={"authorization": "Bearer good"}))
    for path in ("/", "/hf", "/hf/v1/chat/completions", "/hf/models/forth/v1/chat/completions"):
        assert post(server, path).status_code == 401


def test_get_root_returns_the_page(server: SmallServer) -> None:
    assert server.client.get("/").headers["content-type"].startswith("text/html")


def test_chat_errors_have_the_hugging_face_format(server: SmallServer) -> None:
    chat = {"model": "dummy", "messages": [{"role": "user", "content": ENGLISH}]}
    assert fragment("unknown_model", name="other") in read_error(
        server.client.post("/hf/models/other/v1/chat/completions", json=chat), 404
    )
    assert "messages" in read_error(server.client.post("/hf/v1/chat/completions", json={}))


def test_generate_parameters_override_parameters() -> None:
    body = {"parameters": {"num_beams": 2, "top_k": 1, "src_lang": "en", "generate_parameters": {"num_beams": 3}}}
    source, target, decoding = parse_parameters(body)
    assert (source, target) == ("en", None)
    assert to_generate_options(decoding) == {"beam": 3, "top_k": 1}
    assert to_generate_options({"truncation": "longest_first", "use_cache": True, "stop": [], "seed": None}) == {}
