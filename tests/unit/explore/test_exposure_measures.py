"""Measures of exposure bias against a slow computation: one forward pass per prefix, one sentence at a time."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from error_codes import has_code
from tiny import SIZES, SOURCES, TARGETS, tiny_model

from attendo.decode.strategies import Sampling
from attendo.errors import DataError
from attendo.explore.exposure import ExposureReport, ExposureSettings, ParallelText, measure_exposure
from attendo.explore.exposure.corruptions import CORRUPTIONS, draw_distractors, draw_positions, draw_replacements
from attendo.explore.exposure.measures import MAX_DISTANCE, MAX_STEPS
from attendo.explore.exposure.passes import ModelPasses
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD, Words
from attendo.text_model import TextModel

SEED = 5
LINES = ParallelText((*SOURCES, *SOURCES[1:3]), (*TARGETS, "猫 看见 小 狗 了 我 爱 家", "NLP"))
Ids = tuple[int, ...]


def sharp_model(seed: int = 0, **changes: Any) -> TextModel:
    """A tiny model whose distributions are not flat."""
    model = tiny_model(seed, **changes)
    with torch.no_grad():
        model.network.output.weight.mul_(3)
    return model


def prefixed_model(seed: int = 0) -> TextModel:
    """A model whose targets begin with a language symbol."""
    words = Words.build((*SOURCES, *TARGETS), symbols=("<zh>",))
    config = ModelConfig(vocab_size=words.vocab_size, **SIZES)
    network = Transformer(config, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        network.output.weight.mul_(3)
    return TextModel(network, words, generation={"target_prefix": ("<zh>",), "max_length_extra": 7})


MODELS: dict[str, Callable[[int], TextModel]] = {"plain": sharp_model, "prefixed": prefixed_model}


class Slow:
    """The definitions, in loops."""

    def __init__(self, model: TextModel, text: ParallelText = LINES) -> None:
        self.model = model
        self.given = tuple(EOS + 1 + n for n, _ in enumerate(model.generation.target_prefix))
        self.sources = [[*model.source_tokenizer.encode(line), EOS] for line in text.sources]
        self.targets = [(*model.target_tokenizer.encode(line), EOS) for line in text.references]
        self.lines = range(len(self.targets))
        self.known: dict[tuple[int, Ids], torch.Tensor] = {}

    def predict(self, line: int, prefix: Sequence[int]) -> torch.Tensor:
        """The log-probabilities of the token after a prefix."""
        key = (line, tuple(prefix))
        if key not in self.known:
            with torch.no_grad():
                ids = torch.tensor([[BOS, *self.given, *prefix]])
                logits = self.model.network(torch.tensor([self.sources[line]]), ids)[0, -1]
            self.known[key] = logits.double().log_softmax(-1)
        return self.known[key]

    def best(self, line: int, prefix: Sequence[int], *banned: int) -> int:
        log_probs = self.predict(line, prefix).clone()
        log_probs[[PAD, BOS, *banned]] = -math.inf
        return int(log_probs.argmax())

    def nll(self, line: int, ids: Sequence[int], t: int) -> float:
        """Of the token with index t."""
        return -float(self.predict(line, ids[:t])[ids[t]])

    def generate(self, line: int) -> Ids:
        """The greedy output. The limit is that of the model, in tokens without EOS."""
        config, ids = self.model.generation, ()
        limit = int(config.max_length_factor * (len(self.sources[line]) - 1)) + config.max_length_extra
        while len(ids) + len(self.given) < limit and ids[-1:] != (EOS,):
            ids = (*ids, self.best(line, ids))
        return ids if ids[-1:] == (EOS,) or self.best(line, ids) != EOS else (*ids, EOS)

    def divergence(self, oracles: Sequence["Slow"], line: int, prefix: Ids) -> float:
        """KL of the mean of the oracles' probabilities from the model."""
        right = torch.stack([oracle.predict(line, prefix).exp() for oracle in oracles]).mean(0)
        return float((right * (right.log() - self.predict(line, prefix))).sum())

    def regret(self, oracles: Sequence["Slow"], histories: Sequence[Ids], length: int) -> float:
        sums = [
            sum(self.divergence(oracles, line, ids[:t]) for t in range(min(length, len(ids))))
            for line, ids in enumerate(histories)
        ]
        return sum(sums) / len(sums)


@cache
def measured(kind: str) -> tuple[ExposureReport, Slow]:
    model = MODELS[kind](0)
    return measure_exposure(model, LINES, MODELS[kind](1), ExposureSettings(seed=SEED)), Slow(model)


@pytest.mark.parametrize("kind", MODELS)
def test_accuracy_is_the_share_of_correct_tokens(kind: str) -> None:
    report, slow = measured(kind)
    outputs = [slow.generate(line) for line in slow.lines]
    assert report.cut == sum(ids[-1] != EOS for ids in outputs)
    for t in range(max(map(len, slow.targets))):
        long = [line for line in slow.lines if len(slow.targets[line]) > t]
        gold = [slow.best(line, slow.targets[line][:t]) == slow.targets[line][t] for line in long]
        own = [outputs[line][t : t + 1] == slow.targets[line][t : t + 1] for line in long]
        assert report.accuracy.counts[t] == len(long)
        assert report.accuracy.gold[t] == pytest.approx(sum(gold) / len(long))
        assert report.accuracy.own[t] == pytest.approx(sum(own) / len(long))
    assert len(report.accuracy.counts) == max(map(len, slow.targets))
    assert report.accuracy.gold[0] == report.accuracy.own[0]  # the first prefixes are equal


@pytest.mark.parametrize("kind", MODELS)
def test_the_likelihood_is_that_of_the_references(kind: str) -> None:
    report, slow = measured(kind)
    found = [slow.nll(line, slow.targets[line], t) for line in slow.lines for t in range(len(slow.targets[line]))]
    assert report.tokens == len(found)
    assert report.sentences == len(slow.lines)
    assert report.nll == pytest.approx(sum(found) / len(found), abs=1e-5)


def corrupted_targets(slow: Slow, line: int, t: int, drawn: int) -> dict[str, tuple[Ids, int]]:
    """The corrupted target of each kind, and the index in it of the token after the corrupted one."""
    ids = slow.targets[line]
    wrong = slow.best(line, ids[:t], ids[t], EOS)
    return {
        "random": ((*ids[:t], drawn, *ids[t + 1 :]), t + 1),
        "wrong": ((*ids[:t], wrong, *ids[t + 1 :]), t + 1),
        "dropped": ((*ids[:t], *ids[t + 1 :]), t),
        "doubled": ((*ids[:t], ids[t], ids[t], *ids[t + 1 :]), t + 2),
    }


@pytest.mark.parametrize("kind", MODELS)
def test_recovery_is_the_change_of_the_later_tokens(kind: str) -> None:
    report, slow = measured(kind)
    positions = draw_positions(slow.targets, SEED)
    drawn = draw_replacements(slow.targets, positions, SEED)
    changes: dict[str, list[list[float]]] = {name: [[] for _ in range(MAX_DISTANCE)] for name in CORRUPTIONS}
    for line in slow.lines:
        t, ids = positions[line] or 0, slow.targets[line]
        for name, (other, first) in corrupted_targets(slow, line, t, drawn[line] or 0).items():
            for d in range(1, min(MAX_DISTANCE, len(ids) - 1 - t) + 1):
                after, before = slow.nll(line, other, first + d - 1), slow.nll(line, ids, t + d)
                assert other[first + d - 1] == ids[t + d]
                changes[name][d - 1].append(after - before)
    for name in CORRUPTIONS:
        found = report.recovery[name]
        assert found.counts == tuple(map(len, changes[name]))
        for d, values in enumerate(changes[name]):
            assert found.deltas[d] == (pytest.approx(np.mean(values), abs=2e-5) if values else None)
            if len(values) > 1:
                error = np.std(values, ddof=1) / math.sqrt(len(values))
                assert found.standard_errors[d] == pytest.approx(error, abs=2e-5)


def test_the_best_wrong_token_is_never_eos() -> None:
    model = tiny_model(output_bias=True)
    with torch.no_grad():
        model.network.output.bias[EOS] = 20  # the most probable token everywhere
    slow = Slow(model)
    positions = draw_positions(slow.targets, SEED)
    passes = ModelPasses(model, model.generation, lambda count: None)
    for line, found in enumerate(passes.read_references(LINES.encode(model), positions)):
        ids, t = slow.targets[line], positions[line] or 0
        assert {*found.predictions} == {EOS}
        assert found.best_wrong == slow.best(line, ids[:t], ids[t], EOS)


@pytest.mark.parametrize("kind", MODELS)
def test_distractors_are_scored_given_the_source_of_another_line(kind: str) -> None:
    report, slow = measured(kind)
    others = draw_distractors(slow.targets, SEED)
    for t, count in enumerate(report.distractor.counts):
        pairs = [(line, slow.targets[line], slow.targets[others[line] or 0]) for line in slow.lines]
        long = [(line, one, other) for line, one, other in pairs if min(len(one), len(other)) > t]
        assert count == len(long)
        expected = [-np.mean([slow.nll(line, ids[side], t) for line, *ids in long]) for side in (0, 1)]
        assert report.distractor.reference[t] == pytest.approx(expected[0], abs=1e-5)
        assert report.distractor.distractor[t] == pytest.approx(expected[1], abs=1e-5)
        assert report.distractor.gap[t] == pytest.approx(expected[0] - expected[1], abs=2e-5)


@pytest.mark.parametrize("kind", MODELS)
def test_excess_error_is_a_ratio_of_divergences(kind: str) -> None:
    report, slow = measured(kind)
    oracle, sampled = Slow(MODELS[kind](1)), sample_histories(slow.model)
    own = {"sampled": sampled, "greedy": [slow.generate(line) for line in slow.lines]}
    assert report.excess is not None
    for name, histories in own.items():
        found = report.excess[name]  # type: ignore[index]
        for length in (1, 3, MAX_STEPS):
            gold, mine = (slow.regret([oracle], each, length) for each in (slow.targets, histories))
            assert found.gold[length - 1] == pytest.approx(gold, rel=1e-4)
            assert found.own[length - 1] == pytest.approx(mine, rel=1e-4)
            assert found.percent[length - 1] == pytest.approx(100 * (mine / gold - 1), abs=0.05)
            assert found.accumulated[length - 1] == pytest.approx(length * mine / gold, rel=1e-3)
            tokens = [sum(min(length, len(ids)) for ids in each) for each in (histories, slow.targets)]
            assert [found.own_tokens[length - 1], found.gold_tokens[length - 1]] == tokens
            per_token = mine * tokens[1] / (gold * tokens[0])
            assert found.percent_per_token[length - 1] == pytest.approx(100 * (per_token - 1), abs=0.05)
    assert report.oracle_nll == pytest.approx(measure_exposure(oracle.model, LINES).nll, abs=1e-5)


def sample_histories(model: TextModel) -> list[Ids]:
    with model.backend.inference_mode():
        passes = ModelPasses(model, model.generation, lambda count: None)
        return passes.generate(LINES.encode(model), Sampling(1, SEED), MAX_STEPS)


def test_samples_have_the_probabilities_of_the_model() -> None:
    """Every line has its own random numbers, so equal sources have different samples."""
    model, count = sharp_model(), 1000
    text = ParallelText(SOURCES[:1] * count, TARGETS[:1] * count)
    slow = Slow(model, text)
    passes = ModelPasses(model, model.generation, lambda count: None)
    drawn = Counter(ids[0] for ids in passes.generate(text.encode(model), Sampling(1, SEED), 1))
    allowed = slow.predict(0, ()).exp()
    allowed[[PAD, BOS]] = 0  # never sampled
    for token, share in enumerate((allowed / allowed.sum()).tolist()):
        assert drawn[token] / count == pytest.approx(share, abs=4 * math.sqrt(share / count) + 0.005)


def test_an_ensemble_can_be_the_oracle() -> None:
    model, others = sharp_model(), [sharp_model(1), sharp_model(2)]
    report = measure_exposure(model, LINES, others[0].ensemble(others[1:]))
    slow = Slow(model)
    expected = slow.regret([Slow(each) for each in others], slow.targets, MAX_STEPS)
    assert report.excess is not None
    assert report.excess["greedy"].gold[-1] == pytest.approx(expected, rel=1e-4)


def test_an_oracle_equal_to_the_model_finds_no_excess_error() -> None:
    report = measure_exposure(sharp_model(), LINES, sharp_model())
    assert report.excess is not None
    for found in report.excess.values():
        assert {*found.own, *found.gold, *found.percent, *found.percent_per_token} == {0.0}
        assert found.accumulated == tuple(range(1, MAX_STEPS + 1))
    assert report.oracle_nll == pytest.approx(report.nll)


def test_a_network_that_ignores_its_prefix_recovers_at_once() -> None:
    model = tiny_model(tie="none", output_bias=True)
    with torch.no_grad():
        model.network.output.weight.zero_()
        model.network.output.bias.copy_(torch.randn(model.network.output.bias.shape))
    report = measure_exposure(model, LINES)
    for recovery in report.recovery.values():
        assert {each for each in recovery.deltas if each is not None} == {0.0}
        assert recovery.half_life == 1


def test_batches_do_not_change_the_measures() -> None:
    found = [
        measure_exposure(sharp_model(), LINES, sharp_model(1), ExposureSettings(seed=SEED, batch_tokens=tokens))
        for tokens in (12, 100_000)
    ]
    for each in found[1:]:
        assert flatten(each.as_json()) == pytest.approx(flatten(found[0].as_json()), abs=2e-4, nan_ok=True)


def test_half_precision_gives_nearly_the_same_numbers() -> None:
    exact, rounded = (
        measure_exposure(sharp_model(), LINES, None, ExposureSettings(precision=precision))
        for precision in ("fp32", "bf16")
    )
    assert rounded.nll != exact.nll
    assert rounded.nll == pytest.approx(exact.nll, rel=0.02)
    found = [rounded.distractor.gap, exact.distractor.gap]
    assert found[0] == pytest.approx(found[1], abs=0.3)


def test_dropout_is_off_in_half_precision_too() -> None:
    model = tiny_model(dropout=0.5)
    model.network.train()
    one, again = (measure_exposure(model, LINES, None, ExposureSettings(precision="bf16")) for _ in range(2))
    assert one.nll == again.nll
    assert model.network.training


def test_lines_that_an_oracle_cannot_read_are_named_first() -> None:
    oracle = tiny_model(positions="learned", max_length=4)
    with pytest.raises(DataError, check=has_code("source_exceeds_model_limit")):
        measure_exposure(tiny_model(), LINES, oracle)


def test_other_seeds_give_other_choices() -> None:
    one, other, again = (measure_exposure(sharp_model(), LINES, None, ExposureSettings(seed=n)) for n in (1, 2, 1))
    assert one.recovery["random"].deltas != other.recovery["random"].deltas
    assert one.recovery["random"].deltas == again.recovery["random"].deltas
    assert one.accuracy == other.accuracy


def test_the_settings_of_the_search_do_not_change_the_measures() -> None:
    """Own outputs are those of plain greedy search, whatever the folder has as default."""
    plain = sharp_model()
    settings = {"beam": 4, "no_repeat_ngram_size": 1, "repetition_penalty": 3.0, "min_length_extra": 5}
    other = TextModel(replace(plain.stored_model, generation={**plain.stored_model.generation, **settings}))
    assert measure_exposure(other, LINES).as_json() == measure_exposure(plain, LINES).as_json()


def test_progress_rises_to_1() -> None:
    shares: list[float] = []
    measure_exposure(sharp_model(), LINES, sharp_model(1), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert shares[-2] == pytest.approx(1.0)


def flatten(value: Any) -> list[float]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [number for each in value for number in flatten(each)]
    return [math.nan if value is None else float(value)]
