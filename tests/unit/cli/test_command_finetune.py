"""`attendo finetune`: continued training, with scores on the old validation pairs."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import torch
from error_codes import fragment
from tiny import SOURCES, Command, parallel_model, settings, tiny_model, write_pairs

from attendo.model_folder import load_model, save_model
from attendo.text_model import load

QUICK = settings("train.steps=3", "train.batch_tokens=64")
OLD_PAIRS = [("the cat sat", "猫 坐 着"), ("I love NLP", "我 爱 NLP")]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A model that stores its validation pairs."""
    stored = tiny_model(seed=5).stored_model
    stored.sample.extend(OLD_PAIRS)
    save_model(tmp_path / "old", stored)
    return tmp_path / "old"


@pytest.fixture
def files(tmp_path: Path) -> list[str | Path]:
    source, target = write_pairs(tmp_path)
    return ["--source", source, "--target", target]


def test_fine_tuning_starts_from_the_models_weights_and_tokenizers(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    done = attendo("finetune", old, *files, "--out", tmp_path / "run", *QUICK, *settings("train.peak_lr=1e-9"))
    assert (done.code, done.output) == (0, "")
    assert f"model written to {tmp_path / 'run' / 'model'}\n" in done.errors
    before, after = load_model(old), load_model(tmp_path / "run" / "model")
    assert after.network.config == before.network.config
    weights = dict(after.network.named_parameters())
    for name, weight in before.network.named_parameters():
        torch.testing.assert_close(weights[name], weight, atol=1e-7, rtol=0)
    assert after.source_tokenizer.encode(SOURCES[0]) == before.source_tokenizer.encode(SOURCES[0])
    assert len(load(tmp_path / "run" / "model", "cpu").generate(SOURCES)) == len(SOURCES)


def test_scores_are_printed_before_the_first_step(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    done = attendo("finetune", old, *files, "--out", tmp_path / "run", *QUICK)
    first = next(line for line in done.errors.splitlines() if line.startswith("step "))
    assert first.startswith("step 0: validation loss ")
    assert "old loss" in first
    assert "best so far" not in first


@pytest.mark.slow
def test_the_default_learning_rate_is_small(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    attendo("finetune", old, *files, "--out", tmp_path / "run", *QUICK, *settings("train.warmup=2"))
    run = tomllib.loads((tmp_path / "run" / "run.toml").read_text())
    assert (run["train"]["peak_lr"], run["train"]["schedule"], run["train"]["warmup"]) == (2e-4, "linear", 2)
    assert run["start_from"] == str(old)
    assert not run.keys() & {"preset", "tokenizer"}


@pytest.mark.slow
def test_batch_size_is_chosen_from_the_data_and_printed(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    done = attendo("finetune", old, *files, "--out", tmp_path / "run", *settings("train.steps=2"))
    assert "train.batch_tokens = 512  # about " in done.errors
    assert "tokenizer." not in done.errors
    assert "model.tie" not in done.errors


@pytest.mark.slow
def test_every_validation_reports_old_and_new_scores(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    done = attendo("finetune", old, *files, "--out", tmp_path / "run", *QUICK)
    (validation_line,) = [line for line in done.errors.splitlines() if line.startswith("step 3: validation loss")]
    assert "  old loss " in validation_line
    assert "  old chrF " in validation_line
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (validation,) = [line for line in lines if line["kind"] == "validation"]
    assert validation["old"].keys() == {"loss", "bleu", "chrf"}
    assert validation["old"]["loss"] != validation["loss"]


@pytest.mark.slow
def test_without_stored_pairs_only_new_scores_are_reported(
    attendo: Command, files: list[str | Path], tmp_path: Path
) -> None:
    tiny_model().save(tmp_path / "bare")
    done = attendo("finetune", tmp_path / "bare", *files, "--out", tmp_path / "run", *QUICK)
    assert done.code == 0
    assert "old loss" not in done.errors


@pytest.mark.slow
def test_only_the_dropout_of_the_network_can_be_changed(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    done = attendo("finetune", old, *files, "--out", tmp_path / "run", *QUICK, *settings("model.dropout=0.3"))
    assert done.code == 0
    assert load_model(tmp_path / "run" / "model").network.config.dropout == 0.3
    failed = attendo("finetune", old, *files, "--out", tmp_path / "other", *QUICK, *settings("model.d_model=32"))
    assert failed.code == 2
    assert fragment("start_from_network_fixed", setting="d_model") in failed.error


def test_a_missing_model_leaves_no_run_folder(attendo: Command, files: list[str | Path], tmp_path: Path) -> None:
    failed = attendo("finetune", tmp_path / "missing", *files, "--out", tmp_path / "run", *QUICK)
    assert failed.code == 4
    assert str(tmp_path / "missing") in failed.error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.objective=mrt", fragment("treatment_needs_autoregressive", option="objective", value="mrt")),
        ("train.input_noise=0.1", fragment("treatment_needs_autoregressive", option="input_noise", value=0.1)),
        ("model.kind=ctc", fragment("start_from_kind_mismatch", before="graph", after="ctc")),
        ("generation.passes=2", fragment("option_needs_kind", option="passes", kind="graph", owner="masked")),
    ],
)
def test_settings_that_the_kind_of_the_model_lacks_leave_an_existing_run(
    attendo: Command, files: list[str | Path], tmp_path: Path, change: str, message: str
) -> None:
    run = tmp_path / "run"
    parallel_model("graph").save(tmp_path / "graph")
    run.mkdir()
    (run / "run.toml").write_text("seed = 7\n")
    failed = attendo("finetune", tmp_path / "graph", *files, "--out", run, "--overwrite", *QUICK, *settings(change))
    assert (failed.code, message in failed.errors) == (2, True)
    assert (run / "run.toml").read_text() == "seed = 7\n"


def test_a_graph_is_trained_on_ngrams(attendo: Command, old: Path, files: list[str | Path], tmp_path: Path) -> None:
    parallel_model("graph").save(tmp_path / "graph")
    options = [*files, "--out", tmp_path / "run", *QUICK, *settings("train.objective=ngrams", "train.peak_lr=1e-4")]
    done = attendo("finetune", tmp_path / "graph", *options)
    assert (done.code, done.output) == (0, "")
    assert load_model(tmp_path / "run" / "model").network.config.kind == "graph"
    failed = attendo("finetune", old, *options, "--overwrite")
    assert (failed.code, fragment("ngrams_needs_graph", kind="autoregressive") in failed.errors) == (2, True)


@pytest.mark.slow
def test_an_existing_run_needs_overwrite(attendo: Command, old: Path, files: list[str | Path], tmp_path: Path) -> None:
    options = [old, *files, "--out", tmp_path / "run", *QUICK]
    assert attendo("finetune", *options).code == 0
    failed = attendo("finetune", *options)
    assert failed.code == 2
    assert fragment("run_folder_in_use", folder=tmp_path / "run") in failed.errors
    assert attendo("finetune", *options, "--overwrite").code == 0


@pytest.mark.short(1)
@pytest.mark.parametrize("name", ["2024", "true", "a b", '"a"'])
def test_a_model_folder_may_have_any_name(
    attendo: Command, files: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    tiny_model().save(Path(name))
    assert attendo("finetune", name, *files, "--out", "run", *QUICK).code == 0
    assert tomllib.loads(Path("run/run.toml").read_text())["start_from"] == str(tmp_path / name)


def test_a_frozen_encoder_keeps_its_weights_after_resume(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    more = settings("train.peak_lr=1e-2", "train.save_every=1", "train.final=last")
    done = attendo("finetune", old, *files, "--out", run, "--freeze", "encoder", *QUICK, *more)
    assert done.code == 0, done.errors
    before, after = (load_model(each).network for each in (old, run / "model"))
    weights = dict(after.named_parameters())
    shutil.rmtree(run / "checkpoints" / "step-00000003")
    assert attendo("train", "--resume", run).code == 0
    assert (run / "checkpoints" / "step-00000003").is_dir()
    for name, weight in load_model(run / "model").network.named_parameters():
        assert torch.equal(weight, weights[name])
    changed = {
        name.split(".")[0] for name, weight in before.named_parameters() if not torch.equal(weight, weights[name])
    }
    assert "decoder" in changed
    assert "encoder" not in changed


def test_an_unknown_part_to_freeze_is_a_usage_error(
    attendo: Command, old: Path, files: list[str | Path], tmp_path: Path
) -> None:
    done = attendo("finetune", old, *files, "--out", tmp_path / "run", "--freeze", "head")
    assert done.code == 2
    assert "'embeddings', 'encoder', 'decoder' or 'output'" in done.errors
