"""Dropout is applied once at each position (E15), and never to reported attention weights (E16)."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues, explicit_attention, fused_attention
from attendo.nn.masks import Mask

MakeNetwork = Callable[..., Transformer]
RATE = 0.3
SAMPLES = torch.zeros(8, 50, 16)  # 6,400 values: one standard deviation of the share of zeros is 0.006


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)  # dropout uses torch's global generator


def test_E15_each_position_has_one_dropout(small_network: MakeNetwork) -> None:
    network = small_network(dropout=RATE, num_encoder_layers=3, num_decoder_layers=2)
    dropouts = [name for name, module in network.named_modules() if isinstance(module, nn.Dropout)]
    assert len(dropouts) == 2 + 3 * 3 + 2 * 4  # embeddings; two or three sub-layers and the activation of each block
    assert {network.get_submodule(name).p for name in dropouts} == {RATE}


@pytest.mark.parametrize("sublayer", ["self_attention.output", "cross_attention.output", "feed_forward.contract"])
@torch.no_grad()
def test_E15_the_output_of_a_sublayer_is_dropped_once(small_network: MakeNetwork, sublayer: str) -> None:
    # One sub-layer gives ones and the others give zeros, so that only its dropout is added to the input.
    block: Any = small_network(dropout=RATE).train().decoder[0]
    for name in ("self_attention.output", "cross_attention.output", "feed_forward.contract"):
        last = block.get_submodule(name)
        last.weight.zero_()
        last.bias.fill_(float(name == sublayer))
    memory = block.cross_attention.keys_values(SAMPLES)
    output, _ = block(SAMPLES, None, Mask(causal=True), memory, Mask())
    _assert_dropped_once(output)


@torch.no_grad()
def test_E15_the_embedding_is_dropped_once(small_network: MakeNetwork) -> None:
    embed = small_network(dropout=RATE, positions="none", scale_embedding=False).train().target
    embed.tokens.weight.fill_(1.0)
    _assert_dropped_once(embed(torch.zeros(8, 50, dtype=torch.long), 0))


@torch.no_grad()
def test_E15_the_feed_forward_network_drops_after_the_activation_only(small_network: MakeNetwork) -> None:
    network = small_network(dropout=0.0, activation_dropout=RATE, d_ff=16).train()
    feed_forward: Any = network.encoder[0].get_submodule("feed_forward")
    feed_forward.expand.weight.zero_()
    feed_forward.expand.bias.fill_(1.0)
    feed_forward.contract.weight.copy_(torch.eye(16))
    feed_forward.contract.bias.zero_()
    _assert_dropped_once(feed_forward(SAMPLES))
    feed_forward.contract.weight.zero_()
    feed_forward.contract.bias.fill_(1.0)
    assert torch.equal(feed_forward(SAMPLES), torch.ones_like(SAMPLES))


@pytest.mark.parametrize("path", [fused_attention, explicit_attention])
def test_E15_attention_weights_are_dropped_once(path: Callable[..., Tensor | tuple[Tensor, Tensor]]) -> None:
    alike, units = torch.zeros(4, 2, 40, 8), 40 * torch.eye(40).expand(4, 2, 40, 40)
    mixed = path(alike, KeysValues(alike, units), Mask(), RATE)
    _assert_dropped_once(mixed if isinstance(mixed, Tensor) else mixed[0])


def test_E15_each_rate_can_be_set_alone() -> None:
    config = ModelConfig(vocab_size=5, d_model=16, dropout=0.4, attention_dropout=0.0, activation_dropout=0.2)
    network: Any = Transformer(config)
    assert network.encoder[0].self_attention.dropout == 0.0
    assert network.encoder[0].feed_forward.dropout.p == 0.2
    assert network.encoder[0].self_residual.dropout.p == network.target.dropout.p == 0.4
    assert Transformer(config.replace(attention_dropout=None)).encoder[0].get_submodule("self_attention").dropout == 0.4


@torch.no_grad()
def test_E15_nothing_is_dropped_in_evaluation(small_network: MakeNetwork) -> None:
    ids = torch.tensor([[1, 2, 3]])
    with_rate, without = small_network(dropout=0.5), small_network(dropout=0.0)
    assert torch.equal(with_rate(ids, ids), without(ids, ids))
    assert not torch.equal(with_rate.train()(ids, ids), with_rate(ids, ids))


@torch.no_grad()
def test_E16_reported_weights_are_before_dropout(small_network: MakeNetwork) -> None:
    network = small_network(attention_dropout=0.5).train()
    weights_by_site: dict[str, Tensor] = {}
    ids = torch.tensor([[1, 2, 3, 4, 5, 6]])
    network(ids, ids, tap=weights_by_site.__setitem__)
    assert weights_by_site
    for weights in weights_by_site.values():
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


def _assert_dropped_once(values: Tensor) -> None:
    """Ones after one dropout: a share RATE of them is 0, the others are 1 / (1 - RATE)."""
    assert abs((values == 0).float().mean().item() - RATE) < 0.03
    torch.testing.assert_close(values[values != 0], torch.full_like(values[values != 0], 1 / (1 - RATE)))
