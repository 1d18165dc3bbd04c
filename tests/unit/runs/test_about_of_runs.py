"""What a model is for, on its way from a run file or the names of files into the model folder."""

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


def files(folder: Path, source: str = "train.en", target: str = "train.zh") -> dict[str, Path]:
    (folder / source).write_text("".join(f"{line}\n" for line in SOURCES * 10), "utf-8")
    (folder / target).write_text("".join(f"{line}\n" for line in TARGETS * 10), "utf-8")
    return {"source": folder / source, "target": folder / target}


def test_a_model_folder_keeps_it(tmp_path: Path) -> None:
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
def test_one_that_cannot_be_meant_is_a_damaged_model(tmp_path: Path, content: str) -> None:
    tiny_model().save(tmp_path / "model")
    (tmp_path / "model" / "about.json").write_text(content, "utf-8")
    (tmp_path / "model" / "manifest.json").unlink()
    write_manifest(tmp_path / "model", "attendo.model", 1)
    with pytest.raises(ModelError, match=r"about\.json"):
        load_model(tmp_path / "model")


def test_the_demonstration_translates_English_to_Chinese() -> None:
    assert demo_config().about.to_dict() == EN_ZH


def test_a_run_without_it_is_written_as_before_so_that_old_checkpoints_still_fit(tmp_path: Path) -> None:
    plain = RunConfig(preset="tiny", data=files(tmp_path))
    assert "about" not in tomllib.loads(to_toml(plain))
    named = plain.replace(about=EN_ZH)
    assert tomllib.loads(to_toml(named))["about"] == EN_ZH
    assert RunConfig(**tomllib.loads(to_toml(named))) == RunConfig(**tomllib.loads(to_toml(plain))).replace(about=EN_ZH)


def test_the_names_of_the_files_tell_it_where_nobody_says_otherwise(tmp_path: Path) -> None:
    here, there = files(tmp_path), files(tmp_path, "other.en.gz", "other.de")
    assert infer_model_card(RunConfig(data=here)).to_dict() == EN_ZH
    assert infer_model_card(RunConfig(data={"corpora": [here, here]})).to_dict() == EN_ZH
    assert infer_model_card(RunConfig(data={"corpora": [here, there]})).to_dict() == {}
    assert infer_model_card(RunConfig(data={"task": "builtin"})).to_dict() == {}
    assert infer_model_card(RunConfig(data=here, about={"task": "generation"})).to_dict() == {"task": "generation"}
    assert infer_model_card(RunConfig(data=here, start_from="old")).to_dict() == {}


def said(model: TextModel) -> dict[str, Any]:
    """Without what was measured."""
    return {name: value for name, value in model.about.items() if name != "trained_on"}


def test_a_trained_model_knows_it_from_its_files(attendo: Command, tmp_path: Path) -> None:
    pair = files(tmp_path)
    trained = attendo(
        *("train", "--source", pair["source"], "--target", pair["target"], "--out", tmp_path / "run"),
        *settings(*QUICK_RUN),
    )
    assert trained.code == 0, trained.errors
    about = load(tmp_path / "run" / "model").about
    measured = about["trained_on"]
    assert about == {**EN_ZH, "trained_on": measured}
    # The tiny sentences have no full stop: nothing is split by default.
    assert (measured["with_end"], measured["several_sentences"]) == (0.0, 0.0)
    assert (list(measured["tokens"]), measured["tokens"]["100"]) == (["50", "90", "99", "100"], 5)
    assert tomllib.loads((tmp_path / "run" / "run.toml").read_text("utf-8"))["about"] == EN_ZH
    steps = Checkpoints(tmp_path / "run" / "checkpoints").steps()
    assert average_model(tmp_path / "run", steps[-1:]).about == about


@pytest.mark.slow
def test_a_run_on_single_sentences_leaves_a_model_that_splits_texts(attendo: Command, tmp_path: Path) -> None:
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
    whole = attendo("generate", tmp_path / "run" / "model", "--no-split", given=text.encode())
    assert "split" not in whole.errors


def test_prepared_data_knows_which_text_it_was_made_of(attendo: Command, tmp_path: Path) -> None:
    """A model learns the same from it as from the text, and reads as it learned to."""
    pair = files(tmp_path)
    named = ("--source", pair["source"], "--target", pair["target"])
    kept = [change for change in QUICK_RUN if not change.startswith(("model.", "train.", "preset"))]
    done = attendo("prepare", *named, "--out", tmp_path / "data", *settings(*kept, "data.cut_source=3"))
    assert done.code == 0, done.errors
    rest = [change for change in QUICK_RUN if change not in kept]
    run = ["--out", tmp_path / "run", *settings(f"data.prepared={tmp_path / 'data'}", *rest)]
    trained = attendo("train", *run)
    assert trained.code == 0, trained.errors
    model = load(tmp_path / "run" / "model")
    assert said(model) == EN_ZH
    assert (model.generation.max_source, model.generation.long_source) == (3, "truncate")


def test_conversations_and_running_text_are_known_by_their_form() -> None:
    turns = RunConfig(data={"file": "a.jsonl", "turns_field": "turns", "context_turns": 3})
    assert infer_model_card(turns).to_dict() == {"task": "conversation", "context_turns": 3}
    assert infer_model_card(RunConfig(data={"prepared": "x"}), turns.data).to_dict() == {
        "task": "conversation",
        "context_turns": 3,
    }
    assert infer_model_card(RunConfig(data={"text": "a.txt"})).to_dict() == {"task": "generation"}


@pytest.mark.parametrize(("given", "expected"), [({}, EN_ZH), ({"task": "summarization"}, {"task": "summarization"})])
def test_a_run_that_goes_on_is_for_what_its_model_was_unless_it_says_otherwise(
    tmp_path: Path, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    old = tiny_model()
    old.about.update(EN_ZH)
    old.save(tmp_path / "old")
    config = RunConfig(start_from=tmp_path / "old", data=files(tmp_path, "more.fr", "more.it"), about=given)
    run = Run.begin(config, tmp_path / "run", torch.device("cpu"))
    list(run.prepare())
    assert said(TextModel(initial_model(config, run.data))) == expected
