"""A run: text in, a trained model folder out."""

import json
import tomllib
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import SOURCES, TARGETS, write_pairs

from attendo.errors import AttendoError, DataError, UsageError
from attendo.recipes.run import Run, build_tokenizers
from attendo.recipes.run_config import RunConfig, TokenizerConfig
from attendo.text import Characters, SentencePiece, Tokenizer, Words
from attendo.text_model import load

CPU = torch.device("cpu")


def config(folder: Path, times: int = 10, **changes: Any) -> RunConfig:
    source, target = write_pairs(folder, times)
    values: dict[str, Any] = {
        "preset": "tiny",
        "data": {"source": source, "target": target},
        "tokenizer": {"kind": "words"},
        "model": {"d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.4},
        "train": {"steps": 4, "batch_tokens": 64, "validate_every": 2},
    }
    return RunConfig(**{**values, **changes})


def test_a_run_writes_its_settings_its_reports_and_its_model(tmp_path: Path) -> None:
    run = Run(config(tmp_path), tmp_path / "runs" / "mine", CPU)
    reports = list(run.train())
    assert run.save() == run.folder / "model"
    assert sorted(path.name for path in run.folder.iterdir()) == ["metrics.jsonl", "model", "run.json", "run.toml"]
    again = RunConfig(**tomllib.loads((run.folder / "run.toml").read_text()))
    assert again.network(9, 9) == run.config.network(9, 9)
    assert again.replace(model={}) == run.config.replace(model={})
    assert json.loads((run.folder / "run.json").read_text())["torch"] == torch.__version__
    written = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in written] == ["step", "step", "validation", "step", "step", "validation"]
    assert [line["loss"] for line in written] == [report.loss for report in reports]
    assert load(run.folder / "model", "cpu").generate(SOURCES) == run.model.generate(SOURCES)


def test_the_same_seed_gives_the_same_model_and_another_seed_another(tmp_path: Path) -> None:
    weights = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run = Run(config(tmp_path, seed=seed), tmp_path / name, CPU)
        list(run.train())
        weights.append(torch.cat([weight.flatten() for weight in run.model.network.parameters()]))
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("times", [1, 10])
def test_a_run_that_is_left_early_has_a_model_that_answers_as_the_saved_one(tmp_path: Path, times: int) -> None:
    """With so few pairs that none is kept back, as well as with some."""
    run = Run(config(tmp_path, times), tmp_path / "run", CPU)
    list(islice(run.train(), 2))
    folder = run.save()
    assert run.model.generate(SOURCES) == load(folder, "cpu").generate(SOURCES)


def test_what_was_prepared_is_told(tmp_path: Path) -> None:
    ready = Run(config(tmp_path), tmp_path / "run", CPU)
    assert (ready.prepared.train_pairs, ready.prepared.valid_pairs, ready.prepared.empty_pairs) == (38, 2, 0)
    assert ready.prepared.source_vocab_size == ready.model.source_tokenizer.vocab_size
    assert ready.prepared.parameters == sum(weight.numel() for weight in ready.model.network.parameters())


def test_a_second_run_replaces_the_first_only_when_told_to(tmp_path: Path) -> None:
    for steps in (3, 2):
        settings = config(tmp_path, train={"steps": steps, "batch_tokens": 64})
        run = Run(settings, tmp_path / "run", CPU, overwrite=True)
        list(run.train())
        run.save()
    with pytest.raises(UsageError, match=r"holds a run already.*--overwrite"):
        Run(config(tmp_path), tmp_path / "run", CPU)
    assert tomllib.loads((run.folder / "run.toml").read_text())["train"]["steps"] == 2
    assert len((run.folder / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_run_folder_that_cannot_be_made_is_told_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    settings = config(tmp_path, data={"source": "missing", "target": "missing"})
    with pytest.raises((AttendoError, OSError), match="file"):
        Run(settings, tmp_path / "file", CPU)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("words", Words), ("characters", Characters), ("bpe", SentencePiece), ("unigram", SentencePiece)],
)
@pytest.mark.parametrize("joint", [False, True])
def test_the_tokenizers_are_of_the_kind_asked_for(kind: str, expected: type[Tokenizer], joint: bool) -> None:
    pairs = list(zip(SOURCES, TARGETS, strict=True)) * 5
    source, target = build_tokenizers(pairs, TokenizerConfig(kind=kind, size=400, joint=joint))
    assert isinstance(source, expected)
    assert (source is target) == joint
    assert source.decode(source.encode(SOURCES[0])) == SOURCES[0]
    assert target.decode(target.encode(TARGETS[0])) == TARGETS[0]
    assert target.unknown(TARGETS[0]) == []


def test_a_small_vocabulary_is_kept_to() -> None:
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    source, target = build_tokenizers(pairs, TokenizerConfig(kind="words", size=9))
    assert (source.vocab_size, target.vocab_size) == (9, 9)


def test_no_batch_holds_the_same_pair_twice(tmp_path: Path) -> None:
    """Also where the corpus is much smaller than the pool that is sorted by length."""
    lines = [f"a {chr(97 + n)}" for n in range(26)]
    for side in ("s", "t"):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in lines))
    settings = config(tmp_path, data={"source": tmp_path / "s", "target": tmp_path / "t"})
    for batch in islice(Run(settings, tmp_path / "run", CPU)._batches(), 20):
        rows = batch.source_ids.tolist()
        assert len({tuple(row) for row in rows}) == len(rows)


def test_a_pair_longer_than_learned_positions_is_told_before_the_first_step(tmp_path: Path) -> None:
    settings = config(tmp_path, model={"positions": "learned", "max_length": 2, "d_model": 16, "num_heads": 2})
    with pytest.raises(DataError, match=r"more than model.max_length 2: raise it"):
        Run(settings, tmp_path / "run", CPU)
