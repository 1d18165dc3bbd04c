"""A run on running text: a decoder-only model from raw text to model folder, and resuming it."""

import json
import math
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from running import run_of_text, some_text

from attendo.data import lm_text
from attendo.doctor import examine
from attendo.doctor.checks import examine_data
from attendo.errors import DataError, UsageError
from attendo.runs.config import RunConfig, to_toml
from attendo.runs.run import Run
from attendo.runs.verify import verify
from attendo.text import BOS
from attendo.text_model import TextModel, load
from attendo.train.checkpoint import Checkpoints
from attendo.train.loop import Step, Validation

CPU = torch.device("cpu")


def begin_run(settings: RunConfig, folder: Path) -> Run:
    run = Run.begin(settings, folder, CPU)
    return build_run(run)


def build_run(run: Run) -> Run:
    for _ in run.prepare():
        pass
    run.build()
    return run


def test_a_run_gives_a_model_that_continues_text(tmp_path: Path) -> None:
    run = begin_run(run_of_text(tmp_path), tmp_path / "run")
    reports = list(run.train())
    model = load(run.finish())
    assert model.decoder_only
    assert model.generation.max_length_extra == 16
    assert model.generate(["abc "])[0].text.startswith("abc ")
    assert len(model.generate([""])[0].ids) == 16
    validations = [report for report in reports if isinstance(report, Validation)]
    assert [each.step for each in validations] == [2, 4]
    for each in validations:
        assert each.scores == {"perplexity": pytest.approx(math.exp(each.loss))}
    assert all(step.padding == 0 and step.tokens == 128 for step in reports if isinstance(step, Step))
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert "perplexity" in next(line for line in lines if line["kind"] == "validation")["scores"]


def test_validation_loss_excludes_the_first_token_of_each_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm_text, "MAX_VALID_EXCERPTS", 3)
    run = begin_run(run_of_text(tmp_path, train={"steps": 2}), tmp_path / "run")
    (validation,) = [report for report in run.train() if isinstance(report, Validation)]
    network, tokenizer = run.model.network.eval(), run.model.target_tokenizer
    ids = tokenizer.encode(some_text(3000)[2700:])
    losses = []
    for begin in range(0, len(ids) - 1, 15):
        window = ids[begin : begin + 16]
        log_probs = network(None, torch.tensor([[BOS, *window[:-1]]])).detach()[0].log_softmax(-1)
        losses += [-float(log_probs[position, window[position]]) for position in range(1, len(window))]
    assert len(losses) == 299
    assert validation.loss == pytest.approx(sum(losses) / len(losses), abs=1e-5)


@pytest.mark.slow
def test_samples_are_continuations_of_validation_text(tmp_path: Path) -> None:
    run = begin_run(run_of_text(tmp_path, train={"steps": 2, "samples": 1}), tmp_path / "run")
    (validation,) = [report for report in run.train() if isinstance(report, Validation)]
    text = some_text(3000)
    assert len(validation.samples) == 1
    for sample in validation.samples:
        assert sample.source + sample.reference in text[2700:]
        assert not sample.output.startswith(sample.source)
        assert run.model.generate([sample.source], max_length=128)[0].text == sample.source + sample.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"train": {"r_drop": 1.0, "ema": 0.9, "accumulate": 2}}, {"tokenizer": {"kind": "bpe", "size": 300}}],
)
def test_a_resumed_run_is_bitwise_equal(tmp_path: Path, changes: dict[str, Any]) -> None:
    settings = run_of_text(tmp_path, **changes)
    list(begin_run(settings, tmp_path / "whole").train())
    stopped = begin_run(settings, tmp_path / "stopped")
    list(islice(stopped.train(), 1))
    stopped.save()
    again = build_run(Run.resume(tmp_path / "stopped", CPU))
    assert again.trainer.step == stopped.trainer.step
    list(again.train())
    one, other = (Checkpoints(tmp_path / name / "checkpoints").load(4) for name in ("whole", "stopped"))
    assert {**one.state, "seconds": 0} == {**other.state, "seconds": 0}
    for name, weight in {**one.model, **one.optimizer}.items():
        assert torch.equal(weight, {**other.model, **other.optimizer}[name]), name


@pytest.mark.slow
def test_the_model_learns_repeating_text(tmp_path: Path) -> None:
    train = {"steps": 80, "batch_tokens": 256, "peak_lr": 1e-2, "validate_every": 80, "save_every": 80, "warmup": 5}
    settings = run_of_text(tmp_path, model={"num_encoder_layers": 0, "d_model": 32, "num_heads": 2}, train=train)
    (tmp_path / "text.txt").write_text("abcdefgh\n" * 300, "utf-8")
    run = begin_run(settings, tmp_path / "run")
    (validation,) = [report for report in run.train() if isinstance(report, Validation)]
    assert validation.loss < 0.2
    assert run.model.generate(["efg"], max_length=12)[0].text == "efgh\nabcdefg"


def test_a_model_can_be_fine_tuned_on_other_text(tmp_path: Path) -> None:
    run = begin_run(run_of_text(tmp_path, train={"steps": 2}), tmp_path / "run")
    list(run.train())
    model = run.finish()
    other = tmp_path / "other.txt"
    other.write_text(some_text(2000, seed=5), "utf-8")
    settings = RunConfig(
        start_from=model,
        data={"text": other, "window": 16},
        train={"steps": 2, "batch_tokens": 128, "workers": 0, "samples": 0},
    )
    fine_tuned = begin_run(settings, tmp_path / "more")
    (validation,) = [report for report in fine_tuned.train() if isinstance(report, Validation)]
    assert validation.old.keys() == {"loss"}
    assert load(fine_tuned.finish()).generate(["ab"])[0].text.startswith("ab")


def test_prepared_text_can_be_shared(tmp_path: Path) -> None:
    first = begin_run(run_of_text(tmp_path), tmp_path / "run")
    prepared = {"prepared": first.data_folder}
    settings = run_of_text(tmp_path).replace(data=prepared, tokenizer={})
    assert list(begin_run(settings, tmp_path / "other").train())
    pairs = settings.replace(model={"d_model": 16, "num_heads": 2})
    with pytest.raises(UsageError, check=has_code("running_text_for_encoder")):
        begin_run(pairs, tmp_path / "third")


def make_reproduce(metric: str) -> dict[str, Any]:
    return {"about": "text", "test": [{"name": "test", "source": "a", "target": "b", "metric": metric}]}


def test_running_text_tests_use_perplexity() -> None:
    for metric in ("perplexity", "perplexity_per_character"):
        assert RunConfig(data={"text": "a"}, reproduce=make_reproduce(metric)).reproduce


def test_tokenizer_dropout_with_prepared_text_is_rejected(tmp_path: Path) -> None:
    first = begin_run(run_of_text(tmp_path, tokenizer={"kind": "bpe", "size": 300}), tmp_path / "run")
    dropout = run_of_text(tmp_path).replace(data={"prepared": first.data_folder}, tokenizer={"dropout": 0.1})
    with pytest.raises(UsageError, check=has_code("tokenizer_dropout_for_windows", window=16)):
        begin_run(dropout, tmp_path / "other")


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (
            {"data": {"source": "a", "target": "b"}, "model": {"num_encoder_layers": 0}},
            has_code("decoder_only_without_text"),
        ),
        (
            {"data": {"text": "a"}, "preset": "tiny"},
            has_code("running_text_with_encoder"),
        ),
        ({"data": {"text": "a"}, "model": {"num_encoder_layers": 2}}, has_code("running_text_with_encoder")),
        ({"data": {"text": "a"}, "train": {"best": "chrf"}}, has_code("running_text_metric_unscorable", metric="chrf")),
        (
            {"data": {"text": "a"}, "train": {"metrics": ["bleu"]}},
            has_code("running_text_metric_unscorable", metric="bleu"),
        ),
        (
            {"data": {"text": "a"}, "tokenizer": {"joint": True}},
            has_code("tokenizer_setting_needs_pairs", option="joint"),
        ),
        (
            {"data": {"text": "a"}, "tokenizer": {"target_kind": "bpe"}},
            has_code("tokenizer_setting_needs_pairs", option="target_kind"),
        ),
        ({"data": {"text": "a"}, "tokenizer": {"dropout": 0.1}}, has_code("dropout_with_running_text")),
        ({"data": {"text": "a"}, "tokenizer": {"kind": "spaced"}}, has_code("spaced_tokenizer_loses_whitespace")),
        ({"data": {"text": "a", "tag": "<a>"}}, has_code("tag_without_corpus_files")),
        ({"data": {"text": "a", "source_field": 2}}, has_code("corpus_setting_without_files", option="source_field")),
        ({"data": {"text": "a", "cut_source": 9}}, has_code("pair_setting_with_text", option="cut_source")),
        ({"data": {"text": "a", "max_length": 9}}, has_code("pair_setting_with_text", option="max_length")),
        ({"data": {"text": "a", "max_bad_ratio": 0.5}}, has_code("pair_setting_with_text", option="max_bad_ratio")),
        (
            {"data": {"text": "a"}, "generation": {"max_length_factor": 2.0}},
            has_code("generation_option_needs_source", option="max_length_factor"),
        ),
        (
            {"data": {"text": "a"}, "generation": {"source_prefix": ["<a>"]}},
            has_code("generation_option_needs_source", option="source_prefix"),
        ),
        (
            {"data": {"text": "a"}, "reproduce": make_reproduce("rouge1")},
            has_code("running_text_test_unscorable", test="test", metric="rouge1"),
        ),
        (
            {"data": {"prepared": "a"}, "model": {"num_encoder_layers": 0}, "train": {"best": "bleu"}},
            has_code("running_text_metric_unscorable", metric="bleu"),
        ),
    ],
)
def test_conflicting_settings_are_usage_errors(values: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        RunConfig(**values)


def test_run_settings_round_trip_as_toml(tmp_path: Path) -> None:
    import tomllib

    settings = run_of_text(tmp_path)
    assert to_toml(RunConfig(**tomllib.loads(to_toml(settings)))) == to_toml(settings)


def test_learned_positions_must_cover_a_window(tmp_path: Path) -> None:
    sizes = {"num_encoder_layers": 0, "d_model": 16, "num_heads": 2, "positions": "learned"}
    assert begin_run(run_of_text(tmp_path, model={**sizes, "max_length": 16}), tmp_path / "enough").trainer
    with pytest.raises(DataError, check=has_code("training_text_exceeds_positions", length=16, limit=15)):
        begin_run(run_of_text(tmp_path, model={**sizes, "max_length": 15}), tmp_path / "short")


def test_the_doctor_accepts_running_text(tmp_path: Path) -> None:
    run = begin_run(run_of_text(tmp_path), tmp_path / "run")
    data = examine_data(run)
    findings = {finding.check: finding for finding in (*examine(run, quick=True), *data)}
    assert {finding.level for finding in findings.values()} == {"ok"}, findings
    assert "windows" in findings["shift"].found
    assert "windows" in findings["memory"].found
    assert findings["unknown tokens"].found == "none"


def test_the_doctor_detects_windows_with_wrong_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from attendo.data import sampler
    from attendo.data.batch import collate_sequences

    run = begin_run(run_of_text(tmp_path), tmp_path / "run")

    def collate_with_eos(windows: Any, numbers: Any, **_: Any) -> Any:
        return collate_sequences(windows.slice_rows(0, 0).from_lists([()] * len(windows)), windows, numbers)

    monkeypatch.setattr(sampler, "collate_windows", collate_with_eos)
    levels = {finding.check: finding.level for finding in examine(run, quick=True)}
    assert levels["shift"] == "fault"


@pytest.mark.slow
def test_all_engines_agree(tmp_path: Path) -> None:
    run = begin_run(run_of_text(tmp_path), tmp_path / "run")
    model = TextModel(replace(run.model.stored_model, generation={"max_length_extra": 5}))
    compared = list(verify(model, [beginning for beginning, _ in run.data.valid[:2]]))
    assert all(each.equal for each in compared)
    assert {"cached", "fast", "decoder.0.self_attention", "output"} <= {each.path for each in compared}
    score = next(each for each in compared if each.path == "the score of an answer")
    assert (score.count, score.largest < 1e-4) == (2, True)
