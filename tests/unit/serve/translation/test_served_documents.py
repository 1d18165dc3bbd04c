"""Documents: read and written as they are encoded, kept in private, translated in parts, forgotten in time."""

import asyncio
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from both_ways import ENGLISH, asking, models
from error_codes import fragment
from full_disk import room_for
from small_server import Asking

from attendo.serve.http.errors import ApiError
from attendo.serve.translation import documents as chunks
from attendo.serve.translation import documents as folder
from attendo.serve.translation import documents as registry
from attendo.serve.translation.documents import (
    Document,
    DocumentFormat,
    DocumentStore,
    ScratchFolder,
    decode_document,
    document_format,
)


def office(**settings: Any) -> Any:
    return asking("forth", **settings).app.gateway


def chinese(text: str = ENGLISH) -> str:
    return models()["forth"].generate([text])[0].text.strip()


def keeping(
    place: Path, work: Callable[[DocumentStore], Awaitable[None]], lifetime: float = 60.0, **settings: Any
) -> None:
    """What is done with the documents of a server that keeps them in this place."""

    async def main() -> None:
        server = office(documents_folder=place, **settings)
        await work(DocumentStore(server, lifetime))
        await server.registry.all()[0].worker.drain()

    asyncio.run(main())


def files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file() and path.name != "lock"]


async def given(documents: DocumentStore, content: bytes, kind: DocumentFormat = "text") -> Document:
    return await documents.add(content, kind, documents._gateway.get_model("forth"))


async def added(documents: DocumentStore, content: bytes, kind: DocumentFormat = "text") -> Document:
    document = await given(documents, content, kind)
    await documents.wait(document, 30)
    return document


# how they are read


@pytest.mark.parametrize(
    ("name", "kind"), [("a.txt", "text"), ("A.HTML", "html"), ("b.htm", "html"), ("../c.xml", "xml")]
)
def test_the_ending_tells_the_kind(name: str, kind: str) -> None:
    assert document_format(name) == kind


@pytest.mark.parametrize("name", ["a.docx", "a.pdf", "a", "", "txt", "a.txt.zip", "a.txt\0.exe"])
def test_other_kinds_are_refused(name: str) -> None:
    with pytest.raises(ApiError, match="unknown_format"):
        document_format(name)


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
def test_what_is_read_is_written_as_it_was(content: bytes, kind: Any, text: str | None) -> None:
    draft = decode_document(content, kind)
    assert text is None or draft.text == text
    assert draft.encode(draft.text) == content


def test_signs_that_an_encoding_has_not_are_numbers() -> None:
    draft = decode_document(b"<?xml version='1.0' encoding='us-ascii'?><a>cat</a>", "xml")
    assert draft.encode("<a>猫</a>") == b"<a>&#29483;</a>"


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"\xff", "text", "not_encoded_so"),
        (b"a\0b", "text", "not_encoded_so"),
        (b"<?xml version='1.0' encoding='unicode_escape'?><a/>", "xml", "unknown_encoding"),
        (b"<meta charset=utf-7>+ADw-", "html", "unknown_encoding"),
    ],
)
def test_what_is_no_text_is_refused(content: bytes, kind: Any, code: str) -> None:
    with pytest.raises(ApiError, match=code):
        decode_document(content, kind)


def test_a_packed_file_under_a_false_name_is_never_unpacked() -> None:
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("bomb.txt", b"0" * 10_000_000)
    assert len(packed.getvalue()) < 20_000
    for kind in ("text", "html", "xml"):
        with pytest.raises(ApiError, match="not_encoded_so"):
            decode_document(packed.getvalue(), kind)  # type: ignore[arg-type]


# how they are kept


def test_a_folder_is_private_and_gone_with_its_owner(tmp_path: Path) -> None:
    own = ScratchFolder(tmp_path / "deep" / "below")
    assert not (tmp_path / "deep").exists()
    own.write("a", b"text")
    (private,) = (tmp_path / "deep" / "below").iterdir()
    assert private.stat().st_mode & 0o777 == 0o700
    assert own.read("a") == b"text"
    del own
    assert list((tmp_path / "deep" / "below").iterdir()) == []


def test_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, runpy, sys; private = runpy.run_path(sys.argv[1])['ScratchFolder']\n"
        "folder = private(pathlib.Path(sys.argv[2])); folder.write('a', b'text'); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, folder.__file__, str(tmp_path)], check=False)
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    assert (left / "a").exists()
    (tmp_path / "attendo-documents-of-others").mkdir()  # without a lock: not one of ours
    living = ScratchFolder(tmp_path)
    assert not left.exists()
    living.write("b", b"")
    ScratchFolder(tmp_path)
    assert living.read("b") == b""
    assert (tmp_path / "attendo-documents-of-others").exists()


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path) -> None:
    own = ScratchFolder(tmp_path)
    own.write("a", b"small")
    for name in ("a", "b"):
        with room_for(1_000), pytest.raises(OSError, match="large"):
            own.write(name, b"x" * 5_000)
    assert [path.name for path in files(tmp_path)] == ["a"]
    assert own.read("a") == b"small"


def test_a_document_that_finds_no_room_is_refused_and_not_kept(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        with room_for(1_000), pytest.raises(ApiError) as refused:
            await given(documents, b"the cat " * 200)
        assert (refused.value.code, refused.value.status_code) == ("no_room", 507)
        assert str(tmp_path) not in refused.value.english
        assert files(tmp_path) == []
        assert (await added(documents, ENGLISH.encode())).status == "done"

    keeping(tmp_path, work)


def test_a_translation_that_finds_no_room_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def too_much(*_: Any) -> bytes:
        return b"x" * 5_000

    monkeypatch.setattr(registry, "translate_document", too_much)

    async def work(documents: DocumentStore) -> None:
        with room_for(1_000):
            document = await added(documents, ENGLISH.encode())
        assert document.status == "error"
        assert fragment("no_room") in str(document.error)
        assert files(tmp_path) == []

    keeping(tmp_path, work)


def test_only_so_many_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_DOCUMENTS", 2)

    async def work(documents: DocumentStore) -> None:
        first, _ = await added(documents, b"a dog"), await added(documents, b"the cat")
        with pytest.raises(ApiError) as refused:
            await given(documents, b"I")
        assert refused.value.status_code == 429
        await documents.discard(first)
        assert (await added(documents, b"I love NLP")).status == "done"

    keeping(tmp_path, work)


def test_after_a_while_nothing_is_left(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        document = await added(documents, ENGLISH.encode())
        assert len(files(tmp_path)) == 1
        for _ in range(1_000):
            if not files(tmp_path):
                break
            await asyncio.sleep(0.01)
        with pytest.raises(ApiError, match="unknown_document"):
            documents.get(document.document_id, document.key)
        assert files(tmp_path) == []

    keeping(tmp_path, work, lifetime=0.5)


def test_a_server_that_ends_waits_until_they_are_fetched_or_nobody_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(documents: DocumentStore) -> None:
        here = documents._gateway
        assert not here.has_pending_results
        document = await given(documents, ENGLISH.encode())
        assert here.has_pending_results
        await documents.wait(document, 30)
        assert here.has_pending_results
        await documents.discard(document)
        assert not here.has_pending_results
        monkeypatch.setattr(registry, "FETCH_GRACE_SECONDS", 0.0)
        await added(documents, ENGLISH.encode())
        assert not here.has_pending_results

    keeping(tmp_path, work)


def test_nobody_finds_a_document_without_its_key(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        document = await added(documents, ENGLISH.encode())
        assert documents.get(document.document_id, document.key) is document
        for number, key in (
            (document.document_id, document.key[:-1]),
            ("../x", document.key),
            (document.document_id, "\ud800"),
        ):
            with pytest.raises(ApiError, match="unknown_document"):
                documents.get(number, key)

    keeping(tmp_path, work)


# how they are translated


def test_a_document_keeps_all_but_its_sentences(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        text = f"\n  {ENGLISH}\r\n\r\n42\n{ENGLISH}"
        document = await added(documents, text.encode())
        assert (await documents.read_result(document)).decode() == text.replace(ENGLISH, chinese())
        assert document.characters == documents.characters == len(text)
        page = f"<html><head><style>p {{}}</style></head><body><p class='a'>{ENGLISH}</p></body></html>"
        document = await added(documents, page.encode(), "html")
        assert (await documents.read_result(document)).decode() == page.replace(ENGLISH, chinese())

    keeping(tmp_path, work)


def test_no_request_is_larger_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    real = chunks.translate_sentences

    async def watched(office: Any, served: Any, texts: Any, linked: bool) -> Any:
        asked.append(len(texts))
        return await real(office, served, texts, linked)

    monkeypatch.setattr(chunks, "translate_sentences", watched)

    async def work(documents: DocumentStore) -> None:
        document = await added(documents, f"{ENGLISH}\n".encode() * 20)
        assert (await documents.read_result(document)).decode() == f"{chinese()}\n" * 20
        assert asked == [8, 8, 4]

    keeping(tmp_path, work)


def test_a_document_waits_while_there_is_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = ["busy", "too_late"]
    real = chunks.translate_sentences

    async def crowded(*arguments: Any) -> Any:
        if left:
            raise ApiError(left.pop(), waiting=1)
        return await real(*arguments)

    monkeypatch.setattr(chunks, "translate_sentences", crowded)
    monkeypatch.setattr(chunks, "_RETRY_PAUSES", (0.01, 0.01, 0.01))

    async def work(documents: DocumentStore) -> None:
        assert (await added(documents, ENGLISH.encode())).status == "done"
        left.extend(["busy"] * 9)
        document = await added(documents, ENGLISH.encode())
        assert document.status == "error"
        assert "waiting" in str(document.error)

    keeping(tmp_path, work)


def test_what_goes_wrong_is_told_without_a_word_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: Any) -> bytes:
        raise ValueError("the secret cat")

    monkeypatch.setattr(registry, "translate_document", broken)

    async def work(documents: DocumentStore) -> None:
        document = await added(documents, ENGLISH.encode())
        assert document.status == "error"
        assert "secret" not in str(document.error)
        with pytest.raises(ApiError, match="document_failed"):
            await documents.read_result(document)

    keeping(tmp_path, work)


def test_what_is_not_done_cannot_be_fetched(tmp_path: Path) -> None:
    async def work(documents: DocumentStore) -> None:
        document = await given(documents, ENGLISH.encode())
        with pytest.raises(ApiError) as refused:
            await documents.read_result(document)
        assert refused.value.status_code == 503
        await documents.wait(document, 30)

    keeping(tmp_path, work)


# how they are sent


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Asking:
    return asking("forth", documents_folder=tmp_path_factory.mktemp("documents"), documents_bytes=3_000)


def sent(server: Asking, content: bytes = b"the cat", name: str = "a.txt", **fields: str) -> Any:
    form = {"target_lang": "ZH", **fields}
    return server.client.post("/v2/document", data=form, files={"file": (name, content)} if name else None)


@pytest.mark.parametrize(
    ("given", "status", "code"),
    [
        ({"name": "a.docx"}, 400, "unknown_format"),
        ({"name": "a.txt", "filename": "b.pdf"}, 400, "unknown_format"),
        ({"output_format": "pdf"}, 400, "other_format"),
        ({"target_lang": "XX"}, 400, "unknown_language"),
        ({"target_lang": ""}, 400, "bad_request"),
        ({"formality": "more"}, 400, "bad_request"),
        ({"glossary_id": "x"}, 400, "unmet_parameter"),
        ({"content": b"\xff"}, 400, "not_encoded_so"),
        ({"content": b"x" * 2_990}, 413, "body_too_large"),
        ({"name": ""}, 400, "no_file"),
    ],
)
def test_what_cannot_be_translated_is_refused(server: Asking, given: dict[str, Any], status: int, code: str) -> None:
    answered = sent(server, **given)
    assert (answered.status_code, answered.json()["detail"]) == (status, code)


def test_a_document_needs_its_key_in_the_body(server: Asking) -> None:
    for path in ("/v2/document/x", "/v2/document/x/result", "/v2/document/..%2f..%2fetc"):
        assert server.client.post(path, json={"document_key": "k"}).status_code == 404
    assert server.client.post("/v2/document/x", json={}).json()["detail"] == "bad_request"
    assert server.client.post("/v2/document/x", data={"document_key": "k"}).json()["detail"] == "unknown_document"


def test_ids_and_keys_cannot_be_guessed(server: Asking) -> None:
    given = [sent(server).json() for _ in range(3)]
    assert len({each["document_id"] for each in given} | {each["document_key"] for each in given}) == 6
    assert all(len(each["document_id"]) == 32 and len(each["document_key"]) == 64 for each in given)
