"""Corpora in files: formats, and rows with their faults."""

import gzip
import json
import lzma
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment, has_code, message

from attendo.data.config import CorpusConfig
from attendo.data.corpus_files import Corpus, CorpusRow, FileCorpus, read_rows
from attendo.errors import DataError


def test_two_text_files_are_read_in_parallel(tmp_path: Path) -> None:
    corpus = write_parallel(tmp_path, b"I love NLP\n\n", "我 爱 NLP\nx\n".encode())
    assert list(read_rows(corpus)) == [CorpusRow(1, "I love NLP", "我 爱 NLP", None), CorpusRow(2, "", "x", None)]


def test_a_pipe_is_rejected(tmp_path: Path) -> None:
    corpus = write_parallel(tmp_path, b"a\n", b"b\n")
    assert corpus.source is not None
    corpus.source.unlink()
    os.mkfifo(corpus.source)
    with pytest.raises(DataError, check=has_code("data_file_is_pipe")):
        FileCorpus(corpus).rows()


def test_a_tsv_file_has_the_sides_in_columns(tmp_path: Path) -> None:
    content = b'a\tb\tc\n"q\td "\te\n'
    assert read_pairs(write_table(tmp_path, "x.tsv", content)) == [("a", "b"), ('"q', 'd "')]
    assert read_pairs(write_table(tmp_path, "x.tsv", content, source_field="3", target_field="1")) == [
        ("c", "a"),
        ("e", '"q'),
    ]


def test_a_jsonl_file_has_the_sides_in_fields(tmp_path: Path) -> None:
    content = '{"en": "a\\nb", "zh": "我", "n": 1}\n{"zh": "x", "en": "y"}\n'.encode()
    assert read_pairs(write_table(tmp_path, "x.jsonl", content, source_field="en", target_field="zh")) == [
        ("a\nb", "我"),
        ("y", "x"),
    ]


def test_a_final_line_break_of_a_field_is_removed(tmp_path: Path) -> None:
    """As for a text that is given to a model with its line end."""
    content = b'{"en": "a\\r\\nb\\r\\n", "zh": "x\\n"}\n'
    assert read_pairs(write_table(tmp_path, "x.jsonl", content, source_field="en", target_field="zh")) == [
        ("a\nb", "x")
    ]
    turns = b'{"turns": ["a\\n", "b\\r\\n", "c"]}\n'
    assert read_pairs(write_table(tmp_path, "x.jsonl", turns, turns_field="turns")) == [("a", "b"), ("a<turn>b", "c")]


def test_features_precede_the_source_as_symbols(tmp_path: Path) -> None:
    content = b"go\twent\tV;PST\n\tx\tV\ngo\tgoes\t\ngo\tgo\tV;a b\ngo\tgone\n"
    assert list(read_rows(write_table(tmp_path, "x.tsv", content, features_field="3"))) == [
        CorpusRow(1, "<V><PST>go", "went", None),
        CorpusRow(2, "", "x", None),
        CorpusRow(3, "go", "goes", None),
        CorpusRow(4, "", "", "feature with a space or a bracket"),
        CorpusRow(5, "", "", "no such column"),
    ]
    fields = {"source_field": "s", "target_field": "t", "features_field": "f"}
    assert read_pairs(write_table(tmp_path, "x.jsonl", b'{"s": "go", "t": "went", "f": "V; PST"}', **fields)) == [
        ("<V><PST>go", "went")
    ]


def test_every_answer_has_the_previous_turns_as_source(tmp_path: Path) -> None:
    content = b'{"turns": ["a", "b", "c", "d"]}\n{"turns": ["e", "f"]}\n'
    assert list(read_rows(write_table(tmp_path, "x.jsonl", content, turns_field="turns", context_turns=2))) == [
        CorpusRow(1, "a", "b", None),
        CorpusRow(2, "a<turn>b", "c", None),
        CorpusRow(3, "b<turn>c", "d", None),
        CorpusRow(4, "e", "f", None),
    ]
    second = write_table(tmp_path, "x.jsonl", content, turns_field="turns", answers="second")
    assert read_pairs(second) == [("a", "b"), ("a<turn>b<turn>c", "d"), ("e", "f")]


def test_a_turn_symbol_inside_a_turn_is_escaped(tmp_path: Path) -> None:
    content = b'{"turns": ["a<turn>b", "c", "d"]}'
    assert read_pairs(write_table(tmp_path, "x.jsonl", content, turns_field="turns"))[1] == ("a[turn]b<turn>c", "d")
    apart = b'{"turns": ["a < t u r n > b", "c", "d"]}'
    corpus = write_table(tmp_path, "x.jsonl", apart, turns_field="turns", without_spaces=True)
    assert read_pairs(corpus)[1] == ("a[turn]b<turn>c", "d")


def test_R7_invalid_conversations_are_bad_lines(tmp_path: Path) -> None:
    lines = [{"turns": ["alone"]}, {"turns": "text"}, {"turns": ["a", 1]}, {"said": ["a", "b"]}, ["a", "b"]]
    content = "\n".join(map(json.dumps, lines)).encode() + b'\n\n{\n{"turns": ["a", "b\\ud800"]}\n'
    faults = [row.fault for row in read_rows(write_table(tmp_path, "x.jsonl", content, turns_field="turns"))]
    nothing = "no list of turns"
    assert faults == ["no answer", nothing, nothing, nothing, "no such field", nothing, "not JSON", "not UTF-8"]


def test_spaces_between_characters_can_be_removed(tmp_path: Path) -> None:
    content = '{"turns": ["你 好", "好 的 ok"]}'.encode()
    assert read_pairs(write_table(tmp_path, "x.jsonl", content, turns_field="turns", without_spaces=True)) == [
        ("你好", "好的ok")
    ]


@pytest.mark.parametrize(("suffix", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files_read_as_plain_ones(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    corpus = write_table(tmp_path, f"x.tsv{suffix}", compress("a\t我\n".encode()))
    assert read_pairs(corpus) == [("a", "我")]


def test_R7_only_a_leading_byte_order_mark_is_removed(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    corpus = write_parallel(tmp_path, mark + b"a\n" + mark + b"b\n", mark + b"c\nd\n")
    assert read_pairs(corpus) == [("a", "c"), ("\ufeffb", "d")]
    assert read_pairs(write_table(tmp_path, "x.tsv", mark + b"a\tb\n")) == [("a", "b")]


def test_R7_carriage_returns_before_the_line_feed_are_removed(tmp_path: Path) -> None:
    assert read_pairs(write_parallel(tmp_path, b"a\r\nb\rc\r\n", b"x\ny\r\n")) == [("a", "x"), ("b\rc", "y")]
    assert read_pairs(write_table(tmp_path, "x.tsv", b"a\tb\r\n")) == [("a", "b")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_a_line_feed_ends_a_line(tmp_path: Path, separator: str) -> None:
    assert read_pairs(write_table(tmp_path, "x.tsv", f"a{separator}b\tc\n".encode())) == [(f"a{separator}b", "c")]


def test_R7_a_line_of_a_megabyte_is_read(tmp_path: Path) -> None:
    assert read_pairs(write_parallel(tmp_path, b"x" * 2**20 + b"\nb\n", b"c\nd\n")) == [("x" * 2**20, "c"), ("b", "d")]


@pytest.mark.parametrize(
    ("name", "line", "reason"),
    [
        ("x.tsv", b"Gr\xfc\xdfe\tb", "not UTF-8"),
        ("x.tsv", b"a\0\tb", "NUL"),
        ("x.tsv", b"a", "no such column"),
        ("x.jsonl", b'{"s": "\xff", "t": "b"}', "not UTF-8"),
        ("x.jsonl", b'{"s": "\\ud800", "t": "b"}', "not UTF-8"),
        ("x.jsonl", b'{"s": "a", "t": "\\u0000"}', "NUL"),
        ("x.jsonl", b'{"s": "a", "t": "b"', "not JSON"),
        ("x.jsonl", b"[" * 100_000, "not JSON"),
        ("x.jsonl", b'{"s": "a"}', "no such field"),
        ("x.jsonl", b'["s", "t"]', "no such field"),
        ("x.jsonl", b'{"s": "a", "t": 3}', "field is not text"),
        ("x.jsonl", b'{"s": null, "t": "b"}', "field is not text"),
    ],
)
def test_R7_a_bad_line_has_a_reason_and_reading_continues(tmp_path: Path, name: str, line: bytes, reason: str) -> None:
    good = b"a\tb\n" if name.endswith(".tsv") else b'{"s": "a", "t": "b"}\n'
    fields = {} if name.endswith(".tsv") else {"source_field": "s", "target_field": "t"}
    corpus = write_table(tmp_path, name, good + line + b"\n" + good, **fields)
    assert list(read_rows(corpus)) == [
        CorpusRow(1, "a", "b", None),
        CorpusRow(2, "", "", reason),
        CorpusRow(3, "a", "b", None),
    ]


@pytest.mark.parametrize(
    ("left", "right", "reason"),
    [(b"\xff", b"b", "source not UTF-8"), (b"a", b"\xff", "target not UTF-8"), (b"a", b"\0b", "NUL")],
)
def test_R7_a_bad_line_of_either_file_has_a_reason(tmp_path: Path, left: bytes, right: bytes, reason: str) -> None:
    assert [row.fault for row in read_rows(write_parallel(tmp_path, left + b"\na\n", right + b"\nb\n"))] == [
        reason,
        None,
    ]


def test_an_empty_line_has_no_text_in_any_format(tmp_path: Path) -> None:
    assert read_pairs(write_table(tmp_path, "x.tsv", b"\na\tb\n")) == [("", ""), ("a", "b")]
    assert read_pairs(write_table(tmp_path, "x.jsonl", b" \n", source_field="s", target_field="t")) == [("", "")]


def test_a_tag_precedes_every_source_with_text(tmp_path: Path) -> None:
    content = b"a b\tc\n \td\n\xff\te\n"
    assert list(read_rows(write_table(tmp_path, "x.tsv", content, tag="<2de>"))) == [
        CorpusRow(1, "<2de> a b", "c", None),
        CorpusRow(2, " ", "d", None),
        CorpusRow(3, "", "", "not UTF-8"),
    ]


@pytest.mark.parametrize(
    ("left", "right", "short", "lines"), [(b"a\nb\n", b"c\n", "target", 1), (b"", b"c\n", "source", 0)]
)
def test_R7_unequal_line_counts_are_reported(tmp_path: Path, left: bytes, right: bytes, short: str, lines: int) -> None:
    error = read_error(write_parallel(tmp_path, left, right))
    long = tmp_path / ("source" if short == "target" else "target")
    values = {"short": tmp_path / short, "short_lines": lines, "long": long, "long_lines": lines + 1}
    assert error == message("file_line_counts_differ", **values)


def test_R7_an_empty_file_is_rejected(tmp_path: Path) -> None:
    assert read_error(write_parallel(tmp_path, b"", b"")).startswith(f"{tmp_path / 'source'} is empty")
    assert read_error(write_table(tmp_path, "x.tsv", b"")).startswith(f"{tmp_path / 'x.tsv'} is empty")


@pytest.mark.parametrize("name", ["missing.tsv", "missing.tsv.gz"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    assert read_error(CorpusConfig(file=tmp_path / name)).startswith(fragment("file_open_failed", path=tmp_path / name))


def test_a_truncated_compressed_file_is_rejected(tmp_path: Path) -> None:
    compressed = gzip.compress(b"".join(f"{n * n}\t{n}\n".encode() for n in range(2000)))
    for length in (len(compressed) - 1, len(compressed) // 2):
        assert "cannot be read" in read_error(write_table(tmp_path, "x.tsv.gz", compressed[:length]))


def test_a_file_corpus_can_be_read_again(tmp_path: Path) -> None:
    corpus = FileCorpus(write_table(tmp_path, "x.tsv", b"a\tb\n", weight=2.5))
    assert isinstance(corpus, Corpus)
    assert list(corpus.rows()) == list(corpus.rows()) == [CorpusRow(1, "a", "b", None)]
    assert (corpus.name, corpus.weight) == (str(tmp_path / "x.tsv"), 2.5)


def test_field_names_can_be_any_text(tmp_path: Path) -> None:
    content = json.dumps({"a b": "x", "": "y"}).encode()
    assert read_pairs(write_table(tmp_path, "x.jsonl", content, source_field="a b", target_field="")) == [("x", "y")]


def write_parallel(folder: Path, left: bytes, right: bytes) -> CorpusConfig:
    (folder / "source").write_bytes(left)
    (folder / "target").write_bytes(right)
    return CorpusConfig(source=folder / "source", target=folder / "target")


def write_table(folder: Path, name: str, content: bytes, **settings: Any) -> CorpusConfig:
    (folder / name).write_bytes(content)
    return CorpusConfig(file=folder / name, **settings)


def read_pairs(corpus: CorpusConfig) -> list[tuple[str, str]]:
    found = list(read_rows(corpus))
    assert [row.number for row in found] == list(range(1, len(found) + 1))
    assert {row.fault for row in found} == {None}
    return [(row.source, row.target) for row in found]


def read_error(corpus: CorpusConfig) -> str:
    """The one-line error for this corpus."""
    with pytest.raises(DataError) as caught:
        list(read_rows(corpus))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_csv_field_can_have_commas_and_line_breaks(tmp_path: Path) -> None:
    content = b'a,b\n"one, two","say ""hi"""\n"first\nsecond",z\n'
    assert read_pairs(write_table(tmp_path, "x.csv", content)) == [
        ("a", "b"),
        ("one, two", 'say "hi"'),
        ("first\nsecond", "z"),
    ]
    compressed = write_table(tmp_path, "x.csv.gz", gzip.compress(content), source_field="2", target_field="1")
    assert read_pairs(compressed)[1] == ('say "hi"', "one, two")
    assert fragment("csv_quote_not_closed", line=2) in read_error(write_table(tmp_path, "y.csv", b'a,b\nc,"d\n'))
    assert [row.fault for row in read_rows(write_table(tmp_path, "z.csv", b'a,b\nc\n"a"x,b\n'))] == [
        None,
        "no such column",
        "not CSV",
    ]


def test_a_broken_csv_header_is_a_data_error(tmp_path: Path) -> None:
    corpus = write_table(tmp_path, "x.csv", b'"en"x,de\na,b\n', source_field="en", target_field="de")
    with pytest.raises(DataError, check=has_code("header_not_csv", path=corpus.file)):
        list(read_rows(corpus))


@pytest.mark.parametrize(("name", "between"), [("x.csv", b","), ("x.tsv", b"\t")])
def test_columns_can_be_named_by_the_header(tmp_path: Path, name: str, between: bytes) -> None:
    content = b"\n".join(between.join(row) for row in ((b"id", b"en", b"fr"), (b"1", b"cat", b"chat")))
    assert read_pairs(write_table(tmp_path, name, content, source_field="fr", target_field="en")) == [("chat", "cat")]
    missing = read_error(write_table(tmp_path, name, content, source_field="de", target_field="en"))
    assert missing.endswith(fragment("table_column_not_found", column="de", columns="id, en, fr"))


def test_a_missing_jsonl_field_lists_the_existing_fields(tmp_path: Path) -> None:
    lines = b'{"id": 1, "body": "a", "subject": "b"}\n' * 3
    assert read_pairs(write_table(tmp_path, "x.jsonl", b'{"source": "a", "target": "b"}')) == [("a", "b")]
    error = read_error(write_table(tmp_path, "x.jsonl", lines, source_field="body", target_field="title"))
    assert error.endswith(
        fragment("jsonl_field_not_found", field="title", fields="id, body, subject", option="target_field")
    )


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_utf_16_and_utf_32_are_detected_by_their_mark(tmp_path: Path, encoding: str) -> None:
    error = read_error(write_parallel(tmp_path, b"a\n", "b\n".encode(encoding)))
    target, code = tmp_path / "target", encoding.upper()
    assert error == message(
        "file_is_utf16_or_utf32",
        path=target,
        encoding=code,
        command=f"iconv -f {code} -t UTF-8 {target} > {target}.utf8",
    )
    compressed = read_error(write_table(tmp_path, "x y.tsv.gz", gzip.compress("a\tb\n".encode(encoding))))
    given, new = (f"'{tmp_path / name}'" for name in ("x y.tsv.gz", "x y.utf8.tsv.gz"))
    assert compressed.endswith(f" gzip -dc {given} | iconv -f {code} -t UTF-8 | gzip > {new}")
