"""All checks of the doctor: an iterator of findings that does not change the run."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from doctor_runs import built_run, parallel_text

from attendo.doctor import Finding, examine, run_quick_checks
from attendo.doctor.training_checks import check_warm_up
from attendo.errors import DataError, ModelError
from attendo.nn.masks import Mask
from attendo.train.checkpoint import take_snapshot
from attendo.train.config import TrainConfig
from attendo.train.loop import Step

TEXT = parallel_text(60)
NETWORK = ["bad lines", "warm-up", "tying", "shift", "causal leak", "padding", "first loss", "memory"]
DATA = [
    *("misaligned lines", "length ratio", "long sentences", "repeated pairs", "several targets", "copied sources"),
    *("validation leak", "unknown tokens", "unused pieces", "characters a token"),
]
QUICK = [*NETWORK, *DATA]


@pytest.fixture(autouse=True)
def _quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.doctor.training_checks.ATTEMPTS", ((0.02, 3),))
    monkeypatch.setattr("attendo.doctor.memory.measure_memory", lambda updater, shape: None)


def train_digest(folder: Path, examined: str, changes: dict[str, Any]) -> tuple[str, list[float]]:
    """A digest of the trained state, and the losses."""
    run = built_run(folder / examined, TEXT, **{name: dict(values) for name, values in changes.items()})
    if examined != "not":
        assert list(examine(run, quick=examined == "quickly"))
    losses = [report.loss for report in run.train() if isinstance(report, Step)]
    snapshot = take_snapshot(run.trainer.updater, run.trainer.state, {})
    digest = hashlib.sha256(repr(run.trainer.state.position).encode())
    for tensors in (snapshot.model, snapshot.optimizer, snapshot.random):
        for name in sorted(tensors.keys() - {"rank0/python"}):  # the type checker draws from it during tests
            digest.update(name.encode() + tensors[name].flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest(), losses


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("examined", "changes"),
    [
        ("quickly", {"model": {"dropout": 0.4}}),
        ("wholly", {"train": {"r_drop": 1.0, "ema": 0.9, "accumulate": 2, "validate_every": 2}}),
        ("wholly", {"tokenizer": {"kind": "bpe", "size": 340, "dropout": 0.3}}),
    ],
)
def test_the_checks_do_not_change_training(tmp_path: Path, examined: str, changes: dict[str, Any]) -> None:
    plain = train_digest(tmp_path, "not", changes)
    assert len(plain[1]) == 4
    assert train_digest(tmp_path, examined, changes) == plain


@pytest.mark.parametrize("training", [True, False])
def test_the_checks_restore_random_state_weights_and_mode(tmp_path: Path, training: bool) -> None:
    run = built_run(tmp_path, TEXT)
    network = run.model.network.train(training)
    weights = [weight.detach().clone() for weight in network.parameters()]
    state, train_state = torch.get_rng_state(), run.trainer.state
    for _ in examine(run):
        assert torch.equal(torch.get_rng_state(), state), "after every finding"
        assert network.training == training
    assert all(torch.equal(now, before) for now, before in zip(network.parameters(), weights, strict=True))
    assert all(weight.grad is None for weight in network.parameters())
    assert run.trainer.state == train_state
    assert run.trainer.updater.optimizer.state == {}


def test_quick_skips_the_overfitting_check(tmp_path: Path) -> None:
    run = built_run(tmp_path, TEXT)
    assert [finding.check for finding in examine(run, quick=True)] == QUICK
    checks = [finding.check for finding in examine(run)]
    assert checks == [*NETWORK, "overfitting one batch", *DATA]


@pytest.mark.parametrize(("warmup", "level"), [(10, "ok"), (50, "ok"), (51, "warning"), (5000, "warning")])
def test_warm_up_longer_than_half_the_steps_is_a_warning(warmup: int, level: str) -> None:
    found = check_warm_up(TrainConfig(steps=100, warmup=warmup))
    assert (found.level, found.values["warmup"]) == (level, warmup)
    assert ("train.warmup, to about 10" in found.advice) == (level == "warning")


def test_misaligned_text_is_reported_and_does_not_stop_training(tmp_path: Path) -> None:
    lines = parallel_text(800)
    moved = [target for _, target in lines[300:500]]
    lines[300:500] = [
        (source, target) for (source, _), target in zip(lines[300:500], moved[1:] + moved[:1], strict=True)
    ]
    found = next(found for found in run_quick_checks(built_run(tmp_path, lines)) if found.check == "misaligned lines")
    assert (found.level, found.stops) == ("fault", False)


def test_findings_are_yielded_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = built_run(tmp_path, TEXT)
    monkeypatch.setattr("attendo.doctor.checks.check_causal_leak", pytest.fail)
    findings = examine(run)
    assert [next(findings).check for _ in range(3)] == QUICK[:3]


def test_quick_checks_return_warnings_and_faults_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = built_run(tmp_path, TEXT, tokenizer={"joint": True})
    assert any(finding.level == "note" for finding in examine(run, quick=True))
    assert run_quick_checks(run) == []
    monkeypatch.setattr("attendo.model.transformer.padding_mask", lambda is_token: Mask())
    monkeypatch.setattr("attendo.doctor.memory.free_memory", lambda device: 1000)
    assert [(found.check, found.level) for found in run_quick_checks(run)] == [
        ("padding", "fault"),
        ("memory", "warning"),
    ]


def test_a_resumed_run_skips_the_first_loss_check(tmp_path: Path) -> None:
    run = built_run(tmp_path, TEXT)
    run.trainer.updater.step = 3
    assert [finding.check for finding in examine(run, quick=True)] == [each for each in QUICK if each != "first loss"]


def test_a_fault_converts_to_an_error_of_its_kind() -> None:
    fault = Finding("padding", "fault", "it is seen", "mend the mask", ("a", "b"), {"by": 1.0}, "network")
    assert isinstance(fault.to_error(), ModelError)
    assert str(fault.to_error()) == fault.line == "padding: it is seen; mend the mask"
    assert isinstance(Finding("bad lines", "fault", "many").to_error(), DataError)
    assert Finding("bad lines", "fault", "many").line == "bad lines: many"
    assert json.loads(json.dumps(fault.as_json()))["values"] == {"by": 1.0}
