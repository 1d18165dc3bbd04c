"""DeepL's API: request and response formats, language codes, and rejected requests."""

from typing import Any

import pytest
from small_server import SmallServer
from three_models import CHINESE, ENGLISH, KEY, make_server, models

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text.model_card import ModelCard

REQUEST = {"text": [ENGLISH], "target_lang": "ZH"}


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server()


@pytest.fixture(scope="module")
def chinese() -> str:
    return models()["forth"].generate([ENGLISH])[0].text


def translate(server: SmallServer, **fields: Any) -> list[dict[str, Any]]:
    response = server.client.post("/v2/translate", json={**REQUEST, **fields})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["translations"]
    return found


def check_error(response: Any, status: int, code: str) -> str:
    assert response.status_code == status, response.text
    content = response.json()
    assert sorted(content) == ["detail", "message"]
    assert content["detail"] == code
    return str(content["message"])


def test_json_and_form_give_the_same_response(server: SmallServer, chinese: str) -> None:
    expected = [{"detected_source_language": "EN", "text": chinese, "billed_characters": len(ENGLISH)}]
    assert translate(server) == expected
    form = {"text": [ENGLISH, ENGLISH], "target_lang": "ZH", "show_billed_characters": "1"}
    assert server.client.post("/v2/translate", data=form).json() == {"translations": expected * 2}


def test_text_may_be_a_string(server: SmallServer, chinese: str) -> None:
    assert [each["text"] for each in translate(server, text=ENGLISH)] == [chinese]


@pytest.mark.parametrize("target", ["ZH", "zh", "ZH-HANS", "zh-Hans", "zh_CN"])
def test_codes_of_chinese_are_equivalent(server: SmallServer, chinese: str, target: str) -> None:
    assert translate(server, target_lang=target)[0]["text"] == chinese


@pytest.mark.parametrize("target", ["EN", "EN-US", "en-GB"])
def test_regional_codes_of_english_are_equivalent(server: SmallServer, target: str) -> None:
    expected = models()["back"].generate([CHINESE])[0].text
    (found,) = translate(server, text=[CHINESE], target_lang=target)
    assert (found["text"].strip(), found["detected_source_language"]) == (expected.strip(), "ZH")


def test_blank_texts_are_returned_unchanged(server: SmallServer, chinese: str) -> None:
    found = translate(server, text=["", ENGLISH, " \n"])
    assert [each["text"] for each in found] == ["", chinese, " \n"]


def test_tags_and_ignored_elements_are_kept(server: SmallServer) -> None:
    html = f'<p>{ENGLISH} <x id="7"></x></p>'
    (found,) = translate(server, text=[html], tag_handling="xml", ignore_tags=["x"])
    assert found["text"].startswith("<p>")
    assert '<x id="7"></x>' in found["text"]
    ignored = "<p><keep>the cat</keep></p>"
    assert translate(server, text=[ignored], tag_handling="html", ignore_tags="x, keep")[0]["text"] == ignored


@pytest.mark.slow
def test_language_detection_ignores_tags() -> None:
    both = [
        ModelSpec(source, models()["forth"], about=ModelCard(source_language=source, target_language="de"))
        for source in ("en", "zh")
    ]
    server = SmallServer(*both)
    tagged = f'<div class="written in English"><p title="so is this">{CHINESE}</p></div>'
    for tag_handling, expected in (("html", "ZH"), (None, "EN")):
        (found,) = translate(server, text=[tagged], target_lang="DE", tag_handling=tag_handling)
        assert found["detected_source_language"] == expected


def test_model_type_returns_the_model_name(server: SmallServer) -> None:
    assert translate(server, model_type="latency_optimized")[0]["model_type_used"] == "forth"


def test_split_sentences_0_does_not_split(server: SmallServer) -> None:
    text = "the cat sat. a dog ran home."
    unsplit = models()["forth"].generate([text])[0].text
    assert translate(server, text=[text], split_sentences="0")[0]["text"].strip() == unsplit.strip()
    assert translate(server, text=[text])[0]["text"].strip() != unsplit.strip()


@pytest.mark.parametrize("split", ["0", 0, "nonewlines"])
def test_split_sentences_can_join_lines(server: SmallServer, chinese: str, split: Any) -> None:
    lines = ENGLISH.replace(" ", "\n", 1)
    (found,) = translate(server, text=[f"{lines}\n"], split_sentences=split)
    assert found["text"] == f"{chinese}\n"
    assert found["billed_characters"] == len(ENGLISH) + 1
    assert "\n" in translate(server, text=[lines])[0]["text"]


def test_splitting_tags_can_be_named(server: SmallServer) -> None:
    text = "<t><s>the cat sat</s><s>a dog ran home</s></t>"
    first, second = (models()["forth"].generate([each])[0].text for each in ("the cat sat", "a dog ran home"))
    split = f"<t><s>{first}</s><s>{second}</s></t>"
    xml = {"text": [text], "tag_handling": "xml"}
    assert translate(server, **xml)[0]["text"] == split
    for options in ({"non_splitting_tags": ["s"]}, {"non_splitting_tags": "x,s"}, {"outline_detection": False}):
        assert translate(server, **xml, **options)[0]["text"] != split
    named = {"outline_detection": False, "splitting_tags": ["s", "t"]}
    assert translate(server, **xml, **named)[0]["text"] == split
    form = {**xml, "target_lang": "ZH", "outline_detection": "0", "splitting_tags": ["s", "t"]}
    assert server.client.post("/v2/translate", data=form).json()["translations"][0]["text"] == split


@pytest.mark.parametrize(
    "fields",
    [
        {"formality": "default"},
        {"formality": "prefer_less"},
        {"context": "a house", "preserve_formatting": True, "outline_detection": False, "unheard_of": [1]},
        {"tag_handling_version": "v2", "splitting_tags": ["p"], "non_splitting_tags": ["b"]},
    ],
)
def test_harmless_fields_are_ignored(server: SmallServer, chinese: str, fields: dict[str, Any]) -> None:
    assert translate(server, **fields)[0]["text"] == chinese


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"target_lang": "XX"}, 400, "unknown_language"),
        ({"source_lang": "FR"}, 400, "unknown_language"),
        ({"source_lang": "ZH"}, 400, "no_such_pair"),
        ({"formality": "more"}, 400, "bad_request"),
        ({"tag_handling": "pdf"}, 400, "bad_request"),
        ({"text": 7}, 400, "bad_request"),
        ({"text": None}, 400, "bad_request"),
        ({"target_lang": None}, 400, "bad_request"),
        ({"ignore_tags": ["x"] * 101}, 400, "bad_request"),
        ({"glossary_ids": ["g"]}, 400, "unmet_parameter"),
        ({"glossary_id": "g"}, 404, "unknown_glossary"),
        ({"custom_instructions": ["be brief"]}, 400, "unmet_parameter"),
        ({"text": ["a"] * 51}, 413, "too_many_texts"),
        ({"text": ["a" * 5_001]}, 413, "text_too_long"),
    ],
)
def test_unsupported_values_are_rejected(server: SmallServer, fields: dict[str, Any], status: int, code: str) -> None:
    assert check_error(server.client.post("/v2/translate", json={**REQUEST, **fields}), status, code)


def test_a_malformed_body_is_rejected(server: SmallServer) -> None:
    as_json = {"content-type": "application/json"}
    check_error(server.client.post("/v2/translate", content=b"{", headers=as_json), 400, "bad_json")
    check_error(server.client.post("/v2/translate", content=b"[1]", headers=as_json), 400, "bad_json")
    check_error(server.client.post("/v2/translate"), 400, "bad_request")
    parts = {"content-type": "multipart/form-data; boundary=x"}
    check_error(server.client.post("/v2/translate", content=b"--y", headers=parts), 400, "bad_form")
    check_error(
        server.client.post("/v2/translate", content=b"x", headers={"content-type": "multipart/form-data"}),
        400,
        "bad_form",
    )


def test_languages_are_listed_by_query_or_form(server: SmallServer) -> None:
    sources = [{"language": "EN", "name": "English"}, {"language": "ZH", "name": "Chinese"}]
    assert server.client.get("/v2/languages").json() == sources
    assert server.client.get("/v2/languages", params={"type": "source"}).json() == sources
    by_query = server.client.get("/v2/languages", params={"type": "target"}).json()
    assert [each["language"] for each in by_query] == ["ZH", "EN-GB", "EN-US"]
    assert all(each["supports_formality"] is False and each["name"] for each in by_query)
    assert server.client.request("GET", "/v2/languages", data={"type": "target"}).json() == by_query
    check_error(server.client.get("/v2/languages", params={"type": "both"}), 400, "bad_type")


def test_every_listed_target_can_be_translated(server: SmallServer) -> None:
    for each in server.client.get("/v2/languages", params={"type": "target"}).json():
        text = CHINESE if each["language"].startswith("EN") else ENGLISH
        assert translate(server, text=[text], target_lang=each["language"])[0]["text"].strip()


def test_usage_counts_characters() -> None:
    server = make_server("forth")
    assert server.client.get("/v2/usage").json() == {"character_count": 0, "character_limit": 1_000_000_000_000}
    translate(server, text=[ENGLISH, "a dog"])
    server.client.post("/v2/translate", json={**REQUEST, "target_lang": "XX"})
    assert server.client.get("/v2/usage").json()["character_count"] == len(ENGLISH) + 5


@pytest.mark.parametrize("path", ["/v2/languages", "/v2/usage", "/v2/glossaries", "/v2/glossary-language-pairs"])
def test_every_get_route_requires_a_key(path: str) -> None:
    client = make_server("forth", keys=(KEY,)).client
    check_error(client.get(path), 403, "no_key")
    check_error(client.get(path, headers={"authorization": f"DeepL-Auth-Key {KEY}x"}), 403, "bad_key")
    assert client.get(path, headers={"authorization": f"DeepL-Auth-Key {KEY}"}).status_code == 200


def test_posts_check_the_key_first() -> None:
    client = make_server("forth", keys=(KEY,)).client
    for path in ("/v2/translate", "/v2/document", "/v2/document/x", "/v2/document/x/result"):
        check_error(client.post(path, json={}), 403, "no_key")
