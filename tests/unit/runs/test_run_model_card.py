"""The model card: task and languages, from the run file or the file names to the model folder."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import QUICK_RUN, SOURCES, TARGETS, Command, settings, tiny_model

from attendo.errors import ModelError
from attendo.model_folder import load_model, write_manifest
from attendo.runs.config import RunConfig, infer_model_card, to_toml
from attendo.runs.demo import demo_config
from attendo.runs.run import Run
from attendo.runs.weights import average_model, initial_model
from attendo.text_model import TextModel, load
from attendo.train.checkpoint import Checkpoints

EN_ZH = {"task": "translation", "source_language": "en", "target_language": "zh"}


def write_files(folder: Path, source: str = "train.en", target: str = "train.zh") -> dict[str, Path]:
    (folder / source).write_text("".join(f"{line}\n" for line in SOURCES * 10), "utf-8")
    (folder / target).write_text("".join(f"{line}\n" for line in TARGETS * 10), "utf-8")
    return {"source": folder / source, "target": folder / target}


def test_a_model_folder_stores_the_card(tmp_path: Path) -> None:
    model = tiny_model()
    assert model.about == {}
    model.save(tmp_path / "plain")
    assert not (tmp_path / "plain" / "about.json").exists()
    assert load(tmp_path / "plain").about == {}
    model.about.update(EN_ZH)
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").about == EN_ZH
    assert "about.json" in json.loads((tmp_path / "model" / "manifest.json").read_text("utf-8"))["files"]


@pytest.mark.parametrize("content", ['{"task": "chess"}', '{"tongue": "en"}', "[]", "{"])
def test_an_invalid_card_is_a_damaged_model(tmp_path: Path, content: str) -> None:
    tiny_model().save(tmp_path / "model")
    (tmp_path / "model" / "about.json").write_text(content, "utf-8")
    (tmp_path / "model" / "manifest.json").unlink()
    write_manifest(tmp_path / "model", "attendo.model", 1)
    with pytest.raises(ModelError, match=r"about\.json"):
        load_model(tmp_path / "model")


def test_the_demo_translates_english_to_chinese() -> None:
    assert demo_config().about.to_dict() == EN_ZH


def test_a_run_without_a_card_writes_no_about_table(tmp_path: Path) -> None:
    plain = RunConfig(preset="tiny", data=write_files(tmp_path))
    assert "about" not in tomllib.loads(to_toml(plain))
    named = plain.replace(about=EN_ZH)
    assert tomllib.loads(to_toml(named))["about"] == EN_ZH
    assert RunConfig(**tomllib.loads(to_toml(named))) == RunConfig(**tomllib.loads(to_toml(plain))).replace(about=EN_ZH)


def test_languages_are_inferred_from_file_names(tmp_path: Path) -> None:
    english_chinese, english_german = write_files(tmp_path), write_files(tmp_path, "other.en.gz", "other.de")
    assert infer_model_card(RunConfig(data=english_chinese)).to_dict() == EN_ZH
    assert infer_model_card(RunConfig(data={"corpora": [english_chinese, english_chinese]})).to_dict() == EN_ZH
    assert infer_model_card(RunConfig(data={"corpora": [english_chinese, english_german]})).to_dict() == {}
    assert infer_model_card(RunConfig(data={"task": "builtin"})).to_dict() == {}
    assert infer_model_card(RunConfig(data=english_chinese, about={"task": "generation"})).to_dict() == {
        "task": "generation"
    }
    assert infer_model_card(RunConfig(data=english_chinese, start_from="old")).to_dict() == {}


def declared_card(model: TextModel) -> dict[str, Any]:
    """The model card without measured values."""
    return {name: value for name, value in model.about.items() if name != "trained_on"}


def test_a_trained_model_has_the_inferred_card(attendo: Command, tmp_path: Path) -> None:
    pair = write_files(tmp_path)
    trained = attendo(
        *("train", "--source", pair["source"], "--target", pair["target"], "--out", tmp_path / "run"),
        *settings(*QUICK_RUN),
    )
    assert trained.code == 0, trained.errors
    about = load(tmp_path / "run" / "model").about
    measured = about["trained_on"]
    assert about == {**EN_ZH, "trained_on": measured}
    # The tiny sentences have no full stop, so nothing is split by default.
    assert (measured["with_end"], measured["several_sentences"]) == (0.0, 0.0)
    assert (list(measured["tokens"]), measured["tokens"]["100"]) == (["50", "90", "99", "100"], 5)
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text("utf-8"))["about"] == EN_ZH
    steps = Checkpoints(tmp_path / "run" / "checkpoints").steps()
    assert average_model(tmp_path / "run", steps[-1:]).about == about


@pytest.mark.slow
def test_a_model_of_single_sentences_splits_texts(attendo: Command, tmp_path: Path) -> None:
    source, target = tmp_path / "train.a", tmp_path / "train.b"
    source.write_text("He is at home.\nI love you.\n" * 20, "utf-8")
    target.write_text("Il est là.\nJe t'aime.\n" * 20, "utf-8")
    trained = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run", *settings(*QUICK_RUN))
    assert trained.code == 0, trained.errors
    model = load(tmp_path / "run" / "model")
    assert model.about["trained_on"]["with_end"] == 1.0
    text = "He is at home. I love you."
    assert len(model.generate([text])[0].sentences) == 2
    done = attendo("generate", tmp_path / "run" / "model", given=f"{text}\nI love you.\n".encode())
    assert "1 of 2 lines split into 2 sentences; the model was trained on single sentences" in done.errors
    assert done.output.count("\n") == 2
    unsplit = attendo("generate", tmp_path / "run" / "model", "--no-split", given=text.encode())
    assert "split" not in unsplit.errors


def test_prepared_data_keeps_the_card_of_its_text(attendo: Command, tmp_path: Path) -> None:
    """A model trained on prepared data has the same card and source limit as one trained on text."""
    pair = write_files(tmp_path)
    named = ("--source", pair["source"], "--target", pair["target"])
    data_settings = [change for change in QUICK_RUN if not change.startswith(("model.", "train.", "preset"))]
    done = attendo("prepare", *named, "--out", tmp_path / "data", *settings(*data_settings, "data.cut_source=3"))
    assert done.code == 0, done.errors
    other_settings = [change for change in QUICK_RUN if change not in data_settings]
    run = ["--out", tmp_path / "run", *settings(f"data.prepared={tmp_path / 'data'}", *other_settings)]
    trained = attendo("train", *run)
    assert trained.code == 0, trained.errors
    model = load(tmp_path / "run" / "model")
    assert declared_card(model) == EN_ZH
    assert (model.generation.max_source, model.generation.long_source) == (3, "truncate")


def test_conversations_and_running_text_are_inferred_from_the_format() -> None:
    turns = RunConfig(data={"file": "a.jsonl", "turns_field": "turns", "context_turns": 3})
    assert infer_model_card(turns).to_dict() == {"task": "conversation", "context_turns": 3}
    assert infer_model_card(RunConfig(data={"prepared": "x"}), turns.data).to_dict() == {
        "task": "conversation",
        "context_turns": 3,
    }
    assert infer_model_card(RunConfig(data={"text": "a.txt"})).to_dict() == {"task": "generation"}


@pytest.mark.parametrize(("given", "expected"), [({}, EN_ZH), ({"task": "summarization"}, {"task": "summarization"})])
def test_start_from_inherits_the_card_unless_it_is_given(
    tmp_path: Path, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    old = tiny_model()
    old.about.update(EN_ZH)
    old.save(tmp_path / "old")
    config = RunConfig(start_from=tmp_path / "old", data=write_files(tmp_path, "more.fr", "more.it"), about=given)
    run = Run.begin(config, tmp_path / "run", torch.device("cpu"))
    list(run.prepare())
    assert declared_card(TextModel(initial_model(config, run.data))) == expected
