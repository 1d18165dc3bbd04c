"""Properties of attention weights for any network and any batch, read through a tap."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from network_strategies import ids, network_settings, padded_ids
from torch import Tensor

from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues, explicit_attention, fused_attention
from attendo.nn.masks import Mask

MakeNetwork = Callable[..., Transformer]


@given(choices=network_settings(), source=padded_ids(2, 5), target=ids(2, 5))
@torch.no_grad()
def test_a_tap_gets_every_weight_and_changes_nothing(
    small_network: MakeNetwork, choices: dict[str, Any], source: tuple[Tensor, Tensor], target: Tensor
) -> None:
    network = small_network(**choices)
    weights_by_site: dict[str, Tensor] = {}
    arguments = (None, target, None) if network.config.continues_text else (source[0], target, source[1])
    tapped = network(*arguments, tap=lambda site, weights: _record(weights_by_site, site, weights))

    torch.testing.assert_close(tapped, network(*arguments), atol=1e-5, rtol=1e-5)
    sizes = {"source": source[0].size(1), "target": target.size(1)}
    assert {site: tuple(weights.shape) for site, weights in weights_by_site.items()} == _expected_sites(network, sizes)


@given(choices=network_settings(), source=padded_ids(2, 5), target=ids(2, 5), dropout=st.sampled_from([0.0, 0.5]))
@torch.no_grad()
def test_weights_sum_to_one_and_are_zero_where_masked(
    small_network: MakeNetwork,
    choices: dict[str, Any],
    source: tuple[Tensor, Tensor],
    target: Tensor,
    dropout: float,
) -> None:
    network = small_network(**choices, dropout=dropout).train()
    weights_by_site: dict[str, Tensor] = {}
    arguments = (None, target, None) if network.config.continues_text else (source[0], target, source[1])
    network(*arguments, tap=lambda site, weights: _record(weights_by_site, site, weights))
    for site, weights in weights_by_site.items():
        assert (weights >= 0).all(), site
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)
        if site.startswith("decoder") and site.endswith("self"):
            assert not weights[..., -target.size(1) :].triu(1).any(), site
        else:
            assert not weights.masked_select(~source[1][:, None, None, :]).any(), site
        if network.config.prefix_lm:
            over_source = weights[..., : source[0].size(1)]
            assert not over_source.masked_select(~source[1][:, None, None, :]).any(), site


@pytest.mark.parametrize("path", [fused_attention, explicit_attention])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 5)),
    seed=st.integers(0, 99),
)
def test_fully_masked_rows_give_zero_outputs_and_gradients(
    path: Callable[..., Any], dtype: torch.dtype, sizes: tuple[int, int, int, int], seed: int
) -> None:
    batch, heads, queries, keys = sizes
    generator = torch.Generator().manual_seed(seed)
    visible = torch.rand(batch, 1, queries, keys, generator=generator) < 0.5
    visible[0, :, 0] = False
    fully_masked = ~visible.any(-1).expand(batch, heads, queries)
    q, k, v = (
        torch.randn(batch, heads, length, 4, generator=generator).to(dtype).requires_grad_()
        for length in (queries, keys, keys)
    )

    mixed = path(q, KeysValues(k, v), Mask(visible))
    mixed = mixed if isinstance(mixed, Tensor) else mixed[0]
    mixed.sum().backward()

    assert (mixed[fully_masked] == 0).all()
    for name, tensor in {"mixed": mixed, "q": q.grad, "k": k.grad, "v": v.grad}.items():
        assert tensor is not None
        assert tensor.isfinite().all(), name
    assert q.grad is not None
    assert (q.grad[fully_masked] == 0).all()


@pytest.mark.parametrize("settings", [{}, {"num_encoder_layers": 0, "prefix_lm": True}], ids=["encoder", "prefix LM"])
@pytest.mark.parametrize("tapped", [False, True])
def test_a_sentence_of_padding_gives_no_nan_gradient(
    small_network: MakeNetwork, settings: dict[str, Any], tapped: bool
) -> None:
    network = small_network(**settings).train()
    source_mask = torch.tensor([[True, True, False], [False, False, False]])
    target_mask = torch.tensor([[True, True], [False, False]])
    tap = (lambda site, weights: None) if tapped else None
    logits = network(
        torch.ones(2, 3, dtype=torch.long), torch.ones(2, 2, dtype=torch.long), source_mask, target_mask, tap
    )
    logits.sum().backward()
    assert logits.isfinite().all()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def _record(weights_by_site: dict[str, Tensor], site: str, weights: Tensor) -> None:
    """Store the weights. A prefix LM reports its sites twice: for the source, then for the target."""
    if site in weights_by_site and weights_by_site[site].size(2) == weights_by_site[site].size(3):
        weights_by_site[f"source.{site}"] = weights_by_site.pop(site)
    assert site not in weights_by_site
    weights_by_site[site] = weights


def _expected_sites(network: Transformer, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    config, source, target = network.config, sizes["source"], sizes["target"]
    sites = {f"encoder.{n}.self": (source, source) for n in range(config.num_encoder_layers)}
    for n in range(config.num_decoder_layers):
        sites[f"decoder.{n}.self"] = (target, source + target if config.prefix_lm else target)
        if config.prefix_lm:
            sites[f"source.decoder.{n}.self"] = (source, source)
        if not config.decoder_only:
            sites[f"decoder.{n}.cross"] = (target, source)
    return {site: (2, config.num_heads, *shape) for site, shape in sites.items()}
