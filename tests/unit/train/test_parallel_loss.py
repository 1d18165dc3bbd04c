"""Losses of networks that predict all tokens at once: sums, glancing, masks, and tasks that they must learn."""

import itertools
import random
from typing import Any

import pytest
import torch
from error_codes import has_code
from learning import BOTH, SIZES
from torch import Tensor

from attendo.data.batch import Example, collate
from attendo.decode.config import GenerationConfig
from attendo.decode.graph_network import GraphNetwork
from attendo.decode.parallel import ParallelEngine
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import SuppressTokens
from attendo.decode.strategies import Greedy
from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.parallel import LENGTH_CLASSES, Canvas, ParallelTransformer, Prediction
from attendo.nn.graph_ngrams import bigram_score, match_bigrams
from attendo.text import BOS, EOS, PAD
from attendo.train.config import TrainConfig
from attendo.train.parallel_loss import (
    ParallelLoss,
    Targets,
    align,
    choose_at_random,
    glancing_share,
    negative_bigram_score,
    sentence_losses,
)
from attendo.train.update import Updater

NEVER = float("-inf")
INPUTS = (BOTH.source_ids, BOTH.source_mask, BOTH.labels)


def make_network(kind: str, **settings: Any) -> ParallelTransformer:
    upsample = {} if kind == "masked" else {"upsample": 2}
    config = ModelConfig(**{**SIZES, **upsample, "kind": kind, "tie": "all", **settings})
    return ParallelTransformer(config, torch.Generator().manual_seed(2))


def make_loss(
    network: ParallelTransformer, label_smoothing: float = 0.0, objective: str = "likelihood"
) -> ParallelLoss:
    return ParallelLoss(network, network, label_smoothing, objective=objective)


def test_targets_are_labels_without_eos() -> None:
    targets = Targets.from_labels(torch.tensor([[5, 6, EOS], [7, EOS, PAD], [EOS, PAD, PAD]]))
    assert targets.ids.tolist() == [[5, 6], [7, PAD], [PAD, PAD]]
    assert targets.lengths.tolist() == [2, 1, 0]


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_the_loss_without_glancing_is_the_sum_of_sentence_losses(kind: str) -> None:
    network = make_network(kind)
    torch.testing.assert_close(make_loss(network)(*INPUTS), sentence_losses(network, *INPUTS).sum())


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
def test_a_sentence_has_the_same_loss_in_any_batch(kind: str) -> None:
    network = make_network(kind).eval()
    together = sentence_losses(network, *INPUTS)
    for row, length in enumerate((BOTH.labels != PAD).sum(-1).tolist()):
        tokens = int(BOTH.source_mask[row].sum()) if BOTH.source_mask is not None else BOTH.source_ids.size(1)
        alone = BOTH.source_ids[row : row + 1, :tokens], None, BOTH.labels[row : row + 1, :length]
        torch.testing.assert_close(sentence_losses(network, *alone)[0], together[row])


@pytest.mark.parametrize("kind", ["ctc", "graph"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_glancing_gives_a_share_of_the_wrong_tokens(kind: str, share: float) -> None:
    network = make_network(kind)
    loss, targets = make_loss(network), Targets.from_labels(BOTH.labels)
    loss.glancing.fill_(share)
    canvas = network.empty_canvas(BOTH.source_ids, BOTH.source_mask)
    seen = loss._glance(BOTH.source_ids, BOTH.source_mask, canvas, targets)
    with torch.no_grad():
        first = network(BOTH.source_ids, canvas, BOTH.source_mask)
        aligned = align(first, canvas, targets)
    for row in range(len(aligned)):
        places = aligned[row].nonzero().flatten()
        wanted = targets.ids[row, aligned[row, places] - 1]
        wrong = int((first.logits[row, places].argmax(-1) != wanted).sum())
        assert int(seen.given[row].sum()) == round(share * wrong)
        given = seen.given[row].nonzero().flatten()
        assert {*given.tolist()} <= {*places.tolist()}
        assert seen.ids[row, given].tolist() == targets.ids[row, aligned[row, given] - 1].tolist()


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_tokens_that_no_position_says_do_not_make_it_wrong(kind: str) -> None:
    """Nothing trains their logits, which may be the largest. Without them, some aligned positions are right."""
    targets, given = Targets.from_labels(BOTH.labels), []
    for bias in (-99.0, 99.0):
        network = make_network(kind, output_bias=True)
        loss = make_loss(network)
        loss.glancing.fill_(1.0)
        with torch.no_grad():
            network.output.bias[[BOS, EOS]] += bias
            network.output.bias[int(targets.ids[0, 0])] += 9.0
        canvas = network.empty_canvas(BOTH.source_ids, BOTH.source_mask)
        given.append(loss._glance(BOTH.source_ids, BOTH.source_mask, canvas, targets).given.sum(-1))
    prediction = network(BOTH.source_ids, canvas, BOTH.source_mask)
    aligned = (align(prediction, canvas, targets) > 0).sum(-1)
    assert torch.equal(*given)
    assert int(given[0].sum()) < int(aligned.sum())


def test_glancing_falls_linearly() -> None:
    shares = [glancing_share(step, 300, 0.5, 0.1, 2 / 3) for step in (0, 100, 200, 300)]
    assert shares == pytest.approx([0.5, 0.3, 0.1, 0.1])


def test_positions_are_chosen_uniformly() -> None:
    torch.manual_seed(0)
    among = torch.tensor([[True, True, False, True]]).expand(3000, -1)
    chosen = choose_at_random(among, torch.full((3000,), 2))
    assert bool((chosen.sum(-1) == 2).all())
    assert chosen.float().mean(0).tolist() == pytest.approx([2 / 3, 2 / 3, 0, 2 / 3], abs=0.05)


def test_the_masked_loss_is_twice_the_loss_of_the_hidden_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the tokens are hidden on average. The length's cross-entropy has weight 0.1 for each token and EOS."""
    network, read = make_network("masked"), list[Canvas]()
    forward = network.forward
    monkeypatch.setattr(network, "forward", lambda ids, canvas, mask: read.append(canvas) or forward(ids, canvas, mask))
    torch.manual_seed(0)
    found = make_loss(network)(*INPUTS)
    found.backward()
    targets, (canvas,) = Targets.from_labels(BOTH.labels), read
    with torch.no_grad():
        prediction = forward(BOTH.source_ids, canvas, BOTH.source_mask)
    expected = 0.0
    sources = BOTH.source_mask.sum(-1) if BOTH.source_mask is not None else [BOTH.source_ids.size(1)] * 3
    for row, length in enumerate(targets.lengths.tolist()):
        hidden = [place for place in range(length) if not canvas.given[row, place]]
        assert 1 <= len(hidden) <= length
        log_probs = prediction.logits[row].log_softmax(-1)
        expected -= 2 * sum(float(log_probs[place, targets.ids[row, place]]) for place in hidden)
        assert prediction.length_logits is not None
        of_lengths = prediction.length_logits[row].log_softmax(-1)
        expected -= 0.1 * (length + 1) * float(of_lengths[length - int(sources[row]) + LENGTH_CLASSES // 2])
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)
    assert bool(network.mask_vector.grad.any())  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
def test_a_process_without_sentences_adds_nothing(kind: str) -> None:
    network, idle = make_network(kind), BOTH.shard(rank=5, world_size=6)
    loss = make_loss(network)(idle.source_ids, idle.source_mask, idle.labels)
    loss.backward()
    assert float(loss.detach()) == 0
    assert not any(weight.grad is not None and weight.grad.any() for weight in network.parameters())


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
def test_r_drop_of_equal_passes_equals_the_plain_loss(kind: str) -> None:
    """Without dropout, both passes are equal: the loss is their mean, and there is no divergence."""
    found = []
    for rate in (0.0, 3.0):
        network = make_network(kind)
        loss = ParallelLoss(network, network, label_smoothing=0.1, r_drop=rate)
        loss.glancing.fill_(0.5)
        torch.manual_seed(4)
        value = loss(*INPUTS)
        value.backward()
        found.append((value.detach(), network.mask_vector.grad))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
def test_r_drop_adds_the_divergence_of_both_passes(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference of two weights is half of the divergence: masked tokens, positions / upsample, next tokens."""
    network, read = make_network(kind, dropout=0.4).train(), list[tuple[Canvas, Prediction]]()
    forward = network.forward

    def record(ids: Tensor, canvas: Canvas, mask: Tensor | None) -> Prediction:
        read.append((canvas, forward(ids, canvas, mask)))
        return read[-1][1]

    monkeypatch.setattr(network, "forward", record)
    losses = []
    for rate in (1.0, 3.0):
        torch.manual_seed(4)
        losses.append(float(ParallelLoss(network, network, 0.1, rate)(*INPUTS).detach()))
    canvas, prediction = read[-1]
    if kind == "masked":
        inside, weight, log_probs = ~canvas.given & canvas.mask, 2.0, prediction.logits.log_softmax(-1)
    elif kind == "ctc":
        said = [token for token in range(prediction.logits.size(-1)) if token not in (BOS, EOS)]
        inside, weight, log_probs = canvas.mask, 1 / network.upsample, prediction.logits[..., said].log_softmax(-1)
    else:
        search = GraphNetwork(network)
        monkeypatch.setattr(network, "predict", lambda *_: prediction)
        sources, mask = (None if each is None else each.repeat(2, 1) for each in (BOTH.source_ids, BOTH.source_mask))
        inputs = torch.nn.functional.pad(BOTH.labels[:, :-1], (1, 0), value=BOS).repeat(2, 1)
        scores, _ = search.step(inputs, search.start(search.encode(sources, mask)))
        inside, weight, log_probs = (BOTH.labels != PAD).repeat(2, 1), 1.0, scores
    first, second = log_probs.detach().chunk(2)
    terms = torch.where(first > float("-inf"), (first.exp() - second.exp()) * (first - second), 0)
    expected = weight * float(terms.sum(-1)[inside.chunk(2)[0]].sum()) / 2
    assert expected > 0.01
    assert losses[1] - losses[0] == pytest.approx(expected, rel=1e-4)  # (3 - 1) / 2 times the divergence


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_all_weights_learn_in_bf16(kind: str) -> None:
    """Autocast caches converted weights. Those of the first pass, which has no gradient, must not be used again."""
    network = make_network(kind)
    loss = make_loss(network)
    loss.glancing.fill_(0.5)
    with torch.autocast("cpu", torch.bfloat16):
        value = loss(*INPUTS)
    value.backward()
    without = [name for name, each in network.named_parameters() if each.grad is None or not each.grad.any()]
    assert without == []


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_a_copied_canvas_does_not_depend_on_the_batch(kind: str) -> None:
    network = make_network(kind, canvas="copy").eval()
    batch = collate([Example([5], [6]), Example([5, 6, 7, 8, 9, 10, 11, 12, 13], [5, 6])])
    alone = collate([Example([5], [6])])
    together = sentence_losses(network, batch.source_ids, batch.source_mask, batch.labels)
    expected = sentence_losses(network, alone.source_ids, alone.source_mask, alone.labels)
    torch.testing.assert_close(together[:1], expected)


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_a_target_that_does_not_fit_changes_nothing(kind: str) -> None:
    network = make_network(kind)
    long = collate([Example([5], [6, 7] * 20)])
    loss = make_loss(network)(long.source_ids, long.source_mask, long.labels)
    loss.backward()
    assert float(loss.detach()) == 0
    assert not any(weight.grad is not None and weight.grad.any() for weight in network.parameters())


def test_the_loss_of_ngrams_is_the_sum_of_sentences_without_glancing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass, which sees only MASK. The score of a sentence counts as often as its target has tokens, with EOS."""
    network, read = make_network("graph"), list[Canvas]()
    forward = network.forward
    monkeypatch.setattr(network, "forward", lambda ids, canvas, mask: read.append(canvas) or forward(ids, canvas, mask))
    loss = make_loss(network, objective="ngrams")
    loss.glancing.fill_(1.0)
    found = loss(*INPUTS)
    (canvas,), targets = read, Targets.from_labels(BOTH.labels)
    assert not canvas.given.any()
    prediction, expected = forward(BOTH.source_ids, canvas, BOTH.source_mask), 0.0
    said = prediction.logits.index_fill(-1, torch.tensor([PAD, BOS, EOS]), NEVER).log_softmax(-1)
    for row, (count, size) in enumerate(zip(targets.lengths.tolist(), canvas.lengths.tolist(), strict=True)):
        assert prediction.links is not None
        ids = targets.ids[row, :count]
        emissions, links = said[row, :size, ids].T[None], prediction.links[row, None, :size, :size]
        score = bigram_score(emissions, links, ids[None], torch.tensor([count]), torch.tensor([size]))
        expected -= (count + 1) * float(score.detach())
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)
    assert -BOTH.tokens < expected < 0


def test_the_loss_of_ngrams_of_a_sure_graph_is_minus_the_number_of_tokens() -> None:
    targets = Targets.from_labels(torch.tensor([[5, 6, EOS], [7, EOS, PAD]]))
    logits, links = torch.full((2, 5, 9), NEVER), torch.full((2, 5, 5), NEVER)
    logits[..., 4] = 0.0
    for row, path in enumerate(([0, 1, 3, 4], [0, 2, 3])):
        links[row, path[:-1], path[1:]] = 0.0
        for vertex, token in zip(path[1:-1], targets.ids[row].tolist(), strict=False):
            logits[row, vertex] = torch.full((9,), NEVER).index_fill(0, torch.tensor(token), 0.0)
    canvas = Canvas(
        torch.zeros(2, 5).long(), torch.zeros(2, 5).bool(), torch.tensor([[True] * 5, [True] * 4 + [False]])
    )
    losses = negative_bigram_score(Prediction(logits, links), canvas, targets)
    assert losses.tolist() == [-3, -2]


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_all_weights_learn_from_ngrams(precision: str) -> None:
    network = make_network("graph")
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
        value = make_loss(network, objective="ngrams")(*INPUTS)
    value.backward()
    without = [name for name, each in network.named_parameters() if each.grad is None or not each.grad.any()]
    assert without == []
    assert all(bool(each.grad.isfinite().all()) for each in network.parameters() if each.grad is not None)


def test_ngrams_have_no_loss_without_labels_and_for_targets_that_do_not_fit() -> None:
    long, idle = collate([Example([5], [6, 7] * 20)]), BOTH.shard(rank=5, world_size=6)
    for batch in (long, idle):
        network = make_network("graph")
        loss = make_loss(network, objective="ngrams")(batch.source_ids, batch.source_mask, batch.labels)
        loss.backward()
        assert float(loss.detach()) == 0
        assert not any(weight.grad is not None and weight.grad.any() for weight in network.parameters())


def test_the_longest_target_of_a_graph_has_a_loss_of_ngrams() -> None:
    """It has a token at every inner vertex. A longer one has no loss."""
    network, losses = make_network("graph"), []
    (size,) = network.empty_canvas(torch.tensor([[5, EOS]]), None).lengths.tolist()
    for count in (size - 2, size - 1):
        batch = collate([Example([5], [6, 7] * (size // 2) + [6])])
        labels = torch.cat((batch.labels[:, :count], torch.tensor([[EOS]])), 1)
        losses.append(float(make_loss(network, objective="ngrams")(batch.source_ids, None, labels).detach()))
    assert losses[0] < 0
    assert losses[1] == 0


@pytest.mark.parametrize("kind", ["ctc", "graph"])
def test_r_drop_ignores_a_target_that_does_not_fit(kind: str) -> None:
    batch = collate([Example([5], [6, 7] * 20)])
    network = make_network(kind, dropout=0.5)
    loss = ParallelLoss(network, network, 0.0, r_drop=1.0)(batch.source_ids, batch.source_mask, batch.labels)
    loss.backward()
    assert float(loss.detach()) == 0
    assert all(weight.grad is None or not weight.grad.any() for weight in network.parameters())


def measure_precision(network: ParallelTransformer, batch: Any) -> float:
    """Expected bigram precision, mean over sentences."""
    targets, canvas = Targets.from_labels(batch.labels), network.empty_canvas(batch.source_ids, batch.source_mask)
    with torch.no_grad():
        prediction = network(batch.source_ids, canvas, batch.source_mask)
    said = prediction.logits.index_fill(-1, torch.tensor([PAD, BOS, EOS]), NEVER).log_softmax(-1)
    emissions = said.gather(2, targets.ids[:, None].expand(-1, said.size(1), -1)).transpose(1, 2)
    matched, bigrams = match_bigrams(emissions, prediction.links, targets.ids, targets.lengths, canvas.lengths)
    return float((matched / bigrams).mean())


@pytest.mark.parametrize(
    ("option", "value"), [("r_drop", 1.0), ("glancing", 0.3), ("glancing_end", 0.2), ("glancing_until", 0.5)]
)
def test_settings_that_ngrams_do_not_use_are_rejected(option: str, value: float) -> None:
    rejected = has_code("objective_setting_conflict", option=option, value=value, objective="ngrams")
    with pytest.raises(UsageError, check=rejected):
        TrainConfig(objective="ngrams", **{option: value})
    TrainConfig(objective="ngrams", r_drop=0.0, glancing=0.0, glancing_end=0.0)


@pytest.mark.slow
def test_ngrams_raise_the_bigram_precision_of_a_graph_that_has_learned_a_little() -> None:
    draw = random.Random(0)

    def draw_batch(size: int) -> Any:
        sources = [draw.sample(range(4, 12), draw.randrange(1, 5)) for _ in range(size)]
        return collate([Example(each, each) for each in sources])

    network, held_out = make_network("graph", d_model=32, d_ff=64), draw_batch(64)
    precision = [measure_precision(network, held_out)]
    for objective, steps, rate in (("likelihood", 60, 5e-3), ("ngrams", 60, 1e-3)):
        updater = Updater(network, TrainConfig(steps=steps, peak_lr=rate, warmup=20, objective=objective))
        updates = [updater.update([draw_batch(32)]) for _ in range(steps)]
        precision.append(measure_precision(network.eval(), held_out))
    assert all(-1 <= float(each.loss) / each.tokens < 0 and not each.skipped for each in updates)
    assert precision[0] < 0.1 < precision[1] < precision[2] - 0.05


def train_on(kind: str, sources: list[list[int]], make_target: Any, steps: int, **settings: Any) -> ParallelTransformer:
    """Train a small network on 32 sources per step, in a cycle."""
    network = make_network(kind, d_model=32, d_ff=64, **settings)
    config = TrainConfig(steps=steps, peak_lr=5e-3, warmup=50, label_smoothing=0.0, ema=0.98)
    updater, endless = Updater(network, config), itertools.cycle(sources)
    for _ in range(steps):
        some = [next(endless) for _ in range(32)]
        updater.update([collate([Example(each, make_target(each)) for each in some])])
    updater.finalize()
    return network.eval()


def decode(network: ParallelTransformer, sources: list[list[int]]) -> list[list[int]]:
    requests = [DecodeRequest(number, tuple(source), 40) for number, source in enumerate(sources)]
    engine = ParallelEngine(network, GenerationConfig(passes=4, length_candidates=2), 4096)
    batches = engine.generate(requests, Greedy(), (SuppressTokens(),))
    found: dict[int, Tensor] = {each.request_id: rows.ids[0] for batch in batches for each, rows in batch.split()}
    return [[t for t in found[number].tolist() if t not in (PAD, BOS, EOS)] for number in range(len(sources))]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
def test_every_kind_learns_to_copy(kind: str) -> None:
    draw, steps = random.Random(0), 600
    sources = [draw.sample(range(4, 10), draw.randrange(1, 5)) for _ in range(steps * 32 + 50)]
    network = train_on(kind, sources, lambda source: source, steps)
    new = sources[-50:]
    assert sum(one == other for one, other in zip(decode(network, new), new, strict=True)) >= 48
