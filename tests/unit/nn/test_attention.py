"""KeysValues is immutable, and the shapes of multi-head attention."""

from dataclasses import FrozenInstanceError

import pytest
import torch
from error_codes import has_code
from torch import Tensor

from attendo.errors import UsageError
from attendo.nn.attention import (
    KeysValues,
    MultiHeadAttention,
    explicit_attention,
    fused_attention,
    zero_fully_masked,
)
from attendo.nn.masks import Mask
from attendo.nn.positions import RotaryPositions


def _keys_values(length: int, first: int = 0) -> KeysValues:
    """Numbers that encode their row and position."""
    rows, positions = torch.arange(3.0)[:, None, None, None], torch.arange(first, first + length)[None, None, :, None]
    keys = (100 * rows + positions).expand(3, 2, length, 4)
    return KeysValues(keys, -keys[..., :3])


def test_extend_appends_later_positions() -> None:
    longer = _keys_values(2).extend(_keys_values(3, first=2))
    assert longer.length == 5
    assert torch.equal(longer.keys, _keys_values(5).keys)
    assert torch.equal(longer.values, _keys_values(5).values)


def test_select_takes_rows_in_any_order_and_repeatedly() -> None:
    selected = _keys_values(2).select(torch.tensor([2, 0, 2, 1]))
    assert selected.keys[:, 0, 0, 0].tolist() == [200, 0, 200, 100]
    assert selected.values[:, 1, 1, 2].tolist() == [-201, -1, -201, -101]


def test_extend_and_select_do_not_change_the_original() -> None:
    kv = _keys_values(2)
    kv.extend(_keys_values(1, first=2))
    kv.select(torch.tensor([1]))
    assert torch.equal(kv.keys, _keys_values(2).keys)
    with pytest.raises(FrozenInstanceError):
        kv.keys = kv.values  # type: ignore[misc]


def test_heads_are_split_from_the_last_axis() -> None:
    attention = MultiHeadAttention(12, 3)
    x = torch.randn(2, 5, 12)
    queries, kv = attention.queries_keys_values(x)
    assert queries.shape == kv.keys.shape == kv.values.shape == (2, 3, 5, 4)
    projected = attention.project(x)
    torch.testing.assert_close(queries[:, 1], projected[..., 4:8])
    torch.testing.assert_close(kv.keys[:, 2], projected[..., 20:24])
    torch.testing.assert_close(kv.values[:, 0], projected[..., 24:28])


def test_a_rotation_changes_queries_and_keys_only() -> None:
    attention, x = MultiHeadAttention(12, 3), torch.randn(1, 5, 12)
    queries, kv = attention.queries_keys_values(x)
    rotated_queries, rotated = attention.queries_keys_values(x, RotaryPositions(4).rotation(x, 1))
    assert (rotated_queries - queries).abs().max() > 1e-2
    assert (rotated.keys - kv.keys).abs().max() > 1e-2
    assert torch.equal(rotated.values, kv.values)


def test_a_tap_gets_the_site_once() -> None:
    attention = MultiHeadAttention(8, 2, site="decoder.3.cross")
    calls: list[tuple[str, torch.Size]] = []

    def tap(site: str, weights: Tensor) -> None:
        calls.append((site, weights.shape))

    attention(attention.queries(torch.randn(2, 3, 8)), attention.keys_values(torch.randn(2, 5, 8)), Mask(), tap)
    assert calls == [("decoder.3.cross", (2, 2, 3, 5))]


def test_d_model_must_be_divisible_by_num_heads() -> None:
    with pytest.raises(UsageError, check=has_code("d_model_not_divisible", d_model=500, num_heads=8)):
        MultiHeadAttention(500, 8)


def test_explicit_weights_of_equal_keys_are_equal() -> None:
    alike = torch.ones(1, 1, 4, 2)
    _, weights = explicit_attention(alike, KeysValues(alike, alike), Mask())
    torch.testing.assert_close(weights, torch.full((1, 1, 4, 4), 0.25))


def test_outputs_of_fully_masked_queries_become_zero() -> None:
    """In half precision the kernels of CUDA return the mean of the values."""
    visible = torch.tensor([[[[True, False], [False, False]]]])
    mixed = zero_fully_masked(torch.ones(1, 3, 2, 4), visible)
    assert torch.equal(mixed, torch.tensor([1.0, 0.0])[None, None, :, None].expand(1, 3, 2, 4))


def test_weights_returned_by_a_tap_are_used() -> None:
    attention = MultiHeadAttention(8, 2, site="here")
    queries, kv = attention.queries(torch.randn(2, 3, 8)), attention.keys_values(torch.randn(2, 5, 8))
    unchanged = attention(queries, kv, Mask(), lambda site, weights: None)
    torch.testing.assert_close(attention(queries, kv, Mask(), lambda site, weights: weights.clone()), unchanged)
    off = attention(queries, kv, Mask(), lambda site, weights: weights * 0)
    torch.testing.assert_close(off, attention.output.bias.expand(2, 3, 8))


def test_a_tap_changes_rows_with_shared_memory_separately() -> None:
    attention = MultiHeadAttention(8, 2)
    queries, kv = attention.queries(torch.randn(4, 1, 8)), attention.keys_values(torch.randn(2, 5, 8))
    keep = torch.tensor([1.0, 0.0, 1.0, 0.0])[:, None, None, None]
    mixed = attention(queries, kv, Mask(), lambda site, weights: weights * keep)
    torch.testing.assert_close(mixed[[1, 3]], attention.output.bias.expand(2, 1, 8))
    torch.testing.assert_close(mixed[[0, 2]], attention(queries, kv, Mask())[[0, 2]])


def test_a_tap_that_returns_another_shape_is_rejected() -> None:
    attention = MultiHeadAttention(8, 2, site="here")
    queries, kv = attention.queries(torch.randn(2, 3, 8)), attention.keys_values(torch.randn(2, 5, 8))
    with pytest.raises(UsageError, check=has_code("tap_weights_shape_mismatch", site="here")):
        attention(queries, kv, Mask(), lambda site, weights: weights[:, :1])


@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True), Mask(torch.rand(2, 1, 5, 5) < 0.7)])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_that_share_keys_equal_repeated_keys(groups: int, mask: Mask) -> None:
    generator = torch.Generator().manual_seed(1)
    queries, keys, values = (torch.randn(2, heads, 5, 6, generator=generator) for heads in (4, groups, groups))
    shared = KeysValues(keys, values)
    repeated = shared.map(lambda each: each.repeat_interleave(4 // groups, dim=1))
    expected, weights = explicit_attention(queries, repeated, mask)
    found, shared_weights = explicit_attention(queries, shared, mask)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(shared_weights, weights)
    torch.testing.assert_close(fused_attention(queries, shared, mask), expected)


def test_norms_of_queries_and_keys_come_before_the_rotation() -> None:
    attention = MultiHeadAttention(8, 2)
    attention.share_heads(1)
    attention.add_norms(lambda width: torch.nn.RMSNorm(width, eps=1e-6))
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(1))
    rotation = RotaryPositions(4).rotation(x, 0)
    assert rotation is not None
    queries, kv = attention.queries_keys_values(x, rotation)
    assert kv.keys.shape == kv.values.shape == (1, 1, 3, 4)
    torch.testing.assert_close(queries, rotation.rotate(attention.queries(x)))
    torch.testing.assert_close(kv.keys, rotation.rotate(attention.keys_values(x).keys))
    assert torch.allclose(queries.square().mean(-1), torch.ones(1, 2, 3), atol=1e-4)
