"""The number of threads that a run trains with: timed when it begins, recorded, and restored when it is resumed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from learning import BATCH, learner
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
def _no_wish(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user asks for no number of threads; torch and its threads are put back."""
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
    monkeypatch.setattr(run_module, "choose_threads", lambda learner, most: threads)
    return build(Run.begin(config(tmp_path), tmp_path / "run", CPU))


@pytest.mark.parametrize(
    ("seconds", "idle", "contended"),
    [((8, 4, 2), 4, 4), ((2, 4, 8), 1, 1), ((4, 2, 3), 2, 2), ((2, 2.05, 9), 2, 1), ((2, 1.95, 9), 2, 1)],
)
def test_the_fastest_number_is_chosen_and_where_it_is_close_more_on_idle_cores_and_fewer_on_contended_ones(
    monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, ...], idle: int, contended: int
) -> None:
    taken = dict(zip((1, 2, 4), seconds, strict=True))
    monkeypatch.setattr(
        threads_module, "_time_passes", lambda learner, batch, counts, load: tuple(taken[count] for count in counts)
    )
    for free, chosen in ((True, idle), (False, contended)):
        monkeypatch.setattr(OtherLoad, "has_cores_for", lambda self, threads, free=free: free)
        assert choose_threads(learner(), max_threads=4) == chosen


@pytest.mark.parametrize("sizes", [{}, {"positions": "learned", "max_length": 6}, {"num_encoder_layers": 0}])
def test_the_trial_changes_nothing_that_is_learned(sizes: dict[str, Any]) -> None:
    tried, untried = learner(dropout=0.3, **sizes), learner(dropout=0.3, **sizes)
    torch.manual_seed(5)
    threads = torch.get_num_threads()
    assert choose_threads(tried, max_threads=1) == 1
    assert torch.get_num_threads() == threads
    if not sizes.get("num_encoder_layers", 1):
        return
    tried.update([BATCH])
    torch.manual_seed(5)
    untried.update([BATCH])
    for one, other in zip(tried.network.parameters(), untried.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_choice_is_recorded_before_the_first_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = begin_with(monkeypatch, tmp_path, threads=2)
    assert torch.get_num_threads() == 2
    assert json.loads((run.folder / "run.json").read_bytes())["threads"] == 2
    assert _threads_option(run.folder) == ["--threads", "2"]


@pytest.mark.parametrize("steps", [0, 2])
def test_a_resumed_run_has_the_threads_that_it_began_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: int
) -> None:
    """With a checkpoint, and before there is one."""
    run = begin_with(monkeypatch, tmp_path, threads=2)
    for _ in run.train(steps) if steps else ():
        if run.trainer.step == steps:
            run.save()
            break
    torch.set_num_threads(1)
    monkeypatch.setattr(run_module, "choose_threads", lambda learner, most: pytest.fail("chosen again"))
    monkeypatch.setattr(run_module, "available_cores", lambda: 2)
    again = build(Run.resume(run.folder, CPU))
    assert torch.get_num_threads() == 2
    assert again.warnings == []


def test_a_machine_with_fewer_cores_computes_the_same_and_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = begin_with(monkeypatch, tmp_path, threads=3)
    monkeypatch.setattr(run_module, "available_cores", lambda: 2)
    again = build(Run.resume(run.folder, CPU))
    assert torch.get_num_threads() == 3
    assert [warning for warning in again.warnings if "3 threads" in warning and "--threads 2" in warning]


def test_another_number_that_the_user_asks_for_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = begin_with(monkeypatch, tmp_path, threads=2)
    run.save()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    again = build(Run.resume(run.folder, CPU))
    assert torch.get_num_threads() == 1
    assert again.warnings == ["threads was 2 and is 1: the last bits may differ"]
