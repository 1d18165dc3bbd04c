"""A network whose numbers are evened out before they are rounded to bytes: the same answers, and a smaller loss."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from attendo.data.batch import collate
from attendo.interop.onnx.quantization import activation_ranges, max_abs, random_examples, smooth_quant
from attendo.interop.onnx.session import OnnxNetwork
from attendo.model.transformer import Transformer

MakeNetwork = Callable[..., Transformer]


def logits(network: Transformer) -> torch.Tensor:
    batch = collate(random_examples(network, seed=2)[:8])
    with torch.no_grad():
        return network.eval()(batch.source_ids, batch.target_ids, batch.source_mask)


def site(network: Transformer) -> object:
    return network.encoder[0].self_attention.project


def uneven(network: Transformer) -> Transformer:
    """The same function with some components larger than others, as training makes them."""
    with torch.no_grad():
        for block in (*network.encoder, *network.decoder):
            part = block.feed_forward
            if part.activation == "relu":
                part.expand.weight[::7] *= 20.0
                part.expand.bias[::7] *= 20.0
                part.contract.weight[:, ::7] /= 20.0
            if block.self_residual.pre_norm:
                for norm, matrix in (
                    (block.self_residual.normalise, block.self_attention.project.weight),
                    (block.feed_forward_residual.normalise, part.expand.weight),
                ):
                    for weight in norm.parameters():
                        weight[::7] *= 20.0
                    matrix[:, ::7] /= 20.0
    return network


@pytest.mark.parametrize(
    "changes",
    [
        {"tie": "all"},
        {"norm": "post"},
        {"norm": "post", "final_norm": True, "activation": "gelu"},
        {"activation": "swiglu", "norm_kind": "rms", "positions": "rotary"},
        {"d_key": 6, "d_value": 3, "activation": "silu"},
    ],
    ids=str,
)
def test_it_computes_the_same_and_leaves_the_network_alone(small_network: MakeNetwork, changes: dict[str, Any]) -> None:
    network = uneven(small_network(**changes))
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    even = smooth_quant(network, random_examples(network))
    torch.testing.assert_close(logits(even), logits(network), atol=2e-4, rtol=1e-4)
    assert all(torch.equal(weight, before[name]) for name, weight in network.state_dict().items())
    if changes.get("norm") != "post":
        spread, evener = (max_abs(each, random_examples(each)) for each in (network, even))
        before_it, behind_it = spread[site(network)], evener[site(even)]
        assert behind_it.max() / behind_it.min() < 0.5 * before_it.max() / before_it.min()


def test_it_loses_less_in_bytes(small_network: MakeNetwork) -> None:
    network = uneven(small_network(d_model=64, d_ff=128))
    exact, batch = logits(network), collate(random_examples(network, seed=2)[:8])
    lost = []
    for each in (network, smooth_quant(network, random_examples(network))):
        rounded = OnnxNetwork.from_network(each, activation_ranges(each, random_examples(each)), threads=1)
        state, told = rounded.start(rounded.encode(batch.source_ids, batch.source_mask)), []
        for column in range(batch.target_ids.size(1)):
            step, state = rounded.step(batch.target_ids[:, column : column + 1], state)
            told.append(step.clone())  # it lies in memory that the next one uses
        lost.append(float((torch.cat(told, dim=1) - exact).abs().mean()))
    assert lost[1] < 0.7 * lost[0]
