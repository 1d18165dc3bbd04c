"""Speculative decoding returns the answers of the ordinary search, whatever the draft is."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from attendo.decode.config import GenerationConfig
from attendo.decode.engines import CachedEngine, Engine
from attendo.decode.frontier import Frontier
from attendo.decode.parallel import ParallelEngine
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import (
    BannedPhrases,
    ForcedPrefix,
    ForceEosAtLimit,
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressTokens,
)
from attendo.decode.search import Rule, Strategy
from attendo.decode.speculative import (
    AlignedDraft,
    AutoregressiveDraft,
    CachedReader,
    Draft,
    ParallelDraft,
    Propose,
    SpeculativeEngine,
)
from attendo.decode.strategies import Greedy, Sampling
from attendo.model.config import ModelConfig
from attendo.model.parallel import ParallelTransformer
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD

VOCABULARY = 9
REQUESTS = [
    DecodeRequest(number, source, max_length)
    for number, (source, max_length) in enumerate([((4, 5, 6, 7, 4), 12), ((6,), 3), ((5, 5, 4), 20), ((8, 6), 0)])
]
PLAIN: tuple[Rule, ...] = (SuppressTokens(),)
ALL_RULES: tuple[Rule, ...] = (
    RepetitionPenalty(1.3, False),
    SuppressTokens(),
    NoRepeatNgram(2),
    BannedPhrases(((4, 5), (7,))),
    MinLength(),
    ForceEosAtLimit(),
    ForcedPrefix(),
)


@cache
def make_network(seed: int = 0, kind: str = "autoregressive", **changes: Any) -> Transformer:
    """A tiny random network. Its tables are scaled, so that its answers depend on their tokens."""
    config = ModelConfig(
        kind=kind, vocab_size=VOCABULARY, d_model=16, num_heads=2, d_ff=24, num_encoder_layers=1,
        num_decoder_layers=2, dropout=0.0, tie="all", **changes,
    )  # fmt: skip
    made = Transformer if kind == "autoregressive" else ParallelTransformer
    network = made(config, torch.Generator().manual_seed(seed)).eval()
    with torch.no_grad():
        network.target.tokens.weight.mul_(4)
    return network


class GivenDraft(Draft):
    """Proposes the rest of a given answer, which may be right or wrong."""

    def __init__(self, answers: dict[int, list[int]]) -> None:
        self.answers, self.proposals = answers, 0

    def start(self, request: DecodeRequest) -> Propose:
        def propose(tokens: Sequence[int]) -> list[int]:
            self.proposals += 1
            return self.answers[request.request_id][len(tokens) :]

        return propose


def generate(
    engine: Engine,
    strategy: Strategy,
    rules: Sequence[Rule] = PLAIN,
    requests: Sequence[DecodeRequest] = tuple(REQUESTS),
) -> dict[int, Frontier]:
    found = [each for batch in engine.generate(requests, strategy, rules) for each in batch.split()]
    assert len(found) == len(requests)
    return {request.request_id: frontier for request, frontier in found}


def read_tokens(frontier: Frontier) -> list[int]:
    return [token for token in frontier.ids[0].tolist() if token not in (BOS, EOS, PAD)]


def assert_same(found: dict[int, Frontier], expected: dict[int, Frontier]) -> None:
    for number, frontier in expected.items():
        here = found[number]
        columns = min(here.ids.size(1), frontier.ids.size(1))
        assert here.ids[:, :columns].tolist() == frontier.ids[:, :columns].tolist()
        assert not here.ids[:, columns:].any()
        for name in ("length", "open", "ended", "cut"):
            assert getattr(here, name).tolist() == getattr(frontier, name).tolist(), name
        for name in ("log_probability", "penalty"):
            torch.testing.assert_close(getattr(here, name), getattr(frontier, name), atol=1e-4, rtol=1e-5)


def make_draft(name: str) -> Draft:
    match name:
        case "the network itself":
            return AutoregressiveDraft(make_network(), count=3)
        case "another network":
            return AutoregressiveDraft(make_network(seed=5))
        case "nothing":
            return GivenDraft({each.request_id: [] for each in REQUESTS})
        case "one token for ever":
            return GivenDraft({each.request_id: [5] * 40 for each in REQUESTS})
        case kind:
            network = make_network(7, kind)
            assert isinstance(network, ParallelTransformer)
            return ParallelDraft(
                ParallelEngine(
                    network,
                    GenerationConfig(**({"passes": 2, "length_candidates": 2} if kind == "masked" else {})),
                    4096,
                )
            )


DRAFTS = ("the network itself", "another network", "nothing", "one token for ever", "masked", "ctc", "graph")


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    "strategy", [Greedy(), Greedy(free_end=True), Sampling(seed=3)], ids=["greedy", "free", "sample"]
)
def test_any_draft_gives_the_answers_of_the_ordinary_search(captured: bool, draft: str, strategy: Strategy) -> None:
    network = make_network()
    expected = generate(CachedEngine(network, 4096), strategy)
    assert len({tuple(read_tokens(each)) for each in expected.values()}) > 2  # the sources make a difference
    assert_same(generate(SpeculativeEngine(network, make_draft(draft), captured), strategy), expected)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("draft", ["another network", "ctc", "one token for ever"])
def test_rules_prefixes_and_minimum_lengths_apply_as_in_the_ordinary_search(captured: bool, draft: str) -> None:
    network = make_network()
    requests = [replace(each, min_length=2) for each in REQUESTS]
    requests[0], requests[2] = replace(requests[0], prefix=(8, 8, 4)), replace(requests[2], prefix=(6,))
    expected = generate(CachedEngine(network, 4096), Greedy(), ALL_RULES, requests)
    found = generate(SpeculativeEngine(network, make_draft(draft), captured), Greedy(), ALL_RULES, requests)
    assert_same(found, expected)


@pytest.mark.parametrize("captured", [False, True])
def test_a_right_draft_needs_one_pass_and_an_empty_one_a_pass_per_token(captured: bool) -> None:
    network = make_network()
    answers = {number: read_tokens(each) for number, each in generate(CachedEngine(network, 4096), Greedy()).items()}
    right = GivenDraft(answers)
    generate(SpeculativeEngine(network, right, captured), Greedy())
    assert right.proposals == len(REQUESTS)
    empty = GivenDraft({number: [] for number in answers})
    frontiers = generate(SpeculativeEngine(network, empty, captured), Greedy())
    assert empty.proposals == sum(int(each.length) + bool(each.cut) for each in frontiers.values())


def test_a_parallel_draft_goes_on_behind_the_token_that_the_network_chose() -> None:
    draft = AlignedDraft([10, 11, 12, 13, 14, 15])
    assert draft.propose([]) == [10, 11, 12, 13, 14, 15]
    assert draft.propose([10, 20]) == [12, 13, 14, 15]  # 20 replaces 11
    assert draft.propose([10, 20, 12, 14]) == [15]  # 13 is left out
    assert draft.propose([10, 20, 12, 14, 15, 30]) == []


def test_reading_a_changed_target_equals_reading_it_anew() -> None:
    network, request = make_network(), REQUESTS[0]
    reader = CachedReader(network, request)
    source = torch.tensor([[*request.source, EOS]])
    with torch.no_grad():
        for ids, known in (([BOS], 0), ([BOS, 4, 5, 6], 0), ([BOS, 4, 7, 8, 8], 1), ([BOS, 4, 7], 2), ([BOS, 5], 0)):
            expected = network(source, torch.tensor([ids]))[:, known:]
            torch.testing.assert_close(reader.read(ids, known), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("changes", [{"positions": "learned", "max_length": 20}, {"positions": "relative"}], ids=str)
def test_positions_are_those_of_the_ordinary_search_to_the_last(captured: bool, changes: dict[str, Any]) -> None:
    network = make_network(**changes)
    requests = [DecodeRequest(number, (4,) * 19, 19) for number in range(2)]
    rules = (SuppressTokens((PAD, BOS, EOS)),)
    expected = generate(CachedEngine(network, 4096), Greedy(), rules, requests)
    engine = SpeculativeEngine(network, AutoregressiveDraft(network), captured)
    assert_same(generate(engine, Greedy(), rules, requests), expected)


def test_gradients_stay_enabled_between_answers() -> None:
    answers = SpeculativeEngine(make_network(), make_draft("nothing")).generate(REQUESTS, Greedy(), PLAIN)
    next(answers)
    assert torch.is_grad_enabled()
