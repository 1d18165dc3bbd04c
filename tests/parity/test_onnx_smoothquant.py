"""SmoothQuant computes the same function, and reduces the loss of int8."""

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


def with_outliers(network: Transformer) -> Transformer:
    """The same function with some components 20 times larger, as in trained networks."""
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
        {"activation": "reglu", "norm_kind": "rms", "positions": "relative", "linear_bias": False, "output_scale": 0.5},
        {"d_key": 6, "d_value": 3, "activation": "silu"},
    ],
    ids=str,
)
def test_smoothing_keeps_the_function_and_the_network(small_network: MakeNetwork, changes: dict[str, Any]) -> None:
    network = with_outliers(small_network(**changes))
    before = {name: weight.clone() for name, weight in network.state_dict().items()}
    smoothed = smooth_quant(network, random_examples(network))
    torch.testing.assert_close(logits(smoothed), logits(network), atol=2e-4, rtol=1e-4)
    assert all(torch.equal(weight, before[name]) for name, weight in network.state_dict().items())
    if changes.get("norm") != "post":
        ranges, smoothed_ranges = (max_abs(each, random_examples(each)) for each in (network, smoothed))
        range_before, range_after = ranges[site(network)], smoothed_ranges[site(smoothed)]
        assert range_after.max() / range_after.min() < 0.5 * range_before.max() / range_before.min()


def test_smoothing_reduces_the_int8_loss(small_network: MakeNetwork) -> None:
    network = with_outliers(small_network(d_model=64, d_ff=128))
    exact, batch = logits(network), collate(random_examples(network, seed=2)[:8])
    lost = []
    for each in (network, smooth_quant(network, random_examples(network))):
        quantized = OnnxNetwork.from_network(each, activation_ranges(each, random_examples(each)), threads=1)
        state, columns = quantized.start(quantized.encode(batch.source_ids, batch.source_mask)), []
        for column in range(batch.target_ids.size(1)):
            step, state = quantized.step(batch.target_ids[:, column : column + 1], state)
            columns.append(step.clone())  # the next step overwrites this memory
        lost.append(float((torch.cat(columns, dim=1) - exact).abs().mean()))
    assert lost[1] < 0.7 * lost[0]
