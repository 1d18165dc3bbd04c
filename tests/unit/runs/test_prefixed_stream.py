"""Training and validation of a model with source and target prefixes."""

from pathlib import Path

import pytest
import torch
from error_codes import fragment
from prepared_data import ListCorpus, prepare_all, sentences
from tiny import SIZES, SOURCES, TARGETS, Command, settings, write_pairs

from attendo.data.batch import Example, collate
from attendo.data.sampler import BatchStream
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel, load_model, save_model
from attendo.runs.corpora import PrefixedStream, with_symbols
from attendo.text import Words
from attendo.text_model import load
from attendo.text_model.inputs import ModelSymbols
from attendo.train.config import TrainConfig
from attendo.train.update import Updater
from attendo.train.validation import Validator

PREFIXES = {"source_prefix": ["<en>"], "target_prefix": ["<zh>", "<s2>"], "max_length_extra": 5}


def test_prefixes_are_added_to_every_pair_of_a_batch() -> None:
    pairs = [([5, 6, 7], [8]), ([9], [5, 6])]
    made = with_symbols(collate([Example(*pair) for pair in pairs]), ModelSymbols(before=(20, 21), begin=(30,)))
    expected = collate([Example([20, 21, *source], [30, *target]) for source, target in pairs])
    for name in ("source_ids", "source_mask", "target_ids", "labels"):
        assert torch.equal(getattr(made, name), getattr(expected, name))
    assert (made.tokens, made.source_tokens) == (expected.tokens, expected.source_tokens)
    assert with_symbols(collate([Example([5], [6])]), ModelSymbols(before=(20,))).source_mask is None


def test_the_stream_adds_prefixes_and_keeps_positions(tmp_path: Path) -> None:
    data = prepare_all(tmp_path / "data", ListCorpus(sentences(40)))
    plain = BatchStream(data, 64, seed=1).batches()
    prefixed = PrefixedStream(data, 64, 1, 0.0, ModelSymbols(before=(7,), begin=(8, 9))).batches()
    for _ in range(5):
        expected, found = next(plain), next(prefixed)
        assert found.next_position == expected.next_position
        assert found.batch.numbers == expected.batch.numbers
        assert found.batch.source_ids[:, 0].unique().tolist() == [7]
        assert found.batch.labels[:, :2].unique(dim=0).tolist() == [[8, 9]]
        assert torch.equal(found.batch.labels[:, 2:], expected.batch.labels)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    words = Words.build([*SOURCES, *TARGETS], symbols=("<en>", "<zh>", "<s2>"))
    network = Transformer(ModelConfig(vocab_size=words.vocab_size, **SIZES), torch.Generator().manual_seed(3))
    save_model(tmp_path / "old", StoredModel(network, words, words, PREFIXES))
    return tmp_path / "old"


@pytest.mark.slow
def test_fine_tuning_keeps_and_learns_the_prefixes(attendo: Command, old: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    quick = settings("train.steps=40", "train.batch_tokens=64", "train.peak_lr=1e-2", "train.warmup=2")
    done = attendo("finetune", old, "--source", source, "--target", target, "--out", tmp_path / "run", *quick)
    assert done.code == 0
    assert load_model(tmp_path / "run" / "model").generation == PREFIXES
    before, after = (load(folder, "cpu") for folder in (old, tmp_path / "run" / "model"))
    first = [each.score_tokens(SOURCES[:1], TARGETS[:1])[0].log_probabilities[:2] for each in (before, after)]
    assert max(first[0]) < -1.0
    assert min(first[1]) > -0.6


def test_validation_includes_the_prefixes(old: Path) -> None:
    model = load(old, "cpu")
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    validation = Validator(model, pairs, Updater(model.network, TrainConfig(batch_tokens=64)))(1)
    scored = model.score_tokens(SOURCES, TARGETS)
    tokens = sum(len(each.pieces) for each in scored)
    assert scored[0].pieces[:2] == ("<zh>", "<s2>")
    assert validation.loss == pytest.approx(-sum(each.log_probability for each in scored) / tokens, rel=1e-4)


@pytest.mark.slow
def test_averaging_keeps_the_prefixes(attendo: Command, old: Path, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    quick = settings("train.steps=3", "train.batch_tokens=64")
    attendo("finetune", old, "--source", source, "--target", target, "--out", tmp_path / "run", *quick)
    assert attendo("average", tmp_path / "run", "--out", tmp_path / "mean").code == 0
    assert load(tmp_path / "mean", "cpu").generation.target_prefix == ("<zh>", "<s2>")


def test_prefixes_count_toward_learned_positions(attendo: Command, tmp_path: Path) -> None:
    words = Words.build([*SOURCES, *TARGETS], symbols=("<en>", "<zh>", "<s2>"))
    config = ModelConfig(vocab_size=words.vocab_size, **SIZES, positions="learned", max_length=7)
    save_model(tmp_path / "old", StoredModel(Transformer(config), words, words, PREFIXES))
    source, target = write_pairs(tmp_path)
    failed = attendo("finetune", tmp_path / "old", "--source", source, "--target", target, "--out", tmp_path / "run")
    assert failed.code == 3
    assert fragment("training_text_exceeds_positions", what="a sentence", length=8, limit=7) in failed.errors
