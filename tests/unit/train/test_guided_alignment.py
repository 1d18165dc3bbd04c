"""Guided alignment: the loss of a head, its part in an update, what it leaves alone, and its validation."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from error_codes import has_code
from learning import BATCH, OTHER, config, make_updater
from tiny import SOURCES, TARGETS, tiny_model

from attendo.data.batch import Batch
from attendo.data.token_links import TokenLinker
from attendo.errors import UsageError
from attendo.metrics.alignment_error import LinkCounts
from attendo.model.config import ModelConfig
from attendo.nn.attention import SiteTap
from attendo.text_model.inputs import encode_symbols
from attendo.train.config import TrainConfig, check_guided_alignment, supports_guided_alignment
from attendo.train.guided_alignment import (
    AlignmentValidation,
    GuidedAlignment,
    alignment_loss,
    guided_head,
    guided_head_entry,
    keep_guided_head,
)
from attendo.train.update import Updater


def with_links(batch: Batch, seed: int = 0) -> Batch:
    """Random links between tokens. Padding has none."""
    shape = (*batch.labels.shape, batch.source_ids.size(1))
    links = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.4
    links &= (batch.labels != 0)[:, :, None]
    if batch.source_mask is not None:
        links &= batch.source_mask[:, None]
    return replace(batch, links=links)


def attention(updater: Updater, batch: Batch, site: str, head: int) -> torch.Tensor:
    found: dict[str, torch.Tensor] = {}
    updater.network.eval()

    def tap(at: str, weights: torch.Tensor) -> None:
        found[at] = weights

    updater.network(batch.source_ids, batch.target_ids, batch.source_mask, tap=tap)
    return found[site][:, head]


def brute_force(weights: torch.Tensor, links: torch.Tensor) -> float:
    total = 0.0
    for row in range(links.size(0)):
        for t in range(links.size(1)):
            gold = [s for s in range(links.size(2)) if links[row, t, s]]
            total -= sum(math.log(float(weights[row, t, s])) for s in gold) / max(1, len(gold))
    return total


def test_the_loss_is_the_cross_entropy_of_uniform_links() -> None:
    weights = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(1)).softmax(-1)
    links = torch.rand(2, 3, 4, generator=torch.Generator().manual_seed(2)) < 0.5
    links[0, 1] = False
    assert float(alignment_loss(weights, links)) == pytest.approx(brute_force(weights, links), rel=1e-6)
    assert float(alignment_loss(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2, dtype=torch.bool))) == 0


def test_a_weight_of_zero_has_finite_gradients() -> None:
    scores = torch.tensor([[[0.0, -300.0]]], requires_grad=True)
    alignment_loss(scores.softmax(-1), torch.tensor([[[False, True]]])).backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()


def test_an_update_adds_the_weighted_loss_of_one_head() -> None:
    settings = config(guided_alignment=0.5)
    guided, plain = make_updater(settings), make_updater(settings)
    batch = with_links(BATCH)
    assert batch.links is not None
    expected = brute_force(attention(plain, BATCH, "decoder.0.cross", 0).detach(), batch.links)
    update, without = guided.update([batch]), plain.update([BATCH])
    assert without.alignment_loss is None
    assert update.alignment_loss is not None
    assert float(update.alignment_loss) == pytest.approx(expected, rel=1e-5)
    assert float(update.loss) == pytest.approx(float(without.loss) + 0.5 * expected, rel=1e-5)
    assert float(update.norm) != pytest.approx(float(without.norm), rel=1e-3)


def test_weight_zero_ignores_the_links() -> None:
    one, other = make_updater(config(guided_alignment=0)), make_updater(config())
    assert torch.equal(one.update([with_links(BATCH)]).loss, other.update([BATCH]).loss)


def test_both_passes_of_r_drop_count_half() -> None:
    """Without dropout both passes are equal, and so is the loss of the alignment."""
    batch = with_links(BATCH)
    passes: list[dict[str, Any]] = [{}, {"r_drop": 1.0}]
    losses = [make_updater(config(guided_alignment=0.5, **each)).update([batch]).alignment_loss for each in passes]
    assert losses[0] is not None
    assert losses[1] is not None
    assert float(losses[0]) == pytest.approx(float(losses[1]), rel=1e-5)


def test_accumulated_batches_and_idle_processes_add_up() -> None:
    batches = [with_links(BATCH), with_links(OTHER)]
    sums = [make_updater(config(guided_alignment=0.5)).update([each]).alignment_loss for each in batches]
    both = make_updater(config(guided_alignment=0.5)).update(batches).alignment_loss
    assert both is not None
    assert float(both) == pytest.approx(sum(float(each) for each in sums if each is not None), rel=1e-5)
    idle = batches[0].shard(rank=99, world_size=100)
    assert idle.links is not None
    assert not idle.links.any()


def test_only_the_guided_layer_reports_its_weights() -> None:
    updater, sites = make_updater(config()), list[str]()
    updater.network.eval()

    def tap(site: str, weights: torch.Tensor) -> None:
        sites.append(site)

    one = updater.network(BATCH.source_ids, BATCH.target_ids, BATCH.source_mask)
    other = updater.network(BATCH.source_ids, BATCH.target_ids, BATCH.source_mask, tap=SiteTap("decoder.0.cross", tap))
    assert sites == ["decoder.0.cross"]
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_training_makes_the_head_follow_the_links() -> None:
    updater = make_updater(config(guided_alignment=1.0, peak_lr=1e-2, warmup=1, steps=60))
    batch = with_links(BATCH, seed=3)
    losses = [float(updater.update([batch]).alignment_loss or 0) for _ in range(60)]
    assert batch.links is not None
    entropy = sum(math.log(count) for count in batch.links.sum(-1).flatten().tolist() if count)  # the least possible
    assert losses[-1] - entropy < 0.5 * (losses[0] - entropy)


NETWORK: dict[str, Any] = {"vocab_size": 17, "d_model": 16, "num_heads": 2, "d_ff": 24, "num_decoder_layers": 6}


@pytest.mark.parametrize(
    ("network", "train", "code"),
    [
        ({"kind": "ctc"}, {}, "guided_alignment_needs_cross_attention"),
        ({"num_encoder_layers": 0}, {}, "guided_alignment_needs_cross_attention"),
        ({"num_encoder_layers": 0, "prefix_lm": True}, {}, "guided_alignment_needs_cross_attention"),
        ({}, {"objective": "mrt", "label_smoothing": 0}, "guided_alignment_needs_likelihood"),
        ({}, {"compile": "blocks"}, "guided_alignment_with_compiled_blocks"),
        ({}, {"guided_alignment_layer": 6}, "guided_alignment_layer_not_found"),
    ],
)
def test_networks_and_settings_without_guidance_are_refused(
    network: dict[str, Any], train: dict[str, Any], code: str
) -> None:
    sizes, settings = ModelConfig(**{**NETWORK, **network}), TrainConfig(**train)
    with pytest.raises(UsageError, check=has_code(code)):
        check_guided_alignment(sizes, settings)
    assert not supports_guided_alignment(sizes, settings)
    check_guided_alignment(sizes, settings.replace(guided_alignment=0.0))


def test_the_head_is_the_first_of_the_last_layer_but_one() -> None:
    entry = guided_head_entry(ModelConfig(**NETWORK), TrainConfig())
    assert entry == {"alignment_head": {"layer": 4, "head": 0, "guided": True}}
    sizes = [ModelConfig(**{**NETWORK, "num_decoder_layers": layers}) for layers in (1, 2, 3)]
    assert [guided_head(each, TrainConfig()).layer for each in sizes] == [0, 1, 1]
    assert keep_guided_head({"step": 3, **entry}) == entry
    assert keep_guided_head({"alignment_head": {"layer": 0, "head": 1}}) == {}


def test_validation_counts_links_of_words() -> None:
    model = tiny_model(num_decoder_layers=2)
    train = TrainConfig(guided_alignment_layer=1)
    guided = GuidedAlignment(model.network, train)
    source, target = model.source_tokenizer, model.target_tokenizer
    symbols = encode_symbols(model.generation, source, target)
    pairs = [(source.encode(one), target.encode(other)) for one, other in zip(SOURCES, TARGETS, strict=True)]
    gold = [frozenset({(0, 0), (1, 2)}) for _ in pairs]
    found = AlignmentValidation(pairs, gold, TokenLinker.of(source, target), symbols, 64).measure(model.network, guided)
    total = LinkCounts()
    for one, other, links in zip(SOURCES, TARGETS, gold, strict=True):
        weights = model.trace(one, other).cross[1, 0][: len(target.encode(other))]
        best = [(int(row.argmax()), t) for t, row in enumerate(weights)]
        total += LinkCounts.from_links({link for link in best if link[0] < weights.size(1) - 1}, links)
    assert found["aer"] == pytest.approx(total.error_rate)
    assert np.isfinite(found["alignment_loss"])
