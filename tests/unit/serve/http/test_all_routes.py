"""X3, X5, X7 and X8 on everything that a server answers, whatever API it belongs to."""

import gzip
import io
import json
import tracemalloc
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polyglot
import pytest
from all_routes import OPEN, body_of, filled, routes_of
from fastapi import FastAPI
from raw_http import exchanged, request, served
from small_gate import written
from small_server import API, Asking
from starlette.testclient import TestClient

from attendo.serve.explorer import catalogue_routes
from attendo.serve.http.errors import api_for_path, handle_errors
from attendo.serve.http.middleware import GENERATION_ROUTES
from attendo.serve.settings import ServeSettings

KEY = "Key-0123456789abcdef"
NEAR = (None, "", KEY[:-1], KEY + "0", KEY.upper(), "Bearer")
CANARY = "canary7f3a"
UP = (
    *("../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/etc/passwd"),
    *(
        "..\\..\\..\\etc\\passwd",
        "..%5c..%5cetc%5cpasswd",
        "....//....//etc/passwd",
        "x%00.txt",
        "%00",
        "~root/.profile",
    ),
    *("..;/etc/passwd", "%252e%252e%252fetc%252fpasswd", "file:///etc/passwd", "con", "x" * 5_000, "page-evil/x.js"),
    *(
        "../page-evil/x.js",
        "..%2fpage-evil%2fx.js",
        ".%2e/%2e./etc/passwd",
        "%c0%ae%c0%ae/etc/passwd",
        "%2fetc%2fpasswd",
    ),
    *("..%00/etc/passwd", "//etc/passwd", "C:%5cboot.ini", "%5c%5chost%5cshare"),
)
EXPANDED = 10 * 1024**2  # bytes, more than which nothing may become that was sent small


@pytest.fixture(scope="module")
def locked() -> Asking:
    return Asking(*polyglot.served(), settings=ServeSettings(keys=("other-key-0000", KEY), max_output_tokens=4))


@pytest.fixture(scope="module")
def opened() -> Asking:
    return Asking(*polyglot.served(), settings=ServeSettings(max_output_tokens=8))


def test_every_route_but_a_few_asks_for_a_key(locked: Asking) -> None:
    asked = [(method, path) for method, path in routes_of(locked.app) if path not in OPEN]
    assert {api_for_path(path) for _, path in asked} == {"ours", "deepl", "openai", "huggingface", "libretranslate"}
    assert len(asked) > 20
    for method, path in asked:
        for key in NEAR:
            sent = {} if key is None else {"authorization": f"Bearer {key}"}
            answered = locked.client.request(method, filled(path), json=body_of(path, CANARY), headers=sent)
            told = (method, path, key, answered.text)
            if _is_public(path):
                assert answered.status_code in (200, 403), told
                continue
            shape = api_for_path(path)
            assert answered.status_code == (403 if shape in ("deepl", "libretranslate") else 401), told
            assert _shaped(shape, answered.json()), told
            assert KEY not in answered.text


@pytest.mark.slow
def test_a_key_opens_every_route(locked: Asking) -> None:
    statuses = {
        (method, path): locked.client.request(
            method,
            filled(path),
            json=body_of(path, "cat"),
            headers={"authorization": f"{'DeepL-Auth-Key' if path.startswith('/v2/') else 'Bearer'} {KEY}"},
        ).status_code
        for method, path in routes_of(locked.app)
        if path not in OPEN
    }
    assert {each: status for each, status in statuses.items() if status in (401, 500)} == {}
    refused = {path for (_, path), status in statuses.items() if status == 403}
    assert refused <= {
        "/translate_file",
        "/suggest",
        "/download_file/{name}",
    }  # what LibreTranslate can be told not to do


def test_what_needs_no_key_needs_none(locked: Asking) -> None:
    for path in ("/livez", "/health", "/", "/page/main.js", "/languages", "/frontend/settings"):
        assert locked.client.get(path).status_code == 200, path


@pytest.mark.short(1)
@pytest.mark.parametrize("part", ["/v", "/hf", "/translate", pytest.param("/", marks=pytest.mark.slow)])
def test_no_word_that_is_sent_is_written_down(opened: Asking, part: str) -> None:
    """Quickly where existing clients ask, and everywhere: looking into a model takes its time."""
    answers: list[str] = []
    asked = [(method, path) for method, path in routes_of(opened.app) if path.startswith(part)]
    with written("json") as lines:
        for method, path in asked:
            word = {"authorization": f"Bearer {CANARY}", "user-agent": CANARY, "cookie": CANARY}
            opened.client.request(method, filled(path, CANARY), json=body_of(path, CANARY), headers=word)
            opened.client.request(method, filled(path, CANARY), params={"q": CANARY}, json={CANARY: CANARY})
            opened.client.request(method, filled(path, CANARY), content=f'{{"{CANARY}'.encode(), headers=word)
            answers.append(opened.client.get(f"{API}/models").text)
    told = lines.getvalue()
    assert told.count("attendo.serve.requests") == 4 * len(asked)
    assert CANARY not in told
    assert "testclient" not in told
    assert CANARY not in "".join(answers)
    local = Asking(*polyglot.served(), settings=ServeSettings(metrics_open=True))
    local.client.post("/translate", json=body_of("/translate", CANARY))
    assert CANARY not in local.client.get("/metrics").text


@pytest.mark.slow
def test_no_word_of_a_thousand_requests_is_written_down_or_told_to_others(opened: Asking) -> None:
    """Where existing clients ask, of whom some are answered and some refused."""
    local = Asking(*polyglot.served(), settings=ServeSettings(max_output_tokens=8, metrics_open=True))
    asked = [path for method, path in routes_of(opened.app) if method == "POST" and path in GENERATION_ROUTES]
    statuses: Counter[int] = Counter()
    others: list[str] = []
    with written("json") as lines:
        for number in range(1_000):
            path, word = asked[number % len(asked)], f"{CANARY}-{number}"
            body = json.dumps(body_of(path, f"{polyglot.ENGLISH} {word}"))
            sent = body if number % 3 else f'{{"{word}": {body}'
            headers = {"content-type": "application/json", "cookie": word}
            statuses[local.client.post(filled(path, "forth"), content=sent, headers=headers).status_code] += 1
            if number % 10 == 0:
                others.append(local.client.post(filled(path, "forth"), json={}).text)
    assert statuses[200] > 400
    assert statuses[400] >= 334
    told = lines.getvalue()
    assert told.count("attendo.serve.requests") == 1_100
    assert CANARY not in told + "".join(others) + local.client.get("/metrics").text


@pytest.fixture(scope="module")
def port(opened: Asking) -> Iterator[int]:
    with served(opened.app) as found:
        yield found


def test_nothing_outside_is_reached_by_any_path(opened: Asking, port: int) -> None:
    """Over a socket: a client library would tidy the path up."""
    secret = Path("/etc/passwd").read_bytes()[:20]
    places = [path for _, path in routes_of(opened.app) if "{" in path]
    assert len(places) >= 3
    for path in [*places, "/{x}", "/page{x}", f"{API}/{{x}}"]:
        for up in UP:
            for method in ("GET", "POST"):
                answered = exchanged(port, request(filled(path, up), b"{}", method))
                assert answered.status in (400, 404, 405, 403), (path, up, answered.data[:300])
                assert secret not in answered.data


@pytest.mark.parametrize(
    "up", ["link.js", "..%2fpage-evil%2fx.js", "linked%2fx.js", "..%2fpage-evil", "%2e%2e%2fsecret.js"]
)
def test_neither_a_link_nor_a_neighbour_of_the_page_is_served(tmp_path: Path, up: str) -> None:
    folder, neighbour = tmp_path / "page", tmp_path / "page-evil"
    for each in (folder, neighbour):
        each.mkdir()
        (each / "x.js").write_text(each.name)
    (tmp_path / "secret.js").write_text("secret")
    (folder / "link.js").symlink_to(tmp_path / "secret.js")
    (folder / "linked").symlink_to(neighbour)
    app = FastAPI()
    app.include_router(catalogue_routes.page_routes(folder))
    handle_errors(app, [])
    client = TestClient(app)
    assert client.get("/page/x.js").text == "page"
    answered = client.get(f"/page/{up}")
    assert answered.status_code == 404
    assert answered.json()["error"]["code"] == "no_page"


@pytest.mark.short(1)
@pytest.mark.parametrize("path", ["/v1/chat/completions", f"{API}/generate", f"{API}/trace"])
def test_a_name_of_a_model_is_no_path(opened: Asking, path: str) -> None:
    for up in UP:
        answered = opened.client.post(path, json={**body_of(path, polyglot.ENGLISH), "model": up})
        assert answered.status_code in (400, 404), (up, answered.text)
    for up in UP[:5]:
        answered = opened.client.post(
            f"{API}/trace", json={"text": polyglot.ENGLISH, "model": "forth", "checkpoint": up}
        )
        assert answered.status_code in (400, 404)


_OTHERS = [
    pytest.param(each, marks=pytest.mark.slow) for each in ("deflate", "zstd", "compress", "identity, gzip", "GZIP")
]


@pytest.mark.short(1)
@pytest.mark.parametrize("encoding", ["gzip", "br", *_OTHERS])
def test_nothing_is_unpacked(opened: Asking, encoding: str) -> None:
    zeros = json.dumps({"text": "x" * 2 * EXPANDED}).encode()
    packed = {"gzip": gzip.compress(zeros), "deflate": zlib.compress(zeros)}.get(encoding, zeros[:1000])
    del zeros
    with at_most(EXPANDED):
        _refused_everywhere(opened, packed, encoding)


def _refused_everywhere(opened: Asking, packed: bytes, encoding: str) -> None:
    for method, path in routes_of(opened.app):
        if method == "POST":
            sent = {"content-encoding": encoding, "content-type": "application/json"}
            answered = opened.client.post(filled(path), content=packed, headers=sent)
            assert answered.status_code == 415, path
            assert "retry-after" not in answered.headers


@pytest.mark.short(2)
@pytest.mark.parametrize("name", ["bomb.docx", "bomb.zip", "bomb.txt", "bomb.html", "bomb.gz", "bomb.odt"])
@pytest.mark.parametrize("path", ["/v2/document", "/translate_file"])
def test_no_document_is_unpacked(opened: Asking, path: str, name: str) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"\0" * 2 * EXPANDED)
    assert len(held.getvalue()) * 1000 < 2 * EXPANDED
    with at_most(EXPANDED):
        answered = opened.client.post(
            path, data={"target_lang": "ZH", "source": "en", "target": "zh"}, files={"file": (name, held.getvalue())}
        )
    assert 400 <= answered.status_code < 500


@contextmanager
def at_most(most: int) -> Iterator[None]:
    """No more bytes at once, of whatever Python makes."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        assert tracemalloc.get_traced_memory()[1] - before < most
    finally:
        tracemalloc.stop()


def _is_public(path: str) -> bool:
    """What LibreTranslate tells to everybody, or to nobody."""
    return path in {"/languages", "/frontend/settings", "/suggest", "/translate_file", "/download_file/{name}"}


def _shaped(shape: str, content: dict[str, Any]) -> bool:
    if shape == "deepl":
        return content.keys() == {"message", "detail"}
    if shape in ("libretranslate", "huggingface"):
        return isinstance(content["error"], str)
    return {"code", "message"} <= content["error"].keys()
