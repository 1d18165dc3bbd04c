"""Initial weights are seeded, have the right scale, and are tied if configured."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer

MakeConfig = Callable[..., ModelConfig]
WIDE: dict[str, Any] = {"d_model": 64, "d_ff": 96, "vocab_size": 500}


def _network(make: MakeConfig, seed: int = 0, **changes: Any) -> Transformer:
    return Transformer(make(**changes), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_the_seed_alone_determines_the_weights(small_config: MakeConfig, positions: str) -> None:
    first = _network(small_config, positions=positions, tie="none").state_dict()
    torch.rand(7)
    second = _network(small_config, positions=positions, tie="none").state_dict()
    other = _network(small_config, seed=1, positions=positions, tie="none").state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    matrices = [name for name, weight in first.items() if weight.dim() == 2]
    assert matrices
    assert not any(torch.equal(first[name], other[name]) for name in matrices)


def test_without_a_generator_the_torch_seed_decides(small_config: MakeConfig) -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(5)
        states.append(Transformer(small_config()).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.parametrize(
    ("changes", "token_std"),
    [
        ({"tie": "all"}, 1 / 8),
        ({"tie": "output", "scale_embedding": False}, 1 / 8),
        ({"tie": "none"}, 1 / 8),
        ({"tie": "none", "scale_embedding": False}, 1.0),
    ],
)
def test_token_embeddings_start_with_the_right_std(
    small_config: MakeConfig, changes: dict[str, Any], token_std: float
) -> None:
    network = _network(small_config, **WIDE, **changes)
    assert network.source is not None
    for table in (network.source.tokens.weight, network.target.tokens.weight):
        assert table.std().item() == pytest.approx(token_std, rel=0.05)
    assert network.output.weight.std().item() == pytest.approx(1 / 8, rel=0.05)


@pytest.mark.parametrize("tie", ["none", "output", "all"])
@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_the_first_loss_is_near_a_uniform_guess(small_config: MakeConfig, norm: str, tie: str) -> None:
    network = _network(small_config, **WIDE, norm=norm, tie=tie).eval()
    generator = torch.Generator().manual_seed(3)
    source, target, labels = (torch.randint(500, (16, 20), generator=generator) for _ in range(3))
    loss = F.cross_entropy(network(source, target).flatten(0, 1), labels.flatten())
    assert abs(loss.item() - math.log(500)) < 0.7


@torch.no_grad()
def test_an_untrained_tied_network_does_not_copy_its_input(small_config: MakeConfig) -> None:
    network = _network(small_config, **WIDE, tie="all").eval()
    ids = torch.arange(500).view(10, 50)
    copied = network(ids, ids).softmax(-1).gather(-1, ids[..., None])
    assert copied.mean() < 0.5


def test_the_fused_projection_starts_as_three_xavier_matrices(small_config: MakeConfig) -> None:
    network = _network(small_config, **WIDE, d_value=8)
    for name in ("encoder.0.self_attention", "decoder.0.self_attention", "decoder.0.cross_attention"):
        attention: Any = network.get_submodule(name)
        for part, rows in zip(attention.project.weight.split((64, 64, 32)), (64, 64, 32), strict=True):
            bound = math.sqrt(6 / (64 + rows))
            assert 0.97 * bound < part.abs().max().item() <= bound
            assert part.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


def test_other_matrices_are_xavier_and_vectors_neutral(small_config: MakeConfig) -> None:
    network = _network(small_config, **WIDE, output_bias=True)
    expand: Any = network.get_submodule("encoder.0.feed_forward.expand")
    bound = math.sqrt(6 / (64 + 96))
    assert 0.97 * bound < expand.weight.abs().max().item() <= bound
    for name, parameter in network.named_parameters():
        if parameter.dim() == 1:
            gain = "normalise.weight" in name or name in ("encoder_norm.weight", "decoder_norm.weight")
            assert (parameter == float(gain)).all(), name


def test_learned_positions_start_smaller_than_tokens(small_config: MakeConfig) -> None:
    network: Any = _network(small_config, **WIDE, positions="learned")
    assert network.target.positions.table.std().item() == pytest.approx(1 / 8, rel=0.05)


@pytest.mark.parametrize(("tie", "tables"), [("none", 3), ("output", 2), ("all", 1)])
def test_tied_tables_share_storage_and_are_counted_once(small_config: MakeConfig, tie: str, tables: int) -> None:
    network = _network(small_config, tie=tie)
    assert network.source is not None
    weights = (network.source.tokens.weight, network.target.tokens.weight, network.output.weight)
    assert len({weight.data_ptr() for weight in weights}) == tables
    without = sum(p.numel() for module in (network.encoder, network.decoder) for p in module.parameters())
    norms = 4 * 16
    assert sum(p.numel() for p in network.parameters()) == without + norms + tables * 17 * 16


def test_tied_tables_stay_tied_when_trained(small_config: MakeConfig) -> None:
    network = _network(small_config, tie="all")
    ids = torch.tensor([[1, 2, 3]])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    network(ids, ids).square().sum().backward()
    optimizer.step()
    assert network.source is not None
    assert torch.equal(network.source.tokens.weight, network.output.weight)


def test_each_side_has_its_own_embedding_norm(small_config: MakeConfig) -> None:
    network: Any = _network(small_config, embedding_norm=True)
    assert isinstance(network.source.norm, nn.LayerNorm)
    assert network.source.norm is not network.target.norm
    assert _network(small_config).target.norm is None


@torch.no_grad()
def test_first_scores_and_logits_have_the_same_size_with_any_scale(small_config: MakeConfig) -> None:
    plain = _network(small_config, **WIDE, tie="all").eval()
    scaled = _network(small_config, **WIDE, tie="all", attention_scale=1.0, output_scale=1 / 8).eval()
    queries, key_rows = slice(0, 64), slice(64, 128)
    for one, other in zip((*plain.encoder, *plain.decoder), (*scaled.encoder, *scaled.decoder), strict=True):
        first, second = (each.get_submodule("self_attention") for each in (one, other))
        width = first.d_key**0.5
        torch.testing.assert_close(second.project.weight[queries] * width, first.project.weight[queries])
        assert torch.equal(second.project.weight[key_rows], first.project.weight[key_rows])
    ids = torch.randint(4, 500, (4, 9), generator=torch.Generator().manual_seed(0))
    sizes = [float(each(ids, ids).std()) for each in (plain, scaled)]
    assert sizes[1] == pytest.approx(sizes[0], rel=0.2)
    assert scaled.output.weight.std().item() == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("relative_bias", ["shared", "per_layer"])
def test_biases_of_relative_positions_start_small(small_config: MakeConfig, relative_bias: str) -> None:
    network = _network(small_config, **WIDE, positions="relative", relative_bias=relative_bias)
    assert network.source is not None
    for embedding, layers in ((network.source, network.encoder), (network.target, network.decoder)):
        table = embedding.positions.get_parameter("table")
        assert table.shape == (len(layers) if relative_bias == "per_layer" else 1, 32, network.config.num_heads)
        assert table.std().item() == pytest.approx(1 / 8, rel=0.4)
