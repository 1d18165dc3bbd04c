"""`attendo score`: a log-probability for every pair of lines."""

import gzip
import json
from pathlib import Path

import pytest
from error_codes import fragment
from tiny import SOURCES, TARGETS, Command, parallel_model, tiny_model, write_pairs


def test_each_line_is_the_log_probability_of_its_pair(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=2)
    done = attendo("score", model_folder, "--source", source, "--target", target)
    assert (done.code, done.errors) == (0, "")
    assert [float(line) for line in done.output.splitlines()] == pytest.approx(
        tiny_model().score(SOURCES * 2, TARGETS * 2), abs=1e-5
    )


def test_scores_can_be_normalised_and_listed_per_word(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=1)
    files = ["--source", source, "--target", target]
    scored = tiny_model().score_tokens(SOURCES, TARGETS)
    means = [float(line) for line in attendo("score", model_folder, *files, "--normalise").output.splitlines()]
    assert means == pytest.approx([each.log_probability / len(each.pieces) for each in scored], abs=1e-5)
    for line, each in zip(attendo("score", model_folder, *files, "--words").output.splitlines(), scored, strict=True):
        total, words = line.split(" ||| WordScores= ")
        assert float(total) == pytest.approx(each.log_probability, abs=1e-5)
        assert [float(word) for word in words.split()] == pytest.approx(list(each.log_probabilities), abs=1e-5)
    for line, each in zip(attendo("score", model_folder, *files, "--json").output.splitlines(), scored, strict=True):
        content = json.loads(line)
        assert content["pieces"] == list(each.pieces)
        assert content["score"] == pytest.approx(sum(content["log_probabilities"]))


def test_blocks_and_compression_do_not_change_scores(
    attendo: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = write_pairs(tmp_path, times=3)
    expected = attendo("score", model_folder, "--source", source, "--target", target).output
    compressed = tmp_path / "packed.gz"
    compressed.write_bytes(gzip.compress(source.read_bytes()))
    monkeypatch.setattr("attendo.cli.score.PAIRS_AT_ONCE", 5)
    assert attendo("score", model_folder, "--source", compressed, "--target", target).output == expected


def test_unknown_words_are_reported_with_file_and_line(
    attendo: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = write_pairs(tmp_path, times=1)
    source.write_text("I love NLP\nthe zebra\nthe cat\n", "utf-8")
    target.write_text("我 爱 NLP\n猫\n鱼 猫 鸟\n", "utf-8")
    monkeypatch.setattr("attendo.cli.score.PAIRS_AT_ONCE", 2)
    done = attendo("score", model_folder, "--source", source, "--target", target)
    assert (done.code, done.output.count("\n")) == (0, 3)
    zebra, both = (
        f"{source} line 2: not in the vocabulary: 'zebra'",
        f"{target} line 3: not in the vocabulary: '鱼', '鸟'",
    )
    assert done.errors.splitlines() == [zebra, both]


def test_bad_files_and_options_are_errors(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path, times=1)
    target.write_bytes(target.read_bytes() + b"more\n")
    failed = attendo("score", model_folder, "--source", source, "--target", target)
    assert failed.code == 3
    assert fragment("file_line_counts_differ", short_lines=4) in failed.errors
    target.write_bytes(b"a\n\xff\nb\nc\n")
    failed = attendo("score", model_folder, "--source", source, "--target", target)
    assert failed.code == 3
    assert fragment("line_not_utf8", line=2) in failed.error
    both = attendo("score", model_folder, "--source", source, "--target", target, "--words", "--json")
    assert both.code == 2
    assert fragment("words_with_json") in both.error


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_a_target_that_does_not_fit_has_probability_0(attendo: Command, tmp_path: Path, kind: str) -> None:
    parallel_model(kind).save(tmp_path / "model")
    (tmp_path / "a").write_text("the cat\n", "utf-8")
    (tmp_path / "b").write_text(" ".join(["猫 坐"] * 20) + "\n", "utf-8")
    words = ["score", tmp_path / "model", "--source", tmp_path / "a", "--target", tmp_path / "b"]
    assert attendo(*words).output == "-inf\n"
    found = json.loads(attendo(*words, "--json").output, parse_constant=pytest.fail)
    assert (found["score"], found["tokens"]) == (None, 41)
