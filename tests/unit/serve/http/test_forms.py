"""Forms and addresses are UTF-8, raw or percent-encoded: what is not is refused, never read as something else."""

from typing import Any
from urllib.parse import quote

import pytest
from error_codes import message
from polyglot import CHINESE, ENGLISH, asking
from small_server import Asking

FORM, PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"
LATIN, CHINESE_BYTES = "café".encode("latin-1"), CHINESE.encode("gb18030")


@pytest.fixture(scope="module")
def server() -> Asking:
    return asking()


def sent(server: Asking, path: str, body: bytes, kind: str = FORM) -> Any:
    return server.client.post(path, content=body, headers={"content-type": kind})


def part(name: str, value: bytes) -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name.encode(), value)


def test_raw_utf8_is_what_it_would_be_percent_encoded(server: Asking) -> None:
    for written in (CHINESE, quote(CHINESE), "+".join(CHINESE.split(" "))):
        answered = sent(server, "/detect", b"q=" + written.encode())
        assert answered.json() == [{"confidence": 100.0, "language": "zh"}]
    raw = f"text={CHINESE}&target_lang=EN".encode()
    escaped = f"text={quote(CHINESE)}&target_lang=EN".encode()
    (told,) = sent(server, "/v2/translate", raw).json()["translations"]
    assert told["billed_characters"] == len(CHINESE)
    assert [told] == sent(server, "/v2/translate", escaped).json()["translations"]


def test_an_address_is_read_so_too(server: Asking) -> None:
    assert server.client.post(f"/detect?q={quote(CHINESE)}").json()[0]["language"] == "zh"
    refused(server.client.post("/detect?q=%ff%fe"))
    refused(server.client.get("/v2/languages?type=%e9"))


@pytest.mark.parametrize("value", [LATIN, CHINESE_BYTES, b"%e9", b"%ff%fe", b"%ed%a0%80"])
def test_what_is_not_utf8_is_refused(server: Asking, value: bytes) -> None:
    refused(sent(server, "/detect", b"q=" + value))
    refused(sent(server, "/v2/translate", b"target_lang=ZH&text=" + value))
    refused(sent(server, "/v2/document/x", b"document_key=" + value))


@pytest.mark.parametrize("charset", ["", "; charset=latin-1", "; charset=unicode_escape", "; charset=hex"])
def test_parts_are_utf8_whatever_they_say(server: Asking, charset: str) -> None:
    for name, path in (("q", "/detect"), ("text", "/v2/translate")):
        refused(sent(server, path, part(name, LATIN) + b"--x--\r\n", PARTS + charset))
    told = sent(server, "/detect", part("q", CHINESE.encode()) + b"--x--\r\n", PARTS + charset)
    assert told.json()[0]["language"] == "zh"
    half = sent(server, "/detect", part("q", b"\\ud800 cat") + b"--x--\r\n", PARTS + charset)
    assert half.json()[0]["language"] == "en"


def test_a_form_has_no_more_fields_than_it_may(server: Asking) -> None:
    fields = [b"a=b"] * 999
    assert sent(server, "/detect", b"&".join([*fields, b"q=cat"])).status_code == 200
    for path in ("/detect", "/v2/translate"):
        refused(sent(server, path, b"&".join([*fields, b"q=cat", b"a=b"])), "more than 1,000 fields")


def test_what_is_no_form_gives_nothing(server: Asking) -> None:
    answered = sent(server, "/detect", f"q={ENGLISH}".encode(), "text/plain")
    assert answered.json() == {"error": "Invalid request: missing q parameter"}


def refused(answered: Any, words: str = "its fields are not UTF-8") -> None:
    assert answered.status_code == 400, answered.text
    content = answered.json()
    told = content.get("error", content.get("message"))
    assert told == message("bad_form", detail=f"{'it has ' if 'more' in words else ''}{words}")
