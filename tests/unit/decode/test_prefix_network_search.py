"""Search with a prefix LM: the best of all targets, ensembles with encoder–decoders, one source for all rows."""

import itertools

import pytest
import torch
from search_rows import make_limits
from varied_network import NETWORKS, Make, random_requests, varied_network

from attendo.decode.beam import Beam
from attendo.decode.engines import CachedEngine, FastEngine
from attendo.decode.networks import Ensemble
from attendo.decode.ranking import Ranking
from attendo.decode.rules import SuppressTokens
from attendo.decode.search import search
from attendo.text import BOS, EOS, PAD

SOURCE = torch.tensor([[5, 4, 6, EOS]])


@torch.no_grad()
@pytest.mark.parametrize("kind", NETWORKS)
def test_a_wide_beam_finds_the_most_probable_of_all_targets(small_network: Make, kind: str) -> None:
    network = varied_network(small_network, vocab_size=7, **NETWORKS[kind])
    tokens = [token for token in range(7) if token not in (PAD, BOS, EOS)]
    targets = [target for length in range(4) for target in itertools.product(tokens, repeat=length)]
    scores = {}
    for target in targets:
        log_probs = network(SOURCE, torch.tensor([[BOS, *target]])).log_softmax(-1)[0]
        scores[target] = float(log_probs.gather(1, torch.tensor([*target, EOS])[:, None]).sum())
    beam = Beam(200, Ranking("none"), "exhaustive")
    state = network.start(network.encode(SOURCE))
    *_, last = search(network, state, make_limits(torch.tensor([3])), beam, (SuppressTokens(),))
    found = tuple(last.hypotheses.ids[0, 1 : int(last.hypotheses.length[0])].tolist())
    assert found == max(scores, key=lambda target: scores[target])
    assert float(last.hypotheses.log_probability[0]) == pytest.approx(max(scores.values()), abs=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("engine", [CachedEngine, FastEngine])
def test_a_prefix_lm_and_an_encoder_decoder_form_an_ensemble(small_network: Make, engine: type[CachedEngine]) -> None:
    networks = [varied_network(small_network, seed=3, **settings) for settings in NETWORKS.values()]
    requests = random_requests(5, range(3, 9))
    answers = [
        each
        for batch in engine(Ensemble(networks), 200).generate(requests, Beam(3), (SuppressTokens(),))
        for each in batch.split()
    ]
    assert len(answers) == 5
    for request, hypotheses in answers:
        ids = [token for token in hypotheses.ids[0, 1:].tolist() if token != PAD]
        inputs, labels = torch.tensor([[BOS, *ids[:-1]]]), torch.tensor(ids)[:, None]
        logits = [each(torch.tensor([[*request.source, EOS]]), inputs) for each in networks]
        mean = torch.stack([each.softmax(-1)[0] for each in logits]).mean(0).log()
        assert float(hypotheses.log_probability[0]) == pytest.approx(float(mean.gather(1, labels).sum()), abs=1e-4)


@torch.no_grad()
def test_the_source_is_stored_once_for_all_rows_of_a_beam(small_network: Make) -> None:
    network = small_network(**NETWORKS["prefix LM"])
    state = network.start(network.encode(SOURCE))
    _, state = network.step(torch.full((8, 1), BOS), state)
    assert {kv.keys.size(0) for kv in state.memory} == {1}
    assert {kv.keys.size(0) for kv in state.past} == {8}
    assert {kv.length for kv in state.past} == {1}  # the cache holds only the target
