"""A training run from text to model folder, and resuming it. Crashes are tested in tests/reliability."""

import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, write_pairs

from attendo.data.prepare import Preparing
from attendo.data.shards import DamagedDataError
from attendo.errors import DataError, ModelError, UsageError
from attendo.runs.config import RunConfig
from attendo.runs.run import Run
from attendo.text_model import load
from attendo.train.checkpoint import Checkpoints, eval_weights
from attendo.train.loop import Report, Saved, Skipped, Step, Validation

CPU = torch.device("cpu")


def make_config(folder: Path, **changes: Any) -> RunConfig:
    source, target = write_pairs(folder)
    train = {"steps": 4, "batch_tokens": 64, "validate_every": 2, "save_every": 2, "workers": 0, "warmup": 2}
    values: dict[str, Any] = {
        "preset": "tiny",
        "data": {"source": source, "target": target},
        "tokenizer": {"kind": "words"},
        "model": {"d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.4},
        **changes,
        "train": {**train, **changes.get("train", {})},
    }
    return RunConfig(**values)


def build_run(run: Run) -> Run:
    for _ in run.prepare():
        pass
    run.build()
    return run


def begin_run(settings: RunConfig, folder: Path, overwrite: bool = False) -> Run:
    return build_run(Run.begin(settings, folder, CPU, overwrite))


def train_run(settings: RunConfig, folder: Path, overwrite: bool = False) -> Run:
    run = begin_run(settings, folder, overwrite)
    list(run.train())
    run.finish()
    return run


def flat_weights(run: Run) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in run.model.network.parameters()])


def test_a_run_writes_settings_reports_checkpoints_and_model(tmp_path: Path) -> None:
    run = begin_run(make_config(tmp_path), tmp_path / "runs" / "mine")
    reports = list(run.train())
    assert run.finish() == run.folder / "model"
    names = ["checkpoints", "data", "metrics.jsonl", "model", "run.json", "run.toml", "validation"]
    assert sorted(path.name for path in run.folder.iterdir()) == names
    again = RunConfig(**tomllib.loads((run.folder / "run.toml").read_text()))
    assert again.make_model_config(9, 9) == run.config.make_model_config(9, 9)
    assert again.train == run.config.train.replace(peak_lr=1e-3)
    assert json.loads((run.folder / "run.json").read_text())["torch"] == torch.__version__
    written = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    kinds = ["step", "step", "validation", "saved", "step", "step", "validation", "saved"]
    assert [line["kind"] for line in written] == kinds
    losses = [report.loss for report in reports if isinstance(report, Step | Validation)]
    assert [line["loss"] for line in written if "loss" in line] == losses
    assert run.checkpoints.steps() == [2, 4]
    assert load(run.folder / "model", "cpu").generate(SOURCES) == run.model.generate(SOURCES)


def test_text_is_prepared_once(tmp_path: Path) -> None:
    run = Run.begin(make_config(tmp_path), tmp_path / "run", CPU)
    assert {type(each) for each in run.prepare()} == {Preparing}
    assert run.data.pairs + len(run.data.valid) == 40
    assert list(Run.resume(run.folder, CPU).prepare()) == []


def test_prepared_data_can_be_shared(tmp_path: Path) -> None:
    first = train_run(make_config(tmp_path), tmp_path / "first")
    second = train_run(make_config(tmp_path, data={"prepared": first.data_folder}, tokenizer={}), tmp_path / "second")
    assert not (second.folder / "data").exists()
    assert torch.equal(flat_weights(first), flat_weights(second))


def test_text_without_validation_pairs_is_rejected(tmp_path: Path) -> None:
    for name in ("s", "t"):
        (tmp_path / name).write_text("a\n")
    run = Run.begin(
        make_config(tmp_path, data={"source": tmp_path / "s", "target": tmp_path / "t"}), tmp_path / "run", CPU
    )
    with pytest.raises(DataError):
        list(run.prepare())


@pytest.mark.slow
def test_the_seed_determines_the_model(tmp_path: Path) -> None:
    same, again, other = (
        flat_weights(train_run(make_config(tmp_path, seed=seed), tmp_path / name))
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_an_existing_run_needs_overwrite(tmp_path: Path) -> None:
    first = train_run(make_config(tmp_path, train={"steps": 6}), tmp_path / "run")
    (first.folder / "skipped.jsonl").write_text("{}\n")
    before = (first.folder / "run.toml").read_text()
    with pytest.raises(UsageError, check=has_code("run_folder_in_use", folder=first.folder)):
        Run.begin(make_config(tmp_path), first.folder, CPU)
    assert (first.folder / "run.toml").read_text() == before
    second = train_run(make_config(tmp_path), first.folder, overwrite=True)
    assert tomllib.loads((second.folder / "run.toml").read_text())["train"]["steps"] == 4
    assert second.checkpoints.steps() == [2, 4]
    assert not (second.folder / "skipped.jsonl").exists()
    assert (second.folder / "metrics.jsonl").read_text().count('"step"') == 4 + 8


def test_an_unusable_run_folder_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(UsageError, check=has_code("run_folder_not_creatable", folder=tmp_path / "file")):
        Run.begin(make_config(tmp_path), tmp_path / "file", CPU)


def test_resuming_a_folder_without_a_run_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("run_not_found", folder=tmp_path)):
        Run.resume(tmp_path, CPU)


def test_a_run_without_checkpoints_resumes_at_step_0(tmp_path: Path) -> None:
    complete = train_run(make_config(tmp_path), tmp_path / "whole")
    stopped = begin_run(make_config(tmp_path), tmp_path / "stopped")
    next(iter(stopped.train()))
    again = build_run(Run.resume(stopped.folder, CPU))
    assert again.trainer.step == 0
    list(again.train())
    again.finish()
    assert torch.equal(flat_weights(again), flat_weights(complete))


def test_resume_removes_temporary_files(tmp_path: Path) -> None:
    run = train_run(make_config(tmp_path), tmp_path / "run")
    temporary = [
        run.folder / ".tmp-model",
        run.checkpoints.folder / ".tmp-step-00000009",
        run.folder / "validation" / ".tmp-x",
    ]
    for path in temporary:
        path.mkdir(parents=True)
    Run.resume(run.folder, CPU)
    assert not any(path.exists() for path in temporary)


def test_edited_settings_are_rejected_without_an_override(tmp_path: Path) -> None:
    run = train_run(make_config(tmp_path), tmp_path / "run")
    path = run.folder / "run.toml"
    path.write_text(path.read_text().replace("label_smoothing = 0.1", "label_smoothing = 0.2"))
    edited = Run.resume(run.folder, CPU)
    with pytest.raises(UsageError, check=has_code("checkpoint_settings_mismatch", path=path)):
        build_run(edited)
    longer = make_config(tmp_path, train={"steps": 6})
    again = build_run(Run.resume(run.folder, CPU, config=longer))
    assert (again.trainer.step, again.config.train.steps) == (4, 6)
    assert tomllib.loads(path.read_text())["train"]["steps"] == 6
    list(again.train())
    assert build_run(Run.resume(run.folder, CPU)).trainer.step == 6


@pytest.mark.short(1)
@pytest.mark.parametrize("changed", [{"model": {"d_model": 32}}, {"seed": 9}, {"train": {"ema": 0.5}}])
def test_an_invalid_override_leaves_the_run_unchanged(tmp_path: Path, changed: dict[str, Any]) -> None:
    settings = make_config(tmp_path)
    train_run(settings, tmp_path / "run")
    before = (tmp_path / "run" / "run.toml").read_text()
    other = make_config(tmp_path, **changed)
    with pytest.raises((UsageError, ModelError)):
        build_run(Run.resume(tmp_path / "run", CPU, config=other))
    assert (tmp_path / "run" / "run.toml").read_text() == before
    build_run(Run.resume(tmp_path / "run", CPU))


@pytest.mark.parametrize("change", [{"batch_tokens": 64}, {"sort_within": 16}])
def test_changed_batch_settings_restart_the_current_data_block(tmp_path: Path, change: dict[str, int]) -> None:
    run = begin_run(make_config(tmp_path, train={"steps": 3, "batch_tokens": 32}), tmp_path / "run")
    stepped = [report for report in islice(run.train(), 1) if isinstance(report, Step)]
    assert stepped
    run.save()
    assert run.trainer.state.position.batch
    (changed,) = change
    other = make_config(tmp_path, train={"steps": 3, "batch_tokens": 32, **change})
    again = build_run(Run.resume(tmp_path / "run", CPU, config=other))
    assert again.trainer.state.position.batch == 0
    assert any(f"train.{changed} is another" in warning for warning in again.warnings)
    same = build_run(Run.resume(tmp_path / "run", CPU, config=other))
    assert not any(changed in warning for warning in same.warnings)


def test_a_small_sort_within_gives_mixed_lengths(tmp_path: Path) -> None:
    """If all pairs are sorted at once, a batch has one length. The setting must reach the batches."""
    padding = {}
    for sort_within in (65_536, 8):
        settings = make_config(tmp_path, train={"steps": 3, "batch_tokens": 64, "sort_within": sort_within})
        run = begin_run(settings, tmp_path / f"run-{sort_within}")
        batches = [item.batch for item in islice(run.trainer.stream.batches(), 10)]
        padding[sort_within] = sum(batch.padding for batch in batches)
        assert all(len(batch.numbers) <= sort_within for batch in batches)
    assert padding[8] > padding[65_536]


def test_relative_paths_are_resolved_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train_run(make_config(tmp_path), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    begin_run(make_config(tmp_path, data={"prepared": Path("run/data")}, tokenizer={}), tmp_path / "second")
    start = make_config(tmp_path).model_dump(include={"data", "train"}, exclude_unset=True)
    begin_run(RunConfig(**start, start_from=Path("run/model")), tmp_path / "third")
    monkeypatch.chdir("/")
    for name in ("second", "third"):
        assert build_run(Run.resume(tmp_path / name, CPU)).trainer.step == 0


def test_a_run_stopped_while_preparing_resumes_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    files = {"source": "train.source", "target": "train.target"}
    complete = begin_run(make_config(tmp_path, data=files), Path("whole"))
    Run.begin(make_config(tmp_path, data=files), tmp_path / "stopped", CPU)
    monkeypatch.chdir("/")
    resumed = build_run(Run.resume(tmp_path / "stopped", CPU))
    assert resumed.data.fingerprint == complete.data.fingerprint, "the working folder does not matter"
    shutil.rmtree(tmp_path / "whole" / "data")
    assert build_run(Run.resume(tmp_path / "whole", CPU)).data.fingerprint == complete.data.fingerprint


def test_damaged_run_data_can_be_deleted_and_prepared_again(tmp_path: Path) -> None:
    run = train_run(make_config(tmp_path), tmp_path / "run")
    (run.data_folder / "valid.jsonl").write_text("{}")
    error = has_code("run_data_damaged", data_folder=run.data_folder, folder=run.folder)
    with pytest.raises(DataError, check=error):
        build_run(Run.resume(run.folder, CPU))
    shutil.rmtree(run.data_folder)
    assert build_run(Run.resume(run.folder, CPU)).trainer.step == 4


def test_damaged_shared_data_is_a_data_error(tmp_path: Path) -> None:
    data = begin_run(make_config(tmp_path), tmp_path / "run").data_folder
    (data / "valid.jsonl").write_text("{}")
    with pytest.raises(DataError, check=has_code("prepared_data_damaged")):
        begin_run(make_config(tmp_path, data={"prepared": data}, tokenizer={}), tmp_path / "second")


def test_damage_found_while_training_is_a_data_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin_run(make_config(tmp_path), tmp_path / "run")

    def raise_damaged(stop_at: int | None) -> Iterator[Report]:
        raise DamagedDataError("not_a_shard", path="a.shard")
        yield

    monkeypatch.setattr(run.trainer, "train", raise_damaged)
    with pytest.raises(DataError, check=has_code("run_data_damaged")):
        list(run.train())


def test_out_of_memory_advises_a_smaller_batch_that_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin_run(make_config(tmp_path, train={"steps": 6}), tmp_path / "run")
    update = run.trainer.updater.update

    def fail_at_step_3(batches: Any) -> Any:
        if run.trainer.step == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return update(batches)

    monkeypatch.setattr(run.trainer.updater, "update", fail_at_step_3)
    with pytest.raises(torch.OutOfMemoryError) as failed:
        list(run.train())
    advice = f"--resume {run.folder} --override --set train.batch_tokens=32 --set train.accumulate=2"
    assert failed.value.__notes__[0].startswith("batches of 64 tokens are too much here; what was saved stays, go on")
    assert failed.value.__notes__[0].endswith(advice)
    smaller = make_config(tmp_path, train={"steps": 6, "batch_tokens": 32, "accumulate": 2})
    again = build_run(Run.resume(run.folder, CPU, config=smaller))
    assert again.trainer.step == 2
    list(again.train())
    assert again.trainer.step == 6


def test_loading_a_run_folder_as_a_model_is_an_error(tmp_path: Path) -> None:
    train_run(make_config(tmp_path), tmp_path / "run")
    with pytest.raises(ModelError, check=has_code("run_instead_of_model")):
        load(tmp_path / "run")


def test_replaced_run_data_is_rejected(tmp_path: Path) -> None:
    run = train_run(make_config(tmp_path), tmp_path / "run")
    shutil.rmtree(run.data_folder)
    source = tmp_path / "train.source"
    source.write_text(source.read_text("utf-8").replace("cat", "cow"), "utf-8")
    with pytest.raises(ModelError, check=has_code("checkpoint_data_mismatch")):
        build_run(Run.resume(run.folder, CPU))


def test_missing_data_is_prepared_again_from_the_same_text(tmp_path: Path) -> None:
    run = train_run(make_config(tmp_path), tmp_path / "run")
    shutil.rmtree(run.data_folder)
    again = build_run(Run.resume(run.folder, CPU))
    assert (again.trainer.step, again.warnings) == (4, [])


def test_another_thread_count_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train_run(make_config(tmp_path), tmp_path / "run")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    again = build_run(Run.resume(run.folder, CPU))
    before = run.checkpoints.load(4).facts["threads"]
    assert again.warnings == [f"threads was {before} and is 77: the last bits may differ"]


@pytest.mark.short(1)
@pytest.mark.parametrize("ema", [0.0, 0.5])
@pytest.mark.parametrize("final", ["best", "last", "average"])
def test_final_selects_the_weights_of_the_model(tmp_path: Path, final: str, ema: float) -> None:
    """The third of five checkpoints has the best validation loss."""
    train = {"final": final, "ema": ema, "steps": 5, "save_every": 1, "validate_every": 1, "average": 2, "peak_lr": 0.1}
    run = begin_run(make_config(tmp_path, train={**train, "warmup": 0}), tmp_path / "run")
    losses = iter([5.0, 4.0, 1.0, 2.0, 3.0])
    run.trainer._validator = lambda step: Validation(step, next(losses))
    list(run.train())
    run.finish()
    saved = {step: eval_weights(run.checkpoints.load(step)) for step in run.checkpoints.steps()}
    expected = {
        "best": lambda name: saved[3][name],
        "last": lambda name: saved[5][name],
        "average": lambda name: (saved[4][name].double() + saved[5][name].double()).div(2).float(),
    }[final]
    network = load(run.folder / "model", "cpu").network
    for name, weight in network.named_parameters():
        assert torch.equal(weight, expected(name)), name
    assert all(map(torch.equal, network.parameters(), run.model.network.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["damaged", "gone"])
def test_without_the_best_checkpoint_its_saved_model_is_kept(tmp_path: Path, loss: str) -> None:
    run, best = run_whose_second_step_is_best(tmp_path)
    for path in run.checkpoints.path(2).iterdir():
        path.write_bytes(b"") if loss == "damaged" else path.unlink()
    run.finish()
    for name, weight in load(run.folder / "model", "cpu").network.named_parameters():
        assert torch.equal(weight, best[name]), name
    assert run.faults == {}


def test_without_the_best_weights_the_last_are_used_with_a_warning(tmp_path: Path) -> None:
    run, _ = run_whose_second_step_is_best(tmp_path)
    shutil.rmtree(run.checkpoints.path(2))
    shutil.rmtree(run.folder / "model")
    last = [weight.detach().clone() for weight in run.model.network.parameters()]
    run.finish()
    assert all(map(torch.equal, load(run.folder / "model", "cpu").network.parameters(), last))
    assert "the weights of the best step, 2, could not be kept" in run.faults["model"]


def test_a_failed_model_save_is_reported_and_training_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begin_run(make_config(tmp_path), tmp_path / "run")
    save = run.model.save

    def fail(folder: Path) -> None:
        raise OSError("no room for a model")

    monkeypatch.setattr(run.model, "save", fail)
    reports = list(run.train())
    assert [report.step for report in reports if isinstance(report, Saved)] == [2, 4]
    assert run.faults == {"model": "no room for a model"}
    monkeypatch.setattr(run.model, "save", save)
    run.finish()
    assert load(run.folder / "model", "cpu").generate(SOURCES)


def test_a_run_ended_early_saves_the_current_model(tmp_path: Path) -> None:
    run = begin_run(make_config(tmp_path), tmp_path / "run")
    list(islice(run.train(), 1))
    folder = run.finish()
    assert run.model.generate(SOURCES) == load(folder, "cpu").generate(SOURCES)


def test_skipped_pairs_are_written_once_per_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin_run(make_config(tmp_path), tmp_path / "run")
    monkeypatch.setattr(run.trainer, "train", lambda stop_at: iter([Skipped(2, (5, 6)), Skipped(3, (7,))]))
    reports: list[Report] = list(run.train())
    assert reports == [Skipped(2, (5, 6)), Skipped(3, (7,))]
    path = run.folder / "skipped.jsonl"
    lines = ['{"step": 2, "pairs": [5, 6]}', '{"step": 3, "pairs": [7]}']
    assert path.read_text().splitlines() == lines
    run.trainer.updater.step = 2
    monkeypatch.setattr(run.trainer, "train", lambda stop_at: iter([]))
    list(run.train())
    assert path.read_text().splitlines() == lines[:1], "later steps are removed"


def test_unwritten_skipped_pairs_are_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begin_run(make_config(tmp_path), tmp_path / "run")
    monkeypatch.setattr(run.trainer, "train", lambda stop_at: iter([Skipped(2, (5,)), Skipped(3, (6,))]))
    (run.folder / ".tmp-skipped.jsonl").mkdir()  # blocks the first write and is removed after it
    for report in run.train():
        if report.step == 2:
            assert "skipped.jsonl" in run.faults["SkippedStepsFile"]
    assert run.faults == {}
    assert len((run.folder / "skipped.jsonl").read_text().splitlines()) == 2


def test_deterministic_kernels_are_enabled_and_reset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    run = begin_run(make_config(tmp_path, train={"deterministic": True}), tmp_path / "exact")
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ.pop("CUBLAS_WORKSPACE_CONFIG") == ":4096:8"
    list(run.train())
    assert run.trainer.step == 4
    begin_run(make_config(tmp_path), tmp_path / "quick")
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_fine_tuning_starts_from_the_weights_and_validates_old_pairs(tmp_path: Path) -> None:
    old = train_run(make_config(tmp_path), tmp_path / "old")
    start = make_config(tmp_path).model_dump(exclude={"preset", "tokenizer", "model"}, exclude_unset=True)
    settings = RunConfig(**{**start, "start_from": old.folder / "model"})
    new = begin_run(settings, tmp_path / "new")
    assert torch.equal(flat_weights(new), flat_weights(old))
    validations = [report for report in new.train() if isinstance(report, Validation)]
    assert all(report.old.keys() == {"loss"} for report in validations)
    again = build_run(Run.resume(new.folder, CPU))
    assert (again.trainer.step, again.warnings) == (4, [])


def test_prepared_data_with_other_tokenizers_is_rejected(tmp_path: Path) -> None:
    old = train_run(make_config(tmp_path), tmp_path / "old")
    other = begin_run(make_config(tmp_path, tokenizer={"kind": "characters"}), tmp_path / "other")
    settings = RunConfig(start_from=old.folder / "model", data={"prepared": other.data_folder})
    with pytest.raises(UsageError, check=has_code("start_from_tokenizer_mismatch")):
        begin_run(settings, tmp_path / "new")


def test_a_sentence_longer_than_learned_positions_is_rejected(tmp_path: Path) -> None:
    fits, short = ({"positions": "learned", "max_length": length, "d_model": 16, "num_heads": 2} for length in (6, 5))
    begin_run(make_config(tmp_path, model=fits), tmp_path / "fits")
    with pytest.raises(
        DataError,
        check=has_code("training_text_exceeds_positions", what="a sentence", length=6, limit=5, setting="max_length"),
    ):
        begin_run(make_config(tmp_path, model=short), tmp_path / "short")


def test_a_run_that_failed_before_preparing_can_begin_again(tmp_path: Path) -> None:
    missing = make_config(tmp_path, data={"source": tmp_path / "none.en", "target": tmp_path / "none.de"})
    with pytest.raises(DataError):
        begin_run(missing, tmp_path / "run")
    assert begin_run(make_config(tmp_path), tmp_path / "run").data.pairs > 0


def test_a_run_used_by_another_process_is_rejected(tmp_path: Path) -> None:
    run = begin_run(make_config(tmp_path), tmp_path / "run")
    reports = run.train()
    next(reports)
    with pytest.raises(UsageError, check=has_code("folder_in_use")):  # the open file holds the lock
        Run.resume(run.folder, CPU)
    reports.close()
    assert not (run.folder / ".lock").exists()


def run_whose_second_step_is_best(folder: Path) -> tuple[Run, dict[str, torch.Tensor]]:
    """A trained but unfinished run, and the weights of its best step."""
    settings = make_config(folder, train={"save_every": 1, "validate_every": 2, "keep_last": 1, "peak_lr": 0.1})
    run = begin_run(settings, folder / "run")
    losses = iter([1.0, 2.0])
    run.trainer._validator = lambda step: Validation(step, next(losses))
    list(run.train())
    assert Checkpoints(run.folder / "checkpoints").steps() == [2, 4]
    # Copies, because loaded tensors are memory-mapped and tests damage the file.
    return run, {name: tensor.clone() for name, tensor in run.checkpoints.load(2).model.items()}
