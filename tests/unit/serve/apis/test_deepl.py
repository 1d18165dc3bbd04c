"""DeepL's API: shapes of requests and answers, languages by their many names, and what is refused."""

from typing import Any

import pytest
from both_ways import CHINESE, ENGLISH, KEY, asking, models
from small_server import Asking

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text.model_card import ModelCard

ASKED = {"text": [ENGLISH], "target_lang": "ZH"}


@pytest.fixture(scope="module")
def server() -> Asking:
    return asking()


@pytest.fixture(scope="module")
def chinese() -> str:
    return models()["forth"].generate([ENGLISH])[0].text


def translated(server: Asking, **fields: Any) -> list[dict[str, Any]]:
    answered = server.client.post("/v2/translate", json={**ASKED, **fields})
    assert answered.status_code == 200, answered.text
    found: list[dict[str, Any]] = answered.json()["translations"]
    return found


def refused(answered: Any, status: int, code: str) -> str:
    assert answered.status_code == status, answered.text
    content = answered.json()
    assert sorted(content) == ["detail", "message"]
    assert content["detail"] == code
    return str(content["message"])


def test_json_and_form_are_the_same(server: Asking, chinese: str) -> None:
    expected = [{"detected_source_language": "EN", "text": chinese, "billed_characters": len(ENGLISH)}]
    assert translated(server) == expected
    form = {"text": [ENGLISH, ENGLISH], "target_lang": "ZH", "show_billed_characters": "1"}
    assert server.client.post("/v2/translate", data=form).json() == {"translations": expected * 2}


def test_a_text_may_be_given_without_a_list(server: Asking, chinese: str) -> None:
    assert [each["text"] for each in translated(server, text=ENGLISH)] == [chinese]


@pytest.mark.parametrize("target", ["ZH", "zh", "ZH-HANS", "zh-Hans", "zh_CN"])
def test_chinese_has_many_names(server: Asking, chinese: str, target: str) -> None:
    assert translated(server, target_lang=target)[0]["text"] == chinese


@pytest.mark.parametrize("target", ["EN", "EN-US", "en-GB"])
def test_regions_are_the_same_language(server: Asking, target: str) -> None:
    expected = models()["back"].generate([CHINESE])[0].text
    (found,) = translated(server, text=[CHINESE], target_lang=target)
    assert (found["text"].strip(), found["detected_source_language"]) == (expected.strip(), "ZH")


def test_no_text_is_no_text(server: Asking, chinese: str) -> None:
    found = translated(server, text=["", ENGLISH, " \n"])
    assert [each["text"] for each in found] == ["", chinese, " \n"]


def test_tags_and_what_is_ignored_survive(server: Asking) -> None:
    html = f'<p>{ENGLISH} <x id="7"></x></p>'
    (found,) = translated(server, text=[html], tag_handling="xml", ignore_tags=["x"])
    assert found["text"].startswith("<p>")
    assert '<x id="7"></x>' in found["text"]
    kept = "<p><keep>the cat</keep></p>"
    assert translated(server, text=[kept], tag_handling="html", ignore_tags="x, keep")[0]["text"] == kept


@pytest.mark.slow
def test_tags_do_not_tell_the_language() -> None:
    both = [
        ModelSpec(source, models()["forth"], about=ModelCard(source_language=source, target_language="de"))
        for source in ("en", "zh")
    ]
    server = Asking(*both)
    tagged = f'<div class="written in English"><p title="so is this">{CHINESE}</p></div>'
    for tag_handling, expected in (("html", "ZH"), (None, "EN")):
        (found,) = translated(server, text=[tagged], target_lang="DE", tag_handling=tag_handling)
        assert found["detected_source_language"] == expected


def test_the_model_is_told_to_whom_asks_for_its_type(server: Asking) -> None:
    assert translated(server, model_type="latency_optimized")[0]["model_type_used"] == "forth"


def test_sentences_are_kept_together_on_request(server: Asking) -> None:
    text = "the cat sat. a dog ran home."
    whole = models()["forth"].generate([text])[0].text
    assert translated(server, text=[text], split_sentences="0")[0]["text"].strip() == whole.strip()
    assert translated(server, text=[text])[0]["text"].strip() != whole.strip()


@pytest.mark.parametrize("split", ["0", 0, "nonewlines"])
def test_a_sentence_over_two_lines_is_read_as_one_on_request(server: Asking, chinese: str, split: Any) -> None:
    lines = ENGLISH.replace(" ", "\n", 1)
    (found,) = translated(server, text=[f"{lines}\n"], split_sentences=split)
    assert found["text"] == f"{chinese}\n"
    assert found["billed_characters"] == len(ENGLISH) + 1
    assert "\n" in translated(server, text=[lines])[0]["text"]


def test_the_tags_that_split_are_those_that_are_named(server: Asking) -> None:
    text = "<t><s>the cat sat</s><s>a dog ran home</s></t>"
    first, second = (models()["forth"].generate([each])[0].text for each in ("the cat sat", "a dog ran home"))
    divided = f"<t><s>{first}</s><s>{second}</s></t>"
    xml = {"text": [text], "tag_handling": "xml"}
    assert translated(server, **xml)[0]["text"] == divided
    for joining in ({"non_splitting_tags": ["s"]}, {"non_splitting_tags": "x,s"}, {"outline_detection": False}):
        assert translated(server, **xml, **joining)[0]["text"] != divided
    named = {"outline_detection": False, "splitting_tags": ["s", "t"]}
    assert translated(server, **xml, **named)[0]["text"] == divided
    form = {**xml, "target_lang": "ZH", "outline_detection": "0", "splitting_tags": ["s", "t"]}
    assert server.client.post("/v2/translate", data=form).json()["translations"][0]["text"] == divided


@pytest.mark.parametrize(
    "fields",
    [
        {"formality": "default"},
        {"formality": "prefer_less"},
        {"context": "a house", "preserve_formatting": True, "outline_detection": False, "unheard_of": [1]},
        {"tag_handling_version": "v2", "splitting_tags": ["p"], "non_splitting_tags": ["b"]},
    ],
)
def test_what_does_no_harm_is_passed_over(server: Asking, chinese: str, fields: dict[str, Any]) -> None:
    assert translated(server, **fields)[0]["text"] == chinese


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
        ({"glossary_id": "g"}, 400, "unmet_parameter"),
        ({"custom_instructions": ["be brief"]}, 400, "unmet_parameter"),
        ({"text": ["a"] * 51}, 413, "too_many_texts"),
        ({"text": ["a" * 5_001]}, 413, "text_too_long"),
    ],
)
def test_what_cannot_be_met_is_refused(server: Asking, fields: dict[str, Any], status: int, code: str) -> None:
    assert refused(server.client.post("/v2/translate", json={**ASKED, **fields}), status, code)


def test_a_body_that_is_none_is_refused(server: Asking) -> None:
    as_json = {"content-type": "application/json"}
    refused(server.client.post("/v2/translate", content=b"{", headers=as_json), 400, "bad_json")
    refused(server.client.post("/v2/translate", content=b"[1]", headers=as_json), 400, "bad_json")
    refused(server.client.post("/v2/translate"), 400, "bad_request")
    parts = {"content-type": "multipart/form-data; boundary=x"}
    refused(server.client.post("/v2/translate", content=b"--y", headers=parts), 400, "bad_form")
    refused(
        server.client.post("/v2/translate", content=b"x", headers={"content-type": "multipart/form-data"}),
        400,
        "bad_form",
    )


def test_languages_by_query_and_by_a_form_on_get(server: Asking) -> None:
    sources = [{"language": "EN", "name": "English"}, {"language": "ZH", "name": "Chinese"}]
    assert server.client.get("/v2/languages").json() == sources
    assert server.client.get("/v2/languages", params={"type": "source"}).json() == sources
    by_query = server.client.get("/v2/languages", params={"type": "target"}).json()
    assert [each["language"] for each in by_query] == ["ZH", "EN-GB", "EN-US"]
    assert all(each["supports_formality"] is False and each["name"] for each in by_query)
    assert server.client.request("GET", "/v2/languages", data={"type": "target"}).json() == by_query
    refused(server.client.get("/v2/languages", params={"type": "both"}), 400, "bad_type")


def test_every_target_that_is_listed_can_be_asked_for(server: Asking) -> None:
    for each in server.client.get("/v2/languages", params={"type": "target"}).json():
        text = CHINESE if each["language"].startswith("EN") else ENGLISH
        assert translated(server, text=[text], target_lang=each["language"])[0]["text"].strip()


def test_usage_counts_characters() -> None:
    server = asking("forth")
    assert server.client.get("/v2/usage").json() == {"character_count": 0, "character_limit": 1_000_000_000_000}
    translated(server, text=[ENGLISH, "a dog"])
    server.client.post("/v2/translate", json={**ASKED, "target_lang": "XX"})
    assert server.client.get("/v2/usage").json()["character_count"] == len(ENGLISH) + 5


def test_there_are_no_glossaries(server: Asking) -> None:
    assert server.client.get("/v2/glossary-language-pairs").json() == {"supported_languages": []}
    assert server.client.get("/v2/glossaries").json() == {"glossaries": []}
    refused(server.client.get("/v2/glossaries/x"), 404, "not_found")


@pytest.mark.parametrize("path", ["/v2/languages", "/v2/usage", "/v2/glossaries", "/v2/glossary-language-pairs"])
def test_a_key_is_asked_for_everywhere(path: str) -> None:
    client = asking("forth", keys=(KEY,)).client
    refused(client.get(path), 403, "no_key")
    refused(client.get(path, headers={"authorization": f"DeepL-Auth-Key {KEY}x"}), 403, "bad_key")
    assert client.get(path, headers={"authorization": f"DeepL-Auth-Key {KEY}"}).status_code == 200


def test_posts_ask_for_a_key_before_anything_else() -> None:
    client = asking("forth", keys=(KEY,)).client
    for path in ("/v2/translate", "/v2/document", "/v2/document/x", "/v2/document/x/result"):
        refused(client.post(path, json={}), 403, "no_key")
