"""Regression tests for mistakes of the study texts in attention and masks, by their numbers in the specification."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from error_codes import has_code
from torch import Tensor

from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues, MultiHeadAttention, explicit_attention, fused_attention
from attendo.nn.masks import Mask, causal_mask, padding_mask

MakeNetwork = Callable[..., Transformer]
SOURCE = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
SOURCE_MASK = torch.tensor([[True, True, True, True], [True, True, False, False]])
TARGET = torch.tensor([[1, 2, 7], [1, 8, 2]])
CPU = torch.device("cpu")


def test_E1_softmax_runs_over_the_keys() -> None:
    queries, kv = _heads(2, 3, 4, 5)
    _, weights = explicit_attention(queries, kv, Mask())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 4))
    assert (weights.sum(-2) - 1).abs().max() > 1e-2


@pytest.mark.parametrize("path", [fused_attention, explicit_attention])
def test_E2_a_mask_of_many_elements_is_used(path: Callable[..., Tensor | tuple[Tensor, Tensor]]) -> None:
    queries, kv = _heads(2, 3, 4, 4)
    free, masked = _mixed(path(queries, kv, Mask())), _mixed(path(queries, kv, padding_mask(SOURCE_MASK)))
    torch.testing.assert_close(free[0], masked[0])
    assert (free[1] - masked[1]).abs().max() > 1e-2


@pytest.mark.parametrize("path", [fused_attention, explicit_attention])
def test_E3_scores_are_scaled_by_the_width_of_the_keys(path: Callable[..., Tensor | tuple[Tensor, Tensor]]) -> None:
    queries, kv = _heads(1, 1, 1, 2, width=16)
    expected = (queries[0, 0] @ kv.keys[0, 0].T / 4).softmax(-1) @ kv.values[0, 0]
    torch.testing.assert_close(_mixed(path(queries, kv, Mask()))[0, 0], expected)


def test_E3_explicit_head_widths_are_kept() -> None:
    attention = MultiHeadAttention(10, 3, d_key=4, d_value=2)
    assert (attention.d_key, attention.d_value) == (4, 2)
    with pytest.raises(UsageError, check=has_code("d_model_not_divisible", d_model=10, num_heads=3)):
        MultiHeadAttention(10, 3)


@pytest.mark.parametrize("lengths", [(2, 7), (7, 2)])
def test_E4_source_and_target_lengths_may_differ(small_network: MakeNetwork, lengths: tuple[int, int]) -> None:
    source, target = (torch.ones(2, length, dtype=torch.long) for length in lengths)
    assert small_network()(source, target).shape == (2, lengths[1], 17)


@pytest.mark.parametrize("path", [fused_attention, explicit_attention])
def test_E5_masks_apply_per_sentence_not_per_head(
    path: Callable[..., Tensor | tuple[Tensor, Tensor]],
) -> None:
    queries, kv = _heads(2, 2, 3, 4)
    together = _mixed(path(queries, kv, padding_mask(SOURCE_MASK)))
    for row in range(2):
        alone = KeysValues(kv.keys[row : row + 1], kv.values[row : row + 1])
        expected = _mixed(path(queries[row : row + 1], alone, padding_mask(SOURCE_MASK[row : row + 1])))
        torch.testing.assert_close(together[row : row + 1], expected)


@torch.no_grad()
def test_E6_E41_cross_attention_ignores_source_padding(small_network: MakeNetwork) -> None:
    network = small_network()
    weights_by_site: dict[str, Tensor] = {}
    memory = network.encode(SOURCE, SOURCE_MASK)
    scrambled = replace(memory, states=torch.where(SOURCE_MASK[..., None], memory.states, 100.0))
    logits, _ = network.step(TARGET, network.start(memory))
    assert torch.equal(network.step(TARGET, network.start(scrambled))[0], logits)

    network.step(TARGET, network.start(memory), tap=weights_by_site.__setitem__)
    for site in ("decoder.0.cross", "decoder.1.cross"):
        assert not weights_by_site[site][1, :, :, 2:].any()
        assert (weights_by_site[site][1, :, :, :2] > 0).all()


@torch.no_grad()
def test_E7_E27_E28_cross_weights_have_axes_head_target_source(small_network: MakeNetwork) -> None:
    weights_by_site: dict[str, Tensor] = {}
    small_network()(SOURCE, TARGET, tap=weights_by_site.__setitem__)
    weights = weights_by_site["decoder.0.cross"]
    assert weights.shape == (2, 4, 3, 4)  # [B, H, T, S]
    assert (weights[:, 0] - weights[:, 1]).abs().max() > 1e-3


def test_E12_masks_are_made_on_the_given_device() -> None:
    meta = torch.device("meta")
    for mask in (
        causal_mask(2, 3, None, meta),
        causal_mask(0, 3, torch.ones(1, 3, dtype=torch.bool, device=meta), meta),
    ):
        assert mask.visible is not None
        assert mask.visible.device == meta
    visible = Mask(causal=True).matrix(3, 3, meta)
    assert visible is not None
    assert visible.device == meta


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative"])
@pytest.mark.parametrize("tapped", [False, True])
def test_E12_the_network_runs_on_the_device_of_its_weights(
    small_network: MakeNetwork, positions: str, tapped: bool
) -> None:
    network = small_network(positions=positions).to("meta")
    tap = (lambda site, weights: None) if tapped else None
    state = network.start(network.encode(SOURCE.to("meta"), SOURCE_MASK.to("meta"), tap))
    logits, state = network.step(
        TARGET.to("meta"), state, torch.ones_like(TARGET, dtype=torch.bool, device="meta"), tap
    )
    more, state = network.step(TARGET.to("meta"), state, tap=tap)
    assert logits.device.type == more.device.type == "meta"
    assert more.shape == (2, 3, 17)


def test_E19_keys_are_transposed_within_each_head_and_sentence() -> None:
    queries, kv = _heads(3, 3, 3, 3, width=3)  # all sizes are equal, so a wrong axis would raise no error
    mixed, weights = explicit_attention(queries, kv, Mask())
    for row in range(3):
        for head in range(3):
            q, k, v = queries[row, head], kv.keys[row, head], kv.values[row, head]
            torch.testing.assert_close(weights[row, head], (q @ k.T / math.sqrt(3)).softmax(-1))
            torch.testing.assert_close(mixed[row, head], (q @ k.T / math.sqrt(3)).softmax(-1) @ v)


@torch.no_grad()
def test_E20_true_means_visible_in_every_mask(small_network: MakeNetwork) -> None:
    network = small_network()
    everything = torch.ones_like(SOURCE, dtype=torch.bool), torch.ones_like(TARGET, dtype=torch.bool)
    torch.testing.assert_close(network(SOURCE, TARGET, *everything), network(SOURCE, TARGET), atol=1e-5, rtol=1e-5)

    weights_by_site: dict[str, Tensor] = {}
    target_mask = torch.tensor([[True, False, True], [True, True, True]])
    network(SOURCE, TARGET, SOURCE_MASK, target_mask, tap=weights_by_site.__setitem__)
    assert torch.equal(weights_by_site["encoder.0.self"][1, 0, 0] > 0, SOURCE_MASK[1])
    assert torch.equal(weights_by_site["decoder.0.cross"][1, 0, 0] > 0, SOURCE_MASK[1])
    assert torch.equal(weights_by_site["decoder.0.self"][0, 0, 2] > 0, target_mask[0])


@pytest.mark.parametrize("path", [fused_attention, explicit_attention])
def test_E21_masks_may_differ_by_sentence_and_query(
    path: Callable[..., Tensor | tuple[Tensor, Tensor]],
) -> None:
    queries, kv = _heads(2, 3, 4, 4)
    visible = torch.stack((torch.eye(4), torch.eye(4).flip(0))).bool()[:, None]
    mixed = _mixed(path(queries, kv, Mask(visible)))
    torch.testing.assert_close(mixed[0], kv.values[0])
    torch.testing.assert_close(mixed[1], kv.values[1].flip(1))


@pytest.mark.parametrize("batch", [1, 2])
def test_E23_the_causal_mask_has_the_length_of_the_target(small_network: MakeNetwork, batch: int) -> None:
    weights_by_site: dict[str, Tensor] = {}
    small_network()(SOURCE[:batch], TARGET[:batch], tap=weights_by_site.__setitem__)
    weights = weights_by_site["decoder.1.self"]
    assert weights.shape[-2:] == (3, 3)
    assert torch.equal(weights > 0, torch.ones(3, 3).tril().bool().expand(batch, 4, 3, 3))


@torch.no_grad()
def test_E22_E29_all_three_padding_masks_are_used(small_network: MakeNetwork) -> None:
    network = small_network()
    weights_by_site: dict[str, Tensor] = {}
    target_mask = torch.tensor([[True, True, False], [False, True, True]])
    network(SOURCE, TARGET, SOURCE_MASK, target_mask, tap=weights_by_site.__setitem__)
    hidden = {"encoder.1.self": SOURCE_MASK, "decoder.1.cross": SOURCE_MASK, "decoder.1.self": target_mask}
    for site, mask in hidden.items():
        assert not weights_by_site[site].masked_select(~mask[:, None, None, :]).any(), site
        assert weights_by_site[site].masked_select(mask[:, None, None, :]).any(), site


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_E31_masks_do_not_overflow_and_hidden_weights_are_zero(dtype: torch.dtype) -> None:
    queries, kv = _heads(2, 3, 4, 4)
    queries, kv = (queries * 100).to(dtype), KeysValues(kv.keys.to(dtype), kv.values.to(dtype))
    mask = padding_mask(torch.tensor([[True, True, False, False], [False, False, False, False]]))
    mixed, weights = explicit_attention(queries, kv, mask)
    fused = fused_attention(queries, kv, mask)
    for tensor in (mixed, weights, fused):
        assert tensor.isfinite().all()
        assert not tensor[1].any()
    assert not weights[0, :, :, 2:].any()


def test_E31_a_hidden_score_of_any_size_stays_hidden() -> None:
    kv = KeysValues(torch.tensor([[[[1.0], [-1.0]]]]), torch.tensor([[[[1.0], [2.0]]]]))
    queries = torch.tensor([[[[-3e9]]]])  # the visible score is below -1e9
    mixed, weights = explicit_attention(queries, kv, padding_mask(torch.tensor([[True, False]])))
    assert weights.flatten().tolist() == [1.0, 0.0]
    assert mixed.item() == 1.0


@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_E31_no_intermediate_gradient_is_nan() -> None:
    queries, kv = _heads(2, 3, 4, 4)
    mask = padding_mask(torch.tensor([[True, True, False, False], [False, False, False, False]]))
    with torch.autograd.detect_anomaly():  # raises at every NaN, also at one that is masked later
        mixed, _ = explicit_attention(queries.requires_grad_(), kv, mask)
        mixed.sum().backward()
    assert queries.grad is not None
    assert not queries.grad[1].any()


def _heads(batch: int, heads: int, queries: int, keys: int, width: int = 8) -> tuple[Tensor, KeysValues]:
    generator = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(batch, heads, length, width, generator=generator) for length in (queries, keys, keys))
    return q, KeysValues(k, v)


def _mixed(result: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    return result if isinstance(result, Tensor) else result[0]
