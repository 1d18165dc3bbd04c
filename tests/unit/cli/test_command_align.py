"""`attendo align`: links of every pair of lines, and their error rate."""

import json
import re
from pathlib import Path

import pytest
from error_codes import fragment
from tiny import SOURCES, TARGETS, Command, tiny_model, write_pairs

from attendo.cli import align as command
from attendo.data.pharaoh import parse_links
from attendo.explore.gold_alignment import GoldLinks, check_link_range
from attendo.metrics.alignment_error import LinkCounts

HAND_ALIGNED = Path(__file__).parents[3] / "benchmarks" / "hand_aligned"


def test_each_line_has_the_links_of_its_pair(
    attendo: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "PAIRS_AT_ONCE", 3)
    source, target = write_pairs(tmp_path, times=2)
    done = attendo("align", model_folder, "--source", source, "--target", target)
    assert (done.code, done.errors) == (0, "")
    assert done.output.splitlines() == [str(each) for each in tiny_model().align(SOURCES * 2, TARGETS * 2)]
    merged = attendo("align", model_folder, "--source", source, "--target", target, "--symmetrise", "union", "--json")
    for line, each in zip(
        merged.output.splitlines(), tiny_model().align(SOURCES * 2, TARGETS * 2, symmetrise="union"), strict=True
    ):
        assert json.loads(line)["alignments"] == [list(link) for link in each.links]
        assert json.loads(line)["target_words"] == list(each.target_words)


def test_gold_links_give_the_error_rate(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=1)
    gold = tmp_path / "gold"
    gold.write_text("0-0 1?1\n0-0 2?2\n1-0\n\n", "utf-8")
    lines = gold.read_text("utf-8").split("\n")[:4]
    counts = LinkCounts()
    for each, line in zip(tiny_model().align(SOURCES, TARGETS), lines, strict=True):
        counts += LinkCounts.from_links(each.links, *parse_links(line, ""))
    options = ["--source", source, "--target", target, "--gold", gold]
    done = attendo("align", model_folder, *options)
    numbers = dict(re.findall(r"^(.+?)\s+([\d.]+)$", done.output, re.MULTILINE))
    names = {"error rate": counts.error_rate, "precision": counts.precision, "recall": counts.recall}
    assert {name: float(value) for name, value in numbers.items()} == pytest.approx(names, abs=1e-4)
    content = json.loads(attendo("align", model_folder, *options, "--json").output)
    assert (content["pairs"], content["error_rate"]) == (4, pytest.approx(counts.error_rate))


def test_files_that_do_not_fit_are_errors(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=1)
    gold = tmp_path / "gold"
    gold.write_text("0-0\n", "utf-8")
    files = ["--source", source, "--target", target]
    assert fragment("gold_line_count_mismatch") in attendo("align", model_folder, *files, "--gold", gold).error
    gold.write_text("0-9\n\n\n\n", "utf-8")
    assert fragment("gold_link_outside_sentence") in attendo("align", model_folder, *files, "--gold", gold).error
    assert fragment("align_files_missing") in attendo("align", model_folder, "--source", source).error
    assert (
        fragment("reverse_without_symmetrisation")
        in attendo("align", model_folder, *files, "--reverse", model_folder).error
    )


def test_precision_and_recall_are_those_of_och_and_ney() -> None:
    counts = LinkCounts.from_links({(0, 0), (1, 1), (2, 2)}, {(0, 0), (3, 3)}, {(1, 1)})
    assert counts.precision == pytest.approx(2 / 3)
    assert counts.recall == 1 / 2
    assert (LinkCounts().precision, LinkCounts().recall) == (None, None)


def test_the_hand_aligned_pairs_have_links_of_their_words() -> None:
    names = ("pairs.en", "pairs.zh", "pairs.align")
    columns = [(HAND_ALIGNED / name).read_text("utf-8").splitlines() for name in names]
    assert {len(each) for each in columns} == {60}
    for number, (source, target, line) in enumerate(zip(*columns, strict=True), start=1):
        sure, possible = parse_links(line, f"line {number}")
        assert sure
        assert not sure & possible
        words = tuple(source.split()), tuple(target.split())
        check_link_range(GoldLinks(sure, possible, *words), len(words[0]), len(words[1]), f"line {number}")
