"""Regression tests for mistakes of the study texts in the network around attention, by their numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from error_codes import has_code
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.positions import LearnedPositions, RelativePositions, RotaryPositions, SinusoidalPositions

MakeNetwork = Callable[..., Transformer]
SOURCE = torch.tensor([[3, 1, 4, 1], [5, 9, 2, 6]])
TARGET = torch.tensor([[1, 2, 7], [1, 8, 2]])


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_E8_every_layer_of_both_stacks_affects_the_output(small_network: MakeNetwork, norm: str) -> None:
    network = small_network(norm=norm, num_encoder_layers=3, num_decoder_layers=3)
    before = network(SOURCE, TARGET)
    before.square().sum().backward()
    for stack in (network.encoder, network.decoder):
        for block in stack:
            grads = {name: parameter.grad for name, parameter in block.named_parameters()}
            assert all(grad is not None and grad.abs().max() > 0 for name, grad in grads.items() if "weight" in name)
    for block in [*network.encoder, *network.decoder]:
        weight = block.get_submodule("feed_forward.contract").weight
        with torch.no_grad():
            saved = weight.clone()
            weight.zero_()
            assert (network(SOURCE, TARGET) - before).abs().max() > 1e-3
            weight.copy_(saved)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ("sinusoidal", SinusoidalPositions),
        ("learned", LearnedPositions),
        ("rotary", RotaryPositions),
        ("relative", RelativePositions),
    ],
)
def test_E9_both_sides_have_the_configured_positions(
    small_network: MakeNetwork, positions: str, expected: type[nn.Module]
) -> None:
    network = small_network(positions=positions)
    assert network.source is not None
    assert type(network.source.positions) is type(network.target.positions) is expected


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@torch.no_grad()
def test_E10_positions_depend_on_time_not_on_the_batch_row(small_network: MakeNetwork, positions: str) -> None:
    embed = small_network(positions=positions).target
    same = embed(torch.full((5, 4), 3), 0)
    for row in range(1, 5):
        assert torch.equal(same[row], same[0])
    for first in range(4):
        for second in range(first):
            assert (same[0, first] - same[0, second]).abs().max() > 1e-2


@torch.no_grad()
def test_E11_networks_of_different_sizes_coexist(small_network: MakeNetwork) -> None:
    first = small_network(source_vocab_size=11, target_vocab_size=13, vocab_size=None, num_heads=2)
    second = small_network(d_model=8, num_heads=1, num_encoder_layers=1, num_decoder_layers=3)
    assert second(SOURCE, TARGET).shape == (2, 3, 17)
    assert first(SOURCE, TARGET).shape == (2, 3, 13)
    assert (len(second.encoder), len(second.decoder)) == (1, 3)
    assert first.encoder[0].get_submodule("self_attention").num_heads == 2


@torch.no_grad()
def test_E13_pre_norm_stacks_end_in_a_norm(small_network: MakeNetwork) -> None:
    network = small_network(norm="pre")
    for norm in (network.encoder_norm, network.decoder_norm):
        assert isinstance(norm, nn.LayerNorm)
        norm.reset_parameters()
    states, last = network.encode(SOURCE).states, _before_output(network)
    for vectors in (states, last):
        torch.testing.assert_close(vectors.mean(-1), torch.zeros(vectors.shape[:2]), atol=1e-5, rtol=0)
        torch.testing.assert_close(vectors.var(-1, unbiased=False), torch.ones(vectors.shape[:2]), atol=1e-3, rtol=0)


@pytest.mark.parametrize("norm_kind", ["layer", "rms"])
def test_E13_the_final_norm_can_be_chosen(small_network: MakeNetwork, norm_kind: str) -> None:
    kind = nn.LayerNorm if norm_kind == "layer" else nn.RMSNorm
    expected = {("pre", None): kind, ("pre", False): nn.Identity, ("post", None): nn.Identity, ("post", True): kind}
    for (norm, final_norm), module in expected.items():
        network = small_network(norm=norm, final_norm=final_norm, norm_kind=norm_kind)
        assert type(network.encoder_norm) is type(network.decoder_norm) is module


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_E14_one_setting_places_the_norms_of_both_stacks(small_network: MakeNetwork, norm: str) -> None:
    network = small_network(norm=norm)
    pre_norms = [module.pre_norm for name, module in network.named_modules() if name.endswith("_residual")]
    assert pre_norms == [norm == "pre"] * (2 * 2 + 2 * 3)


def test_E17_odd_widths_are_rejected_if_pairs_are_needed() -> None:
    sizes: dict[str, Any] = {"vocab_size": 5, "num_heads": 3}
    with pytest.raises(UsageError, check=has_code("sinusoidal_d_model_odd", d_model=15)):
        ModelConfig(**sizes, d_model=15)
    with pytest.raises(UsageError, check=has_code("rotary_head_width_odd", head_width=5)):
        ModelConfig(**sizes, d_model=15, positions="rotary")


@pytest.mark.parametrize("positions", ["learned", "none"])
def test_E17_odd_widths_work_without_pairs(small_network: MakeNetwork, positions: str) -> None:
    assert small_network(d_model=15, num_heads=3, positions=positions)(SOURCE, TARGET).shape == (2, 3, 17)


def test_E18_logits_keep_batch_and_time(small_network: MakeNetwork) -> None:
    assert small_network()(SOURCE, TARGET).shape == (2, 3, 17)


@torch.no_grad()
def test_E24_the_network_returns_logits_not_probabilities(small_network: MakeNetwork) -> None:
    network = small_network(output_bias=True)
    logits = network(SOURCE, TARGET)
    torch.testing.assert_close(logits, _before_output(network) @ network.output.weight.T + network.output.bias)
    assert (logits < 0).any()
    assert (logits.exp().sum(-1) - 1).abs().min() > 1e-2


def test_E25_learned_positions_raise_beyond_max_length(small_network: MakeNetwork) -> None:
    network = small_network(positions="learned", max_length=4)
    _, state = network.step(TARGET, network.start(network.encode(SOURCE)))
    _, state = network.step(TARGET[:, :1], state)
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", count=5, max_length=4)):
        network.step(TARGET[:, :1], state)
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", count=5)):
        network.encode(torch.ones(1, 5, dtype=torch.long))


@torch.no_grad()
def test_E26_activations_give_different_outputs(small_network: MakeNetwork) -> None:
    outputs = {name: small_network(activation=name)(SOURCE, TARGET) for name in ("relu", "gelu", "silu")}
    assert (outputs["relu"] - outputs["gelu"]).abs().max() > 1e-3
    assert (outputs["silu"] - outputs["gelu"]).abs().max() > 1e-3


@torch.no_grad()
def test_E30_a_step_computes_only_its_new_tokens(small_network: MakeNetwork) -> None:
    network, lengths = small_network(), []
    handles = [
        network.decoder[0].register_forward_hook(lambda module, inputs, output: lengths.append(output[0].size(1))),
        network.encoder[0].register_forward_hook(lambda module, inputs, output: lengths.append(-1)),
    ]
    state, columns = network.start(network.encode(SOURCE)), []
    for n in range(3):
        logits, state = network.step(TARGET[:, n : n + 1], state)
        columns.append(logits)
    for handle in handles:
        handle.remove()

    assert lengths == [-1, 1, 1, 1]  # the source once, then one column per step
    assert state.length == 3
    torch.testing.assert_close(torch.cat(columns, 1), network(SOURCE, TARGET), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_E30_a_step_does_not_change_its_input_state(small_network: MakeNetwork) -> None:
    network = small_network()
    _, state = network.step(TARGET, network.start(network.encode(SOURCE)))
    first, _ = network.step(TARGET[:, :1], state)
    network.step(TARGET[:, 1:], state)
    again, _ = network.step(TARGET[:, :1], state)
    assert torch.equal(first, again)
    assert state.length == 3


@torch.no_grad()
def test_E51_each_layer_projects_the_memory_with_its_own_weights(small_network: MakeNetwork) -> None:
    network = small_network()
    memory = network.encode(SOURCE)
    state = network.start(memory)
    assert len(state.memory) == 2
    for block, kv in zip(network.decoder, state.memory, strict=True):
        attention: Any = block.get_submodule("cross_attention")
        torch.testing.assert_close(kv.keys, attention.keys_values(memory.states).keys)
    assert (state.memory[0].keys - state.memory[1].keys).abs().max() > 1e-2


def _before_output(network: Transformer) -> Tensor:
    """The input of the output layer."""
    captured: list[Tensor] = []
    handle = network.output.register_forward_hook(lambda module, inputs, output: captured.append(inputs[0]))
    network(SOURCE, TARGET)
    handle.remove()
    return captured[0]
