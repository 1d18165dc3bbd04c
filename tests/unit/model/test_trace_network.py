"""The named tensors of a trace, and the inputs that are rejected."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from error_codes import ErrorCheck, has_code

from attendo.errors import UsageError
from attendo.model import trace as tracing
from attendo.model.head_scaling import ScaledHeads, sites
from attendo.model.trace import trace_network
from attendo.model.trace_layers import TraceRecorder
from attendo.model.transformer import Transformer

SOURCE, TARGET = torch.tensor([5, 9, 4, 3]), torch.tensor([2, 8, 4])


def test_tensors_are_named_by_site_and_operation(small_network: Callable[..., Transformer]) -> None:
    traced = trace_network(small_network(), SOURCE, TARGET)
    kinds = ("queries", "keys", "values", "scores", "masked", "weights", "mixed", "output", "residual", "norm")
    for site in sites(small_network().config):
        assert {f"{site}.{kind}" for kind in kinds} <= set(traced)
    for site in ("encoder.0.feed_forward", "decoder.1.feed_forward"):
        assert {f"{site}.{kind}" for kind in ("inner", "bent", "output", "residual", "norm")} <= set(traced)
    for side in ("source", "target"):
        assert {f"{side}.{kind}" for kind in ("embedding", "positions", "input")} <= set(traced)
    assert {"encoder.output", "decoder.output", "output.logits", "output.probabilities"} <= set(traced)


def test_per_head_tensors_have_the_head_axis_first(small_network: Callable[..., Transformer]) -> None:
    traced = trace_network(small_network(d_key=6, d_value=5), SOURCE, TARGET)
    shapes = {
        kind: traced[f"decoder.0.cross.{kind}"].shape for kind in ("queries", "keys", "values", "scores", "mixed")
    }
    assert shapes == {
        "queries": (4, 3, 6),
        "keys": (4, 4, 6),
        "values": (4, 4, 5),
        "scores": (4, 3, 4),
        "mixed": (4, 3, 5),
    }


def test_future_scores_are_minus_infinity_and_weights_zero(
    small_network: Callable[..., Transformer],
) -> None:
    traced = trace_network(small_network(), SOURCE, TARGET)
    future = torch.ones(3, 3).triu(1).bool()
    assert traced["decoder.0.self.masked"].value[:, future].isneginf().all()
    assert traced["decoder.0.self.scores"].value[:, future].isfinite().all()
    assert traced["decoder.0.self.weights"].value[:, future].eq(0).all()


def test_a_trace_can_be_limited_to_one_layer(small_network: Callable[..., Transformer]) -> None:
    traced = trace_network(small_network(), SOURCE, TARGET, recorder=TraceRecorder(1))
    assert "decoder.1.cross.weights" in traced
    assert not any(name.startswith(("encoder.0.", "decoder.0.")) for name in traced)
    complete = trace_network(small_network(), SOURCE, TARGET)
    assert torch.equal(traced["output.logits"].value, complete["output.logits"].value)


@pytest.mark.parametrize("layer", [2, -1])
def test_a_missing_layer_raises_with_the_layer_counts(small_network: Callable[..., Transformer], layer: int) -> None:
    with pytest.raises(
        UsageError, check=has_code("trace_layer_out_of_range", encoder_layers=2, decoder_layers=2, layer=layer)
    ):
        trace_network(small_network(), SOURCE, TARGET, recorder=TraceRecorder(layer))


def test_too_many_numbers_raise_an_error(
    small_network: Callable[..., Transformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MAX_NUMBERS", 1000)
    with pytest.raises(UsageError, check=has_code("trace_too_many_numbers", source=4, target=3, count=1184)):
        trace_network(small_network(), SOURCE, TARGET)
    assert trace_network(small_network(), SOURCE, TARGET, recorder=TraceRecorder(0))
    monkeypatch.setattr(tracing, "MAX_NUMBERS", 100)
    with pytest.raises(UsageError, check=has_code("trace_too_many_numbers", limit=100)):
        trace_network(small_network(), SOURCE, TARGET, recorder=TraceRecorder(0))


@pytest.mark.parametrize(
    ("changes", "source", "error"),
    [
        (
            {"positions": "learned", "max_length": 3},
            SOURCE,
            has_code("trace_exceeds_max_length", side="source", count=4),
        ),
        ({}, None, has_code("trace_source_mismatch")),
        ({"num_encoder_layers": 0}, SOURCE, has_code("trace_source_mismatch")),
        ({}, torch.tensor([17]), has_code("traced_id_outside_vocabulary", size=17)),
    ],
)
def test_invalid_inputs_are_rejected(
    small_network: Callable[..., Transformer], changes: dict[str, Any], source: torch.Tensor | None, error: ErrorCheck
) -> None:
    with pytest.raises(UsageError, check=error):
        trace_network(small_network(**changes), source, TARGET)


def test_a_scaling_tap_changes_only_its_heads() -> None:
    weights = torch.rand(2, 3, 4, 5)
    tap = ScaledHeads({"decoder.0.cross": {1: 0.0, 2: 0.5}})
    changed = tap("decoder.0.cross", weights)
    assert changed is not None
    assert torch.equal(changed, weights * torch.tensor([1.0, 0.0, 0.5])[:, None, None])
    assert tap("decoder.1.cross", weights) is None


@pytest.mark.parametrize(
    ("heads", "error"),
    [
        ({"decoder.7.cross": {0: 0.0}}, has_code("unknown_attention_site", site="decoder.7.cross")),
        (
            {"decoder.0.cross": {4: 0.0}},
            has_code("attention_head_out_of_range", site="decoder.0.cross", head=4, count=4),
        ),
        ({"decoder.0.cross": {-1: 0.0}}, has_code("attention_head_out_of_range", head=-1)),
    ],
)
def test_missing_heads_cannot_be_scaled(
    small_network: Callable[..., Transformer], heads: dict[str, dict[int, float]], error: ErrorCheck
) -> None:
    with pytest.raises(UsageError, check=error):
        trace_network(small_network(), SOURCE, TARGET, heads)


def test_a_nan_scale_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("head_scale_not_finite", head=0, site="encoder.0.self", scale="nan")):
        ScaledHeads({"encoder.0.self": {0: float("nan")}})
