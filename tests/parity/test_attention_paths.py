"""Three computations of attention agree: fused, by the formula, and one head at a time."""

import math

import pytest
import torch
from torch import Tensor

from attendo.nn.attention import KeysValues, MultiHeadAttention, explicit_attention, fused_attention
from attendo.nn.masks import Mask, causal_mask, padding_mask

BATCH, HEADS, KEYS = 3, 2, 6
IS_TOKEN = torch.tensor([[True] * 6, [True] * 4 + [False] * 2, [False, False, True, True, True, True]])
CPU = torch.device("cpu")

MASKS = {
    "none": (Mask(), 4),
    "causal": (causal_mask(0, 6, None, CPU), 6),
    "padding": (padding_mask(IS_TOKEN), 4),
    "causal and padding": (causal_mask(0, 6, IS_TOKEN, CPU), 6),
    "two columns after a past": (causal_mask(4, 2, None, CPU), 2),
    "two columns after a padded past": (causal_mask(4, 2, IS_TOKEN, CPU), 2),
    "one column after a past": (causal_mask(5, 1, None, CPU), 1),
    "one column after a padded past": (causal_mask(5, 1, IS_TOKEN, CPU), 1),
}


BIAS = torch.randn(1, HEADS, KEYS, KEYS, generator=torch.Generator().manual_seed(1))
MASKS |= {
    f"{name}, bias": (mask.with_bias(BIAS[:, :, :queries]), queries) for name, (mask, queries) in [*MASKS.items()]
}


@pytest.mark.parametrize("scale", [None, 1.0])
@pytest.mark.parametrize("d_value", [8, 5])
@pytest.mark.parametrize("name", MASKS)
def test_fused_equals_explicit_in_outputs_and_gradients(name: str, d_value: int, scale: float | None) -> None:
    mask, queries = MASKS[name]
    results = []
    for path in (fused_attention, explicit_attention):
        q, k, v = _heads(queries, d_value)
        mixed = path(q, KeysValues(k, v), mask, scale=scale)
        mixed = mixed if isinstance(mixed, Tensor) else mixed[0]
        (mixed * torch.linspace(-1, 1, mixed.numel()).view_as(mixed)).sum().backward()
        results.append((mixed, q.grad, k.grad, v.grad))
    for fused, explicit in zip(*results, strict=True):
        assert fused is not None
        torch.testing.assert_close(fused, explicit, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("widths", [(4, 4), (3, 7), (6, 1)], ids=["equal", "wide values", "narrow values"])
@pytest.mark.parametrize("tapped", [False, True])
def test_one_head_at_a_time_equals_all_at_once(widths: tuple[int, int], tapped: bool) -> None:
    d_key, d_value = widths
    attention = _attention(num_heads=3, d_key=d_key, d_value=d_value)
    x, memory = _vectors(5), _vectors(6)

    ours = attention(
        attention.queries(x), attention.keys_values(memory), padding_mask(IS_TOKEN), _ignore if tapped else None
    )

    torch.testing.assert_close(ours, _by_single_heads(attention, x, memory, IS_TOKEN), atol=1e-5, rtol=1e-5)


def test_self_and_cross_attention_project_alike() -> None:
    attention = _attention(num_heads=3, d_key=4, d_value=5)
    x = _vectors(6)
    queries, kv = attention.queries_keys_values(x)
    torch.testing.assert_close(queries, attention.queries(x))
    torch.testing.assert_close(kv.keys, attention.keys_values(x).keys)
    torch.testing.assert_close(kv.values, attention.keys_values(x).values)


def _by_single_heads(attention: MultiHeadAttention, x: Tensor, memory: Tensor, is_token: Tensor) -> Tensor:
    """Concat(head_1 ... head_h) W^O with head_i = softmax(x W_i^Q (memory W_i^K)ᵀ / √d_k) memory W_i^V, by sentence."""
    heads, d_key, d_value = attention.num_heads, attention.d_key, attention.d_value
    all_weights, all_biases = attention.project.weight, attention.project.bias
    sentences = []
    for row in range(x.size(0)):
        visible = is_token[row].nonzero().squeeze(1)
        outputs = []
        for head in range(heads):
            first_key, first_value = heads * d_key + head * d_key, 2 * heads * d_key + head * d_value
            q, k, v = (
                vectors @ all_weights[start : start + width].T + all_biases[start : start + width]
                for vectors, start, width in (
                    (x[row], head * d_key, d_key),
                    (memory[row, visible], first_key, d_key),
                    (memory[row, visible], first_value, d_value),
                )
            )
            outputs.append((q @ k.T / math.sqrt(d_key)).softmax(dim=1) @ v)
        sentences.append(torch.cat(outputs, dim=1) @ attention.output.weight.T + attention.output.bias)
    return torch.stack(sentences)


def _attention(num_heads: int, d_key: int, d_value: int) -> MultiHeadAttention:
    attention = MultiHeadAttention(12, num_heads, d_key=d_key, d_value=d_value)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 3)
    return attention


def _vectors(length: int) -> Tensor:
    return torch.randn(BATCH, length, 12, generator=torch.Generator().manual_seed(length))


def _heads(queries: int, d_value: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    shapes = ((queries, 8), (KEYS, 8), (KEYS, d_value))
    q, k, v = (torch.randn(BATCH, HEADS, *shape, generator=generator).requires_grad_() for shape in shapes)
    return q, k, v


def _ignore(site: str, weights: Tensor) -> None:
    assert site == "attention"
