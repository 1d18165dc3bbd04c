"""DeepL's glossary API with the client library, and its limits and errors."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from late_import import LateModule, needs
from real_server import serve_on_port
from small_server import SmallServer
from three_models import ENGLISH, KEY, make_server, models

from attendo.text_model import Glossary

deepl: Any = LateModule("deepl")
TERMS = {"cat": "狗", "sat": "回 家"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    server = make_server(keys=(KEY,), documents_folder=tmp_path_factory.mktemp("documents"))
    with serve_on_port(server.app) as address:
        client = deepl.DeepLClient(KEY, server_url=address)
        yield client
        client.close()


@pytest.fixture(autouse=True)
def _no_retries(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "client" in request.fixturenames:
        monkeypatch.setattr(deepl.http_client, "max_network_retries", 0)


@pytest.fixture
def server() -> SmallServer:
    return make_server()


@needs("deepl")
def test_client_manages_and_uses_a_glossary(client: Any, tmp_path: Path) -> None:
    made = client.create_glossary("animals", "EN", "ZH", TERMS)
    assert (made.name, made.ready, made.source_lang, made.target_lang, made.entry_count) == (
        *("animals", True, "EN", "ZH", 2),
    )
    assert abs(made.creation_time.replace(tzinfo=UTC) - datetime.now(UTC)) < timedelta(hours=1)
    assert client.get_glossary(made.glossary_id).name == "animals"
    assert [each.glossary_id for each in client.list_glossaries()] == [made.glossary_id]
    assert client.get_glossary_entries(made) == TERMS
    expected = models()["forth"].generate([ENGLISH], glossary=Glossary(TERMS.items()))[0]
    for text in (ENGLISH, [ENGLISH]):
        found = client.translate_text(text, source_lang="EN", target_lang="ZH", glossary=made)
        assert (found[0] if isinstance(text, list) else found).text == expected.text
    assert all(each.met for each in expected.terms)
    source, result = tmp_path / "a.txt", tmp_path / "b.txt"
    source.write_text(ENGLISH, "utf-8")
    client.translate_document_from_filepath(source, result, source_lang="EN", target_lang="ZH", glossary=made)
    assert result.read_text("utf-8") == expected.text
    client.delete_glossary(made)
    assert client.list_glossaries() == []
    with pytest.raises(deepl.exceptions.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)


@needs("deepl")
def test_client_reads_a_csv_glossary(client: Any) -> None:
    made = client.create_glossary_from_csv("animals", "EN", "ZH", '"a ""cat""",狗\n"dog, old",猫\n')
    assert client.get_glossary_entries(made) == {'a "cat"': "狗", "dog, old": "猫"}
    client.delete_glossary(made)


@needs("deepl")
def test_client_manages_and_uses_a_multilingual_glossary(client: Any) -> None:
    entries = deepl.api_data.MultilingualGlossaryDictionaryEntries
    made = client.create_multilingual_glossary("both", [entries("EN", "ZH", TERMS), entries("ZH", "EN", {"猫": "dog"})])
    assert [(each.source_lang, each.target_lang, each.entry_count) for each in made.dictionaries] == [
        *(("EN", "ZH", 2), ("ZH", "EN", 1)),
    ]
    assert client.list_glossaries() == []  # version 2 has those with one pair only
    assert [each.name for each in client.list_multilingual_glossaries()] == ["both"]
    found = client.translate_text(ENGLISH, source_lang="EN", target_lang="ZH", glossary=made)
    assert found.text == models()["forth"].generate([ENGLISH], glossary=Glossary(TERMS.items()))[0].text
    assert client.update_multilingual_glossary_name(made, "two").name == "two"
    client.update_multilingual_glossary_dictionary(made, entries("EN", "ZH", {"cat": "猫", "dog": "狗"}))
    read = client.get_multilingual_glossary_entries(made, "EN", "ZH")
    assert read.dictionaries[0].entries == "cat\t猫\nsat\t回 家\ndog\t狗"
    replaced = client.replace_multilingual_glossary_dictionary(made, entries("EN", "ZH", {"cat": "狗"}))
    assert replaced.entry_count == 1
    client.delete_multilingual_glossary_dictionary(made, source_lang="ZH", target_lang="EN")
    left = client.get_multilingual_glossary(made.glossary_id)
    assert [(each.source_lang, each.entry_count) for each in left.dictionaries] == [("EN", 1)]
    client.delete_multilingual_glossary(made)
    assert client.list_multilingual_glossaries() == []


def check_error(response: Any, status: int, code: str) -> None:
    """Check an error in DeepL's format."""
    assert (response.status_code, response.json()["detail"]) == (status, code), response.text


def create(server: SmallServer, **changes: Any) -> Any:
    fields = {"name": "n", "source_lang": "en", "target_lang": "zh", "entries": "cat\t狗", "entries_format": "tsv"}
    return server.client.post("/v2/glossaries", json={**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": ""}, "bad_request"),
        ({"entries": 7}, "bad_request"),
        ({"entries_format": "xml"}, "bad_request"),
        ({"entries": "cat"}, "bad_setting"),
        ({"entries": "cat\t狗\ncat\t猫"}, "bad_setting"),
        ({"entries": ""}, "bad_setting"),
        ({"source_lang": "fr"}, "unknown_language"),
        ({"target_lang": "en"}, "no_such_pair"),
    ],
)
def test_a_wrong_glossary_is_rejected(server: SmallServer, changes: dict[str, Any], code: str) -> None:
    check_error(create(server, **changes), 400, code)
    assert server.client.get("/v3/glossaries").json() == {"glossaries": []}


def test_unknown_ids_and_pairs_are_errors(server: SmallServer) -> None:
    known = create(server).json()["glossary_id"]
    pair = {"source_lang": "zh", "target_lang": "en"}
    for path in ("/v2/glossaries/x", "/v2/glossaries/x/entries", "/v3/glossaries/x"):
        check_error(server.client.get(path), 404, "unknown_glossary")
    check_error(server.client.get(f"/v3/glossaries/{known}/entries", params=pair), 400, "glossary_pair_missing")
    check_error(server.client.get(f"/v3/glossaries/{known}/entries"), 400, "bad_request")
    body = {"text": ["a"], "target_lang": "ZH", "glossary_id": known}
    check_error(server.client.post("/v2/translate", json=body), 400, "glossary_without_source")
    body = {"text": ["a"], **pair, "glossary_id": known}
    check_error(server.client.post("/v2/translate", json=body), 400, "glossary_pair_missing")
    assert server.client.delete(f"/v2/glossaries/{known}").status_code == 204


def test_a_full_server_rejects_more_glossaries(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.serve.translation.glossaries.MAX_GLOSSARIES", 1)
    first = create(server)
    assert first.status_code == 201
    check_error(create(server), 413, "too_many_glossaries")
    monkeypatch.setattr("attendo.serve.translation.glossaries.MAX_TOTAL_BYTES", 20)
    path = f"/v3/glossaries/{first.json()['glossary_id']}"
    update = {"source_lang": "en", "target_lang": "zh", "entries": "a long term\t狗 狗 狗"}
    check_error(server.client.put(f"{path}/dictionaries", json=update), 413, "too_many_glossaries")
    assert server.client.get(path).json()["dictionaries"][0]["entry_count"] == 1


def test_entries_keep_the_forms_of_terms(server: SmallServer) -> None:
    made = create(server, entries="mouse\tMaus\tmice\tMäuse").json()
    text = server.client.get(f"/v2/glossaries/{made['glossary_id']}/entries").text
    assert text == "mouse\tMaus\tmice\tMäuse"


def test_glossaries_need_a_key() -> None:
    server = make_server(keys=(KEY,))
    for path in ("/v2/glossaries", "/v3/glossaries"):
        check_error(server.client.get(path), 403, "no_key")
