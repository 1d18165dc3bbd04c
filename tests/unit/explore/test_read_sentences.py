"""Sentences, targets and links are read together, line by line."""

from pathlib import Path

import pytest
from error_codes import has_code

from attendo.errors import DataError, UsageError
from attendo.explore.gold_alignment import GoldLinks
from attendo.explore.head_report import read_sentences


def write_files(folder: Path, **files: str) -> list[Path]:
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return [folder / name for name in files]


def test_a_source_alone_has_no_targets(tmp_path: Path) -> None:
    (source,) = write_files(tmp_path, source="a b\n\nc\n")
    found = read_sentences(source)
    assert [(each.source, each.target, each.gold) for each in found] == [("a b", None, None), ("c", None, None)]
    assert [str(each.location) for each in found] == [f"{source} line 1", f"{source} line 3"]


def test_links_are_between_words_by_default(tmp_path: Path) -> None:
    paths = write_files(tmp_path, source="a b?\nx\n", target="c d\n \n", gold="0-0 1?1\n\n")
    links = frozenset({(0, 0)}), frozenset({(1, 1)})
    (found,) = read_sentences(*paths)
    assert found.gold == GoldLinks(*links, ("a", "b?"), ("c", "d"))
    (found,) = read_sentences(*paths, unit="tokens")
    assert found.gold == GoldLinks(*links)


def test_files_of_different_length_are_rejected(tmp_path: Path) -> None:
    source, target, gold = write_files(tmp_path, source="a\nb\n", target="c\nd\n", gold="0-0\n")
    with pytest.raises(DataError, check=has_code("file_line_counts_differ", short_lines=1, long_lines=2)):
        read_sentences(source, target, gold)


def test_files_without_usable_lines_are_rejected(tmp_path: Path) -> None:
    source, target, gold = write_files(tmp_path, source="a\n", target="b\n", gold="0?0\n")
    with pytest.raises(UsageError, check=has_code("gold_without_target_file")):
        read_sentences(source, None, gold)
    with pytest.raises(DataError, check=has_code("no_sure_gold_link")):
        read_sentences(source, target, gold)
    (empty,) = write_files(tmp_path, empty="\n\n")
    with pytest.raises(DataError, check=has_code("no_usable_source_line")):
        read_sentences(empty)
    with pytest.raises(DataError, check=has_code("file_open_failed")):
        read_sentences(tmp_path / "nothing")
