"""LibreTranslate's API: request formats, response formats and error messages."""

import json
import zipfile
from io import BytesIO
from typing import Any

import pytest
from four_models import CHINESE, ENGLISH, generate_text, make_server, models
from small_server import SmallServer

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.translation.formats import list_formats
from attendo.text.model_card import ModelCard

REQUEST = {"q": ENGLISH, "source": "en", "target": "zh"}
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server()


@pytest.fixture(scope="module")
def chinese() -> str:
    return generate_text("forth").strip()


@pytest.fixture(scope="module")
def english() -> str:
    return generate_text("back", CHINESE).strip()


def read_json(response: Any) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


def read_error(response: Any, status: int = 400) -> str:
    assert response.status_code == status, response.text
    content = response.json()
    assert list(content) == ["error"]
    assert isinstance(content["error"], str)
    return str(content["error"])


def post_translate(server: SmallServer, **fields: Any) -> Any:
    return server.client.post("/translate", json={**REQUEST, **fields})


def test_json_form_multipart_and_query_are_equivalent(server: SmallServer, chinese: str) -> None:
    client = server.client
    expected = {"translatedText": chinese}
    assert read_json(client.post("/translate", json=REQUEST)) == expected
    assert read_json(client.post("/translate", data=REQUEST)) == expected
    assert (
        read_json(client.post("/translate", files={name: (None, value) for name, value in REQUEST.items()})) == expected
    )
    assert read_json(client.post("/translate", params=REQUEST)) == expected
    assert (
        read_json(client.post("/translate", params={"q": ENGLISH}, data={"source": "en", "target": "zh"})) == expected
    )
    as_other_json = {"content-type": "application/vnd.api+json; charset=utf-8"}
    assert (
        read_json(
            client.post(
                "/translate",
                content=server.client.build_request("POST", "/", json=REQUEST).content,
                headers=as_other_json,
            )
        )
        == expected
    )


def test_the_query_and_the_first_value_win(server: SmallServer, chinese: str) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    twice = b"q=the+cat+sat&q=I+love+NLP&source=zz&target=zh"
    assert read_json(server.client.post("/translate?source=en&source=xx", content=twice, headers=form)) == {
        "translatedText": chinese
    }


def test_a_list_returns_a_list(server: SmallServer, chinese: str) -> None:
    assert read_json(post_translate(server, q=[ENGLISH, "", ENGLISH])) == {"translatedText": [chinese, "", chinese]}
    assert read_json(post_translate(server, q=[ENGLISH])) == {"translatedText": [chinese]}


def test_auto_returns_the_detected_language(server: SmallServer, chinese: str) -> None:
    found = read_json(post_translate(server, source="auto"))
    assert found == {"translatedText": chinese, "detectedLanguage": {"confidence": 100.0, "language": "en"}}
    several = read_json(post_translate(server, source="AUTO", q=[ENGLISH, "cat 猫"]))
    assert several["detectedLanguage"] == [
        {"confidence": 100.0, "language": "en"}, {"confidence": 50.0, "language": "en"},
    ]  # fmt: skip


def test_each_text_uses_the_model_of_its_language() -> None:
    """Two models translate to German, one from English and one from Chinese."""
    sources = {"forth": "en", "back": "zh"}
    server = SmallServer(
        *(
            ModelSpec(
                name, models()[name], about=ModelCard(task="translation", source_language=source, target_language="de")
            )
            for name, source in sources.items()
        )
    )
    texts = [CHINESE, ENGLISH, CHINESE]
    found = read_json(post_translate(server, q=texts, source="auto", target="de"))
    assert [each["language"] for each in found["detectedLanguage"]] == ["zh", "en", "zh"]
    names = ("back", "forth", "back")
    assert found["translatedText"] == [generate_text(*each).strip() for each in zip(names, texts, strict=True)]


@pytest.mark.parametrize("tag", ["ZH", "zh-Hans", "zt", "ZH-HANT"])
def test_codes_of_chinese_are_equivalent(server: SmallServer, tag: str, chinese: str, english: str) -> None:
    assert read_json(post_translate(server, target=tag, source="EN-us")) == {"translatedText": chinese}
    assert read_json(post_translate(server, q=CHINESE, source=tag, target="en")) == {"translatedText": english}


def test_alternatives_are_returned_on_request(server: SmallServer, chinese: str) -> None:
    found = read_json(post_translate(server, alternatives=2))
    assert found["translatedText"] == chinese
    assert 1 <= len(found["alternatives"]) <= 2
    assert len({found["translatedText"], *found["alternatives"]}) == 1 + len(found["alternatives"])
    assert (
        read_json(post_translate(server, alternatives="2"))
        == read_json(post_translate(server, alternatives=2.0))
        == found
    )
    several = read_json(post_translate(server, q=[ENGLISH, "1"], alternatives=2))
    assert several == {"translatedText": [found["translatedText"], "1"], "alternatives": [found["alternatives"], []]}


@pytest.mark.parametrize("given", [0, "0", "", None, -3])
def test_zero_alternatives_return_no_field(server: SmallServer, given: Any) -> None:
    assert list(read_json(post_translate(server, alternatives=given))) == ["translatedText"]


def test_huge_numbers_of_alternatives_are_rejected(server: SmallServer) -> None:
    for literal, wording in (
        ("1e400", "must be <= 5"),
        ("9" * 4_000, "must be <= 5"),
        ('"--5"', "is not a number"),
    ):
        body = json.dumps(REQUEST)[:-1] + f', "alternatives": {literal}}}'
        response = server.client.post("/translate", content=body, headers=JSON)
        assert read_error(response) == f"Invalid request: alternatives parameter {wording}"
    below = json.dumps(REQUEST)[:-1] + ', "alternatives": -1e400}'
    assert list(read_json(server.client.post("/translate", content=below, headers=JSON))) == ["translatedText"]
    by_form = server.client.post("/translate", data={**REQUEST, "alternatives": "--5"})
    by_address = server.client.post("/translate", params={**REQUEST, "alternatives": "--5"})
    assert read_error(by_form) == read_error(by_address) == "Invalid request: alternatives parameter is not a number"


def test_html_keeps_its_tags(server: SmallServer) -> None:
    page = "<p>I <b>love</b> NLP</p>\n<script>let x = 'cat'</script>"
    found = read_json(post_translate(server, q=page, format="html"))["translatedText"]
    assert found.startswith("<p>")
    assert found.endswith("</p>\n<script>let x = 'cat'</script>")
    assert found.count("<b>") == found.count("</b>") == 1


def test_line_breaks_are_kept(server: SmallServer, chinese: str) -> None:
    assert (
        read_json(post_translate(server, q=f"{ENGLISH}\r\n\n  {ENGLISH}\n"))["translatedText"]
        == f"{chinese}\r\n\n  {chinese}\n"
    )


@pytest.mark.parametrize("name", ["q", "source", "target"])
@pytest.mark.parametrize("value", [None, ""])
def test_missing_parameters_are_named(server: SmallServer, name: str, value: Any) -> None:
    wording = f"Invalid request: missing {name} parameter"
    assert read_error(post_translate(server, **{name: value})) == wording
    assert read_error(server.client.post("/translate", data={k: v for k, v in REQUEST.items() if k != name})) == wording


def test_an_empty_request_names_the_first_parameter(server: SmallServer) -> None:
    assert read_error(server.client.post("/translate")) == "Invalid request: missing q parameter"
    assert read_error(post_translate(server, q=[])) == "Invalid request: missing q parameter"


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
def test_errors_have_the_wording_of_libretranslate(server: SmallServer, fields: dict[str, Any], wording: str) -> None:
    assert read_error(post_translate(server, **fields)) == wording


@pytest.mark.parametrize("body", ["{", "[]", "3", "null", '"q"', '{"q": NaN}', '{"q": "\\ud800"}', "\ufeff{}", ""])
def test_bad_json_is_an_error(server: SmallServer, body: str) -> None:
    assert read_error(server.client.post("/translate", content=body.encode(), headers=JSON)) == "Invalid JSON format"


def test_a_bad_form_is_an_error(server: SmallServer) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for content in (b"--y\r\n", b"--x\r\nnothing", b"\xff" * 50):
        response = server.client.post("/translate", content=content, headers=headers)
        assert read_error(response).startswith(("the form cannot be read", "Invalid request: missing q parameter"))
    read_error(
        server.client.post("/translate", files={"q": ("file.txt", b"cat")}, data={"source": "en", "target": "zh"})
    )


def test_too_many_sentences_are_rejected(server: SmallServer) -> None:
    assert "sentences" in read_error(post_translate(server, q="a\n" * 2_000), 413)


def test_detection_covers_all_served_languages(server: SmallServer) -> None:
    client = server.client
    assert read_json(client.post("/detect", json={"q": ENGLISH})) == [{"confidence": 100.0, "language": "en"}]
    assert read_json(client.post("/detect", data={"q": CHINESE})) == [{"confidence": 100.0, "language": "zh"}]
    assert read_json(client.post("/detect", params={"q": "猫 cat 狗 狗"})) == [
        {"confidence": 75.0, "language": "zh"}, {"confidence": 25.0, "language": "en"},
    ]  # fmt: skip
    assert read_json(client.post("/detect", json={"q": "123"})) == [{"confidence": 0.0, "language": "en"}]
    assert read_json(make_server("forth").client.post("/detect", json={"q": CHINESE}))[0]["language"] == "zh"


def test_detection_errors_have_the_same_wording(server: SmallServer) -> None:
    client = server.client
    assert read_error(client.post("/detect", json={})) == "Invalid request: missing q parameter"
    assert read_error(client.post("/detect", json={"q": ["a"]})) == "Invalid request: q parameter is not a text"
    assert read_error(client.post("/detect", json={"q": "a" * 5_001})).endswith("exceeds text limit (5000)")
    assert read_error(client.post("/detect", content="[", headers=JSON)) == "Invalid JSON format"
    read_error(make_server("plain").client.post("/detect", json={"q": "cat"}))


def test_languages_are_listed_with_their_targets(server: SmallServer) -> None:
    assert read_json(server.client.get("/languages")) == [
        {"code": "en", "name": "English", "targets": ["zh"]},
        {"code": "zh", "name": "Chinese", "targets": ["en"]},
    ]
    assert read_json(make_server("forth").client.get("/languages")) == [
        {"code": "en", "name": "English", "targets": ["zh"]},
        {"code": "zh", "name": "Chinese", "targets": []},
    ]
    assert read_json(make_server("plain").client.get("/languages")) == []


def test_a_server_without_languages_supports_none() -> None:
    server = make_server("plain")
    assert read_error(post_translate(server)) == "en is not supported"
    assert read_error(post_translate(server, source="auto")) == "zh is not supported"


def test_frontend_settings_describe_the_server(server: SmallServer) -> None:
    assert read_json(server.client.get("/frontend/settings")) == {
        "charLimit": 5000,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": True,
        "supportedFilesFormat": [f".{ending}" for ending in list_formats()],
        "language": {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": "zh", "name": "Chinese"},
        },
    }


def test_suggestions_are_disabled(server: SmallServer) -> None:
    refused = server.client.post("/suggest", data={"q": "a", "s": "b"})
    assert read_error(refused, 403) == "Suggestions are disabled on this server."


def post_file(server: SmallServer, name: str, content: bytes, **fields: str) -> Any:
    fields = {"source": "en", "target": "zh"} | fields
    return server.client.post("/translate_file", data=fields, files={"file": (name, content)})


def make_word_file(text: str) -> bytes:
    namespace = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    content = BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        body = f"<w:p><w:r><w:rPr><w:b/></w:rPr><w:t>{text}</w:t></w:r></w:p>"
        archive.writestr("word/document.xml", f'<w:document xmlns:w="{namespace}">{body}</w:document>')
        archive.writestr("word/styles.xml", "<styles/>")
    return content.getvalue()


def test_a_file_is_translated_and_fetched_once(server: SmallServer) -> None:
    expected = server.client.post("/translate", json={"q": ENGLISH, "source": "en", "target": "zh"}).json()
    answer = post_file(server, "letter.docx", make_word_file(ENGLISH))
    assert answer.status_code == 200
    address = answer.json()["translatedFileUrl"]
    fetched = server.client.get(address)
    assert 'filename="translated.docx"' in fetched.headers["content-disposition"]
    with zipfile.ZipFile(BytesIO(fetched.content)) as archive:
        part = archive.read("word/document.xml").decode()
        assert archive.read("word/styles.xml") == b"<styles/>"
    assert f"<w:rPr><w:b/></w:rPr><w:t>{expected['translatedText'].strip()}</w:t>" in part
    assert server.client.get(address).status_code == 404


def test_files_that_cannot_be_translated_are_rejected(server: SmallServer) -> None:
    assert "send one of txt" in read_error(post_file(server, "a.pdf", b"%PDF"), 400)
    assert "not a valid docx document" in read_error(post_file(server, "a.docx", b"PK"), 400)
    assert read_error(server.client.post("/translate_file", data={"source": "en"}), 400)
    assert read_error(post_file(server, "a.txt", b"cat", target="xx"), 400)
    assert read_error(server.client.get("/download_file/a.b.txt"), 404)


@pytest.mark.parametrize("path", ["/translate", "/detect", "/suggest", "/translate_file"])
def test_other_methods_are_rejected(server: SmallServer, path: str) -> None:
    read_error(server.client.get(path), 405)


def test_a_key_may_be_in_the_body_or_in_a_header() -> None:
    server = make_server(keys=("good",))
    client = server.client
    assert read_error(post_translate(server), 403) == "Invalid API key"
    for wrong in ("bad", "goo", "good ", 7, ["good"]):
        assert read_error(post_translate(server, api_key=wrong), 403) == "Invalid API key"
    assert read_json(post_translate(server, api_key="good"))
    assert read_json(client.post("/translate", data={**REQUEST, "api_key": "good"}))
    assert read_json(client.post("/translate", params={**REQUEST, "api_key": "good"}))
    assert read_json(client.post("/translate", json=REQUEST, headers={"authorization": "Bearer good"}))
    assert read_error(client.post("/detect", json={"q": "cat"}), 403) == "Invalid API key"
    assert read_json(client.post("/detect", json={"q": "cat", "api_key": "good"}))
    assert read_json(client.get("/languages"))
    assert read_json(client.get("/frontend/settings"))["keyRequired"] is True


def test_openapi_lists_every_content_type(server: SmallServer) -> None:
    post = server.get("openapi.json")["paths"]["/translate"]["post"]
    assert {"application/json", "application/x-www-form-urlencoded", "multipart/form-data"} == set(
        post["requestBody"]["content"]
    )
    assert {"200", "400", "413", "429", "504"} <= set(post["responses"])
