"""The worked examples of the study texts. Ids are those of the specification."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues, MultiHeadAttention, explicit_attention, fused_attention
from attendo.nn.masks import Mask, causal_mask, padding_mask
from attendo.nn.positions import SinusoidalPositions

INFINITY = math.inf
SCORES = torch.tensor(
    [
        [2.1, 3.5, 1.8, 2.9],
        [1.2, 4.3, 2.1, 3.7],
        [0.8, 1.5, 3.2, 2.4],
        [2.3, 1.9, 2.7, 4.1],
    ]
)


@pytest.fixture(scope="module")
def base() -> Transformer:
    """One encoder and one decoder layer of the paper's base size."""
    return Transformer(ModelConfig(vocab_size=10, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)).eval()


@torch.no_grad()
def test_O1_base_decoder_layer_has_the_expected_shapes(base: Transformer) -> None:
    block: Any = base.decoder[0]
    target, memory = torch.randn(2, 10, 512), torch.randn(2, 15, 512)
    seen: dict[str, Tensor] = {}
    output, kv = block(
        target,
        None,
        causal_mask(0, 10, None, target.device),
        block.cross_attention.keys_values(memory),
        Mask(),
        tap=seen.__setitem__,
    )
    assert output.shape == (2, 10, 512)
    assert kv.keys.shape == (2, 8, 10, 64)
    assert seen["decoder.0.cross"].shape == (2, 8, 10, 15)
    assert seen["decoder.0.cross"].mean(1).shape == (2, 10, 15)


def test_O2_causal_mask_of_ten_masks_above_the_diagonal() -> None:
    hidden = _additive(10)
    assert torch.equal(hidden, torch.full((10, 10), -INFINITY).triu(1))
    assert hidden[0].tolist() == [0.0] + [-INFINITY] * 9
    assert hidden[9].tolist() == [0.0] * 10


def test_O3_causal_mask_of_four() -> None:
    assert _additive(4).tolist() == [
        [0, -INFINITY, -INFINITY, -INFINITY],
        [0, 0, -INFINITY, -INFINITY],
        [0, 0, 0, -INFINITY],
        [0, 0, 0, 0],
    ]


def test_O4_masked_scores() -> None:
    expected = torch.tensor(
        [
            [2.1, -INFINITY, -INFINITY, -INFINITY],
            [1.2, 4.3, -INFINITY, -INFINITY],
            [0.8, 1.5, 3.2, -INFINITY],
            [2.3, 1.9, 2.7, 4.1],
        ]
    )
    assert torch.equal(SCORES + _additive(4), expected)


def test_O4_E40_softmax_of_the_masked_scores() -> None:
    expected = torch.tensor(
        [
            [1.0, 0.0, 0.0, 0.0],
            [0.0431, 0.9569, 0.0, 0.0],
            [0.0712, 0.1435, 0.7853, 0.0],
            [0.1086, 0.0728, 0.1619, 0.6567],
        ]
    )
    # With unit vectors as keys, scores are the queries divided by √4. With them as values, the output is the weights.
    queries, units = 2 * SCORES[None, None], torch.eye(4)[None, None]
    mixed, weights = explicit_attention(queries, KeysValues(units, units), Mask(causal=True))
    fused = fused_attention(queries, KeysValues(units, units), Mask(causal=True))
    for rows in (weights, mixed, fused):
        torch.testing.assert_close(rows[0, 0], expected, atol=5e-5, rtol=0)


def test_O7_angles_are_positions_times_frequencies() -> None:
    a, b, c = 1.0, 10_000 ** (-2 / 6), 10_000 ** (-4 / 6)
    angles = torch.tensor(
        [
            [0 * a, 0 * b, 0 * c],
            [1 * a, 1 * b, 1 * c],
            [2 * a, 2 * b, 2 * c],
            [3 * a, 3 * b, 3 * c],
            [4 * a, 4 * b, 4 * c],
        ]
    )
    vectors = SinusoidalPositions().add(torch.zeros(1, 5, 6), 0)[0]
    torch.testing.assert_close(vectors[:, 0::2], angles.sin())
    torch.testing.assert_close(vectors[:, 1::2], angles.cos())


@torch.no_grad()
def test_O8_eight_heads_of_64_are_concatenated_to_512(base: Transformer) -> None:
    attention: Any = base.encoder[0].self_attention
    x = torch.randn(1, 3, 512)
    queries, kv = attention.queries_keys_values(x)
    heads = fused_attention(queries, kv, Mask())
    assert heads[:, 0].shape == (1, 3, 64)
    joined = torch.cat([heads[:, n] for n in range(8)], dim=-1)
    assert joined.shape == (1, 3, 512)
    output = attention(queries, kv, Mask())
    assert output.shape == (1, 3, 512)
    torch.testing.assert_close(output, attention.output(joined))


def test_O9_two_masks_broadcast_from_the_right() -> None:
    assert torch.broadcast_shapes((1, 2, 3), (3, 2, 1)) == (3, 2, 3)
    is_token = torch.ones(3, 2, dtype=torch.bool)
    visible = causal_mask(0, 2, is_token, is_token.device).visible
    assert visible is not None
    assert visible.shape == (3, 1, 2, 2)  # [1, 1, 2, 2] of the causal mask and [3, 1, 1, 2] of the padding mask


def test_O10_weights_of_each_row_sum_to_one() -> None:
    queries, units = 2 * SCORES[None, None], torch.eye(4)[None, None]
    _, weights = explicit_attention(queries, KeysValues(units, units), Mask(causal=True))
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1, 4))
    assert not weights.triu(1).any()


def test_O11_parameters_of_the_base_size(base: Transformer) -> None:
    encoder, decoder = base.encoder[0], base.decoder[0]
    assert _count(encoder.get_submodule("self_attention")) == 1_050_624
    assert _count(encoder.get_submodule("feed_forward")) == 2_099_712
    assert _count(encoder.get_submodule("self_residual")) == 1_024
    assert _count(encoder) == 3_152_384
    assert _count(decoder) == 4_204_032


def test_O11_E38_parameters_of_cross_attention_by_part(base: Transformer) -> None:
    cross: Any = base.decoder[0].cross_attention
    assert isinstance(cross, MultiHeadAttention)
    queries = cross.project.weight[:512].numel() + cross.project.bias[:512].numel()
    assert queries == 262_656
    assert _count(cross.project) - queries == 525_312
    assert _count(cross.output) == 262_656


def test_O12_output_is_the_weighted_sum_of_values() -> None:
    values = torch.tensor([[1.0, 0.0, 2.0], [0.0, 10.0, 4.0], [5.0, 5.0, 6.0]])  # The, cat, sat
    scores = torch.tensor([0.1, 0.8, 0.1]).log()
    queries, kv = (scores * math.sqrt(3))[None, None, None], KeysValues(torch.eye(3)[None, None], values[None, None])
    mixed, weights = explicit_attention(queries, kv, padding_mask(None))
    torch.testing.assert_close(weights[0, 0, 0], torch.tensor([0.1, 0.8, 0.1]))
    torch.testing.assert_close(mixed[0, 0, 0], 0.1 * values[0] + 0.8 * values[1] + 0.1 * values[2])
    torch.testing.assert_close(fused_attention(queries, kv, padding_mask(None)), mixed)


def _additive(size: int) -> Tensor:
    """The causal mask as printed in the texts: 0 for visible positions, minus infinity elsewhere."""
    visible = Mask(causal=True).matrix(size, size, torch.device("cpu"))
    assert visible is not None
    return torch.zeros(size, size).masked_fill(~visible[0, 0], -INFINITY)


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
