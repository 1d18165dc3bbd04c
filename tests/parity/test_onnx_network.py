"""The network in ONNX Runtime against ours: the logits of every step, and the results of searches."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from error_codes import has_code
from search_rows import make_limits
from torch import Tensor

from attendo.decode.beam import Beam
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.rules import ForcedPrefix, NoRepeatNgram, SuppressTokens
from attendo.decode.search import Seq2SeqNetwork, StaticNetwork, Strategy, search
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import ModelError, UsageError
from attendo.model.transformer import Transformer
from attendo.nn.linear import fused_linear_relu

pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from attendo.interop.onnx.graphs import encoder_graph, incompatibilities, step_graph
from attendo.interop.onnx.quantization import activation_ranges, random_examples
from attendo.interop.onnx.session import OnnxNetwork

MakeNetwork = Callable[..., Transformer]

OPTIONS: list[dict[str, Any]] = [
    {},
    {"norm": "post"},
    {"norm": "post", "final_norm": True},
    {"norm": "pre", "final_norm": False},
    {"norm_kind": "rms"},
    {"norm_kind": "rms", "norm": "post", "norm_epsilon": 1e-2},
    {"activation": "gelu"},
    {"activation": "silu", "norm": "post"},
    {"activation": "swiglu"},
    {"positions": "learned", "max_length": 40},
    {"positions": "learned", "max_length": 40, "position_offset": 2},
    {"positions": "rotary"},
    {"positions": "rotary", "d_key": 6, "d_value": 10},
    {"positions": "relative", "relative_buckets": 8, "relative_max_distance": 5},
    {"positions": "relative", "activation": "geglu_tanh", "tie": "inputs", "linear_bias": False, "norm_kind": "rms"},
    {"positions": "relative", "d_key": 6, "d_value": 3, "attention_scale": 0.7, "output_scale": 0.5, "norm": "post"},
    {"positions": "relative", "relative_bias": "per_layer"},
    {"activation": "gelu_tanh"},
    {"activation": "geglu"},
    {"activation": "reglu", "linear_bias": False},
    {"positions": "none"},
    {"position_layout": "halves", "position_offset": 3},
    {"position_layout": "fairseq", "position_offset": 2},
    {"d_key": 6, "d_value": 2},
    {"d_key": 2, "d_value": 6},
    {"d_model": 18, "d_key": 3, "d_value": 3},
    {"tie": "none"},
    {"tie": "all", "output_bias": True},
    {"vocab_size": None, "source_vocab_size": 17, "target_vocab_size": 23, "output_bias": True},
    {"scale_embedding": False, "embedding_norm": True},
    {"num_heads": 1, "num_encoder_layers": 1, "num_decoder_layers": 3},
]
STRATEGIES: list[Strategy] = [
    Greedy(),
    Beam(1),
    Beam(4),
    Beam(3, Ranking(), "exhaustive"),
    DiverseBeam(4, 2, 0.5, Ranking()),
    Sampling(3, seed=5),
]
LENGTHS = (7, 4, 1)
CLOSE = {"atol": 1e-4, "rtol": 0.0}


@pytest.mark.short(8)
@pytest.mark.parametrize("changes", OPTIONS, ids=str)
def test_logits_are_equal_at_every_step(small_network: MakeNetwork, changes: dict[str, Any]) -> None:
    network = small_network(**changes)
    ours, theirs = step_both(network, OnnxNetwork.from_network(network, threads=1), rows=2, steps=6)
    torch.testing.assert_close(theirs, ours, **CLOSE)


def test_steps_continue_beyond_the_initial_storage(small_network: MakeNetwork) -> None:
    network = small_network()
    ours, theirs = step_both(network, OnnxNetwork.from_network(network, threads=1), rows=2, steps=70)
    torch.testing.assert_close(theirs, ours, **CLOSE)


def test_uninitialised_memory_does_not_matter(small_network: MakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small_network()
    onnx = OnnxNetwork.from_network(network, threads=1)
    monkeypatch.setattr(torch, "empty", lambda *shape, **_: torch.full(shape, torch.nan))
    monkeypatch.setattr(torch, "empty_like", lambda like: torch.full_like(like, torch.nan))
    ours, theirs = step_both(network, onnx, rows=2, steps=70)
    torch.testing.assert_close(theirs, ours, **CLOSE)


@pytest.mark.short(1)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
@pytest.mark.parametrize("changes", [{}, {"norm": "post", "positions": "rotary", "d_key": 6, "d_value": 4}], ids=str)
def test_searches_find_the_same(small_network: MakeNetwork, strategy: Strategy, changes: dict[str, Any]) -> None:
    network = small_network(**changes)
    ours = run_search(network, strategy)
    theirs = run_search(OnnxNetwork.from_network(network, threads=1), strategy)
    assert torch.equal(ours.ids, theirs.ids)
    torch.testing.assert_close(theirs.value, ours.value, atol=1e-4, rtol=1e-4)


def test_a_state_has_the_next_log_probabilities(small_network: MakeNetwork) -> None:
    onnx = OnnxNetwork.from_network(small_network(), threads=1)
    logits, state = onnx.step(torch.full((6, 1), 2), onnx.start(onnx.encode(*sources(17))))
    assert state.log_probs is not None
    torch.testing.assert_close(state.log_probs, logits[:, -1].log_softmax(-1), **CLOSE)


def test_in_place_steps_equal_plain_steps(small_network: MakeNetwork) -> None:
    onnx = OnnxNetwork.from_network(small_network(), threads=1)
    ids = torch.randint(4, 17, (3, 70), generator=seeded(3))
    plain = onnx.start(onnx.encode(*sources(17)))
    steps = onnx.in_place_stepper(onnx.start(onnx.encode(*sources(17))))
    for column in ids.split(1, dim=1):
        logits, plain = onnx.step(column.contiguous(), plain)
        log_probs = steps.step(column.numpy())
        torch.testing.assert_close(torch.from_numpy(log_probs), logits[:, 0].log_softmax(-1), **CLOSE)
    assert steps.state.length == plain.length
    ours, _ = onnx.step(ids[:, :1], plain)
    theirs, _ = onnx.step(ids[:, :1], steps.state)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("strategy", [Greedy(), Beam(4)], ids=str)
def test_earlier_graphs_without_log_probabilities_work(small_network: MakeNetwork, strategy: Strategy) -> None:
    network = small_network()
    graph = step_graph(network)
    (log_probs,) = (each for each in graph.graph.output if each.name == "log_probs")
    graph.graph.output.remove(log_probs)
    earlier = OnnxNetwork(
        encoder_graph(network).SerializeToString(), graph.SerializeToString(), network.config, threads=1
    )
    now, before = run_search(OnnxNetwork.from_network(network, threads=1), strategy), run_search(earlier, strategy)
    assert torch.equal(now.ids, before.ids)
    torch.testing.assert_close(now.value, before.value, atol=1e-4, rtol=1e-4)
    first_step = earlier.in_place_stepper(earlier.start(earlier.encode(*sources(17)))).step(np.full((3, 1), 2))
    torch.testing.assert_close(torch.from_numpy(first_step).exp().sum(dim=-1), torch.ones(3))


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "post", "activation": "gelu"}, {"positions": "rotary"}, {"positions": "relative"}], ids=str
)
def test_int8_is_close(small_network: MakeNetwork, changes: dict[str, Any]) -> None:
    network = small_network(d_model=64, d_ff=128, **changes)
    quantized = OnnxNetwork.from_network(network, activation_ranges(network, random_examples(network)), threads=1)
    ours, theirs = step_both(network, quantized, rows=2, steps=6)
    difference = (theirs - ours).abs()
    assert 0 < difference.mean() < 0.05 * ours.std()


def test_in_int8_a_sentence_ignores_its_neighbours(small_network: MakeNetwork) -> None:
    network = small_network()
    quantized = OnnxNetwork.from_network(network, activation_ranges(network, random_examples(network)), threads=1)
    ids, mask = sources(17)
    together, _ = quantized.step(torch.full((3, 1), 2), quantized.start(quantized.encode(ids, mask)))
    alone, _ = quantized.step(torch.full((1, 1), 2), quantized.start(quantized.encode(ids[1:2, :4])))
    torch.testing.assert_close(together[1], alone[0], atol=1e-5, rtol=0.0)


def test_a_range_is_the_largest_input_of_a_product(small_network: MakeNetwork) -> None:
    network = small_network(norm="post")
    inputs: list[float] = []
    network.output.register_forward_pre_hook(lambda _, args: inputs.append(float(args[0].abs().max())))
    ranges = activation_ranges(network, random_examples(network))
    assert ranges[network.output] == max(inputs)


def test_ranges_include_fused_linear_relu(small_network: MakeNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    network = small_network()
    plain = activation_ranges(network, random_examples(network))
    monkeypatch.setattr("attendo.nn.feedforward.linear_relu", fused_linear_relu)
    assert activation_ranges(network, random_examples(network)) == pytest.approx(plain, rel=1e-4)


def test_a_source_of_padding_alone_gives_equal_logits(small_network: MakeNetwork) -> None:
    network = small_network()
    onnx, ids = OnnxNetwork.from_network(network, threads=1), torch.full((2, 5), 6)
    mask = torch.tensor([[True] * 5, [False] * 5])
    with torch.no_grad():
        ours, _ = network.step(torch.full((2, 1), 2), network.start(network.encode(ids, mask)))
    theirs, _ = onnx.step(torch.full((2, 1), 2), onnx.start(onnx.encode(ids, mask)))
    torch.testing.assert_close(theirs, ours, **CLOSE)


def test_rows_share_the_memory_of_their_sentence(small_network: MakeNetwork) -> None:
    onnx = OnnxNetwork.from_network(small_network(), threads=1)
    state = onnx.start(onnx.encode(*sources(17)))
    _, state = onnx.step(torch.full((12, 1), 2), state)
    assert state.memory.tensors["keys.0"].size(0) == 3


def test_it_implements_the_search_interface(small_network: MakeNetwork) -> None:
    onnx = OnnxNetwork.from_network(small_network(), threads=1)
    assert isinstance(onnx, Seq2SeqNetwork)
    assert not isinstance(onnx, StaticNetwork)


def test_unsupported_inputs_raise_usage_errors(small_network: MakeNetwork) -> None:
    onnx = OnnxNetwork.from_network(small_network(positions="learned", max_length=4), threads=1)
    with pytest.raises(UsageError, check=has_code("token_id_outside_vocabulary", token_id=17, size=17)):
        onnx.encode(torch.tensor([[17]]))
    with pytest.raises(UsageError, check=has_code("token_id_outside_vocabulary", token_id=-1)):
        onnx.encode(torch.tensor([[-1]]))
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", count=5, max_length=4)):
        onnx.encode(torch.full((1, 5), 6))
    state = onnx.start(onnx.encode(torch.full((1, 4), 6)))
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", count=5)):
        onnx.step(torch.full((1, 5), 6), state)
    for _ in range(4):
        _, state = onnx.step(torch.full((1, 1), 6), state)
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", count=5)):
        onnx.step(torch.full((1, 1), 6), state)
    steps = onnx.in_place_stepper(onnx.start(state.memory))
    for _ in range(4):
        steps.step(np.full((1, 1), 6))
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", count=5)):
        steps.step(np.full((1, 1), 6))


def test_a_network_without_an_encoder_is_rejected(small_network: MakeNetwork) -> None:
    network = small_network(num_encoder_layers=0)
    assert [reason.code for reason in incompatibilities(network.config)] == ["encoder_missing"]
    with pytest.raises(ModelError, check=has_code("onnx_network_unsupported")):
        step_graph(network)


def step_both(network: Transformer, onnx: OnnxNetwork, rows: int, steps: int) -> tuple[Tensor, Tensor]:
    """The logits of both networks. Rows are reordered now and then, and a sentence leaves after three steps."""
    config = network.config
    ids, mask = sources(config.source_vocab_size or 0)
    target = torch.randint(4, config.target_vocab_size or 0, (len(LENGTHS) * rows, steps), generator=seeded(2))
    kept_sentences, kept_rows = torch.tensor([0, 2]), torch.tensor([0, 1, 4, 5])
    parents = torch.tensor([1, 1, 2, 3])
    logits: dict[str, list[Tensor]] = {"ours": [], "theirs": []}
    for name, each in (("ours", network), ("theirs", onnx)):
        ids_by_row = target
        with torch.no_grad():
            state: Any = each.start(each.encode(ids, mask))
            for step in range(steps):
                step_logits, state = each.step(ids_by_row[:, step : step + 1], state)
                logits[name].append(step_logits.flatten().clone())  # the next step may overwrite this memory
                if step == 2:
                    state, ids_by_row = state.select(kept_sentences, kept_rows), ids_by_row[kept_rows]
                elif step > 2 and step % 2:
                    state = state.reorder(parents)
    return torch.cat(logits["ours"]), torch.cat(logits["theirs"])


def run_search(network: Any, strategy: Strategy) -> Frontier:
    """A search with different length limits, prefixes and rules."""
    limits = make_limits(torch.tensor([9, 5, 40]), prefix=[(5, 6), (), (7,)])
    with torch.no_grad():
        state = network.start(network.encode(*sources(17)))
    rules = (NoRepeatNgram(3), SuppressTokens(), ForcedPrefix())
    return deque(search(network, state, limits, strategy, rules), maxlen=1).pop().hypotheses


def sources(vocab_size: int) -> tuple[Tensor, Tensor]:
    width = max(LENGTHS)
    ids = torch.randint(4, vocab_size, (len(LENGTHS), width), generator=seeded(1))
    mask = torch.arange(width) < torch.tensor(LENGTHS)[:, None]
    return ids.masked_fill(~mask, 0), mask


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
