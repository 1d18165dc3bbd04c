"""`attendo evaluate` by label, with several references, and with scores that are of the model itself."""

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
    return ("--source", written(tmp_path / "test.en", SOURCES), "--reference", written(tmp_path / "test.zh", TARGETS))


@pytest.fixture
def model(model_folder: Path) -> TextModel:
    return load(model_folder, "cpu")


@pytest.fixture
def texts(model: TextModel) -> list[str]:
    return [result.text for result in model.generate(SOURCES)]


def written(path: Path, lines: tuple[str, ...] | list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def test_labels_have_a_table_below_the_scores_of_all(
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
    labels = written(tmp_path / "labels", ["名词", "", "名词", "名词"])
    told = json.loads(attendo("evaluate", model_folder, *files, "--metric", "chrf", "--by", labels, "--json").output)
    assert told["by"].keys() == {"名词", ""}
    assert told["by"][""] == {"lines": 1, "scores": {"chrf": score("chrf", texts[1:2], TARGETS[1:2]).value}}
    assert told["by"]["名词"]["lines"] == 3
    shown = attendo("evaluate", model_folder, *files, "--metric", "chrf", "--by", labels).output.splitlines()
    assert shown[-1].startswith("(none) ")


def test_any_of_several_references_is_right(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], texts: list[str], tmp_path: Path
) -> None:
    """An empty line in another file says that there is no further reference."""
    more = written(tmp_path / "more.zh", [texts[0], "", texts[2], "x"])
    done = attendo("evaluate", model_folder, *files, "--reference", more, "--metric", "exact_match,error_rate,bleu")
    right, wrong, bleu = done.output.splitlines()
    assert right.startswith("exact_match 50.00 exact|nrefs:var|")
    assert wrong.startswith("error_rate 50.00 error|nrefs:var|")
    ways = [(TARGETS[0], texts[0]), (TARGETS[1],), (TARGETS[2], texts[2]), (TARGETS[3], "x")]
    expected = score("bleu", texts, ways)
    assert bleu == f"bleu {expected.value:.2f} {expected.signature}"


def test_where_all_references_are_empty_the_right_answer_is_empty(
    attendo: Command, model_folder: Path, tmp_path: Path
) -> None:
    source = written(tmp_path / "a", ["", "the cat sat"])
    first, second = written(tmp_path / "b", ["", ""]), written(tmp_path / "c", ["", "x"])
    references = ("--reference", first, "--reference", second)
    done = attendo("evaluate", model_folder, "--source", source, *references, "--metric", "exact_match")
    assert done.output.startswith("exact_match 50.00 ")


def test_perplexity_is_of_the_references_and_translates_nothing(
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
    labels = written(tmp_path / "labels", LABELS)
    told = json.loads(attendo("evaluate", model_folder, *files, "--metric", names[0], "--by", labels, "--json").output)
    assert told["scores"][names[0]]["value"] == expected[0].value
    assert told["by"]["long"]["scores"][names[0]] == perplexity(names[0], found).score_by_label(LABELS)["long"].value
    assert told.keys() == {"model", "lines", "scores", "by"}


def test_perplexities_of_two_models_are_compared(
    attendo: Command, model_folder: Path, files: tuple[str | Path, ...], tmp_path: Path, model: TextModel
) -> None:
    other = tiny_model(5)
    other.save(tmp_path / "other")
    options = ("--metric", "chrf,perplexity", "--compare", tmp_path / "other", "--json")
    told = json.loads(attendo("evaluate", model_folder, *files, *options).output)
    values = [
        perplexity("perplexity", compute_likelihoods(each, SOURCES, TARGETS)).score.value for each in (model, other)
    ]
    assert told["scores"]["perplexity"]["value"] == values[0]
    assert told["comparisons"]["perplexity"]["other"] == values[1]


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
def test_what_cannot_be_met_is_told_before_the_model_is_read(
    attendo: Command,
    files: tuple[str | Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    message: str,
) -> None:
    written(tmp_path / "own", TARGETS)
    monkeypatch.chdir(tmp_path)
    failed = attendo("evaluate", "no model", *files, *options)
    assert failed.code == 2
    assert message in failed.error


def test_labels_and_references_are_as_many_as_the_lines(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    short = written(tmp_path / "short", ["a"])
    for option in ("--by", "--reference"):
        failed = attendo("evaluate", tmp_path / "no model", *files, option, short)
        assert failed.code == 3
        assert failed.error == message(
            "source_line_count_mismatch", source=files[1], source_lines=4, path=short, lines=1
        )


def test_the_output_replaces_neither_labels_nor_references(
    attendo: Command, files: tuple[str | Path, ...], tmp_path: Path
) -> None:
    more = written(tmp_path / "more", TARGETS)
    for option in ("--by", "--reference"):
        failed = attendo("evaluate", tmp_path / "no model", *files, option, more, "--output", more)
        assert fragment("output_overwrites_input", path=more) in failed.error
        assert more.read_text("utf-8").splitlines() == list(TARGETS)
