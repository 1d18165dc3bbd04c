"""A graph as a network for the search: exact probabilities, sums and beams."""

import itertools

import pytest
import torch
from search_rows import make_limits

from attendo.decode.beam import Beam
from attendo.decode.graph_network import GraphNetwork, GraphState
from attendo.decode.ranking import Ranking
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import search
from attendo.model.config import ModelConfig
from attendo.model.parallel import ParallelTransformer
from attendo.nn.graph_paths import graph_log_likelihood
from attendo.text import BOS, EOS

VOCABULARY = 7  # four control tokens and three words
WORDS = range(4, VOCABULARY)
SOURCES = torch.tensor([[4, 5, EOS], [6, EOS, 0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


@pytest.fixture(scope="module")
def network() -> ParallelTransformer:
    """A tiny random graph network. Its output is scaled, so that its distributions are not flat."""
    config = ModelConfig(
        kind="graph", vocab_size=VOCABULARY, d_model=8, num_heads=2, d_ff=16, num_encoder_layers=1,
        num_decoder_layers=1, upsample=2, dropout=0.0, tie="all",
    )  # fmt: skip
    made = ParallelTransformer(config, torch.Generator().manual_seed(3)).eval().double()
    with torch.no_grad():
        made.target.tokens.weight.mul_(4)
    return made


def test_the_chain_of_next_tokens_equals_the_dynamic_programme(network: ParallelTransformer) -> None:
    graph = GraphNetwork(network)
    targets = torch.tensor([[4, 6, 4, 5, EOS], [5, 4, EOS, 0, 0]])
    read = torch.cat((torch.full((2, 1), BOS), targets[:, :-1]), 1)
    with torch.no_grad():
        memory = graph.encode(SOURCES, MASK)
        logits, _ = graph.step(read, graph.start(memory))
    found = logits.log_softmax(-1).gather(2, targets[..., None])[..., 0].masked_fill(targets == 0, 0).sum(-1)
    tokens = torch.tensor([[4, 6, 4, 5], [5, 4, 0, 0]])
    emissions = memory.log_emissions.gather(2, tokens[:, None].expand(-1, memory.links.size(1), -1)).transpose(1, 2)
    expected = graph_log_likelihood(emissions, memory.links.log(), torch.tensor([4, 2]), memory.last + 1)
    torch.testing.assert_close(found, expected)


def test_every_step_is_a_distribution(network: ParallelTransformer) -> None:
    graph = GraphNetwork(network)
    with torch.no_grad():
        state = graph.start(graph.encode(SOURCES, MASK))
        for ids in ([[BOS], [BOS]], [[4], [6]], [[5], [5]]):
            logits, state = graph.step(torch.tensor(ids), state)
            torch.testing.assert_close(logits.exp().sum(-1), torch.ones(2, 1, dtype=torch.float64))
            assert not logits[..., [0, BOS]].exp().any()


def test_a_wide_beam_finds_the_most_probable_target(network: ParallelTransformer) -> None:
    """The beam sums over paths. Its best answer is the best of all targets, found by enumeration."""
    graph, sources = GraphNetwork(network), SOURCES[:1, :]
    with torch.no_grad():
        memory = graph.encode(sources)
        scores = {}
        for length in range(4):
            for target in itertools.product(range(1, VOCABULARY), repeat=length):
                if {BOS, EOS} & {*target}:
                    continue
                logits, _ = graph.step(torch.tensor([[BOS, *target]]), graph.start(memory))
                chosen = torch.tensor([*target, EOS])
                scores[target] = float(logits[0].gather(1, chosen[:, None]).sum())
        limits = make_limits(torch.tensor([3]))
        beam = Beam(300, Ranking("none"), "exhaustive")
        *_, last = search(graph, graph.start(memory), limits, beam, (SuppressTokens(),))
    best = last.hypotheses
    found = tuple(best.ids[0, 1 : int(best.length[0])].tolist())
    assert found == max(scores, key=lambda target: scores[target])
    assert float(best.log_probability[0]) == pytest.approx(max(scores.values()), rel=1e-5)


def test_an_impossible_prefix_has_no_nan(network: ParallelTransformer) -> None:
    graph = GraphNetwork(network)
    with torch.no_grad():
        state = graph.start(graph.encode(SOURCES, MASK))
        logits, state = graph.step(torch.tensor([[BOS, BOS, 4], [BOS, 4, 4]]), state)
    assert isinstance(state, GraphState)
    assert not logits.isnan().any()
    assert not logits[0, 1:].any()  # equal logits
