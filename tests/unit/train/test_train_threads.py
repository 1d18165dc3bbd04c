"""The number of training threads: measured at the start, recorded, and restored on resume."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import BATCH, make_updater
from tiny import write_pairs

from attendo.nn.cpu_threads import THROTTLE, OtherLoad
from attendo.runs import run as run_module
from attendo.runs.config import RunConfig
from attendo.runs.run import Run
from attendo.runs.verify_resume import _threads_option
from attendo.train import threads as threads_module
from attendo.train.threads import choose_threads

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _default_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread count is requested; torch's thread count is restored."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = torch.get_num_threads()
    yield
    THROTTLE.set(False)
    torch.set_num_threads(before)


def config(folder: Path) -> RunConfig:
    source, target = write_pairs(folder)
    train = {"steps": 4, "batch_tokens": 64, "validate_every": 4, "save_every": 2, "workers": 0, "warmup": 2}
    values: dict[str, Any] = {
        "preset": "tiny",
        "data": {"source": source, "target": target},
        "tokenizer": {"kind": "words"},
        "model": {"d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.4},
        "train": train,
    }
    return RunConfig(**values)


def build(run: Run) -> Run:
    for _ in run.prepare():
        pass
    run.build()
    return run


def begin_with(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, threads: int) -> Run:
    monkeypatch.setattr(run_module, "choose_threads", lambda updater, most: threads)
    return build(Run.begin(config(tmp_path), tmp_path / "run", CPU))


@pytest.mark.parametrize(
    ("seconds", "idle", "contended"),
    [((8, 4, 2), 4, 4), ((2, 4, 8), 1, 1), ((4, 2, 3), 2, 2), ((2, 2.05, 9), 2, 1), ((2, 1.95, 9), 2, 1)],
)
def test_the_fastest_thread_count_is_chosen(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], idle: int, contended: int
) -> None:
    durations = dict(zip((1, 2, 4), seconds, strict=True))
    monkeypatch.setattr(
        threads_module,
        "_time_passes",
        lambda make_updater, batch, counts, load: tuple(durations[count] for count in counts),
    )
    for free, chosen in ((True, idle), (False, contended)):
        monkeypatch.setattr(OtherLoad, "has_cores_for", lambda self, threads, free=free: free)
        assert choose_threads(make_updater(), max_threads=4) == chosen


@pytest.mark.parametrize("sizes", [{}, {"positions": "learned", "max_length": 6}, {"num_encoder_layers": 0}])
def test_the_measurement_does_not_change_training(sizes: dict[str, Any]) -> None:
    measured, unmeasured = make_updater(dropout=0.3, **sizes), make_updater(dropout=0.3, **sizes)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    assert choose_threads(measured, max_threads=1) == 1
    assert torch.get_num_threads() == threads
    if not sizes.get("num_encoder_layers", 1):
        return
    measured.update([BATCH])
    torch.manual_seed(5)
    unmeasured.update([BATCH])
    for one, other in zip(measured.network.parameters(), unmeasured.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_thread_count_is_recorded_before_the_first_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = begin_with(monkeypatch, tmp_path, threads=2)
    assert torch.get_num_threads() == 2
    assert json.loads((run.folder / "run.json").read_bytes())["threads"] == 2
    assert _threads_option(run.folder) == ["--threads", "2"]


@pytest.mark.parametrize("steps", [0, 2])
def test_a_resumed_run_keeps_its_thread_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: int) -> None:
    """With and without a checkpoint."""
    run = begin_with(monkeypatch, tmp_path, threads=2)
    for _ in run.train(steps) if steps else ():
        if run.trainer.step == steps:
            run.save()
            break
    torch.set_num_threads(1)
    monkeypatch.setattr(run_module, "choose_threads", lambda make_updater, most: pytest.fail("chosen again"))
    monkeypatch.setattr(run_module, "available_cores", lambda: 2)
    again = build(Run.resume(run.folder, CPU))
    assert torch.get_num_threads() == 2
    assert again.warnings == []


def test_fewer_cores_keep_the_thread_count_with_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = begin_with(monkeypatch, tmp_path, threads=3)
    monkeypatch.setattr(run_module, "available_cores", lambda: 2)
    again = build(Run.resume(run.folder, CPU))
    assert torch.get_num_threads() == 3
    assert [warning for warning in again.warnings if "3 threads" in warning and "--threads 2" in warning]


def test_a_changed_thread_count_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = begin_with(monkeypatch, tmp_path, threads=2)
    run.save()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    again = build(Run.resume(run.folder, CPU))
    assert torch.get_num_threads() == 1
    assert again.warnings == ["threads was 2 and is 1: the last bits may differ"]
