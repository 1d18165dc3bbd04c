"""`attendo.train`: a run as an iterator of reports."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code
from tiny import SOURCES, TARGETS, write_pairs

import attendo
from attendo.data.prepare import Preparing
from attendo.errors import UsageError
from attendo.runs.config import load_run_config
from attendo.text import Words
from attendo.train.loop import Saved, Step, Validation

SMALL: dict[str, Any] = {
    "preset": "tiny",
    "model": {"d_model": 16, "num_heads": 2, "d_ff": 24},
    "tokenizer": {"kind": "words"},
    "train": {"batch_tokens": 64, "workers": 0},
    "device": "cpu",
}
PAIRS = list(zip(SOURCES, TARGETS, strict=True)) * 10


def test_iterating_over_reports_trains_a_model(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    training = attendo.train(source=source, target=str(target), out=tmp_path / "run", steps=3, **SMALL)
    assert "step 0 of 3; loop over it, or call run()" in repr(training)
    reports = list(training)
    assert isinstance(reports[0], Preparing)
    assert [each.step for each in reports if isinstance(each, Step)] == [1, 2, 3]
    assert {type(each) for each in reports} >= {Validation, Saved}
    assert attendo.load(tmp_path / "run" / "model", "cpu").generate(["the cat"])
    assert training.step == 3


def test_pairs_in_memory_are_stored_for_resume(tmp_path: Path) -> None:
    def empty_ratio(outputs: Sequence[str], references: Sequence[str]) -> float:
        assert len(outputs) == len(references) == len(SOURCES)
        return sum(not text for text in outputs) / len(outputs)

    folder = tmp_path / "run"
    more = {"valid_pairs": PAIRS[: len(SOURCES)], "metrics": {"empty": empty_ratio}}
    for report in attendo.train(pairs=PAIRS, out=folder, **{**SMALL, **more, "train.steps": 4}):
        if isinstance(report, Step) and report.step == 2:
            break
    resumed = attendo.train(resume=folder, device="cpu", metrics={"empty": empty_ratio})
    reports = list(resumed)
    assert [each.step for each in reports if isinstance(each, Step)] == [3, 4]
    (validation,) = [each for each in reports if isinstance(each, Validation)]
    assert 0 <= validation.scores["empty"] <= 1
    uninterrupted = attendo.train(pairs=PAIRS, out=tmp_path / "whole", **{**SMALL, **more, "train.steps": 4}).run()
    for one, other in zip(resumed.model.network.parameters(), uninterrupted.network.parameters(), strict=True):
        assert torch.equal(one, other)


def test_settings_can_be_tables_or_dotted_names(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    (tmp_path / "run.toml").write_text(
        f'[data]\nsource = "{source}"\ntarget = "{target}"\n[train]\nsteps = 5\nema = 0.5\n'
    )
    changes = {**SMALL, "train.steps": 2, "data.max_length": 50, "seed": 7}
    config = attendo.train(tmp_path / "run.toml", out=tmp_path / "run", **changes).config
    assert (config.train.steps, config.train.ema, config.train.workers) == (2, 0.5, 0)
    assert (config.data.max_length, config.seed, config.model["d_ff"]) == (50, 7, 24)
    chosen = attendo.train(source=source, target=target, out=tmp_path / "run", device="cpu")
    assert chosen.config.preset == "tiny"
    assert "preset" in {choice.name for choice in chosen.choices}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"pairs": PAIRS}, has_code("run_folder_missing")),
        (
            {"out": "run", "pairs": [("a", "b"), ("a",)]},
            has_code("training_item_wrong_type", name="pairs", number=1, what="a source and a target"),
        ),
        (
            {"out": "run", "pairs": ["ab"]},
            has_code("training_item_wrong_type", name="pairs", number=0, what="a source and a target", value="ab"),
        ),
        (
            {"out": "run", "texts": [3]},
            has_code("training_item_wrong_type", name="texts", number=0, what="a text", value="3"),
        ),
        ({"out": "run", "pairs": PAIRS, "train.stesp": 3}, has_code("unknown_setting", name="train.stesp")),
        (
            {"out": "run", "pairs": PAIRS, "steps": 3, "train.steps": 4},
            has_code("training_setting_duplicate", name="steps"),
        ),
        ({"out": "run", "pairs": PAIRS, "a.b.c": 4}, has_code("setting_name_too_deep", table="a.b", name="c")),
        ({"resume": "run", "steps": 3}, has_code("resume_with_other_arguments")),
        ({"out": "run"}, has_code("setting_missing", name="data")),
    ],
)
def test_invalid_arguments_are_usage_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], error: ErrorCheck
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, check=error):
        attendo.train(**settings)


@pytest.mark.slow
def test_texts_in_memory_train_a_decoder_only_model(tmp_path: Path) -> None:
    settings = {**SMALL, "model": {**SMALL["model"], "num_encoder_layers": 0}, "tokenizer": {"kind": "characters"}}
    texts = ["to be or not to be, that is the question. " * 4] * 10
    model = attendo.train(texts=texts, out=tmp_path / "run", steps=1, **settings, **{"data.window": 16}).run()
    assert model.decoder_only
    assert load_run_config(tmp_path / "run").data.text == (tmp_path / "run" / "texts.jsonl")


def test_a_custom_network_can_be_saved_and_loaded(tmp_path: Path) -> None:
    source, target = Words.build(SOURCES), Words.build(TARGETS)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    config = attendo.ModelConfig.preset("tiny", d_model=16, num_heads=2, d_ff=24, **sizes)
    network = attendo.Transformer(config)
    model = attendo.TextModel(network, (source, target), generation={"beam": 2})
    model.save(tmp_path / "model")
    loaded = attendo.load(tmp_path / "model", "cpu")
    assert loaded.generate(SOURCES) == model.generate(SOURCES)
    assert loaded.generation.beam == 2
    with pytest.raises(
        UsageError, check=has_code("tokenizer_vocabulary_size_mismatch", side="source", tokens=target.vocab_size)
    ):
        attendo.TextModel(network, (target, source))
    with pytest.raises(UsageError, check=has_code("tokenizers_missing")):
        attendo.TextModel(network)
    with pytest.raises(UsageError, check=has_code("redundant_model_arguments")):
        attendo.TextModel(model.stored_model, (source, target))


def test_attendo_train_is_callable_without_importing_torch() -> None:
    code = "import attendo, sys; attendo.train; assert 'torch' not in sys.modules; import attendo.train.config"
    subprocess.run([sys.executable, "-c", f"{code}; assert callable(attendo.train)"], check=True)
