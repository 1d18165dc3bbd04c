"""Documents: encodings, private storage, translation in chunks, and expiry."""

import asyncio
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment
from full_disk import room_for
from small_server import SmallServer
from three_models import ENGLISH, make_server, models

from attendo.serve.http.errors import ApiError
from attendo.serve.translation import documents as module
from attendo.serve.translation.documents import Document, DocumentStore, ScratchFolder
from attendo.serve.translation.formats import find_format
from attendo.serve.translation.formats.draft import decode


def make_gateway(**settings: Any) -> Any:
    return make_server("forth", **settings).app.gateway


def expected_text(text: str = ENGLISH) -> str:
    return models()["forth"].generate([text])[0].text.strip()


def run_with_store(
    folder: Path, work: Callable[[DocumentStore], Awaitable[None]], lifetime: float = 60.0, **settings: Any
) -> None:
    """Runs `work` with the document store of a server that uses this folder."""

    async def main() -> None:
        server = make_gateway(documents_folder=folder, **settings)
        await work(DocumentStore(server, lifetime))
        await server.registry.all()[0].worker.drain()

    asyncio.run(main())


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "lock"]


async def add_document(documents: DocumentStore, content: bytes, kind: str = "txt") -> Document:
    return await documents.add(content, kind, documents._gateway.get_model("forth"))


async def add_and_wait(documents: DocumentStore, content: bytes, kind: str = "txt") -> Document:
    document = await add_document(documents, content, kind)
    await documents.wait(document, 30)
    return document


# Decoding and encoding


@pytest.mark.parametrize(
    ("name", "kind"), [("a.txt", "txt"), ("A.HTML", "html"), ("b.htm", "html"), ("../c.xml", "xml")]
)
def test_the_extension_sets_the_format(name: str, kind: str) -> None:
    assert find_format(name) == kind


@pytest.mark.parametrize("name", ["a.doc", "a.pdf", "a", "", "txt", "a.txt.zip", "a.txt\0.exe"])
def test_other_extensions_are_rejected(name: str) -> None:
    with pytest.raises(ApiError, match="unknown_format"):
        find_format(name)


@pytest.mark.parametrize(
    ("content", "kind", "text"),
    [
        ("猫\r\n".encode(), "text", "猫\r\n"),
        (b"\xef\xbb\xbf" + "猫".encode(), "text", "猫"),
        (b"\xff\xfe" + "猫".encode("utf-16-le"), "text", "猫"),
        ("<?xml version='1.0' encoding='ISO-8859-1'?><a>é</a>".encode("latin-1"), "xml", None),
        ("<meta charset=gbk>猫".encode("gbk"), "html", None),
        ('<META http-equiv="x" content="text/html; charset=utf-8">猫'.encode(), "html", None),
    ],
)
def test_decode_and_encode_are_inverse(content: bytes, kind: Any, text: str | None) -> None:
    document = decode(content, kind)
    assert text is None or document.text == text
    assert document.encode(document.text) == content


def test_unencodable_characters_become_references() -> None:
    document = decode(b"<?xml version='1.0' encoding='us-ascii'?><a>cat</a>", "xml")
    assert document.encode("<a>猫</a>") == b"<a>&#29483;</a>"


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"\xff", "text", "not_encoded_so"),
        (b"a\0b", "text", "not_encoded_so"),
        (b"<?xml version='1.0' encoding='unicode_escape'?><a/>", "xml", "unknown_encoding"),
        (b"<meta charset=utf-7>+ADw-", "html", "unknown_encoding"),
    ],
)
def test_undecodable_documents_are_rejected(content: bytes, kind: Any, code: str) -> None:
    with pytest.raises(ApiError, match=code):
        decode(content, kind)


def test_an_archive_with_a_text_extension_is_not_decompressed() -> None:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb.txt", b"0" * 10_000_000)
    assert len(archive.getvalue()) < 20_000
    for kind in ("text", "html", "xml"):
        with pytest.raises(ApiError, match="not_encoded_so"):
            decode(archive.getvalue(), kind)  # type: ignore[arg-type]


# Storage


def test_a_scratch_folder_is_private_and_removed(tmp_path: Path) -> None:
    scratch = ScratchFolder(tmp_path / "deep" / "below")
    assert not (tmp_path / "deep").exists()
    scratch.write("a", b"text")
    (private,) = (tmp_path / "deep" / "below").iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    assert scratch.read("a") == b"text"
    del scratch
    assert list((tmp_path / "deep" / "below").iterdir()) == []


def test_folders_of_killed_processes_are_removed(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, runpy, sys; private = runpy.run_path(sys.argv[1])['ScratchFolder']\n"
        "folder = private(pathlib.Path(sys.argv[2])); folder.write('a', b'text'); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, module.__file__, str(tmp_path)], check=False)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    assert (left / "a").exists()
    (tmp_path / "attendo-documents-of-others").mkdir()  # has no lock, so it is not ours
    living = ScratchFolder(tmp_path)
    assert not left.exists()
    living.write("b", b"")
    ScratchFolder(tmp_path)
    assert living.read("b") == b""
    assert (tmp_path / "attendo-documents-of-others").exists()


def test_a_full_disk_leaves_no_partial_file(tmp_path: Path) -> None:
    scratch = ScratchFolder(tmp_path)
    scratch.write("a", b"small")
    for name in ("a", "b"):
        with room_for(1_000), pytest.raises(OSError, match="large"):
            scratch.write(name, b"x" * 5_000)
    assert [path.name for path in list_files(tmp_path)] == ["a"]
    assert scratch.read("a") == b"small"


def test_a_document_is_rejected_on_a_full_disk(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        with room_for(1_000), pytest.raises(ApiError) as raised:
            await add_document(documents, b"the cat " * 200)
        assert (raised.value.code, raised.value.status_code) == ("no_room", 507)
        assert str(tmp_path) not in raised.value.english
        assert list_files(tmp_path) == []
        assert (await add_and_wait(documents, ENGLISH.encode())).status == "done"

    run_with_store(tmp_path, work)


def test_a_translation_fails_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def translate_to_large_text(*_: Any) -> bytes:
        return b"x" * 5_000

    monkeypatch.setattr(module, "translate_document", translate_to_large_text)

    async def work(documents: DocumentStore) -> None:
        with room_for(1_000):
            document = await add_and_wait(documents, ENGLISH.encode())
        assert document.status == "error"
        assert fragment("no_room") in str(document.error)
        assert list_files(tmp_path) == []

    run_with_store(tmp_path, work)


def test_the_number_of_documents_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DOCUMENTS", 2)

    async def work(documents: DocumentStore) -> None:
        first, _ = await add_and_wait(documents, b"a dog"), await add_and_wait(documents, b"the cat")
        with pytest.raises(ApiError) as raised:
            await add_document(documents, b"I")
        assert raised.value.status_code == 429
        await documents.discard(first)
        assert (await add_and_wait(documents, b"I love NLP")).status == "done"

    run_with_store(tmp_path, work)


def test_documents_expire(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        document = await add_and_wait(documents, ENGLISH.encode())
        assert len(list_files(tmp_path)) == 1
        for _ in range(1_000):
            if not list_files(tmp_path):
                break
            await asyncio.sleep(0.01)
        with pytest.raises(ApiError, match="unknown_document"):
            documents.get(document.document_id, document.key)
        assert list_files(tmp_path) == []

    run_with_store(tmp_path, work, lifetime=0.5)


def test_shutdown_waits_for_results_within_the_grace_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(documents: DocumentStore) -> None:
        gateway = documents._gateway
        assert not gateway.has_pending_results
        document = await add_document(documents, ENGLISH.encode())
        assert gateway.has_pending_results
        await documents.wait(document, 30)
        assert gateway.has_pending_results
        await documents.discard(document)
        assert not gateway.has_pending_results
        monkeypatch.setattr(module, "FETCH_GRACE_SECONDS", 0.0)
        await add_and_wait(documents, ENGLISH.encode())
        assert not gateway.has_pending_results

    run_with_store(tmp_path, work)


def test_a_document_needs_its_key(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        document = await add_and_wait(documents, ENGLISH.encode())
        assert documents.get(document.document_id, document.key) is document
        for document_id, key in (
            (document.document_id, document.key[:-1]),
            ("../x", document.key),
            (document.document_id, "\ud800"),
        ):
            with pytest.raises(ApiError, match="unknown_document"):
                documents.get(document_id, key)

    run_with_store(tmp_path, work)


# Translation


def test_only_sentences_are_translated(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        text = f"\n  {ENGLISH}\r\n\r\n42\n{ENGLISH}"
        document = await add_and_wait(documents, text.encode())
        assert (await documents.read_result(document)).decode() == text.replace(ENGLISH, expected_text())
        assert document.characters == documents.characters == len(text)
        page = f"<html><head><style>p {{}}</style></head><body><p class='a'>{ENGLISH}</p></body></html>"
        document = await add_and_wait(documents, page.encode(), "html")
        assert (await documents.read_result(document)).decode() == page.replace(ENGLISH, expected_text())

    run_with_store(tmp_path, work)


def test_requests_are_at_most_one_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = module.translate_sentences

    async def translate_and_record(gateway: Any, served: Any, texts: Any, linked: bool) -> Any:
        sizes.append(len(texts))
        return await real(gateway, served, texts, linked)

    monkeypatch.setattr(module, "translate_sentences", translate_and_record)

    async def work(documents: DocumentStore) -> None:
        document = await add_and_wait(documents, f"{ENGLISH}\n".encode() * 20)
        assert (await documents.read_result(document)).decode() == f"{expected_text()}\n" * 20
        assert sizes == [8, 8, 4]

    run_with_store(tmp_path, work)


def test_a_document_retries_while_the_server_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = ["busy", "too_late"]
    real = module.translate_sentences

    async def fail_when_busy(*arguments: Any) -> Any:
        if failures:
            raise ApiError(failures.pop(), waiting=1)
        return await real(*arguments)

    monkeypatch.setattr(module, "translate_sentences", fail_when_busy)
    monkeypatch.setattr(module, "_RETRY_PAUSES", (0.01, 0.01, 0.01))

    async def work(documents: DocumentStore) -> None:
        assert (await add_and_wait(documents, ENGLISH.encode())).status == "done"
        failures.extend(["busy"] * 9)
        document = await add_and_wait(documents, ENGLISH.encode())
        assert document.status == "error"
        assert "waiting" in str(document.error)

    run_with_store(tmp_path, work)


def test_errors_do_not_contain_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> bytes:
        raise ValueError("the secret cat")

    monkeypatch.setattr(module, "translate_document", fail)

    async def work(documents: DocumentStore) -> None:
        document = await add_and_wait(documents, ENGLISH.encode())
        assert document.status == "error"
        assert "secret" not in str(document.error)
        with pytest.raises(ApiError, match="document_failed"):
            await documents.read_result(document)

    run_with_store(tmp_path, work)


def test_an_unfinished_document_cannot_be_fetched(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        document = await add_document(documents, ENGLISH.encode())
        with pytest.raises(ApiError) as raised:
            await documents.read_result(document)
        assert raised.value.status_code == 503
        await documents.wait(document, 30)

    run_with_store(tmp_path, work)


# Uploads


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> SmallServer:
    return make_server("forth", documents_folder=tmp_path_factory.mktemp("documents"), documents_bytes=3_000)


def post_document(server: SmallServer, content: bytes = b"the cat", name: str = "a.txt", **fields: str) -> Any:
    form = {"target_lang": "ZH", **fields}
    return server.client.post("/v2/document", data=form, files={"file": (name, content)} if name else None)


@pytest.mark.parametrize(
    ("upload", "status", "code"),
    [
        ({"name": "a.doc"}, 400, "unknown_format"),
        ({"name": "a.docx"}, 400, "document_damaged"),
        ({"name": "a.txt", "filename": "b.pdf"}, 400, "unknown_format"),
        ({"output_format": "html"}, 400, "other_format"),
        ({"output_format": "pdf"}, 400, "unknown_format"),
        ({"target_lang": "XX"}, 400, "unknown_language"),
        ({"target_lang": ""}, 400, "bad_request"),
        ({"formality": "more"}, 400, "bad_request"),
        ({"glossary_id": "x"}, 404, "unknown_glossary"),
        ({"content": b"\xff"}, 400, "not_encoded_so"),
        ({"content": b"x" * 2_990}, 413, "body_too_large"),
        ({"name": ""}, 400, "no_file"),
    ],
)
def test_bad_uploads_are_rejected(server: SmallServer, upload: dict[str, Any], status: int, code: str) -> None:
    response = post_document(server, **upload)
    assert (response.status_code, response.json()["detail"]) == (status, code)


def test_document_routes_need_the_key_in_the_body(server: SmallServer) -> None:
    for path in ("/v2/document/x", "/v2/document/x/result", "/v2/document/..%2f..%2fetc"):
        assert server.client.post(path, json={"document_key": "k"}).status_code == 404
    assert server.client.post("/v2/document/x", json={}).json()["detail"] == "bad_request"
    assert server.client.post("/v2/document/x", data={"document_key": "k"}).json()["detail"] == "unknown_document"


def test_ids_and_keys_are_long_and_unique(server: SmallServer) -> None:
    uploads = [post_document(server).json() for _ in range(3)]
    assert len({each["document_id"] for each in uploads} | {each["document_key"] for each in uploads}) == 6
    assert all(len(each["document_id"]) == 32 and len(each["document_key"]) == 64 for each in uploads)
