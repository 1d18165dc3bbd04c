"""`attendo evaluate` with labels, several references and perplexity."""

import gzip
import json
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import SOURCES, TARGETS, Command, tiny_model

from attendo.metrics import compute_likelihoods, perplexity, score
from attendo.text_model import TextModel, load

LABELS = ["short", "short", "long", "long"]


@pytest.fixture
def files(tmp_path: Path) -> tuple[str | Path, ...]:
    """The options that name a source and its references."""
    return (
        "--source",
        write_lines(tmp_path / "test.en", SOURCES),
        "--reference",
        write_lines(tmp_path / "test.zh", TARGETS),
    )


@pytest.fixture
def model(model_folder: Path) -> TextModel:
    return load(model_folder, "cpu")


@pytest.fixture
def texts(model: TextModel) -> list[str]:
    return [result.text for result in model.generate(SOURCES)]


def write_lines(path: Path, lines: tuple[str, ...] | list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def test_labels_add_a_table_after_the_overall_scores(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], texts: list[str], tmp_path: Path
) -> None:
    labels = tmp_path / "labels.gz"
    labels.write_bytes(gzip.compress(b"short\nshort \nlong\n long\n"))
    done = attendo("evaluate", model_folder, *files, "--metric", "chrf,exact_match,distinct1", "--by", labels)
    assert done.code == 0
    scores, header, *rows = done.output.splitlines()[2:]
    assert scores.startswith("distinct1 ")
    assert header.split() == ["label", "lines", "chrf", "exact_match", "distinct1"]
    for row, part, label in zip(rows, (slice(2), slice(2, 4)), ("short", "long"), strict=True):
        values = [score(name, texts[part], TARGETS[part]).value for name in ("chrf", "exact_match", "distinct1")]
        assert row.split() == [label, "2", *(f"{value:.2f}" for value in values)]
    assert len({len(line) for line in (header, *rows)}) == 1


def test_json_has_the_scores_of_each_label(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], texts: list[str], tmp_path: Path
) -> None:
    labels = write_lines(tmp_path / "labels", ["名词", "", "名词", "名词"])
    report = json.loads(attendo("evaluate", model_folder, *files, "--metric", "chrf", "--by", labels, "--json").output)
    assert report["by"].keys() == {"名词", ""}
    assert report["by"][""] == {"lines": 1, "scores": {"chrf": score("chrf", texts[1:2], TARGETS[1:2]).value}}
    assert report["by"]["名词"]["lines"] == 3
    shown = attendo("evaluate", model_folder, *files, "--metric", "chrf", "--by", labels).output.splitlines()
    assert shown[-1].startswith("(none) ")


def test_any_of_several_references_counts_as_correct(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], texts: list[str], tmp_path: Path
) -> None:
    """An empty line in a second file means that there is no further reference."""
    more = write_lines(tmp_path / "more.zh", [texts[0], "", texts[2], "x"])
    done = attendo("evaluate", model_folder, *files, "--reference", more, "--metric", "exact_match,error_rate,bleu")
    right, wrong, bleu = done.output.splitlines()
    assert right.startswith("exact_match 50.00 exact|nrefs:var|")
    assert wrong.startswith("error_rate 50.00 error|nrefs:var|")
    references = [(TARGETS[0], texts[0]), (TARGETS[1],), (TARGETS[2], texts[2]), (TARGETS[3], "x")]
    expected = score("bleu", texts, references)
    assert bleu == f"bleu {expected.value:.2f} {expected.signature}"


def test_if_all_references_are_empty_the_empty_answer_is_correct(
    attendo: Command, model_folder: Path, tmp_path: Path
) -> None:
    source = write_lines(tmp_path / "a", ["", "the cat sat"])
    first, second = write_lines(tmp_path / "b", ["", ""]), write_lines(tmp_path / "c", ["", "x"])
    references = ("--reference", first, "--reference", second)
    done = attendo("evaluate", model_folder, "--source", source, *references, "--metric", "exact_match")
    assert done.output.startswith("exact_match 50.00 ")


def test_perplexity_scores_references_without_generating(
    attendo: Command,
    model_folder: Path,
    files: tuple[str | Path, ...],
    model: TextModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = compute_likelihoods(model, SOURCES, TARGETS)
    names = ("perplexity", "perplexity_per_word", "perplexity_per_character")
    expected = [perplexity(name, found).score for name in names]
    monkeypatch.setattr("attendo.text_model.TextModel.generate", lambda *_, **__: pytest.fail("it translated"))
    done = attendo("evaluate", model_folder, *files, "--metric", ",".join(names))
    assert done.output.splitlines() == [f"{each.name} {each.value:.2f} {each.signature}" for each in expected]
    assert done.errors == ""
    labels = write_lines(tmp_path / "labels", LABELS)
    report = json.loads(
        attendo("evaluate", model_folder, *files, "--metric", names[0], "--by", labels, "--json").output
    )
    assert report["scores"][names[0]]["value"] == expected[0].value
    assert report["by"]["long"]["scores"][names[0]] == perplexity(names[0], found).score_by_label(LABELS)["long"].value
    assert report.keys() == {"model", "lines", "scores", "by"}


def test_perplexities_of_two_models_are_compared(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path, model: TextModel
) -> None:
    other = tiny_model(5)
    other.save(tmp_path / "other")
    options = ("--metric", "chrf,perplexity", "--compare", tmp_path / "other", "--json")
    report = json.loads(attendo("evaluate", model_folder, *files, *options).output)
    values = [
        perplexity("perplexity", compute_likelihoods(each, SOURCES, TARGETS)).score.value for each in (model, other)
    ]
    assert report["scores"]["perplexity"]["value"] == values[0]
    assert report["comparisons"]["perplexity"]["other"] == values[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--metric", "distinct1", "--compare", "own"), fragment("metric_not_resamplable", metric="distinct1")),
        (("--metric", "chrf", "--compare", "own", "--by", "own"), fragment("by_with_compare")),
        (
            ("--metric", "perplexity", "--compare", "own"),
            fragment("perplexity_of_translation_file", metric="perplexity", path="own"),
        ),
        (
            ("--metric", "perplexity", "--beam", "4"),
            fragment("decoding_option_without_translation", option="beam", metrics="perplexity"),
        ),
        (
            ("--metric", "perplexity", "--length-penalty", "1"),
            fragment("decoding_option_without_translation", option="length-penalty"),
        ),
        (("--metric", "perplexty"), "unknown metric perplexty"),
    ],
)
def test_usage_errors_are_raised_before_the_model_is_loaded(
    attendo: Command,
    files: tuple[str | Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    write_lines(tmp_path / "own", TARGETS)
    monkeypatch.chdir(tmp_path)
    failed = attendo("evaluate", "no model", *files, *options)
    assert failed.code == 2
    assert message in failed.error


def test_label_and_reference_files_need_one_line_per_source(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    short = write_lines(tmp_path / "short", ["a"])
    for option in ("--by", "--reference"):
        failed = attendo("evaluate", tmp_path / "no model", *files, option, short)
        assert failed.code == 3
        assert failed.error == message(
            "file_line_counts_differ", short=short, short_lines=1, long=files[1], long_lines=2
        )


def test_the_output_overwrites_neither_labels_nor_references(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    more = write_lines(tmp_path / "more", TARGETS)
    for option in ("--by", "--reference"):
        failed = attendo("evaluate", tmp_path / "no model", *files, option, more, "--output", more)
        assert fragment("output_overwrites_input", path=more) in failed.error
        assert more.read_text("utf-8").splitlines() == list(TARGETS)
