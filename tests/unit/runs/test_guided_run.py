"""Runs with guided alignment: resume bit for bit, reports, the stored head, and refusals."""

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from test_run import CPU, begin_run, build_run, flat_weights, make_config, train_run

from attendo.demo_task import BuiltinTask
from attendo.doctor.bad_lines import check_alignments
from attendo.errors import UsageError
from attendo.runs.config import RunConfig
from attendo.runs.corpora import BuiltinCorpus
from attendo.runs.load import load_checkpoint
from attendo.runs.run import Run
from attendo.text_model import load
from attendo.train.loop import Step, Validation

HEAD = {"layer": 1, "head": 0, "guided": True}


def guided_config(folder: Path, **changes: Any) -> RunConfig:
    """Each word is linked with the word at the same place, as far as both sentences go."""
    config = make_config(folder)
    source, target = config.data.source, config.data.target
    assert isinstance(source, Path)
    assert isinstance(target, Path)
    pairs = zip(source.read_text("utf-8").splitlines(), target.read_text("utf-8").splitlines(), strict=True)
    sizes = [min(len(one.split()), len(other.split())) for one, other in pairs]
    links = folder / "train.align"
    links.write_text("".join(" ".join(f"{n}-{n}" for n in range(size)) + "\n" for size in sizes), "utf-8")
    data = {"source": source, "target": target, "alignments": links}
    return make_config(folder, **{"data": data, "model": SMALL, **changes})


SMALL = {"d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.4, "num_decoder_layers": 2}


@pytest.mark.parametrize("tokenizer", [{"kind": "words"}, {"kind": "bpe", "size": 300, "dropout": 0.2}])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, tokenizer: dict[str, Any]) -> None:
    config = guided_config(tmp_path, tokenizer=tokenizer, train={"weight_checkpoints": 2})
    complete = train_run(config, tmp_path / "whole")
    stopped = begin_run(config, tmp_path / "stopped")
    list(islice(stopped.train(stop_at=3), 6))
    stopped.save()
    again = build_run(Run.resume(stopped.folder, CPU))
    list(again.train())
    again.finish()
    assert torch.equal(flat_weights(complete), flat_weights(again))


def test_the_head_is_trained_reported_and_stored(tmp_path: Path) -> None:
    run = begin_run(guided_config(tmp_path, train={"weight_checkpoints": 2}), tmp_path / "run")
    reports = list(run.train())
    run.finish()
    assert all(each.alignment_loss for each in reports if isinstance(each, Step))
    validations = [each for each in reports if isinstance(each, Validation)]
    assert all({"alignment_loss", "aer"} <= each.scores.keys() for each in validations)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert all("alignment_loss" in line for line in lines if line["kind"] == "step")
    model = load(tmp_path / "run" / "model", "cpu")
    assert model.scores["alignment_head"] == HEAD
    assert "valid_aer" in model.scores
    for folder in (*(tmp_path / "run" / "weights").iterdir(),):
        assert load(folder, "cpu").scores["alignment_head"] == HEAD
    checkpoint = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000004", "cpu")
    assert checkpoint.scores == {"alignment_head": HEAD}
    (result,) = model.generate(["I love NLP"], alignments=True)
    trace = model.trace("I love NLP", result.text)
    assert result.alignment is not None
    rows = result.alignment.weights.size(0)
    torch.testing.assert_close(result.alignment.weights, trace.cross[1, 0][:rows], atol=1e-5, rtol=0)


def test_the_other_settings_do_not_change_a_run(tmp_path: Path) -> None:
    """With weight 0 the alignments are not used: the weights are those of a run without them, bit for bit."""
    (tmp_path / "plain").mkdir()
    plain = train_run(make_config(tmp_path / "plain", model=SMALL), tmp_path / "one")
    unused = train_run(guided_config(tmp_path, train={"guided_alignment": 0.0}), tmp_path / "other")
    assert torch.equal(flat_weights(plain), flat_weights(unused))
    assert "alignment_head" not in load(tmp_path / "other" / "model", "cpu").scores


def test_the_builtin_task_gives_its_own_links(tmp_path: Path) -> None:
    rows = list(BuiltinCorpus(1, 300, aligned=True).rows())
    assert [row.links for row in BuiltinCorpus(1, 3).rows()] == [None] * 3
    for row, pair in zip(rows, BuiltinTask(1).train(), strict=False):
        assert row.links is not None
        words, other = row.source.split(), row.target.split()
        linked = {(words[one].rstrip("?,"), other[two]) for one, two in row.links}
        expected = {(pair.source_words[one], pair.target_words[two]) for one, two in pair.alignment}
        assert {link for link in linked if link[1] not in "？，"} == {
            link for link in expected if link[1] not in "？，"
        }
    config = make_config(tmp_path, data={"task": "builtin", "alignments": "builtin", "pairs": 60}, model=SMALL)
    run = train_run(config, tmp_path / "run")
    assert load(run.folder / "model", "cpu").scores["alignment_head"] == HEAD


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"model": {**SMALL, "kind": "masked"}}, "guided_alignment_needs_cross_attention"),
        ({"train": {"guided_alignment_layer": 2}}, "guided_alignment_layer_not_found"),
    ],
)
def test_what_cannot_be_guided_is_refused_before_the_data_is_read(
    tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    with pytest.raises(UsageError, check=has_code(code)):
        guided_config(tmp_path, **changes)


def test_a_weight_without_alignments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("guided_alignment_without_alignments")):
        make_config(tmp_path, train={"guided_alignment": 0.2})
    make_config(tmp_path, train={"guided_alignment": 0.0})


def test_prepared_data_keep_their_alignments(tmp_path: Path) -> None:
    first = begin_run(guided_config(tmp_path), tmp_path / "first")
    prepared = {"prepared": first.data_folder}
    values = {"preset": "tiny", "data": prepared, "model": SMALL, "train": first.config.train}
    again = train_run(RunConfig(**values), tmp_path / "again")
    assert load(again.folder / "model", "cpu").scores["alignment_head"] == HEAD
    with pytest.raises(UsageError, check=has_code("guided_alignment_needs_cross_attention")):
        begin_run(RunConfig(**{**values, "model": {**SMALL, "kind": "ctc"}}), tmp_path / "ctc")


def test_the_doctor_counts_pairs_with_alignments(tmp_path: Path) -> None:
    run = begin_run(guided_config(tmp_path), tmp_path / "run")
    finding = check_alignments(run.data)
    assert (finding.level, finding.values["aligned"], finding.values["dropped"]) == ("ok", run.data.pairs, 0)
    corpora = tuple(replace(corpus, unlinked=9) for corpus in run.data.corpora)
    worse = check_alignments(replace(run.data, corpora=corpora))
    assert (worse.level, worse.values["dropped"]) == ("warning", 9)
