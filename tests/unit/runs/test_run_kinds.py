"""Runs of networks that predict all tokens at once: train, resume, start from autoregressive weights, settings."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from test_run import CPU, begin_run, build_run, flat_weights, make_config, train_run
from tiny import SOURCES, write_pairs

from attendo.data.batch import RaggedArray
from attendo.data.prepared import open_prepared
from attendo.doctor.checks import examine_network
from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.runs.config import RunConfig
from attendo.runs.run import Run
from attendo.runs.verify import verify
from attendo.runs.weights import _count_repeats, average_model, count_unfit_pairs
from attendo.text_model import load
from attendo.train.loop import Validation

KINDS = ("masked", "ctc", "graph")
SMALL = {"d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.2}


def make_kind(folder: Path, kind: str, **changes: Any) -> RunConfig:
    model = {**SMALL, "kind": kind, **({"upsample": 2} if kind in ("ctc", "graph") else {}), **changes.pop("model", {})}
    return make_config(folder, model=model, **changes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_saves_and_generates(tmp_path: Path, kind: str) -> None:
    run = begin_run(make_kind(tmp_path, kind, train={"metrics": ["chrf"]}), tmp_path / "run")
    reports = [each for each in run.train() if isinstance(each, Validation)]
    assert [each.step for each in reports] == [2, 4]
    assert all(each.loss > 0 for each in reports)
    model = load(run.finish())
    assert model.network.config.kind == kind
    assert [each.text for each in model.generate(SOURCES)] == [each.text for each in run.model.generate(SOURCES)]
    assert all(each.equal for each in verify(model, SOURCES))
    averaged = average_model(run.folder, [2, 4])
    assert averaged.network.config.kind == kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, kind: str) -> None:
    complete = train_run(make_kind(tmp_path, kind), tmp_path / "whole")
    stopped = begin_run(make_kind(tmp_path, kind), tmp_path / "stopped")
    list(islice(stopped.train(stop_at=3), 4))
    stopped.save()
    again = build_run(Run.resume(stopped.folder, CPU))
    assert again.trainer.step in (2, 3)
    list(again.train())
    again.finish()
    assert torch.equal(flat_weights(again), flat_weights(complete))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_an_autoregressive_model_are_kept(tmp_path: Path, kind: str) -> None:
    old = train_run(make_config(tmp_path, generation={"beam": 3, "repetition_penalty": 1.2}), tmp_path / "old")
    config = RunConfig(
        start_from=old.folder / "model",
        data=old.config.data,
        model={"kind": kind},
        train=old.config.train.replace(steps=1),
    )
    run = begin_run(config, tmp_path / "new")
    before, after = old.model.network.state_dict(), run.model.network.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert any(name.startswith("mask_vector") for name in after.keys() - before.keys())
    assert run.model.generation.beam == (3 if kind == "graph" else 1)
    list(run.train())
    assert load(run.finish()).network.config.kind == kind


def test_weights_of_another_parallel_kind_are_rejected(tmp_path: Path) -> None:
    old = train_run(make_kind(tmp_path, "ctc"), tmp_path / "old")
    config = RunConfig(start_from=old.folder / "model", data=old.config.data, model={"kind": "graph"})
    mismatch = has_code("start_from_kind_mismatch", before="ctc", after="graph")
    with pytest.raises(UsageError, check=mismatch):
        begin_run(config, tmp_path / "new")


@pytest.mark.parametrize(
    ("kind", "changes", "code"),
    [
        ("ctc", {"train": {"compile": "on"}}, "compile_needs_autoregressive"),
        ("masked", {"train": {"glancing": 0.3}}, "glancing_needs_alignments"),
        (
            "autoregressive",
            {"train": {"glancing_until": 0.3}, "model": {"upsample": None}},
            "glancing_needs_alignments",
        ),
        ("ctc", {"train": {"label_smoothing": 0.2}}, "label_smoothing_unused"),
        ("graph", {"train": {"sharding": "full"}}, "sharding_needs_autoregressive"),
        ("graph", {"model": {"positions": "rotary"}}, "positions_unsuitable_for_kind"),
        ("masked", {"generation": {"beam": 4}}, "option_unsupported_by_kind"),
        ("ctc", {"generation": {"passes": 4}}, "option_needs_kind"),
        ("graph", {"generation": {"coverage_penalty": 0.2}}, "option_unsupported_by_kind"),
    ],
)
def test_settings_that_a_kind_does_not_have_are_rejected(
    tmp_path: Path, kind: str, changes: dict[str, Any], code: str
) -> None:
    with pytest.raises(UsageError) as raised:
        make_kind(tmp_path, kind, **changes)
    error = raised.value.values.get("error", raised.value)
    assert isinstance(error, UsageError)
    assert (error.code, error.values["kind"]) == (code, kind)


def test_settings_are_checked_for_the_kind_of_the_first_model(tmp_path: Path) -> None:
    old = train_run(make_kind(tmp_path, "ctc"), tmp_path / "old")
    config = RunConfig(start_from=old.folder / "model", data=old.config.data, train={"steps": 2, "compile": "on"})
    with pytest.raises(UsageError, check=has_code("compile_needs_autoregressive", kind="ctc")):
        begin_run(config, tmp_path / "new")


def test_a_validation_pair_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    (tmp_path / "v.en").write_text("I love NLP\nthe cat\n", "utf-8")
    (tmp_path / "v.zh").write_text("我 爱 NLP\n" + "猫 " * 30 + "\n", "utf-8")
    data = {"source": source, "target": target, "valid_source": tmp_path / "v.en", "valid_target": tmp_path / "v.zh"}
    run = begin_run(make_kind(tmp_path, "graph", data=data), tmp_path / "run")
    losses = [each.loss for each in run.train() if isinstance(each, Validation)]
    assert all(0 < each < 100 for each in losses)


def test_a_canvas_setting_needs_a_canvas() -> None:
    with pytest.raises(UsageError, check=has_code("canvas_setting_unused", option="upsample", kind="masked")):
        ModelConfig(kind="masked", vocab_size=9, upsample=3)
    with pytest.raises(UsageError, check=has_code("parallel_needs_encoder", kind="graph")):
        ModelConfig(kind="graph", target_vocab_size=9, num_encoder_layers=0)


def test_pairs_that_do_not_fit_are_reported(tmp_path: Path) -> None:
    """A graph of 16 vertices, the minimum, has 14 that emit a token."""
    pairs = tmp_path / "pairs.tsv"
    targets = ("x " * (15 if number % 5 == 0 else 14) for number in range(20))
    pairs.write_text("".join(f"word {number}\t{target.strip()}\n" for number, target in enumerate(targets)))
    valid_source, valid_target = write_pairs(tmp_path)
    data = {"file": pairs, "valid_source": valid_source, "valid_target": valid_target}
    config = make_kind(tmp_path, "graph", data=data)
    run = begin_run(config, tmp_path / "run")
    count = count_unfit_pairs(run.model.network, open_prepared(run.data_folder))
    assert count == 4
    assert any("4 of 20" in warning and "model.upsample" in warning for warning in run.warnings)


def test_repeated_tokens_are_counted_in_each_row() -> None:
    rows = RaggedArray.from_lists([[5, 5, 6], [6, 6, 6], [], [7], [7, 7]])
    assert _count_repeats(rows).tolist() == [1, 2, 0, 0, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_doctor_finds_no_fault(tmp_path: Path, kind: str) -> None:
    run = begin_run(make_kind(tmp_path, kind), tmp_path / "run")
    findings = {each.check: each for each in examine_network(run, quick=True)}
    assert {"tying", "shift", "padding", "memory"} == {*findings}
    assert [each for each in findings.values() if each.level == "fault"] == []
