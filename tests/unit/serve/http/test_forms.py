"""Forms and query strings are UTF-8, raw or percent-encoded. Other bytes are rejected."""

from typing import Any
from urllib.parse import quote

import pytest
from error_codes import message
from four_models import CHINESE, ENGLISH, make_server
from small_server import SmallServer

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
LATIN, CHINESE_BYTES = "café".encode("latin-1"), CHINESE.encode("gb18030")


@pytest.fixture(scope="module")
def server() -> SmallServer:
    return make_server()


def post_form(server: SmallServer, path: str, body: bytes, content_type: str = FORM) -> Any:
    return server.client.post(path, content=body, headers={"content-type": content_type})


def encode_part(name: str, value: bytes) -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), value)


def test_raw_and_percent_encoded_utf8_are_equal(server: SmallServer) -> None:
    for encoded in (CHINESE, quote(CHINESE), "+".join(CHINESE.split(" "))):
        response = post_form(server, "/detect", b"q=" + encoded.encode())
        assert response.json() == [{"confidence": 100.0, "language": "zh"}]
    raw = f"text={CHINESE}&target_lang=EN".encode()
    escaped = f"text={quote(CHINESE)}&target_lang=EN".encode()
    (translation,) = post_form(server, "/v2/translate", raw).json()["translations"]
    assert translation["billed_characters"] == len(CHINESE)
    assert [translation] == post_form(server, "/v2/translate", escaped).json()["translations"]


def test_query_strings_are_utf8(server: SmallServer) -> None:
    assert server.client.post(f"/detect?q={quote(CHINESE)}").json()[0]["language"] == "zh"
    check_bad_form(server.client.post("/detect?q=%ff%fe"))
    check_bad_form(server.client.get("/v2/languages?type=%e9"))


@pytest.mark.parametrize("value", [LATIN, CHINESE_BYTES, b"%e9", b"%ff%fe", b"%ed%a0%80"])
def test_invalid_utf8_is_rejected(server: SmallServer, value: bytes) -> None:
    check_bad_form(post_form(server, "/detect", b"q=" + value))
    check_bad_form(post_form(server, "/v2/translate", b"target_lang=ZH&text=" + value))
    check_bad_form(post_form(server, "/v2/document/x", b"document_key=" + value))


@pytest.mark.parametrize("charset", ["", "; charset=latin-1", "; charset=unicode_escape", "; charset=hex"])
def test_multipart_fields_ignore_the_charset(server: SmallServer, charset: str) -> None:
    for name, path in (("q", "/detect"), ("text", "/v2/translate")):
        check_bad_form(post_form(server, path, encode_part(name, LATIN) + b"--x--\r\n", PARTS + charset))
    chinese = post_form(server, "/detect", encode_part("q", CHINESE.encode()) + b"--x--\r\n", PARTS + charset)
    assert chinese.json()[0]["language"] == "zh"
    escaped = post_form(server, "/detect", encode_part("q", b"\\ud800 cat") + b"--x--\r\n", PARTS + charset)
    assert escaped.json()[0]["language"] == "en"


def test_the_number_of_form_fields_is_limited(server: SmallServer) -> None:
    fields = [b"a=b"] * 999
    assert post_form(server, "/detect", b"&".join([*fields, b"q=cat"])).status_code == 200
    for path in ("/detect", "/v2/translate"):
        check_bad_form(post_form(server, path, b"&".join([*fields, b"q=cat", b"a=b"])), "more than 1,000 fields")


def test_other_content_types_have_no_fields(server: SmallServer) -> None:
    response = post_form(server, "/detect", f"q={ENGLISH}".encode(), "text/plain")
    assert response.json() == {"error": "Invalid request: missing q parameter"}


def check_bad_form(response: Any, detail: str = "its fields are not UTF-8") -> None:
    assert response.status_code == 400, response.text
    content = response.json()
    error = content.get("error", content.get("message"))
    assert error == message("bad_form", detail=f"{'it has ' if 'more' in detail else ''}{detail}")
