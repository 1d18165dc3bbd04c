"""Minimum risk training: the exact gradient by enumeration, candidates, reports and processes without sentences."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from error_codes import has_code
from learning import BATCH, BOTH, OTHER, SIZES, config
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD, UNK, Words
from attendo.train.config import TrainConfig
from attendo.train.minimum_risk import (
    Candidates,
    Ids,
    MinimumRisk,
    candidate_shares,
    compute_text_risk,
    make_text_risk,
    score_sequences,
)
from attendo.train.update import Updater

WORDS = (UNK, 4, 5)  # the tokens of a tiny vocabulary, besides control tokens
MAX_TOKENS = 3


def mrt(**changes: Any) -> TrainConfig:
    return config(**{"objective": "mrt", "mrt_candidates": 4, **changes})


def make_network(vocab_size: int = 6, **changes: Any) -> Transformer:
    return Transformer(
        ModelConfig(**{**SIZES, "vocab_size": vocab_size, **changes}), torch.Generator().manual_seed(3)
    ).double()


def measure_length_risk(candidates: Sequence[Ids], reference: Ids) -> list[float]:
    """A risk without text: tokens in common positions count."""
    return [
        1 - sum(a == b for a, b in zip(each, reference, strict=False)) / max(len(each), len(reference))
        for each in candidates
    ]


def make_risk(network: Transformer, **changes: Any) -> MinimumRisk:
    return MinimumRisk(network, network, mrt(**changes), measure_length_risk)


def all_sequences() -> list[Ids]:
    """Every output: up to MAX_TOKENS - 1 tokens and EOS, or MAX_TOKENS tokens, cut at the limit."""
    ended = [(*each, EOS) for n in range(MAX_TOKENS) for each in itertools.product(WORDS, repeat=n)]
    return [*ended, *itertools.product(WORDS, repeat=MAX_TOKENS)]


def score_alone(network: Transformer, source: Sequence[int], ids: Ids) -> Tensor:
    """Sum of log-probabilities, token by token, in a pass over this sequence alone."""
    read = torch.tensor([[BOS, *ids[:-1]]])
    logits = network(torch.tensor([[*source, EOS]]), read)[0].log_softmax(-1)
    return torch.stack([logits[place, token] for place, token in enumerate(ids)]).sum()


def flat_gradient(network: Transformer, value: Tensor) -> Tensor:
    gradients = torch.autograd.grad(value, list(network.parameters()), allow_unused=True)
    return torch.cat([torch.zeros(1) if each is None else each.flatten() for each in gradients])


def make_candidates(rows: Sequence[Ids], risks: Sequence[float], with_reference: bool = True) -> Candidates:
    """One sentence. The first row is the reference."""
    longest = max(map(len, rows))
    labels = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    belongs = torch.tensor([[with_reference, *[True] * (len(rows) - 1)]])
    return Candidates(labels, torch.tensor([risks], dtype=torch.float64), belongs, 0.0)


def test_the_gradient_is_that_of_the_expected_risk_over_all_outputs() -> None:
    """With alpha 1 and every output as a candidate, Q is the model's own distribution over them."""
    network, source, reference = make_network(dropout=0.0), (4, 5), (5, 4, EOS)
    rows = [reference, *(each for each in all_sequences() if each != reference)]
    risks = measure_length_risk(rows, reference)
    scores = torch.stack([score_alone(network, source, each) for each in rows])
    probability = scores.exp()
    assert 0.2 < probability.detach().sum() < 1  # the rest are outputs with PAD or BOS, which are never sampled
    expected = (probability * torch.tensor(risks, dtype=torch.float64)).sum() / probability.sum()
    batch = collate([Example(source, reference[:-1])])
    minimum_risk = make_risk(network, mrt_alpha=1.0, mrt_cross_entropy=0.0)
    found = minimum_risk.compute_loss(batch, make_candidates(rows, risks), 1.0)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(flat_gradient(network, found), flat_gradient(network, expected))


@pytest.mark.parametrize("alpha", [0.005, 0.7])
@pytest.mark.parametrize("with_reference", [True, False])
def test_the_gradient_is_weighted_by_the_risk_above_the_mean(alpha: float, with_reference: bool) -> None:
    """alpha · Q(y) · (risk(y) - mean risk) · grad s(y), summed over the candidates, and the cross-entropy."""
    network, source = make_network(), (4, 5)
    rows, risks = [(5, 4, EOS), (5, EOS), (4, 4, 5, EOS), (UNK, 5)], [0.0, 0.4, 0.9, 0.7]
    among = range(0 if with_reference else 1, len(rows))
    scores = {n: score_alone(network, source, rows[n]) for n in range(len(rows))}
    weights = {n: math.exp(alpha * scores[n].item()) for n in among}
    share = {n: weights[n] / sum(weights.values()) for n in among}
    mean = sum(share[n] * risks[n] for n in among)
    factor = 1.5  # of a sentence's risk
    expected = -0.2 * flat_gradient(network, scores[0])
    for n in among:
        expected += (
            factor
            * alpha
            * share[n]
            * (risks[n] - mean)
            * flat_gradient(network, score_alone(network, source, rows[n]))
        )
    minimum_risk = make_risk(network, mrt_alpha=alpha, mrt_reference=with_reference)
    batch = collate([Example(source, rows[0][:-1])])
    found = minimum_risk.compute_loss(batch, make_candidates(rows, risks, with_reference), factor)
    assert found.item() == pytest.approx(factor * mean - 0.2 * scores[0].item())
    torch.testing.assert_close(flat_gradient(network, found), expected)
    entropy = -sum(each * math.log(each) for each in share.values())
    assert float(minimum_risk.entropy) == pytest.approx(entropy)


def test_candidates_of_several_sentences_share_the_source() -> None:
    """The loss of a batch is the sum of the losses of its sentences."""
    network = make_network(vocab_size=17)
    minimum_risk = make_risk(network, mrt_alpha=0.3)
    torch.manual_seed(0)
    together = minimum_risk.draw_candidates(BOTH)
    width = together.risk.size(1)
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(BOTH.labels)):
        tokens = BOTH.source_ids.size(1) if BOTH.source_mask is None else int(BOTH.source_mask[row].sum())
        alone = Batch(BOTH.source_ids[row : row + 1, :tokens], None, BOTH.target_ids[:1], BOTH.labels[:1])
        some = slice(row * width, (row + 1) * width)
        parts = (together.labels[some], together.risk[row : row + 1], together.belongs[row : row + 1])
        total = total + minimum_risk.compute_loss(alone, Candidates(*parts, 0.0), 2.0)
    torch.testing.assert_close(minimum_risk.compute_loss(BOTH, together, 2.0), total)


def test_candidates_are_different_samples_and_the_reference() -> None:
    torch.manual_seed(0)
    network = make_network()
    minimum_risk = make_risk(network, mrt_candidates=32)
    batch = collate([Example([4], [5]), Example([5, 4, 4], [4, 5])])
    found = minimum_risk.draw_candidates(batch)
    assert network.training
    rewards = 0.0
    for number, reference in enumerate([(5, EOS), (4, 5, EOS)]):
        labels = found.labels.view(2, 33, -1)[number].tolist()
        rows = [tuple(each for each in row if each != PAD) for row in labels]
        used = [row for row, belongs in zip(rows, found.belongs[number].tolist(), strict=True) if belongs]
        assert used[0] == reference
        assert len({*used}) == len(used) > 5
        assert all(row == () for row in rows[len(used) :])
        assert all(EOS not in row[:-1] and BOS not in row and len(row) <= 2 * len(reference) + 9 for row in used)
        risks = found.risk[number, : len(used)].tolist()
        assert risks == pytest.approx(measure_length_risk(used, reference), abs=1e-6)
        rewards += 100 * (1 - max(risks))
    assert rewards < found.reward < 200  # the mean reward lies between those of the worst and the best sample


def test_a_sample_that_equals_the_reference_counts_without_the_reference() -> None:
    torch.manual_seed(0)
    reference = (4, EOS)
    found = make_risk(make_network(), mrt_reference=False)._assemble([reference], [[reference, (5, EOS), reference]])
    assert found.labels[:3].tolist() == [[4, EOS], [4, EOS], [5, EOS]]
    assert found.belongs[0].tolist() == [False, True, True, False, False]
    assert found.risk[0, 1:3].tolist() == measure_length_risk([reference, (5, EOS)], reference)


def test_samples_have_no_dropout() -> None:
    batch = collate([Example([4, 5], [5, 4]), Example([5], [4])])
    drawn = []
    for dropout in (0.0, 0.5):
        torch.manual_seed(0)
        drawn.append(make_risk(make_network(dropout=dropout).train()).draw_candidates(batch).labels.tolist())
    assert drawn[0] == drawn[1]


def test_samples_follow_the_model() -> None:
    """Ancestral samples at temperature 1: the share of each first token is its probability."""
    torch.manual_seed(1)
    network = make_network()
    drawn = make_risk(network, mrt_candidates=3000)._sample([(4, 5)], [(5, EOS)], seed=7)[0]
    first = [row[0] for row in drawn]
    network.eval()
    with torch.no_grad():
        logits = network(torch.tensor([[4, 5, EOS]]), torch.tensor([[BOS]]))[0, 0]
    expected = logits.index_fill(0, torch.tensor([PAD, BOS]), float("-inf")).softmax(-1)
    found = [first.count(token) / len(first) for token in range(6)]
    assert found == pytest.approx(expected.tolist(), abs=0.03)


def test_equal_seeds_draw_equal_candidates_and_a_prefix_is_kept() -> None:
    network = make_network(vocab_size=17)
    minimum_risk = MinimumRisk(network, network, mrt(), measure_length_risk, target_prefix=(7,))
    batch = collate([Example([5, 6], [7, 6, 5]), Example([8, 9, 10], [7, 8])])
    torch.manual_seed(5)
    one = minimum_risk.draw_candidates(batch)
    again = minimum_risk.draw_candidates(batch)
    torch.manual_seed(5)
    same = minimum_risk.draw_candidates(batch)
    assert torch.equal(one.labels, same.labels)
    assert one.labels.shape != again.labels.shape or not torch.equal(one.labels, again.labels)
    first = one.labels[:, 0][one.belongs.flatten()]
    assert {*first.tolist()} == {7}


def test_the_risk_of_a_text_is_that_without_its_prefix() -> None:
    seen: list[tuple[Sequence[Ids], Ids]] = []

    def measure(candidates: Sequence[Ids], reference: Ids) -> list[float]:
        seen.append((candidates, reference))
        return measure_length_risk(candidates, reference)

    network = make_network(vocab_size=17)
    minimum_risk = MinimumRisk(network, network, mrt(), measure, target_prefix=(7,))
    labels = minimum_risk.draw_candidates(collate([Example([5, 6], [7, 6, 5])])).labels.tolist()
    ((candidates, reference),) = seen
    assert reference == (6, 5, EOS)
    found = [tuple(token for token in row[1:] if token != PAD) for row in labels if row[0] == 7]
    assert list(candidates) == found


def test_learned_positions_limit_the_samples() -> None:
    network = make_network(positions="learned", max_length=6)
    drawn = make_risk(network, mrt_candidates=50)._sample([(4, 5)], [(4, 5, 4, 5, EOS)], seed=1)[0]
    assert max(map(len, drawn)) <= 6


def test_text_risk_is_one_minus_the_sentence_metric() -> None:
    sacrebleu = pytest.importorskip("sacrebleu")
    words = Words.build(["the cat sat on the mat", "a dog"])
    reference = (*words.encode("the cat sat on the mat"), EOS)
    candidates = [(*words.encode(text), EOS) for text in ("the cat sat on a dog", "the cat", "")]
    texts = ["the cat sat on a dog", "the cat", ""]
    expected = {
        "chrf": [sacrebleu.sentence_chrf(text, ["the cat sat on the mat"]).score for text in texts],
        "bleu": [
            sacrebleu.sentence_bleu(text, ["the cat sat on the mat"], use_effective_order=True).score for text in texts
        ],
    }
    for utility, scores in expected.items():
        found = compute_text_risk(utility, words, [*candidates, reference], reference)
        assert found == pytest.approx([1 - score / 100 for score in [*scores, 100.0]])
    assert make_text_risk(config(), words) is None


def test_a_process_without_sentences_adds_nothing() -> None:
    network, idle = make_network(vocab_size=17), BOTH.shard(rank=5, world_size=6)
    minimum_risk = make_risk(network)
    candidates = minimum_risk.draw_candidates(idle)
    loss = minimum_risk.compute_loss(idle, candidates, 3.0)
    assert (float(loss.detach()), float(minimum_risk.reward), float(minimum_risk.entropy)) == (0, 0, 0)
    loss.backward()
    assert not any(weight.grad is not None and weight.grad.any() for weight in network.parameters())


def test_shares_are_a_softmax_over_the_candidates() -> None:
    scores, belongs = torch.tensor([[-3.0, -5.0, 0.0]]), torch.tensor([[True, True, False]])
    found = candidate_shares(scores, belongs, 0.5)[0].tolist()
    assert found == pytest.approx([math.exp(-1.5) / (math.exp(-1.5) + math.exp(-2.5)), 1 / (1 + math.e), 0.0])
    assert score_sequences(torch.zeros(1, 3, 4), torch.tensor([[2, 3, PAD]])).item() == pytest.approx(-2 * math.log(4))


def test_updates_raise_the_reward() -> None:
    """The samples become better by their risk alone, without the cross-entropy."""
    torch.manual_seed(0)
    settings = {"mrt_alpha": 0.5, "mrt_cross_entropy": 0.0, "mrt_candidates": 16, "peak_lr": 2e-2, "warmup": 0}
    updater = Updater(make_network().float(), mrt(**settings, schedule="constant"), risk=measure_length_risk)
    batch = collate([Example([4], [5]), Example([5, 4], [4, 5])])
    updates = [updater.update([batch]) for _ in range(16)]
    rewards = [float(each.rewards[0]) / each.sentences for each in updates]
    assert {each.sentences for each in updates} == {2}
    assert sum(rewards[-4:]) / 4 > sum(rewards[:4]) / 4 + 15
    assert all(0 < float(each.rewards[1]) / each.sentences < math.log(17) for each in updates)


def test_all_weights_learn_in_bf16() -> None:
    """Autocast caches converted weights. Those of the samples, which have no gradient, must not be used again."""
    updater = Updater(make_network().float(), mrt(mrt_alpha=0.5, precision="bf16"), risk=measure_length_risk)
    updater.update([collate([Example([4], [5]), Example([5, 4], [4, 5])])])
    without = [name for name, each in updater.network.named_parameters() if each.grad is None or not each.grad.any()]
    assert without == []


def test_the_loss_is_the_mean_risk_and_the_weighted_cross_entropy() -> None:
    """All candidates have the same risk. The losses of one batch and of two accumulated ones are equal."""
    network = make_network(vocab_size=17).float()
    with torch.no_grad():
        logits = network(BOTH.source_ids, BOTH.target_ids, BOTH.source_mask)
        per_token = -float(score_sequences(logits, BOTH.labels).sum()) / BOTH.tokens
    for batches in ([BOTH], [BATCH, OTHER]):
        updater = Updater(
            make_network(vocab_size=17).float(),
            mrt(mrt_cross_entropy=0.3),
            risk=lambda candidates, _: [0.25] * len(candidates),
        )
        update = updater.update(batches)
        assert float(update.loss) / update.tokens == pytest.approx(0.25 + 0.3 * per_token, rel=1e-5)
        assert float(update.rewards[0]) / update.sentences == pytest.approx(75)


@pytest.mark.parametrize(
    ("changes", "code", "values"),
    [
        ({"mrt_alpha": 0.1}, "mrt_setting_unused", {"option": "mrt_alpha", "objective": "likelihood"}),
        (
            {"objective": "ngrams", "mrt_alpha": 0.1},
            "mrt_setting_unused",
            {"option": "mrt_alpha", "objective": "ngrams"},
        ),
        ({"objective": "mrt", "r_drop": 1.0}, "objective_setting_conflict", {"option": "r_drop", "value": 1.0}),
        (
            {"objective": "mrt", "label_smoothing": 0.2},
            "objective_setting_conflict",
            {"option": "label_smoothing", "value": 0.2},
        ),
        ({"objective": "mrt", "capture": "on"}, "objective_setting_conflict", {"option": "capture", "value": "on"}),
        (
            {"objective": "mrt", "compile": "blocks"},
            "objective_setting_conflict",
            {"option": "compile", "value": "blocks"},
        ),
        (
            {"objective": "mrt", "sharding": "full"},
            "objective_setting_conflict",
            {"option": "sharding", "value": "full"},
        ),
        (
            {"objective": "mrt", "input_noise": 0.1},
            "objective_setting_conflict",
            {"option": "input_noise", "value": 0.1},
        ),
        (
            {"objective": "mrt", "scheduled_sampling": "schedule"},
            "objective_setting_conflict",
            {"option": "scheduled_sampling", "value": "schedule"},
        ),
    ],
)
def test_settings_without_effect_are_rejected(changes: dict[str, Any], code: str, values: dict[str, Any]) -> None:
    with pytest.raises(UsageError, check=has_code(code, **values)):
        TrainConfig(**changes)


def test_the_default_learning_rate_is_small() -> None:
    assert (TrainConfig().default_peak_lr, TrainConfig(objective="mrt").default_peak_lr) == (1e-3, 1e-5)
    assert TrainConfig(objective="mrt").num_passes == 9
    assert TrainConfig(objective="mrt", mrt_candidates=3, r_drop=0.0).without_treatments() == TrainConfig(r_drop=0.0)
