"""Presets: the settings of other systems, one at a time. tests/parity compares with the systems themselves."""

import math
from typing import Any

import pytest
import torch
from search_rows import make_limits, trim_ids
from torch import Tensor
from toy_networks import ENDLESS, SHORT, SILENT, A, B, Bigrams, BigramState, BigramTable

from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.frontier import Frontier
from attendo.decode.presets import PRESETS, preset
from attendo.decode.ranking import Normalise, Ranking
from attendo.decode.rules import ForceEosAtLimit, Renormalise, RepetitionPenalty, SuppressTokens
from attendo.decode.search import Rule, Strategy, search
from attendo.decode.strategies import Greedy, Sampling
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD

# After BOS, a and b are nearly equal. Then b ends and a continues.
FORKED: BigramTable = {BOS: {A: 0.5, B: 0.4, EOS: 0.1}, A: {A: 0.6, EOS: 0.4}, B: {EOS: 0.9, B: 0.1}}


def search_hypotheses(table: BigramTable, strategy: Strategy, limit: int, *rules: Rule) -> Frontier:
    row_limits = make_limits(torch.tensor([limit]))
    *_, last = search(Bigrams(table), BigramState(torch.arange(1)), row_limits, strategy, [SuppressTokens(), *rules])
    return last.hypotheses


def ids_and_probabilities(frontier: Frontier) -> list[tuple[list[int], float]]:
    """Token ids and probability of every hypothesis."""
    rows = zip(frontier.ids.tolist(), frontier.log_probability.tolist(), strict=True)
    return [
        ([token for token in ids[1:] if token != PAD], round(math.exp(log_probability), 6))
        for ids, log_probability in rows
        if log_probability > -math.inf
    ]


def make_row(*tokens: int, limit: int = 9) -> Frontier:
    frontier = Frontier.start(make_limits(torch.tensor([limit])))
    for token in tokens:
        frontier = frontier.append(torch.tensor([token]), torch.zeros(1), torch.zeros(1))
    return frontier


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fairseq", {"beam": 5, "stop": "first_come", "at_limit": "force_eos", "max_length_extra": 200}),
        ("hf", {"beam": 1, "stop": "settled", "at_limit": "any", "max_length_extra": 20, "top_k": 50}),
        ("ctranslate2", {"beam": 2, "stop": "first", "at_limit": "any", "renormalise": True, "max_length_extra": 256}),
        ("marian", {"beam": 12, "stop": "shrinking", "at_limit": "any", "length_penalty": 0.0, "allow_unk": False}),
    ],
)
def test_omitted_settings_are_those_of_the_preset(name: str, settings: dict[str, Any]) -> None:
    config = preset(name)
    assert {key: getattr(config, key) for key in settings} == settings
    assert config.normalise == "average"
    assert config.counts_eos


@pytest.mark.parametrize("name", PRESETS)
def test_given_settings_override_the_preset_and_none_is_ignored(name: str) -> None:
    given = {"beam": 3, "stop": "exhaustive", "at_limit": "truncate", "repetition_of": "logits", "max_length_extra": 7}
    config = preset(name, {**given, "length_penalty": 0.0, "top_p": None})
    assert {key: getattr(config, key) for key in given} == given
    assert config.top_p == 1.0


def test_preset_settings_depend_on_other_settings() -> None:
    assert preset("hf").repetition_of == "logits"
    assert preset("hf", {"beam": 2}).repetition_of == "log_probabilities"
    assert preset("ctranslate2", {"beam": 4}).repetition_of == "logits"
    assert preset("ctranslate2", {"length_penalty": 0}).stop == "leader"
    assert preset("ctranslate2", {"length_penalty": 0, "coverage_penalty": 0.1}).stop == "first"
    assert preset("marian").max_length_extra == 3
    assert preset("marian", {"max_length_factor": 1.5}).max_length_extra == 2


def test_a_preset_keeps_only_the_machine_settings_of_the_model() -> None:
    own = GenerationConfig(beam=7, normalise="gnmt", max_length_extra=3, batch_tokens=99, engine="cached", max_source=5)
    config = preset("fairseq", {"max_source": 6}, own)
    assert (config.batch_tokens, config.engine, config.max_source) == (99, "cached", 6)
    assert config.replace(batch_tokens=4096, engine="auto", max_source=8192, precision="auto") == preset(
        "fairseq"
    ).replace(batch_tokens=4096, engine="auto", max_source=8192, precision="auto")


@pytest.mark.parametrize(("name", "given"), [("Marian", {}), ("hf", {"beam": "four"}), ("hf", {"beem": 4})])
def test_unknown_names_and_invalid_values_are_rejected(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"marian|beam"):
        preset(name, given)


@pytest.mark.parametrize("strategy", [Greedy(free_end=True), Sampling(1, free_end=True), Beam(1, free_end=True)])
def test_with_free_end_the_token_after_the_limit_ends_the_row(strategy: Strategy) -> None:
    table: BigramTable = {BOS: {B: 0.9, EOS: 0.1}, B: {B: 1.0}} if isinstance(strategy, Sampling) else ENDLESS
    last = search_hypotheses(table, strategy, 3)
    assert trim_ids(last).tolist() in ([[BOS, B, B, B, B]], [[BOS, EOS]])
    assert last.cut.tolist() == [last.length.item() == 4]
    assert last.ended.all()
    silent_row = search_hypotheses(SILENT, strategy, 0)
    assert trim_ids(silent_row).tolist() in ([[BOS, EOS]], [[BOS, A]])
    assert silent_row.cut.tolist() == [silent_row.ids[0, 1].item() == A]


def test_with_free_end_cut_rows_rank_with_ended_rows() -> None:
    table: BigramTable = {BOS: {A: 0.9, EOS: 0.1}, A: {A: 0.9, EOS: 0.1}}
    free, cut = (search_hypotheses(table, Beam(2, free_end=free_end), 1) for free_end in (True, False))
    assert ids_and_probabilities(free) == [([A, A], 0.81), ([A, EOS], 0.09)]
    assert free.cut.tolist() == [True, False]
    assert ids_and_probabilities(cut) == [([A, EOS], 0.09), ([EOS], 0.1)]


def test_eos_is_not_subtracted_from_a_row_without_eos() -> None:
    ended, cut = (
        make_row(A, EOS),
        make_row(A, limit=1).append(torch.tensor([B]), torch.zeros(1), torch.zeros(1), free_end=True),
    )
    assert cut.ended.all()
    assert cut.cut.all()
    assert [Ranking(counts_eos=False).tokens(each).item() for each in (ended, cut)] == [1, 2]


def test_a_forced_eos_keeps_its_model_probability() -> None:
    assert ids_and_probabilities(search_hypotheses(ENDLESS, Greedy(), 2, ForceEosAtLimit())) == [
        ([B, B, EOS], round(0.9 * 0.8 * 0.2, 6))
    ]
    last = search_hypotheses(ENDLESS, Beam(2), 2, ForceEosAtLimit())
    assert ids_and_probabilities(last) == [([B, B, EOS], round(0.9 * 0.8 * 0.2, 6)), ([B, EOS], 0.18)]
    assert last.ended.all()
    assert not last.cut.any()


def test_first_come_keeps_early_hypotheses() -> None:
    """EOS as the first token finishes before two better hypotheses, and stays."""
    table: BigramTable = {BOS: {EOS: 0.4, A: 0.35, B: 0.25}, A: {EOS: 0.6, A: 0.4}, B: {EOS: 0.9, B: 0.1}}
    first, first_come = (
        search_hypotheses(table, Beam(2, Ranking("average", 3.0), stop), 9) for stop in ("first", "first_come")
    )
    assert ids_and_probabilities(first) == [([B, EOS], 0.225), ([A, EOS], 0.21)]
    assert ids_and_probabilities(first_come) == [([B, EOS], 0.225), ([EOS], 0.4)]


def test_leader_stops_once_enough_hypotheses_are_finished() -> None:
    leader = ids_and_probabilities(search_hypotheses(FORKED, Beam(2, Ranking("none"), "leader", num_hypotheses=1), 9))
    assert leader == [([B, EOS], 0.36)]
    several = ids_and_probabilities(search_hypotheses(FORKED, Beam(2, Ranking("none"), "leader", num_hypotheses=2), 9))
    assert several == [([B, EOS], 0.36), ([A, A, EOS], 0.12)]
    trailing: BigramTable = {**FORKED, BOS: {A: 0.7, B: 0.2, EOS: 0.1}, A: {A: 0.9, EOS: 0.1}, B: {EOS: 1.0}}
    later = search_hypotheses(trailing, Beam(2, Ranking("none"), "leader", num_hypotheses=1), 4)
    assert later.length.max() > 2  # b ended, but a was ranked before it


def test_a_shrinking_beam_loses_one_row_per_finished_hypothesis() -> None:
    """b ends. The remaining row keeps only its best continuation, which never ends."""
    none = Ranking("none")
    assert ids_and_probabilities(search_hypotheses(FORKED, Beam(2, none, "shrinking"), 2)) == [
        ([B, EOS], 0.36),
        ([A, A], 0.3),
    ]
    assert ids_and_probabilities(search_hypotheses(FORKED, Beam(2, none, "shrinking", free_end=True), 2)) == [
        ([B, EOS], 0.36),
        ([A, A, A], 0.18),
    ]
    assert ids_and_probabilities(search_hypotheses(FORKED, Beam(2, none, "first"), 2)) == [
        ([B, EOS], 0.36),
        ([A, A, EOS], 0.12),
    ]
    assert ids_and_probabilities(search_hypotheses(SILENT, Beam(1, none, "shrinking"), 9)) == [([EOS], 0.9)]


def test_renormalise_redistributes_forbidden_probability() -> None:
    log_probs = torch.tensor([[0.5, 0.3, 0.2, 0.0]]).log()
    ruled = log_probs.clone()
    ruled[0, 0] = -math.inf
    torch.testing.assert_close(Renormalise()(ruled, make_row()).exp(), torch.tensor([[0.0, 0.6, 0.4, 0.0]]))
    all_forbidden = torch.full((1, 4), -math.inf)
    assert torch.equal(Renormalise()(all_forbidden, make_row()), all_forbidden)


def test_a_repetition_penalty_on_logits_divides_positive_values() -> None:
    logits = torch.tensor([[0.0, 0.0, -1.0, 0.5, 3.0, -2.0]])
    ruled = RepetitionPenalty(2.0, applies_to_logits=True)(logits, make_row(A, B))
    torch.testing.assert_close(ruled, torch.tensor([[0.0, 0.0, -2.0, 0.5, 1.5, -4.0]]))


def test_a_rule_on_logits_leaves_normalised_probabilities() -> None:
    """Logits of the tables are log-probabilities plus 3: above 0 for probable tokens."""
    last = search_hypotheses(SHORT, Greedy(), 2, RepetitionPenalty(9.0))
    on_logits = search_hypotheses(SHORT, Greedy(), 2, RepetitionPenalty(9.0, applies_to_logits=True))
    seen: list[Tensor] = []

    class RecordingRule(Rule):
        def __call__(self, log_probs: Tensor, frontier: Frontier) -> Tensor:
            seen.append(log_probs)
            return log_probs

    search_hypotheses(SHORT, Greedy(), 2, RepetitionPenalty(9.0, applies_to_logits=True), RecordingRule())
    assert all(torch.allclose(each.exp().sum(-1), torch.ones(1)) for each in seen)
    assert ids_and_probabilities(last)[0][0][:2] == ids_and_probabilities(on_logits)[0][0][:2] == [A, B]


@pytest.mark.parametrize("normalise", ["none", "average", "gnmt", "reward"])
@pytest.mark.parametrize("length_penalty", [-0.5, 0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("word_penalty", [-0.7, 0.0, 0.7])
@pytest.mark.parametrize("counts_eos", [True, False])
def test_no_score_is_better_than_the_best_possible(
    normalise: Normalise, length_penalty: float, word_penalty: float, counts_eos: bool
) -> None:
    ranking = Ranking(normalise, length_penalty, counts_eos, word_penalty=word_penalty)
    frontier, cost = make_row(A, B, limit=12), torch.tensor([-4.0])
    best = ranking.best_possible(Frontier(**{**vars(frontier), "log_probability": cost})).item()
    # With counts_eos, an immediate EOS is the third token. The last token comes after the limit.
    for tokens in range(2 + counts_eos, 14):
        score = ranking.score_values(cost, torch.tensor([tokens])).item()
        assert score <= best + 1e-6
        divisor, added = ranking.terms(tokens)
        assert score == pytest.approx(cost.item() / divisor + added, abs=1e-5)


def test_a_word_penalty_is_subtracted_before_normalisation() -> None:
    ranking = Ranking("average", 0.5, word_penalty=0.25)
    score = ranking.score_values(torch.tensor([-3.0]), torch.tensor([4]))
    assert score.item() == pytest.approx((-3.0 - 0.25 * 4) / 4**0.5)
