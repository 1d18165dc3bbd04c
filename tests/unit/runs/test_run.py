"""A run: text in, a trained model folder out, resumable at every moment. What crashes do to it: tests/reliability."""

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


def config(folder: Path, **changes: Any) -> RunConfig:
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


def ready(run: Run) -> Run:
    for _ in run.prepare():
        pass
    run.build()
    return run


def begun(settings: RunConfig, folder: Path, overwrite: bool = False) -> Run:
    return ready(Run.begin(settings, folder, CPU, overwrite))


def trained(settings: RunConfig, folder: Path, overwrite: bool = False) -> Run:
    run = begun(settings, folder, overwrite)
    list(run.train())
    run.finish()
    return run


def weights(run: Run) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in run.model.network.parameters()])


def test_a_run_writes_its_settings_its_reports_its_checkpoints_and_its_model(tmp_path: Path) -> None:
    run = begun(config(tmp_path), tmp_path / "runs" / "mine")
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


def test_text_is_prepared_once_and_then_opened(tmp_path: Path) -> None:
    run = Run.begin(config(tmp_path), tmp_path / "run", CPU)
    assert {type(each) for each in run.prepare()} == {Preparing}
    assert run.data.pairs + len(run.data.valid) == 40
    assert list(Run.resume(run.folder, CPU).prepare()) == []


def test_prepared_data_may_be_shared(tmp_path: Path) -> None:
    first = trained(config(tmp_path), tmp_path / "first")
    second = trained(config(tmp_path, data={"prepared": first.data_folder}, tokenizer={}), tmp_path / "second")
    assert not (second.folder / "data").exists()
    assert torch.equal(weights(first), weights(second))


def test_text_without_validation_pairs_is_refused(tmp_path: Path) -> None:
    for name in ("s", "t"):
        (tmp_path / name).write_text("a\n")
    run = Run.begin(config(tmp_path, data={"source": tmp_path / "s", "target": tmp_path / "t"}), tmp_path / "run", CPU)
    with pytest.raises(DataError):
        list(run.prepare())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model_and_another_seed_another(tmp_path: Path) -> None:
    same, again, other = (
        weights(trained(config(tmp_path, seed=seed), tmp_path / name)) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_a_second_run_replaces_the_first_only_when_told_to(tmp_path: Path) -> None:
    first = trained(config(tmp_path, train={"steps": 6}), tmp_path / "run")
    (first.folder / "skipped.jsonl").write_text("{}\n")
    before = (first.folder / "run.toml").read_text()
    with pytest.raises(UsageError, check=has_code("run_folder_in_use")):
        Run.begin(config(tmp_path), first.folder, CPU)
    assert (first.folder / "run.toml").read_text() == before
    second = trained(config(tmp_path), first.folder, overwrite=True)
    assert tomllib.loads((second.folder / "run.toml").read_text())["train"]["steps"] == 4
    assert second.checkpoints.steps() == [2, 4]
    assert not (second.folder / "skipped.jsonl").exists()
    assert (second.folder / "metrics.jsonl").read_text().count('"step"') == 4 + 8


def test_a_run_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(UsageError, check=has_code("run_folder_not_creatable")):
        Run.begin(config(tmp_path), tmp_path / "file", CPU)


def test_a_folder_without_a_run_cannot_be_resumed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("no_run_to_resume")):
        Run.resume(tmp_path, CPU)


def test_a_run_without_checkpoints_is_resumed_at_its_beginning(tmp_path: Path) -> None:
    whole = trained(config(tmp_path), tmp_path / "whole")
    stopped = begun(config(tmp_path), tmp_path / "stopped")
    next(iter(stopped.train()))
    again = ready(Run.resume(stopped.folder, CPU))
    assert again.trainer.step == 0
    list(again.train())
    again.finish()
    assert torch.equal(weights(again), weights(whole))


def test_whatever_an_interrupted_write_left_behind_is_swept_when_a_run_is_resumed(tmp_path: Path) -> None:
    run = trained(config(tmp_path), tmp_path / "run")
    left = [
        run.folder / ".tmp-model",
        run.checkpoints.folder / ".tmp-step-00000009",
        run.folder / "validation" / ".tmp-x",
    ]
    for path in left:
        path.mkdir(parents=True)
    Run.resume(run.folder, CPU)
    assert not any(path.exists() for path in left)


def test_settings_edited_by_hand_are_refused_and_an_override_is_meant(tmp_path: Path) -> None:
    run = trained(config(tmp_path), tmp_path / "run")
    path = run.folder / "run.toml"
    path.write_text(path.read_text().replace("label_smoothing = 0.1", "label_smoothing = 0.2"))
    edited = Run.resume(run.folder, CPU)
    with pytest.raises(UsageError, check=has_code("checkpoint_settings_mismatch")):
        ready(edited)
    longer = config(tmp_path, train={"steps": 6})
    again = ready(Run.resume(run.folder, CPU, config=longer))
    assert (again.trainer.step, again.config.train.steps) == (4, 6)
    assert tomllib.loads(path.read_text())["train"]["steps"] == 6
    list(again.train())
    assert ready(Run.resume(run.folder, CPU)).trainer.step == 6


@pytest.mark.short(1)
@pytest.mark.parametrize("changed", [{"model": {"d_model": 32}}, {"seed": 9}, {"train": {"ema": 0.5}}])
def test_an_override_that_does_not_fit_leaves_the_run_as_it_was(tmp_path: Path, changed: dict[str, Any]) -> None:
    settings = config(tmp_path)
    trained(settings, tmp_path / "run")
    before = (tmp_path / "run" / "run.toml").read_text()
    other = config(tmp_path, **changed)
    with pytest.raises((UsageError, ModelError)):
        ready(Run.resume(tmp_path / "run", CPU, config=other))
    assert (tmp_path / "run" / "run.toml").read_text() == before
    ready(Run.resume(tmp_path / "run", CPU))


@pytest.mark.parametrize("change", [{"batch_tokens": 64}, {"sort_within": 16}])
def test_batches_made_otherwise_begin_their_part_of_the_data_again(tmp_path: Path, change: dict[str, int]) -> None:
    run = begun(config(tmp_path, train={"steps": 3, "batch_tokens": 32}), tmp_path / "run")
    stepped = [report for report in islice(run.train(), 1) if isinstance(report, Step)]
    assert stepped
    run.save()
    assert run.trainer.state.position.batch
    (changed,) = change
    other = config(tmp_path, train={"steps": 3, "batch_tokens": 32, **change})
    again = ready(Run.resume(tmp_path / "run", CPU, config=other))
    assert again.trainer.state.position.batch == 0
    assert any(f"train.{changed} is another" in warning for warning in again.warnings)
    same = ready(Run.resume(tmp_path / "run", CPU, config=other))
    assert not any(changed in warning for warning in same.warnings)


def test_few_pairs_sorted_at_a_time_make_mixed_batches(tmp_path: Path) -> None:
    """Sorted all at once, a batch holds one length; the setting has to come all the way to the batches."""
    padding = {}
    for sort_within in (65_536, 8):
        settings = config(tmp_path, train={"steps": 3, "batch_tokens": 64, "sort_within": sort_within})
        run = begun(settings, tmp_path / f"run-{sort_within}")
        batches = [placed.batch for placed in islice(run.trainer.stream.batches(), 10)]
        padding[sort_within] = sum(batch.padding for batch in batches)
        assert all(len(batch.numbers) <= sort_within for batch in batches)
    assert padding[8] > padding[65_536]


def test_what_a_run_needs_again_is_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(config(tmp_path), tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    begun(config(tmp_path, data={"prepared": Path("run/data")}, tokenizer={}), tmp_path / "second")
    start = config(tmp_path).model_dump(include={"data", "train"}, exclude_unset=True)
    begun(RunConfig(**start, start_from=Path("run/model")), tmp_path / "third")
    monkeypatch.chdir("/")
    for name in ("second", "third"):
        assert ready(Run.resume(tmp_path / name, CPU)).trainer.step == 0


def test_a_run_that_was_stopped_while_preparing_is_resumed_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    files = {"source": "train.source", "target": "train.target"}
    whole = begun(config(tmp_path, data=files), Path("whole"))
    Run.begin(config(tmp_path, data=files), tmp_path / "stopped", CPU)
    monkeypatch.chdir("/")
    resumed = ready(Run.resume(tmp_path / "stopped", CPU))
    assert resumed.data.fingerprint == whole.data.fingerprint, "wherever the two were prepared from"
    shutil.rmtree(tmp_path / "whole" / "data")
    assert ready(Run.resume(tmp_path / "whole", CPU)).data.fingerprint == whole.data.fingerprint


def test_data_of_its_own_that_is_damaged_is_mended_as_the_message_says(tmp_path: Path) -> None:
    run = trained(config(tmp_path), tmp_path / "run")
    (run.data_folder / "valid.jsonl").write_text("{}")
    error = has_code("run_data_damaged", data_folder=run.data_folder, folder=run.folder)
    with pytest.raises(DataError, check=error):
        ready(Run.resume(run.folder, CPU))
    shutil.rmtree(run.data_folder)
    assert ready(Run.resume(run.folder, CPU)).trainer.step == 4


def test_data_that_others_use_too_is_to_be_prepared_again(tmp_path: Path) -> None:
    data = begun(config(tmp_path), tmp_path / "run").data_folder
    (data / "valid.jsonl").write_text("{}")
    with pytest.raises(DataError, check=has_code("prepared_data_damaged")):
        begun(config(tmp_path, data={"prepared": data}, tokenizer={}), tmp_path / "second")


def test_damage_that_shows_while_training_is_told_in_the_same_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(config(tmp_path), tmp_path / "run")

    def damaged(stop_at: int | None) -> Iterator[Report]:
        raise DamagedDataError("not_a_shard", path="a.shard")
        yield

    monkeypatch.setattr(run.trainer, "train", damaged)
    with pytest.raises(DataError, check=has_code("run_data_damaged")):
        list(run.train())


def test_where_memory_runs_out_the_way_on_is_told_and_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(config(tmp_path, train={"steps": 6}), tmp_path / "run")
    learn = run.trainer.updater.update

    def too_much(batches: Any) -> Any:
        if run.trainer.step == 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return learn(batches)

    monkeypatch.setattr(run.trainer.updater, "update", too_much)
    with pytest.raises(torch.OutOfMemoryError) as failed:
        list(run.train())
    advice = f"--resume {run.folder} --override --set train.batch_tokens=32 --set train.accumulate=2"
    assert failed.value.__notes__[0].startswith("batches of 64 tokens are too much here; what was saved stays, go on")
    assert failed.value.__notes__[0].endswith(advice)
    smaller = config(tmp_path, train={"steps": 6, "batch_tokens": 32, "accumulate": 2})
    again = ready(Run.resume(run.folder, CPU, config=smaller))
    assert again.trainer.step == 2
    list(again.train())
    assert again.trainer.step == 6


def test_a_run_given_for_its_model_is_told_so(tmp_path: Path) -> None:
    trained(config(tmp_path), tmp_path / "run")
    with pytest.raises(ModelError, check=has_code("run_instead_of_model")):
        load(tmp_path / "run")


def test_other_data_in_the_place_of_the_runs_own_is_refused(tmp_path: Path) -> None:
    run = trained(config(tmp_path), tmp_path / "run")
    shutil.rmtree(run.data_folder)
    source = tmp_path / "train.source"
    source.write_text(source.read_text("utf-8").replace("cat", "cow"), "utf-8")
    with pytest.raises(ModelError, check=has_code("checkpoint_data_mismatch")):
        ready(Run.resume(run.folder, CPU))


def test_data_that_is_missing_is_prepared_again_from_the_same_text(tmp_path: Path) -> None:
    run = trained(config(tmp_path), tmp_path / "run")
    shutil.rmtree(run.data_folder)
    again = ready(Run.resume(run.folder, CPU))
    assert (again.trainer.step, again.warnings) == (4, [])


def test_other_circumstances_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(config(tmp_path), tmp_path / "run")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    again = ready(Run.resume(run.folder, CPU))
    before = run.checkpoints.load(4).facts["threads"]
    assert again.warnings == [f"threads was {before} and is 77: the last bits may differ"]


@pytest.mark.short(1)
@pytest.mark.parametrize("ema", [0.0, 0.5])
@pytest.mark.parametrize("final", ["best", "last", "average"])
def test_the_model_has_the_weights_asked_for(tmp_path: Path, final: str, ema: float) -> None:
    """Validation is made to find the third of five checkpoints the best."""
    train = {"final": final, "ema": ema, "steps": 5, "save_every": 1, "validate_every": 1, "average": 2, "peak_lr": 0.1}
    run = begun(config(tmp_path, train={**train, "warmup": 0}), tmp_path / "run")
    losses = iter([5.0, 4.0, 1.0, 2.0, 3.0])
    run.trainer._validator = lambda step: Validation(step, next(losses))
    list(run.train())
    run.finish()
    kept = {step: eval_weights(run.checkpoints.load(step)) for step in run.checkpoints.steps()}
    expected = {
        "best": lambda name: kept[3][name],
        "last": lambda name: kept[5][name],
        "average": lambda name: (kept[4][name].double() + kept[5][name].double()).div(2).float(),
    }[final]
    network = load(run.folder / "model", "cpu").network
    for name, weight in network.named_parameters():
        assert torch.equal(weight, expected(name)), name
    assert all(map(torch.equal, network.parameters(), run.model.network.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["damaged", "gone"])
def test_without_the_best_checkpoint_the_model_written_at_its_validation_stays(tmp_path: Path, loss: str) -> None:
    run, best = run_whose_second_step_is_best(tmp_path)
    for path in run.checkpoints.path(2).iterdir():
        path.write_bytes(b"") if loss == "damaged" else path.unlink()
    run.finish()
    for name, weight in load(run.folder / "model", "cpu").network.named_parameters():
        assert torch.equal(weight, best[name]), name
    assert run.faults == {}


def test_without_any_trace_of_the_best_weights_the_last_are_taken_and_that_is_told(tmp_path: Path) -> None:
    run, _ = run_whose_second_step_is_best(tmp_path)
    shutil.rmtree(run.checkpoints.path(2))
    shutil.rmtree(run.folder / "model")
    last = [weight.detach().clone() for weight in run.model.network.parameters()]
    run.finish()
    assert all(map(torch.equal, load(run.folder / "model", "cpu").network.parameters(), last))
    assert "the weights of the best step, 2, could not be kept" in run.faults["model"]


def test_a_model_that_cannot_be_written_is_told_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(config(tmp_path), tmp_path / "run")
    save = run.model.save

    def refuse(folder: Path) -> None:
        raise OSError("no room for a model")

    monkeypatch.setattr(run.model, "save", refuse)
    reports = list(run.train())
    assert [report.step for report in reports if isinstance(report, Saved)] == [2, 4]
    assert run.faults == {"model": "no room for a model"}
    monkeypatch.setattr(run.model, "save", save)
    run.finish()
    assert load(run.folder / "model", "cpu").generate(SOURCES)


def test_a_run_that_is_left_early_has_a_model_that_answers_as_the_saved_one(tmp_path: Path) -> None:
    run = begun(config(tmp_path), tmp_path / "run")
    list(islice(run.train(), 1))
    folder = run.finish()
    assert run.model.generate(SOURCES) == load(folder, "cpu").generate(SOURCES)


def test_skipped_pairs_are_named_once_for_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = begun(config(tmp_path), tmp_path / "run")
    monkeypatch.setattr(run.trainer, "train", lambda stop_at: iter([Skipped(2, (5, 6)), Skipped(3, (7,))]))
    told: list[Report] = list(run.train())
    assert told == [Skipped(2, (5, 6)), Skipped(3, (7,))]
    path = run.folder / "skipped.jsonl"
    lines = ['{"step": 2, "pairs": [5, 6]}', '{"step": 3, "pairs": [7]}']
    assert path.read_text().splitlines() == lines
    run.trainer.updater.step = 2
    monkeypatch.setattr(run.trainer, "train", lambda stop_at: iter([]))
    list(run.train())
    assert path.read_text().splitlines() == lines[:1], "of later steps nothing is known any more"


def test_skipped_pairs_that_cannot_be_written_are_kept_until_they_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = begun(config(tmp_path), tmp_path / "run")
    monkeypatch.setattr(run.trainer, "train", lambda stop_at: iter([Skipped(2, (5,)), Skipped(3, (6,))]))
    (run.folder / ".tmp-skipped.jsonl").mkdir()  # in the way of the first write, and removed after it
    for report in run.train():
        if report.step == 2:
            assert "skipped.jsonl" in run.faults["SkippedStepsFile"]
    assert run.faults == {}
    assert len((run.folder / "skipped.jsonl").read_text().splitlines()) == 2


def test_deterministic_kernels_are_asked_for_and_let_go_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    run = begun(config(tmp_path, train={"deterministic": True}), tmp_path / "exact")
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ.pop("CUBLAS_WORKSPACE_CONFIG") == ":4096:8"
    list(run.train())
    assert run.trainer.step == 4
    begun(config(tmp_path), tmp_path / "quick")
    assert not torch.are_deterministic_algorithms_enabled()
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ


def test_fine_tuning_starts_from_a_models_weights_and_looks_at_its_old_pairs(tmp_path: Path) -> None:
    old = trained(config(tmp_path), tmp_path / "old")
    start = config(tmp_path).model_dump(exclude={"preset", "tokenizer", "model"}, exclude_unset=True)
    settings = RunConfig(**{**start, "start_from": old.folder / "model"})
    new = begun(settings, tmp_path / "new")
    assert torch.equal(weights(new), weights(old))
    validations = [report for report in new.train() if isinstance(report, Validation)]
    assert all(report.old.keys() == {"loss"} for report in validations)
    again = ready(Run.resume(new.folder, CPU))
    assert (again.trainer.step, again.warnings) == (4, [])


def test_data_cut_by_other_tokenizers_cannot_be_fine_tuned_on(tmp_path: Path) -> None:
    old = trained(config(tmp_path), tmp_path / "old")
    other = begun(config(tmp_path, tokenizer={"kind": "characters"}), tmp_path / "other")
    settings = RunConfig(start_from=old.folder / "model", data={"prepared": other.data_folder})
    with pytest.raises(UsageError, check=has_code("start_from_tokenizer_mismatch")):
        begun(settings, tmp_path / "new")


def test_a_sentence_longer_than_learned_positions_is_refused_before_the_first_step(tmp_path: Path) -> None:
    fits, short = ({"positions": "learned", "max_length": length, "d_model": 16, "num_heads": 2} for length in (6, 5))
    begun(config(tmp_path, model=fits), tmp_path / "fits")
    with pytest.raises(
        DataError,
        check=has_code("training_text_exceeds_positions", what="a sentence", length=6, limit=5, setting="max_length"),
    ):
        begun(config(tmp_path, model=short), tmp_path / "short")


def test_a_run_that_failed_before_its_data_was_there_may_be_begun_again(tmp_path: Path) -> None:
    missing = config(tmp_path, data={"source": tmp_path / "none.en", "target": tmp_path / "none.de"})
    with pytest.raises(DataError):
        begun(missing, tmp_path / "run")
    assert begun(config(tmp_path), tmp_path / "run").data.pairs > 0


def test_a_run_that_another_process_works_on_is_left_alone(tmp_path: Path) -> None:
    run = begun(config(tmp_path), tmp_path / "run")
    reports = run.train()
    next(reports)
    with pytest.raises(UsageError, check=has_code("folder_in_use")):  # the lock is that of an open file
        Run.resume(run.folder, CPU)
    reports.close()
    assert not (run.folder / ".lock").exists()


def run_whose_second_step_is_best(folder: Path) -> tuple[Run, dict[str, torch.Tensor]]:
    """Trained but not finished, and the weights of that step."""
    settings = config(folder, train={"save_every": 1, "validate_every": 2, "keep_last": 1, "peak_lr": 0.1})
    run = begun(settings, folder / "run")
    losses = iter([1.0, 2.0])
    run.trainer._validator = lambda step: Validation(step, next(losses))
    list(run.train())
    assert Checkpoints(run.folder / "checkpoints").steps() == [2, 4]
    # Copies, because loaded tensors are the file itself, which tests damage.
    return run, {name: tensor.clone() for name, tensor in run.checkpoints.load(2).model.items()}
