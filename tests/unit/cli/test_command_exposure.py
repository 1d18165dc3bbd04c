"""`attendo exposure`: the table, the JSON, the picture and errors."""

import json
from pathlib import Path

import pytest
from error_codes import fragment, message
from late_import import needs
from tiny import SOURCES, TARGETS, Command, tiny_model, without_source

from attendo.explore.exposure import ExposureSettings, ParallelText, measure_exposure

Files = list[str | Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    for name, lines in (("dev.en", SOURCES), ("dev.zh", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return ["--source", tmp_path / "dev.en", "--reference", tmp_path / "dev.zh"]


@pytest.fixture(scope="session")
def other_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "other" / "model"
    tiny_model(3).save(folder)
    return folder


def read_table(output: str) -> dict[str, list[str]]:
    """The values of each row by its label. Columns are at least two spaces apart."""
    _, *rows = output.splitlines()
    cells = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]
    return {label: values for label, *values in cells}


def test_the_table_has_one_line_per_number(attendo: Command, saved_model: Path, files: Files) -> None:
    done = attendo("exposure", saved_model, *files, "--seed", 4)
    assert done.code == 0
    report = measure_exposure(tiny_model(), ParallelText(SOURCES, TARGETS), None, ExposureSettings(seed=4))
    table = read_table(done.output)
    assert table["sentences"] == ["4"]
    assert table["reference tokens, EOS included"] == ["19"]
    assert table["negative log-likelihood per token"] == [f"{report.nll:.3f}"]
    assert table["accuracy after own prefixes, %"] == [f"{100 * report.accuracy.own_mean:.1f}"]
    delta = report.recovery["doubled"].deltas[0]
    assert table["doubled token: Δ(1), nats"] == [f"{delta:.3f}"]
    assert table["doubled token: half-life, tokens"] == [str(report.recovery["doubled"].half_life or "> 5")]
    assert table["%ExAccErr"] == ["no oracle"]
    assert table["own outputs cut at the length limit"] == [str(report.cut)]
    assert max(map(len, done.output.splitlines())) <= 80
    assert "ExAccErr is not measured without --oracle" in done.errors


def test_several_models_are_columns(attendo: Command, saved_model: Path, other_model: Path, files: Files) -> None:
    done = attendo("exposure", saved_model, other_model, *files, "--oracle", other_model)
    assert done.code == 0
    assert done.output.splitlines()[0].split() == [saved_model.parent.name, "other"]
    table = read_table(done.output)
    assert table["sentences"] == ["4", "4"]
    assert table["%ExAccErr(20), sampled histories"][1] == "0.0"
    assert table["%ExAccErr(20), sampled histories"][0] != "0.0"
    oracle, models = table["oracle: negative log-likelihood per token"], table["negative log-likelihood per token"]
    assert oracle == [models[1]] * 2
    assert "other: the oracle does not predict the references better" in done.errors


def test_json_has_everything(attendo: Command, saved_model: Path, other_model: Path, files: Files) -> None:
    done = attendo("exposure", saved_model, *files, "--json", "--limit", 3, "--oracle", other_model, "--seed", 7)
    content = json.loads(done.output)
    text = ParallelText(SOURCES[:3], TARGETS[:3])
    report = measure_exposure(tiny_model(), text, tiny_model(3), ExposureSettings(seed=7))
    expected = json.loads(json.dumps({"model": str(saved_model), **report.as_json()}))
    assert content["models"] == [expected]
    assert (content["seed"], content["oracle"]) == (7, [str(other_model)])
    assert (content["source"], content["reference"]) == (str(files[1]), str(files[3]))


def test_several_oracles_are_an_ensemble(attendo: Command, saved_model: Path, other_model: Path, files: Files) -> None:
    options = ["--json", "--oracle", other_model, "--oracle", saved_model]
    found = json.loads(attendo("exposure", saved_model, *files, *options).output)["models"][0]
    oracle = tiny_model(3).ensemble([tiny_model()])
    expected = measure_exposure(tiny_model(), ParallelText(SOURCES, TARGETS), oracle)
    assert expected.excess is not None
    assert found["excess_error"]["greedy"]["own"] == pytest.approx(expected.excess["greedy"].own)


@needs("matplotlib")
def test_the_picture_is_written(attendo: Command, saved_model: Path, files: Files, tmp_path: Path) -> None:
    picture = tmp_path / "new" / "exposure.svg"
    done = attendo("exposure", saved_model, *files, "--figure", picture)
    assert done.code == 0
    assert b"Recovery after one corrupted token" in picture.read_bytes()
    assert f"picture written to {picture}" in done.errors


def test_unknown_words_are_counted(attendo: Command, saved_model: Path, files: Files) -> None:
    Path(files[1]).write_text("the cat\nthe zebra\nI\nI\n", "utf-8")
    done = attendo("exposure", saved_model, *files)
    assert "1 of 4 lines have words that the vocabulary does not have" in done.errors


def test_bad_files_are_named(attendo: Command, saved_model: Path, files: Files) -> None:
    source, reference = Path(files[1]), Path(files[3])
    reference.write_text("我\n\n我\n我\n", "utf-8")
    blank = message("exposure_line_blank", text=f"{reference} line 2")
    assert attendo("exposure", saved_model, *files).error == blank
    reference.write_text("我\n", "utf-8")
    done = attendo("exposure", saved_model, *files, "--limit", 1)
    assert done.error == message("file_line_counts_differ", short=reference, short_lines=1, long=source, long_lines=2)


def test_models_that_cannot_be_measured_are_rejected(
    attendo: Command, saved_model: Path, files: Files, tmp_path: Path
) -> None:
    assert attendo("exposure", saved_model, saved_model, *files).error == message(
        "exposure_model_repeated", model=saved_model
    )
    without_source().save(tmp_path / "text")
    assert attendo("exposure", saved_model, tmp_path / "text", *files).error == message("exposure_decoder_only")
    tiny_model(joint=True).save(tmp_path / "joint")
    done = attendo("exposure", saved_model, *files, "--oracle", tmp_path / "joint")
    assert done.error == message("oracle_tokenizer_mismatch", side="source")
    done = attendo("exposure", saved_model, *files, "--figure", tmp_path / "x.gif")
    assert fragment("unknown_picture_format", path=tmp_path / "x.gif") in done.error
    assert done.code == 2


def test_models_of_other_vocabularies_give_a_note(
    attendo: Command, saved_model: Path, files: Files, tmp_path: Path
) -> None:
    tiny_model(joint=True).save(tmp_path / "joint")
    done = attendo("exposure", saved_model, tmp_path / "joint", *files)
    assert done.code == 0
    assert "joint has another target tokenizer" in done.errors
