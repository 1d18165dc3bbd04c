"""LibreTranslate's API: every way to ask, every shape of an answer, and its words of refusal."""

import json
from typing import Any

import pytest
from polyglot import CHINESE, ENGLISH, asking, models, said
from small_server import Asking

from attendo.serve.scheduling.registry import ModelSpec
from attendo.text.model_card import ModelCard

ASKED = {"q": ENGLISH, "source": "en", "target": "zh"}
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Asking:
    return asking()


@pytest.fixture(scope="module")
def chinese() -> str:
    return said("forth").strip()


@pytest.fixture(scope="module")
def english() -> str:
    return said("back", CHINESE).strip()


def told(answered: Any) -> Any:
    assert answered.status_code == 200, answered.text
    return answered.json()


def refused(answered: Any, status: int = 400) -> str:
    assert answered.status_code == status, answered.text
    content = answered.json()
    assert list(content) == ["error"]
    assert isinstance(content["error"], str)
    return str(content["error"])


def posted(server: Asking, **fields: Any) -> Any:
    return server.client.post("/translate", json={**ASKED, **fields})


def test_json_form_multipart_and_address_are_the_same(server: Asking, chinese: str) -> None:
    client = server.client
    expected = {"translatedText": chinese}
    assert told(client.post("/translate", json=ASKED)) == expected
    assert told(client.post("/translate", data=ASKED)) == expected
    assert told(client.post("/translate", files={name: (None, value) for name, value in ASKED.items()})) == expected
    assert told(client.post("/translate", params=ASKED)) == expected
    assert told(client.post("/translate", params={"q": ENGLISH}, data={"source": "en", "target": "zh"})) == expected
    as_other_json = {"content-type": "application/vnd.api+json; charset=utf-8"}
    assert (
        told(
            client.post(
                "/translate",
                content=server.client.build_request("POST", "/", json=ASKED).content,
                headers=as_other_json,
            )
        )
        == expected
    )


def test_of_two_values_the_first_counts_and_the_address_comes_first(server: Asking, chinese: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    twice = b"q=the+cat+sat&q=I+love+NLP&source=zz&target=zh"
    assert told(server.client.post("/translate?source=en&source=xx", content=twice, headers=form)) == {
        "translatedText": chinese
    }


def test_a_list_is_answered_with_a_list(server: Asking, chinese: str) -> None:
    assert told(posted(server, q=[ENGLISH, "", ENGLISH])) == {"translatedText": [chinese, "", chinese]}
    assert told(posted(server, q=[ENGLISH])) == {"translatedText": [chinese]}


def test_the_language_is_detected_and_told(server: Asking, chinese: str) -> None:
    found = told(posted(server, source="auto"))
    assert found == {"translatedText": chinese, "detectedLanguage": {"confidence": 100.0, "language": "en"}}
    several = told(posted(server, source="AUTO", q=[ENGLISH, "cat 猫"]))
    assert several["detectedLanguage"] == [
        {"confidence": 100.0, "language": "en"}, {"confidence": 50.0, "language": "en"},
    ]  # fmt: skip


def test_each_text_of_several_languages_goes_to_its_own_model() -> None:
    """Two models write German here, one reads English, one Chinese."""
    sources = {"forth": "en", "back": "zh"}
    server = Asking(
        *(
            ModelSpec(
                name, models()[name], about=ModelCard(task="translation", source_language=source, target_language="de")
            )
            for name, source in sources.items()
        )
    )
    texts = [CHINESE, ENGLISH, CHINESE]
    found = told(posted(server, q=texts, source="auto", target="de"))
    assert [each["language"] for each in found["detectedLanguage"]] == ["zh", "en", "zh"]
    names = ("back", "forth", "back")
    assert found["translatedText"] == [said(*each).strip() for each in zip(names, texts, strict=True)]


@pytest.mark.parametrize("tag", ["ZH", "zh-Hans", "zt", "ZH-HANT"])
def test_chinese_has_many_names(server: Asking, tag: str, chinese: str, english: str) -> None:
    assert told(posted(server, target=tag, source="EN-us")) == {"translatedText": chinese}
    assert told(posted(server, q=CHINESE, source=tag, target="en")) == {"translatedText": english}


def test_alternatives_are_told_where_they_are_asked_for(server: Asking, chinese: str) -> None:
    found = told(posted(server, alternatives=2))
    assert found["translatedText"] == chinese
    assert 1 <= len(found["alternatives"]) <= 2
    assert len({found["translatedText"], *found["alternatives"]}) == 1 + len(found["alternatives"])
    assert told(posted(server, alternatives="2")) == told(posted(server, alternatives=2.0)) == found
    several = told(posted(server, q=[ENGLISH, "1"], alternatives=2))
    assert several == {"translatedText": [found["translatedText"], "1"], "alternatives": [found["alternatives"], []]}


@pytest.mark.parametrize("given", [0, "0", "", None, -3])
def test_no_alternatives_are_not_told(server: Asking, given: Any) -> None:
    assert list(told(posted(server, alternatives=given))) == ["translatedText"]


def test_no_number_of_alternatives_is_too_large_to_be_refused(server: Asking) -> None:
    for written, wording in (("1e400", "must be <= 5"), ("9" * 4_000, "must be <= 5"), ('"--5"', "is not a number")):
        body = json.dumps(ASKED)[:-1] + f', "alternatives": {written}}}'
        answered = server.client.post("/translate", content=body, headers=JSON)
        assert refused(answered) == f"Invalid request: alternatives parameter {wording}"
    below = json.dumps(ASKED)[:-1] + ', "alternatives": -1e400}'
    assert list(told(server.client.post("/translate", content=below, headers=JSON))) == ["translatedText"]
    by_form = server.client.post("/translate", data={**ASKED, "alternatives": "--5"})
    by_address = server.client.post("/translate", params={**ASKED, "alternatives": "--5"})
    assert refused(by_form) == refused(by_address) == "Invalid request: alternatives parameter is not a number"


def test_html_keeps_its_tags(server: Asking) -> None:
    page = "<p>I <b>love</b> NLP</p>\n<script>let x = 'cat'</script>"
    found = told(posted(server, q=page, format="html"))["translatedText"]
    assert found.startswith("<p>")
    assert found.endswith("</p>\n<script>let x = 'cat'</script>")
    assert found.count("<b>") == found.count("</b>") == 1


def test_lines_stay_lines(server: Asking, chinese: str) -> None:
    assert told(posted(server, q=f"{ENGLISH}\r\n\n  {ENGLISH}\n"))["translatedText"] == f"{chinese}\r\n\n  {chinese}\n"


@pytest.mark.parametrize("name", ["q", "source", "target"])
@pytest.mark.parametrize("value", [None, ""])
def test_what_is_missing_is_named(server: Asking, name: str, value: Any) -> None:
    wording = f"Invalid request: missing {name} parameter"
    assert refused(posted(server, **{name: value})) == wording
    assert refused(server.client.post("/translate", data={k: v for k, v in ASKED.items() if k != name})) == wording


def test_no_body_misses_everything(server: Asking) -> None:
    assert refused(server.client.post("/translate")) == "Invalid request: missing q parameter"
    assert refused(posted(server, q=[])) == "Invalid request: missing q parameter"


@pytest.mark.parametrize(
    ("fields", "wording"),
    [
        ({"source": "zz"}, "zz is not supported"),
        ({"target": "zz"}, "zz is not supported"),
        ({"target": "de"}, "de is not supported"),
        ({"target": "zz", "source": "auto"}, "zz is not supported"),
        ({"target": "auto"}, "auto is not supported"),
        ({"target": "en"}, "English (en) is not available as a target language from English (en)"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"format": 3}, "3 format is not supported"),
        ({"alternatives": 6}, "Invalid request: alternatives parameter must be <= 5"),
        ({"alternatives": 10_000}, "Invalid request: alternatives parameter must be <= 5"),
        ({"alternatives": "9" * 5_000}, "Invalid request: alternatives parameter must be <= 5"),
        ({"alternatives": 1e300}, "Invalid request: alternatives parameter must be <= 5"),
        ({"alternatives": "--5"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": "-"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": "٣"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 1.5}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": True}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": [1]}, "Invalid request: alternatives parameter is not a number"),
        ({"q": 7}, "Invalid request: q parameter is not a text"),
        ({"q": {"a": "b"}}, "Invalid request: q parameter is not a text"),
        ({"q": ["a", 7]}, "Invalid request: q parameter is not a text"),
        ({"source": ["en"]}, "Invalid request: source parameter is not a text"),
        ({"q": "a" * 5_001}, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"q": ["a"] * 51}, "Invalid request: request (51) exceeds text limit (50)"),
    ],
)  # fmt: skip
def test_refusals_have_the_words_of_libretranslate(server: Asking, fields: dict[str, Any], wording: str) -> None:
    assert refused(posted(server, **fields)) == wording


@pytest.mark.parametrize("body", ["{", "[]", "3", "null", '"q"', '{"q": NaN}', '{"q": "\\ud800"}', "\ufeff{}", ""])
def test_bad_json_is_told_as_such(server: Asking, body: str) -> None:
    assert refused(server.client.post("/translate", content=body.encode(), headers=JSON)) == "Invalid JSON format"


def test_a_bad_form_is_told_as_such(server: Asking) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for content in (b"--y\r\n", b"--x\r\nnothing", b"\xff" * 50):
        answered = server.client.post("/translate", content=content, headers=headers)
        assert refused(answered).startswith(("the form cannot be read", "Invalid request: missing q parameter"))
    refused(server.client.post("/translate", files={"q": ("file.txt", b"cat")}, data={"source": "en", "target": "zh"}))


def test_too_many_sentences_are_refused(server: Asking) -> None:
    assert "sentences" in refused(posted(server, q="a\n" * 2_000), 413)


def test_detection_is_among_all_languages_served(server: Asking) -> None:
    client = server.client
    assert told(client.post("/detect", json={"q": ENGLISH})) == [{"confidence": 100.0, "language": "en"}]
    assert told(client.post("/detect", data={"q": CHINESE})) == [{"confidence": 100.0, "language": "zh"}]
    assert told(client.post("/detect", params={"q": "猫 cat 狗 狗"})) == [
        {"confidence": 75.0, "language": "zh"}, {"confidence": 25.0, "language": "en"},
    ]  # fmt: skip
    assert told(client.post("/detect", json={"q": "123"})) == [{"confidence": 0.0, "language": "en"}]
    assert told(asking("forth").client.post("/detect", json={"q": CHINESE}))[0]["language"] == "zh"


def test_detection_refuses_in_the_same_words(server: Asking) -> None:
    client = server.client
    assert refused(client.post("/detect", json={})) == "Invalid request: missing q parameter"
    assert refused(client.post("/detect", json={"q": ["a"]})) == "Invalid request: q parameter is not a text"
    assert refused(client.post("/detect", json={"q": "a" * 5_001})).endswith("exceeds text limit (5000)")
    assert refused(client.post("/detect", content="[", headers=JSON)) == "Invalid JSON format"
    refused(asking("plain").client.post("/detect", json={"q": "cat"}))


def test_languages_are_listed_with_their_targets(server: Asking) -> None:
    assert told(server.client.get("/languages")) == [
        {"code": "en", "name": "English", "targets": ["zh"]},
        {"code": "zh", "name": "Chinese", "targets": ["en"]},
    ]
    assert told(asking("forth").client.get("/languages")) == [
        {"code": "en", "name": "English", "targets": ["zh"]},
        {"code": "zh", "name": "Chinese", "targets": []},
    ]
    assert told(asking("plain").client.get("/languages")) == []


def test_a_server_without_languages_supports_none() -> None:
    server = asking("plain")
    assert refused(posted(server)) == "en is not supported"
    assert refused(posted(server, source="auto")) == "zh is not supported"


def test_the_settings_of_its_page(server: Asking) -> None:
    assert told(server.client.get("/frontend/settings")) == {
        "charLimit": 5000,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": "zh", "name": "Chinese"},
        },
    }


def test_files_and_suggestions_are_disabled(server: Asking) -> None:
    client = server.client
    files = "Files translation are disabled on this server."
    assert refused(client.post("/translate_file", files={"file": ("a.txt", b"cat")}), 403) == files
    assert refused(client.get("/download_file/a.txt"), 403) == files
    assert (
        refused(client.post("/suggest", data={"q": "a", "s": "b"}), 403) == "Suggestions are disabled on this server."
    )


@pytest.mark.parametrize("path", ["/translate", "/detect", "/suggest", "/translate_file"])
def test_another_method_is_refused(server: Asking, path: str) -> None:
    refused(server.client.get(path), 405)


def test_a_key_may_be_in_the_body_or_in_a_header() -> None:
    server = asking(keys=("good",))
    client = server.client
    assert refused(posted(server), 403) == "Invalid API key"
    for wrong in ("bad", "goo", "good ", 7, ["good"]):
        assert refused(posted(server, api_key=wrong), 403) == "Invalid API key"
    assert told(posted(server, api_key="good"))
    assert told(client.post("/translate", data={**ASKED, "api_key": "good"}))
    assert told(client.post("/translate", params={**ASKED, "api_key": "good"}))
    assert told(client.post("/translate", json=ASKED, headers={"authorization": "Bearer good"}))
    assert refused(client.post("/detect", json={"q": "cat"}), 403) == "Invalid API key"
    assert told(client.post("/detect", json={"q": "cat", "api_key": "good"}))
    assert told(client.get("/languages"))
    assert told(client.get("/frontend/settings"))["keyRequired"] is True


def test_the_description_tells_of_every_way_to_ask(server: Asking) -> None:
    post = server.get("openapi.json")["paths"]["/translate"]["post"]
    assert {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"} == set(
        post["requestBody"]["content"]
    )
    assert {"200", "400", "413", "429", "504"} <= set(post["responses"])
