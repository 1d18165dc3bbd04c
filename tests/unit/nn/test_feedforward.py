"""The feed-forward network: one formula, four activations."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attendo.nn.feedforward import Activation, FeedForward


@pytest.mark.parametrize(("name", "function"), [("relu", F.relu), ("gelu", F.gelu), ("silu", F.silu)])
def test_the_output_equals_the_formula(name: Activation, function: Callable[[Tensor], Tensor]) -> None:
    network, x = FeedForward(4, 6, name), torch.randn(2, 3, 4)
    inner = function(x @ network.expand.weight.T + network.expand.bias)
    torch.testing.assert_close(network(x), inner @ network.contract.weight.T + network.contract.bias)


def test_swiglu_multiplies_the_gate_with_a_second_projection() -> None:
    network, x = FeedForward(4, 6, "swiglu"), torch.randn(2, 3, 4)
    assert network.expand.out_features == 12
    gate, value = (x @ network.expand.weight.T + network.expand.bias).split(6, dim=-1)
    inner = gate * torch.sigmoid(gate) * value
    torch.testing.assert_close(network(x), inner @ network.contract.weight.T + network.contract.bias)


def test_positions_are_independent() -> None:
    network, x = FeedForward(4, 6, "relu"), torch.randn(2, 3, 4)
    changed = x.clone()
    changed[0, 1] += 1
    moved = (network(changed) - network(x)).abs().amax(-1) > 0
    assert moved.tolist() == [[False, True, False], [False, False, False]]
