"""DeepL's client library and command line, unmodified, against a server on a port."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment, message
from late_import import LateModule, needs
from real_server import serve_on_port
from three_models import CHINESE, ENGLISH, KEY, make_server, models

pytestmark = needs("deepl")
deepl: Any = LateModule("deepl")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("documents")
    with serve_on_port(make_server(keys=(KEY,), documents_folder=folder).app) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    client = deepl.DeepLClient(KEY, server_url=address)
    yield client
    client.close()


@pytest.fixture(scope="module")
def chinese() -> str:
    return models()["forth"].generate([ENGLISH])[0].text


@pytest.fixture(autouse=True)
def _no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error is raised at once instead of after five retries."""
    monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)


def test_client_translates_texts(client: Any, chinese: str) -> None:
    result = client.translate_text(ENGLISH, target_lang="ZH")
    assert (result.text, result.detected_source_lang, result.billed_characters) == (chinese, "EN", len(ENGLISH))
    several = client.translate_text([ENGLISH, ""], source_lang="EN", target_lang="ZH-HANS", context="a story")
    assert [each.text for each in several] == [chinese, ""]
    back = client.translate_text(CHINESE, target_lang="EN-US", formality="prefer_more", model_type="quality_optimized")
    assert (back.detected_source_lang, back.model_type_used) == ("ZH", "back")


def test_client_keeps_tags(client: Any) -> None:
    result = client.translate_text(
        f'<p>{ENGLISH} <x id="1"></x></p>', target_lang="ZH", tag_handling="xml", ignore_tags=["x"]
    )
    assert result.text.endswith("</p>")
    assert '<x id="1"></x>' in result.text


def test_client_reads_languages_usage_and_glossaries(client: Any) -> None:
    assert [each.code for each in client.get_source_languages()] == ["EN", "ZH"]
    targets = client.get_target_languages()
    assert [str(each) for each in targets] == ["ZH", "EN-GB", "EN-US"]
    assert not any(each.supports_formality for each in targets)
    usage = client.get_usage()
    assert usage.character.count is not None
    assert not usage.any_limit_reached
    pairs = client.get_glossary_languages()
    assert [(each.source_lang, each.target_lang) for each in pairs] == [("en", "zh"), ("zh", "en")]
    assert client.list_glossaries() == []


def test_errors_raise_the_client_exceptions(address: str, client: Any) -> None:
    with pytest.raises(deepl.DeepLException, match=message("unknown_language", language="XX")):
        client.translate_text("a", target_lang="XX")
    with pytest.raises(deepl.DeepLException, match=fragment("field_literal_error", name="formality")):
        client.translate_text("a", target_lang="ZH", formality="less")
    other = deepl.DeepLClient("wrong-key-of-nobody", server_url=address)
    with pytest.raises(deepl.AuthorizationException):
        other.get_usage()
    other.close()


@pytest.mark.parametrize("ending", ["txt", "html"])
def test_client_translates_a_document_file(client: Any, chinese: str, tmp_path: Path, ending: str) -> None:
    source, target = tmp_path / f"in.{ending}", tmp_path / f"out.{ending}"
    before, after = ("<p>", "</p>\n") if ending == "html" else ("\n", "\r\n")
    source.write_bytes(f"{before}{ENGLISH}{after}".encode() * 30)
    status = client.translate_document_from_filepath(source, target, target_lang="ZH")
    assert status.done
    assert status.billed_characters == 30 * len(f"{before}{ENGLISH}{after}")
    assert target.read_bytes().decode() == f"{before}{chinese.strip()}{after}" * 30


def test_a_document_can_be_downloaded_once(client: Any, chinese: str) -> None:
    handle = client.translate_document_upload(ENGLISH, target_lang="ZH", filename="a.txt")
    assert client.translate_document_wait_until_done(handle).ok
    first = BytesIO()
    client.translate_document_download(handle, first)
    assert first.getvalue().decode().strip() == chinese.strip()
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_download(handle, BytesIO())
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_get_status(handle)


def test_an_office_document_keeps_its_layout(client: Any, chinese: str) -> None:
    namespace = "http://schemas.openxmlformats.org/drawingml/2006/main"
    slide, content = f'<a:p xmlns:a="{namespace}"><a:r><a:rPr b="1"/><a:t>{ENGLISH}</a:t></a:r></a:p>', BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("ppt/slides/slide1.xml", slide)
    translated = BytesIO()
    client.translate_document(content.getvalue(), translated, target_lang="ZH", filename="talk.pptx")
    with zipfile.ZipFile(translated) as archive:
        part = archive.read("ppt/slides/slide1.xml").decode()
    assert part.endswith(slide.replace(ENGLISH, chinese.strip()))


def test_a_failed_document_reports_the_reason(client: Any) -> None:
    with pytest.raises(deepl.DeepLException, match=fragment("unknown_format", ending="pdf")):
        client.translate_document_upload(b"%PDF", target_lang="ZH", filename="a.pdf")
    with pytest.raises(deepl.DeepLException, match="not a valid docx document"):
        client.translate_document_upload(b"PK\x03\x04", target_lang="ZH", filename="a.docx")
    handle = client.translate_document_upload("word " * 1_200, target_lang="ZH", filename="a.txt")
    status = client.translate_document_wait_until_done(handle)
    assert not status.ok
    assert "characters" in status.error_message


def command(address: str, *arguments: str, key: str = KEY, stdin: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DEEPL_AUTH_KEY": key, "DEEPL_SERVER_URL": address}
    command_line = [sys.executable, "-m", "deepl", *arguments]
    return subprocess.run(command_line, input=stdin, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.slow
def test_command_line_translates_texts_and_documents(address: str, chinese: str, tmp_path: Path) -> None:
    result = command(address, "text", "--to", "ZH", "--show-detected-source", ENGLISH)
    assert result.stdout == f"Detected source language: EN\n{chinese}\n", result.stderr
    assert command(address, "text", "--to", "ZH", "-", stdin=ENGLISH).stdout.strip() == chinese.strip()
    listed = command(address, "languages").stdout
    assert "EN: English" in listed
    assert "EN-US: English (American)" in listed
    assert "1000000000000" in command(address, "usage").stdout
    (tmp_path / "in.txt").write_text(ENGLISH)
    done = command(address, "document", "--to", "ZH", str(tmp_path / "in.txt"), str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "in.txt").read_text("utf-8").strip() == chinese.strip()
