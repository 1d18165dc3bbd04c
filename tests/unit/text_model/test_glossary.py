"""Glossary files, and the terms that are found in a text."""

from pathlib import Path

import pytest
from error_codes import has_code

from attendo.errors import DataError, UsageError
from attendo.text_model.glossary import MAX_FORMS, MAX_TERM_BYTES, Glossary, Term


def parse(text: str | bytes) -> Glossary:
    return Glossary.parse(text.encode() if isinstance(text, str) else text, "terms.tsv")


def found(glossary: Glossary, text: str) -> list[str]:
    return [text[match.begin : match.end] for match in glossary.find(text)]


def test_a_file_has_terms_and_their_forms(tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffcat\tKatze\r\n\n mouse \tMaus\tmice\tMäuse | Mäusen\nhat\tHut\t\tHüte\n".encode())
    assert Glossary.read(path).terms == (
        Term("cat", "Katze"),
        Term("mouse", "Maus", ("mice",), ("Mäuse", "Mäusen")),
        Term("hat", "Hut", (), ("Hüte",)),
    )


@pytest.mark.parametrize(
    ("content", "code", "line"),
    [
        ("cat\tKatze\ndog", "glossary_columns", 2),
        ("cat\tKatze\ta\tb\tc", "glossary_columns", 1),
        ("cat\t \n", "glossary_term_empty", 1),
        ("\tKatze\n", "glossary_term_empty", 1),
        ("cat\tKatze\tcats|\n", "glossary_term_empty", 1),
        ("cat\tKat\x07ze\n", "glossary_term_control", 1),
        (f"cat\t{'ä' * (MAX_TERM_BYTES // 2 + 1)}", "glossary_term_long", 1),
        ("cat\tKatze\n\ncat\tKater\n", "glossary_repeated", 3),
        ("cat\tKatze\ndog\tHund\tcat\n", "glossary_repeated", 2),
        ("自然 语言\tlanguage\n自然语言\tspeech\n", "glossary_repeated", 2),
        ("cat\tKatze\t" + "|".join(f"c{n}" for n in range(MAX_FORMS + 1)), "glossary_forms", 1),
        (b"cat\tKatze\ncaf\xe9\tKaffee\n", "glossary_not_utf8", 2),
    ],
)
def test_a_damaged_line_is_an_error_that_names_the_line(content: str | bytes, code: str, line: int) -> None:
    with pytest.raises(DataError) as caught:
        parse(content)
    assert caught.value.code == code
    assert f"terms.tsv line {line}" in str(caught.value)


def test_an_unusable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (tmp_path / "missing.tsv", tmp_path):
        with pytest.raises(DataError, check=has_code("glossary_unreadable")):
            Glossary.read(path)
    with pytest.raises(DataError, check=has_code("glossary_without_terms")):
        parse("\n \n")
    monkeypatch.setattr("attendo.text_model.glossary.MAX_FILE_BYTES", 5)
    monkeypatch.setattr("attendo.text_model.glossary.MAX_TERMS", 1)
    assert len(parse("a\tb\n")) == 1
    with pytest.raises(DataError, check=has_code("glossary_too_large")):
        parse("ab\tcd\n")
    with pytest.raises(DataError, check=has_code("glossary_terms")):
        Glossary([("a", "b"), ("c", "d")])
    with pytest.raises(UsageError, check=has_code("glossary_term_type")):
        Glossary([("a", 1)])  # type: ignore[list-item]


def test_terms_match_whole_words_and_the_longest_term_first() -> None:
    glossary = Glossary([("network", "Netz"), ("neural network", "neuronales Netz"), ("network cable", "Netzkabel")])
    assert found(glossary, "a neural  network, networks") == ["neural  network"]
    assert found(glossary, "neural network cable") == ["neural network"]  # the longest
    assert found(glossary, "subnetwork (network)") == ["network"]
    assert glossary.find("network network", taken=[(3, 5)])[0].begin == 8


def test_lower_case_terms_match_in_any_case_and_others_as_written() -> None:
    glossary = Glossary([("apple", "Apfel"), ("Apple", "Apple"), ("US", "USA")])
    matches = glossary.find("Apple apple APPLE us US")
    assert [match.term.target for match in matches] == ["Apple", "Apfel", "Apfel", "USA"]
    assert [match.begin for match in matches] == [0, 6, 12, 21]


def test_terms_match_in_any_form() -> None:
    glossary = parse("mouse\tMaus\tmice\tMäuse\n")
    assert found(glossary, "Mice and a mouse") == ["Mice", "mouse"]
    assert glossary.terms[0].targets == ("Maus", "Mäuse")
    assert Term("a", "der Hund").targets == ("der Hund", "Der Hund")


def test_scripts_without_spaces_match_at_any_character_with_or_without_spaces() -> None:
    glossary = Glossary([("自然语言", "natural language"), ("语言", "language"), ("GPU 卡", "GPU card")])
    assert found(glossary, "我爱自然语言处理") == ["自然语言"]
    assert found(glossary, "我 爱 自然 语言 处理 ， 语言") == ["自然 语言", "语言"]
    assert found(glossary, "一张GPU卡") == ["GPU卡"]


def test_glossaries_with_equal_terms_are_equal() -> None:
    one, other = parse("a\tb\n"), Glossary([("a", "b")])
    assert (one, hash(one), repr(one)) == (other, hash(other), repr(other))
    assert repr(one) != repr(Glossary([("a", "c")]))
