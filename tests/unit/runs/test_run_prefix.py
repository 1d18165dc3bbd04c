"""Runs of a prefix LM: train, resume, start from its weights, average, verify, and settings."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from test_run import CPU, begin_run, build_run, flat_weights, make_config, train_run
from tiny import SOURCES, write_pairs

from attendo.doctor.checks import examine_network
from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.prefix import PrefixTransformer
from attendo.runs.auto_config import choose_settings, measure_pairs
from attendo.runs.config import RunConfig, make_open_config, to_toml
from attendo.runs.run import Run
from attendo.runs.verify import verify
from attendo.runs.weights import average_model
from attendo.text_model import load
from attendo.train.loop import Validation

SMALL = {"d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.2, "prefix_lm": True}


def make_prefix_run(folder: Path, **changes: Any) -> RunConfig:
    return make_config(folder, model={**SMALL, **changes.pop("model", {})}, **changes)


def test_one_setting_makes_a_decoder_only_network_with_a_joint_vocabulary(tmp_path: Path) -> None:
    config = make_prefix_run(tmp_path)
    network = config.make_model_config(8, 8)
    assert (network.num_encoder_layers, network.num_decoder_layers, network.prefix_lm) == (0, 2, True)
    assert network.decoder_only
    assert not network.continues_text
    assert config.tokenizer.joint
    assert "prefix_lm = true" in to_toml(config)


def test_a_run_trains_saves_generates_and_averages(tmp_path: Path) -> None:
    short = {"max_length_factor": 1.0, "max_length_extra": 2}
    config = make_prefix_run(tmp_path, train={"metrics": ["chrf"], "r_drop": 0.5}, generation=short)
    run = begin_run(config, tmp_path / "run")
    reports = [each for each in run.train() if isinstance(each, Validation)]
    assert [each.step for each in reports] == [2, 4]
    assert all("perplexity" not in each.scores and each.scores["chrf"] >= 0 for each in reports)
    model = load(run.finish())
    assert isinstance(model.network, PrefixTransformer)
    assert [each.text for each in model.generate(SOURCES)] == [each.text for each in run.model.generate(SOURCES)]
    comparisons = list(verify(model, SOURCES))
    assert len(comparisons) > 20
    assert all(each.equal for each in comparisons)
    assert isinstance(average_model(run.folder, [2, 4]).network, PrefixTransformer)


def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    complete = train_run(make_prefix_run(tmp_path), tmp_path / "whole")
    stopped = begin_run(make_prefix_run(tmp_path), tmp_path / "stopped")
    list(islice(stopped.train(stop_at=3), 4))
    stopped.save()
    again = build_run(Run.resume(stopped.folder, CPU))
    assert again.trainer.step in (2, 3)
    list(again.train())
    again.finish()
    assert torch.equal(flat_weights(again), flat_weights(complete))


def test_a_run_may_start_from_a_prefix_lm(tmp_path: Path) -> None:
    old = train_run(make_prefix_run(tmp_path), tmp_path / "old")
    config = RunConfig(start_from=old.folder / "model", data=old.config.data, train=old.config.train.replace(steps=1))
    run = begin_run(config, tmp_path / "new")
    assert isinstance(run.model.network, PrefixTransformer)
    assert torch.equal(flat_weights(run), flat_weights(old))
    list(run.train())
    assert not torch.equal(flat_weights(run), flat_weights(old))
    sharded = config.replace(train=config.train.replace(sharding="full"))
    with pytest.raises(UsageError, check=has_code("sharding_with_prefix_lm", sharding="full")):
        begin_run(sharded, tmp_path / "sharded")


def test_the_doctor_finds_no_fault(tmp_path: Path) -> None:
    run = begin_run(make_prefix_run(tmp_path), tmp_path / "run")
    findings = {each.check: each for each in examine_network(run, quick=True)}
    assert {"tying", "shift", "causal leak", "padding", "first loss", "memory"} == {*findings}
    assert [each for each in findings.values() if each.level == "fault"] == []


def test_prepared_data_with_two_vocabularies_is_rejected(tmp_path: Path) -> None:
    old = train_run(make_config(tmp_path), tmp_path / "old")
    data = {"prepared": old.folder / "data"}
    sizes = (old.model.source_tokenizer.vocab_size, old.model.target_tokenizer.vocab_size)
    assert sizes[0] != sizes[1]
    with pytest.raises(UsageError) as raised:
        begin_run(make_prefix_run(tmp_path, data=data, tokenizer={}), tmp_path / "new")
    error = raised.value.values["error"]
    assert isinstance(error, UsageError)
    assert error.code == "prefix_lm_vocabulary_not_joint"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": {"num_encoder_layers": 2}}, "prefix_lm_with_encoder"),
        ({"tokenizer": {"kind": "words", "joint": False}}, "prefix_lm_without_joint_vocabulary"),
        ({"train": {"sharding": "full"}}, "sharding_with_prefix_lm"),
        ({"model": {"kind": "graph"}}, "parallel_needs_encoder"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(tmp_path: Path, changes: dict[str, Any], code: str) -> None:
    with pytest.raises(UsageError) as raised:
        make_prefix_run(tmp_path, **changes)
    error = raised.value.values.get("error", raised.value)
    assert isinstance(error, UsageError)
    assert error.code == code


def test_running_text_has_no_source_for_a_prefix_lm(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("running_text_with_prefix_lm")):
        RunConfig(preset="tiny", data={"text": tmp_path / "text.txt"}, model={"prefix_lm": True})


def test_pairs_without_the_setting_are_rejected_as_before(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("decoder_only_without_text")):
        make_config(tmp_path, model={"num_encoder_layers": 0})


def test_open_settings_include_a_joint_vocabulary(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    given = {"data": {"source": source, "target": target}, "model": {"prefix_lm": True}}
    assert make_open_config(given).tokenizer.joint
    choices = {each.name: each.value for each in choose_settings(given, measure_pairs([("abc", "猫")]))}
    assert (choices["tokenizer.joint"], choices["model.tie"]) == (True, "all")


def test_two_vocabulary_sizes_are_rejected() -> None:
    both = has_code("prefix_lm_vocabulary_not_joint", source_size=9, target_size=8)
    with pytest.raises(UsageError, check=both):
        ModelConfig(prefix_lm=True, source_vocab_size=9, target_vocab_size=8)
    assert ModelConfig.preset("small", prefix_lm=True, vocab_size=9).num_encoder_layers == 0
