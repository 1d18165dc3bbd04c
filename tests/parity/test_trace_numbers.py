"""The trace computes every step itself, and its values equal those of the network and of every engine."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from attendo.data.batch import Example, collate
from attendo.model.head_scaling import ScaledHeads, sites
from attendo.model.trace import trace_network
from attendo.model.transformer import Transformer
from attendo.text import BOS, PAD

SOURCE, TARGET = torch.tensor([5, 9, 4, 7, 11, 6, 3]), torch.tensor([2, 8, 4, 10, 5])
HEADS = {"encoder.1.self": {0: 0.5}, "decoder.0.self": {1: 0.0}, "decoder.1.cross": {0: 0.0, 1: 2.0}}


def load_script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "verify_options.py"
    spec = importlib.util.spec_from_file_location("verify_options", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = load_script()
OPTIONS = [
    each
    for each in (*SCRIPT.ALONE, *SCRIPT.combinations(5))
    if each.get("num_encoder_layers") != 0 and "kind" not in each  # a trace needs an autoregressive network
]


@pytest.mark.short(12)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_trace_values_equal_the_network_for_every_option(options: dict[str, Any]) -> None:
    network = SCRIPT.random_model(options).network.eval()
    weights_by_site: dict[str, Tensor] = {}
    with torch.no_grad():
        logits = network(SOURCE[None], TARGET[None], tap=weights_by_site.__setitem__)[0]
        fused = network(SOURCE[None], TARGET[None])[0]
        memory = network.encode(SOURCE[None]).states[0]
    traced = trace_network(network, SOURCE, TARGET)
    assert_near(traced["output.logits"].value, logits)
    assert_near(traced["output.logits"].value, fused)
    assert_near(traced["encoder.output"].value, memory)
    assert_near(traced["output.logits"].value, column_by_column(network))
    assert list(weights_by_site) == sites(network.config)
    for site, weights in weights_by_site.items():
        assert_near(traced[f"{site}.weights"].value, weights[0])


@pytest.mark.short(2)
@pytest.mark.parametrize("options", OPTIONS[::8], ids=str)
def test_trace_scores_equal_the_scores_of_the_engines(options: dict[str, Any]) -> None:
    model = SCRIPT.random_model(options)
    for text in SCRIPT.sentences(1):
        for engine in ("fast", "cached"):
            best = model.generate([text], engine=engine)[0].best
            trace = model.trace(text)
            assert trace.target_ids[: len(best.ids)] == best.ids
            assert float(trace.log_probabilities.sum()) == pytest.approx(best.log_probability, abs=1e-4)
            allowed = trace.probabilities.index_fill(1, torch.tensor([PAD, BOS]), 0.0)  # as in the rules of a search
            assert tuple(allowed.argmax(dim=-1).tolist()) == trace.target_ids


@pytest.mark.parametrize("changes", [{}, {"norm": "post"}, {"positions": "rotary"}, {"positions": "relative"}])
def test_scaled_heads_in_the_trace_equal_a_scaling_tap(
    small_network: Callable[..., Transformer], changes: dict[str, Any]
) -> None:
    network = small_network(**changes)
    with torch.no_grad():
        logits = network(SOURCE[None], TARGET[None], tap=ScaledHeads(HEADS))[0]
        plain = network(SOURCE[None], TARGET[None])[0]
    traced = trace_network(network, SOURCE, TARGET, HEADS)
    assert_near(traced["output.logits"].value, logits)
    assert (logits - plain).abs().max() > 1e-3
    assert_near(
        traced["decoder.1.cross.weights"].value.sum(-1), torch.ones(4, 5)
    )  # the reported weights are not scaled


def test_without_the_mask_the_decoder_sees_the_future(small_network: Callable[..., Transformer]) -> None:
    network = small_network()
    later = TARGET.clone()
    later[-1] = 12
    masked, bare = (
        [trace_network(network, SOURCE, each, masked=mask)["output.logits"].value[0] for each in (TARGET, later)]
        for mask in (True, False)
    )
    assert_near(masked[0], masked[1])
    assert (bare[0] - bare[1]).abs().max() > 1e-3
    traced = trace_network(network, SOURCE, TARGET, masked=False)
    assert torch.equal(traced["decoder.0.self.masked"].value, traced["decoder.0.self.scores"].value)


@pytest.mark.parametrize(
    "changes",
    [
        *({}, {"norm": "post"}, {"positions": "rotary"}, {"positions": "relative"}, {"positions": "learned"}),
        *({"positions": "none"}, {"embedding_norm": True}, {"scale_embedding": False}, {"norm_kind": "rms"}),
    ],
    ids=str,
)
def test_a_prefix_lm_is_traced_as_one_row(small_network: Callable[..., Transformer], changes: dict[str, Any]) -> None:
    network = small_network(num_encoder_layers=0, prefix_lm=True, tie="all", **changes)
    seen: list[tuple[str, Tensor]] = []
    with torch.no_grad():
        network.segments.mul_(20)  # type: ignore[operator]  # so that a trace without them fails
        logits = network(SOURCE[None], TARGET[None], tap=lambda site, weights: seen.append((site, weights)))[0]
    traced = trace_network(network, SOURCE, TARGET)
    assert_near(traced["output.logits"].value, logits)
    assert_near(traced["output.logits"].value, column_by_column(network))
    size = len(SOURCE)
    assert len(seen) == 2 * len(sites(network.config))  # the source reports its attention before the target
    for site, weights in seen:
        row = traced[f"{site}.weights"].value
        if weights.size(-1) == size:
            assert_near(row[:, :size], torch.cat((weights[0], torch.zeros(4, size, len(TARGET))), dim=-1))
        else:
            assert_near(row[:, size:], weights[0])
    scaled = {"decoder.0.self": {1: 0.0}, "decoder.1.self": {0: 2.0}}
    with torch.no_grad():
        logits = network(SOURCE[None], TARGET[None], tap=ScaledHeads(scaled))[0]
    assert_near(trace_network(network, SOURCE, TARGET, scaled)["output.logits"].value, logits)


def test_a_decoder_only_network_is_traced_without_a_source(small_network: Callable[..., Transformer]) -> None:
    network = small_network(num_encoder_layers=0)
    with torch.no_grad():
        logits = network(None, TARGET[None])[0]
    traced = trace_network(network, None, TARGET)
    assert_near(traced["output.logits"].value, logits)
    assert not any("cross" in name or name.startswith(("encoder", "source")) for name in traced)


def test_tap_weights_of_a_batch_equal_single_sentences() -> None:
    model = SCRIPT.random_model({})
    pairs = [([5, 9, 4], [8, 4]), ([7, 11, 6, 13, 12, 9, 9], [10, 5, 6, 7, 8]), ([4], [5])]
    together: dict[str, Tensor] = {}
    batch = collate([Example(*pair) for pair in pairs])
    network = model.network.eval()
    with torch.no_grad():
        network(batch.source_ids, batch.target_ids, batch.source_mask, tap=together.__setitem__)
    for row, (source, target) in enumerate(pairs):
        alone = trace_network(network, torch.tensor([*source, 3]), torch.tensor([2, *target]))
        for site, weights in together.items():
            expected = alone[f"{site}.weights"].value
            rows, columns = expected.shape[-2:]
            assert_near(weights[row, :, :rows, :columns], expected)


def test_bf16_networks_are_traced_in_float32(small_network: Callable[..., Transformer]) -> None:
    network = small_network()
    exact = trace_network(network, SOURCE, TARGET)["output.logits"].value
    half = trace_network(network.to(torch.bfloat16), SOURCE, TARGET)["output.logits"].value
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, exact, atol=0.2, rtol=0.1)


@torch.no_grad()
def column_by_column(network: Transformer) -> Tensor:
    """Logits of single steps, as in generation."""
    state, found = network.start(network.encode(SOURCE[None])), []
    for token in TARGET:
        logits, state = network.step(token[None, None], state)
        found.append(logits[0, 0])
    return torch.stack(found)


def assert_near(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5 * max(1.0, float(expected.abs().max())), rtol=1e-5)
