"""Bad lines: reasons, counts and the allowed share."""

import io
from collections import Counter
from pathlib import Path

import pytest
from error_codes import has_code

from attendo.data.config import CorpusConfig, DataConfig
from attendo.data.corpus_files import FileCorpus, suggest_fields
from attendo.data.filtering import (
    BadLines,
    TooManyBadLinesError,
    find_length_fault,
    find_text_fault,
    suggest_remedy,
)
from attendo.errors import DataError

SETTINGS = DataConfig(task="builtin", max_length=100, max_length_ratio=3.0)


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [("a", "b", None), ("", "b", "empty"), ("a", " \u3000\t", "empty"), ("", "", "empty")],
)
def test_a_side_without_text_is_empty(source: str, target: str, fault: str | None) -> None:
    assert find_text_fault(source, target) == fault


@pytest.mark.parametrize(
    ("source", "target", "fault"),
    [
        (100, 100, None),
        (101, 100, "too long"),
        (50, 101, "too long"),
        (20, 1, None),
        (21, 7, None),
        (22, 7, "length ratio"),
        (7, 22, "length ratio"),
        (0, 5, "empty"),
    ],
)
def test_length_limits_follow_the_settings(source: int, target: int, fault: str | None) -> None:
    assert find_length_fault(source, target, SETTINGS) == fault


def test_bad_lines_are_counted_by_reason_and_listed_in_order() -> None:
    listing = io.StringIO()
    bad = BadLines("my corpus\tof text", listing)
    bad.add(10, {9: "empty", 2: "NUL"})
    bad.add(5, {11: "empty"})
    assert (bad.lines, dict(bad.counts)) == (15, {"empty": 2, "NUL": 1})
    assert listing.getvalue() == "".join(
        f"my corpus of text\t{number}\t{reason}\n" for number, reason in ((2, "NUL"), (9, "empty"), (11, "empty"))
    )


def test_filtered_pairs_are_counted_but_not_limited(tmp_path: Path) -> None:
    bad = BadLines("corpus", io.StringIO())
    bad.add(100, {1: "empty", **dict.fromkeys(range(2, 50), "duplicate"), 60: "copied source", 61: "other language"})
    bad.check(0.01, tmp_path / "list.tsv")
    assert bad.counts == {"empty": 1, "duplicate": 48, "copied source": 1, "other language": 1}
    with pytest.raises(TooManyBadLinesError, check=has_code("too_many_bad_lines", bad=1)):
        bad.check(0.005, tmp_path / "list.tsv")


def test_R7_one_percent_of_bad_lines_is_allowed(tmp_path: Path) -> None:
    bad = BadLines("corpus", io.StringIO())
    bad.add(200, {1: "empty", 2: "NUL"})
    bad.check(0.01, tmp_path / "list.tsv")
    bad.add(10, {201: "empty"})
    with pytest.raises(TooManyBadLinesError) as caught:
        bad.check(0.01, tmp_path / "list.tsv")
    assert isinstance(caught.value, DataError)
    remedy = has_code("bad_line_remedy", ratio=0.01)
    values = {"corpus": "corpus", "bad": 3, "lines": 210, "listing": tmp_path / "list.tsv", "remedy": remedy}
    assert has_code("too_many_bad_lines", **values)(caught.value)
    assert [str(each) for each in caught.value.values["reasons"].errors] == ["2 empty", "1 NUL"]
    assert "2 行（空行）；1 行（含有 NUL 字符）" in caught.value.text("zh")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reason", "setting"), [("length ratio", "data.max_length_ratio"), ("too long", "data.max_length,")]
)
def test_the_setting_for_the_main_reason_is_suggested_first(reason: str, setting: str) -> None:
    advice = str(suggest_remedy(Counter({reason: 42, "empty": 1}), 0.01))
    assert advice.index(setting) < advice.index("data.cut_source") < advice.index("data.max_bad_ratio (now 0.01)")
    assert has_code("bad_line_remedy", ratio=0.01)(suggest_remedy(Counter({"empty": 2, reason: 1}), 0.01))


def test_existing_fields_are_suggested(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": 1, "body": "long", "subject": "short"}\n')
    corpus = FileCorpus(CorpusConfig(file=tmp_path / "a.jsonl", source_field="bodies", target_field="subject"))
    assert "id, body, subject" in suggest_fields(corpus, {"no such field": 1})
    assert suggest_fields(corpus, {"empty": 1}) == ""
