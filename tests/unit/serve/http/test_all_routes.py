"""X3, X5, X7 and X8 on every route of a server, for every API."""

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

import four_models
import pytest
from all_routes import OPEN, fill_path, list_routes, make_body
from fastapi import FastAPI
from guarded_app import capture_log
from raw_http import exchange, request, serve_app
from small_server import API, SmallServer
from starlette.testclient import TestClient

from attendo.serve.explorer import catalogue_routes
from attendo.serve.http.errors import api_for_path, handle_errors
from attendo.serve.http.middleware import GENERATION_ROUTES
from attendo.serve.settings import ServeSettings

KEY = "Key-0123456789abcdef"
WRONG_KEYS = (None, "", KEY[:-1], KEY + "0", KEY.upper(), "Bearer")
CANARY = "canary7f3a"
TRAVERSALS = (
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
EXPANDED = 10 * 1024**2  # bytes; a small request body must not expand to more


@pytest.fixture(scope="module")
def server_with_keys() -> SmallServer:
    return SmallServer(
        *four_models.make_specs(), settings=ServeSettings(keys=("other-key-0000", KEY), max_output_tokens=4)
    )


@pytest.fixture(scope="module")
def keyless() -> SmallServer:
    return SmallServer(*four_models.make_specs(), settings=ServeSettings(max_output_tokens=8))


def test_every_route_requires_a_key_except_public_ones(server_with_keys: SmallServer) -> None:
    routes = [(method, path) for method, path in list_routes(server_with_keys.app) if path not in OPEN]
    assert {api_for_path(path) for _, path in routes} == {"ours", "deepl", "openai", "huggingface", "libretranslate"}
    assert len(routes) > 20
    for method, path in routes:
        for key in WRONG_KEYS:
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            response = server_with_keys.client.request(
                method, fill_path(path), json=make_body(path, CANARY), headers=headers
            )
            details = (method, path, key, response.text)
            if _is_public(path):
                assert response.status_code in (200, 403, 404), details
                continue
            api = api_for_path(path)
            assert response.status_code == (403 if api in ("deepl", "libretranslate") else 401), details
            assert _has_error_format(api, response.json()), details
            assert KEY not in response.text


@pytest.mark.slow
def test_a_key_opens_every_route(server_with_keys: SmallServer) -> None:
    statuses = {
        (method, path): server_with_keys.client.request(
            method,
            fill_path(path),
            json=make_body(path, "cat"),
            headers={"authorization": f"{'DeepL-Auth-Key' if path.startswith('/v2/') else 'Bearer'} {KEY}"},
        ).status_code
        for method, path in list_routes(server_with_keys.app)
        if path not in OPEN
    }
    assert {each: status for each, status in statuses.items() if status in (401, 500)} == {}
    forbidden = {path for (_, path), status in statuses.items() if status == 403}
    # LibreTranslate's clients expect 403 without a key; suggestions are disabled.
    assert forbidden <= {"/translate_file", "/suggest"}


def test_public_routes_need_no_key(server_with_keys: SmallServer) -> None:
    for path in ("/livez", "/health", "/", "/page/main.js", "/languages", "/frontend/settings"):
        assert server_with_keys.client.get(path).status_code == 200, path


@pytest.mark.short(1)
@pytest.mark.parametrize("part", ["/v", "/hf", "/translate", pytest.param("/", marks=pytest.mark.slow)])
def test_no_request_text_is_logged(keyless: SmallServer, part: str) -> None:
    """The routes of existing clients are in the short suite. All routes are slow, because inspection takes time."""
    answers: list[str] = []
    routes = [(method, path) for method, path in list_routes(keyless.app) if path.startswith(part)]
    with capture_log("json") as lines:
        for method, path in routes:
            headers = {"authorization": f"Bearer {CANARY}", "user-agent": CANARY, "cookie": CANARY}
            keyless.client.request(method, fill_path(path, CANARY), json=make_body(path, CANARY), headers=headers)
            keyless.client.request(method, fill_path(path, CANARY), params={"q": CANARY}, json={CANARY: CANARY})
            keyless.client.request(method, fill_path(path, CANARY), content=f'{{"{CANARY}'.encode(), headers=headers)
            answers.append(keyless.client.get(f"{API}/models").text)
    log = lines.getvalue()
    assert log.count("attendo.serve.requests") == 4 * len(routes)
    assert CANARY not in log
    assert "testclient" not in log
    assert CANARY not in "".join(answers)
    local = SmallServer(*four_models.make_specs(), settings=ServeSettings(metrics_open=True))
    local.client.post("/translate", json=make_body("/translate", CANARY))
    assert CANARY not in local.client.get("/metrics").text


@pytest.mark.slow
def test_a_thousand_requests_leak_no_text(keyless: SmallServer) -> None:
    """On the routes of existing clients. Some requests succeed and some are rejected."""
    local = SmallServer(*four_models.make_specs(), settings=ServeSettings(max_output_tokens=8, metrics_open=True))
    paths = [path for method, path in list_routes(keyless.app) if method == "POST" and path in GENERATION_ROUTES]
    statuses: Counter[int] = Counter()
    others: list[str] = []
    with capture_log("json") as lines:
        for number in range(1_000):
            path, word = paths[number % len(paths)], f"{CANARY}-{number}"
            body = json.dumps(make_body(path, f"{four_models.ENGLISH} {word}"))
            content = body if number % 3 else f'{{"{word}": {body}'
            headers = {"content-type": "application/json", "cookie": word}
            statuses[local.client.post(fill_path(path, "forth"), content=content, headers=headers).status_code] += 1
            if number % 10 == 0:
                others.append(local.client.post(fill_path(path, "forth"), json={}).text)
    assert statuses[200] > 400
    assert statuses[400] >= 334
    log = lines.getvalue()
    assert log.count("attendo.serve.requests") == 1_100
    assert CANARY not in log + "".join(others) + local.client.get("/metrics").text


@pytest.fixture(scope="module")
def port(keyless: SmallServer) -> Iterator[int]:
    with serve_app(keyless.app) as found:
        yield found


def test_no_path_reaches_outside_the_folder(keyless: SmallServer, port: int) -> None:
    """Over a socket, because a client library would normalise the path."""
    secret = Path("/etc/passwd").read_bytes()[:20]
    templates = [path for _, path in list_routes(keyless.app) if "{" in path]
    assert len(templates) >= 3
    for path in [*templates, "/{x}", "/page{x}", f"{API}/{{x}}"]:
        for traversal in TRAVERSALS:
            for method in ("GET", "POST"):
                response = exchange(port, request(fill_path(path, traversal), b"{}", method))
                assert response.status in (400, 404, 405, 403), (path, traversal, response.data[:300])
                assert secret not in response.data


@pytest.mark.parametrize(
    "traversal", ["link.js", "..%2fpage-evil%2fx.js", "linked%2fx.js", "..%2fpage-evil", "%2e%2e%2fsecret.js"]
)
def test_links_and_sibling_folders_are_not_served(tmp_path: Path, traversal: str) -> None:
    folder, sibling = tmp_path / "page", tmp_path / "page-evil"
    for each in (folder, sibling):
        each.mkdir()
        (each / "x.js").write_text(each.name)
    (tmp_path / "secret.js").write_text("secret")
    (folder / "link.js").symlink_to(tmp_path / "secret.js")
    (folder / "linked").symlink_to(sibling)
    app = FastAPI()
    app.include_router(catalogue_routes.page_routes(folder, folder))
    handle_errors(app, [])
    client = TestClient(app)
    for path in ("page", "documentation"):
        assert client.get(f"/{path}/x.js").text == "page"
        response = client.get(f"/{path}/{traversal}")
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "no_page"


def test_the_page_names_the_site_of_the_documentation_if_it_is_built(tmp_path: Path) -> None:
    app = FastAPI()
    app.include_router(catalogue_routes.page_routes(site=tmp_path))
    client = TestClient(app)
    assert "data-documentation" not in client.get("/").text
    (tmp_path / "README.html").write_text("the documentation", "utf-8")
    assert '<html data-documentation="/documentation" lang="en">' in client.get("/").text
    assert client.get("/documentation/README.html").text == "the documentation"


@pytest.mark.short(1)
@pytest.mark.parametrize("path", ["/v1/chat/completions", f"{API}/generate", f"{API}/trace"])
def test_model_names_are_not_paths(keyless: SmallServer, path: str) -> None:
    for traversal in TRAVERSALS:
        response = keyless.client.post(path, json={**make_body(path, four_models.ENGLISH), "model": traversal})
        assert response.status_code in (400, 404), (traversal, response.text)
    for traversal in TRAVERSALS[:5]:
        response = keyless.client.post(
            f"{API}/trace", json={"text": four_models.ENGLISH, "model": "forth", "checkpoint": traversal}
        )
        assert response.status_code in (400, 404)


_OTHERS = [
    pytest.param(each, marks=pytest.mark.slow) for each in ("deflate", "zstd", "compress", "identity, gzip", "GZIP")
]


@pytest.mark.short(1)
@pytest.mark.parametrize("encoding", ["gzip", "br", *_OTHERS])
def test_no_body_is_decompressed(keyless: SmallServer, encoding: str) -> None:
    zeros = json.dumps({"text": "x" * 2 * EXPANDED}).encode()
    packed = {"gzip": gzip.compress(zeros), "deflate": zlib.compress(zeros)}.get(encoding, zeros[:1000])
    del zeros
    with memory_limit(EXPANDED):
        _check_rejected_everywhere(keyless, packed, encoding)


def _check_rejected_everywhere(keyless: SmallServer, packed: bytes, encoding: str) -> None:
    for method, path in list_routes(keyless.app):
        if method == "POST":
            headers = {"content-encoding": encoding, "content-type": "application/json"}
            response = keyless.client.post(fill_path(path), content=packed, headers=headers)
            assert response.status_code == 415, path
            assert "retry-after" not in response.headers


@pytest.mark.short(2)
@pytest.mark.parametrize("name", ["bomb.docx", "bomb.zip", "bomb.txt", "bomb.html", "bomb.gz", "bomb.odt"])
@pytest.mark.parametrize("path", ["/v2/document", "/translate_file"])
def test_no_document_is_decompressed_to_more_than_the_limit(keyless: SmallServer, path: str, name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/document.xml", b"\0" * 2 * EXPANDED)
    assert len(buffer.getvalue()) * 1000 < 2 * EXPANDED
    with memory_limit(EXPANDED):
        response = keyless.client.post(
            path, data={"target_lang": "ZH", "source": "en", "target": "zh"}, files={"file": (name, buffer.getvalue())}
        )
    assert 400 <= response.status_code < 500


@contextmanager
def memory_limit(limit: int) -> Iterator[None]:
    """Python allocates at most `limit` more bytes at once."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        yield
        assert tracemalloc.get_traced_memory()[1] - before < limit
    finally:
        tracemalloc.stop()


def _is_public(path: str) -> bool:
    """Routes of LibreTranslate that are public or disabled."""
    return path in {"/languages", "/frontend/settings", "/suggest", "/translate_file", "/download_file/{name}"}


def _has_error_format(api: str, content: dict[str, Any]) -> bool:
    if api == "deepl":
        return content.keys() == {"message", "detail"}
    if api in ("libretranslate", "huggingface"):
        return isinstance(content["error"], str)
    return {"code", "message"} <= content["error"].keys()
