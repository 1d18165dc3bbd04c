"""Diverse beam search compared with plain Python, with a plain beam, and with results computed by hand."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch
from error_codes import has_code
from search_rows import make_limits
from sync_detector import SyncDetector
from toy_networks import TEXT_TOKENS, A, B, Bigrams, BigramState, BigramTable, Trees, TreeState, log_probability, logits

from attendo.decode import search as loop
from attendo.decode.beam import Beam, Stop
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.rules import NoRepeatNgram, SuppressTokens
from attendo.decode.search import Strategy, search
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD, UNK

LIMITS = [n % 7 for n in range(14)]


def search_steps(strategy: Strategy, limits: list[int], first: int = 0) -> list[Frontier]:
    trees = TreeState.start(*range(first, first + len(limits)))
    return list(search(Trees(), trees, make_limits(torch.tensor(limits)), strategy, [SuppressTokens()]))


def token_ids(frontier: Frontier) -> list[list[int]]:
    return [[token for token in row[1:] if token != PAD] for row in frontier.ids.tolist()]


@dataclass
class Group:
    """A beam in plain Python. A hypothesis: tokens, log-probability, penalty; if finished, its score first."""

    width: int
    rows: list[tuple[list[int], float, float]]
    finished: list[tuple[float, list[int], float, float]] = field(default_factory=list)
    cut: list[tuple[float, list[int], float, float]] = field(default_factory=list)
    done: bool = False


def search_in_plain_python(
    tree: int, limit: int, width: int, groups: int, strength: float, stop: Stop
) -> list[tuple[list[int], float, float]]:
    """Tokens, log-probability and penalty of all hypotheses, best first. Scores are averages over tokens."""
    beams = [Group(width // groups, [([], 0.0, 0.0)]) for _ in range(groups)]
    while not all(beam.done for beam in beams):
        chosen: Counter[int] = Counter()
        for beam in beams:
            if not beam.done:
                step(beam, tree, limit, {token: strength * chosen[token] for token in (*TEXT_TOKENS, EOS)}, stop)
                chosen.update(ids[-1] for ids, *_ in beam.rows if not beam.done)
    ended = sorted((each for beam in beams for each in beam.finished), reverse=True)
    cut = sorted((each for beam in beams for each in beam.cut), reverse=True)
    return [(ids, log_p, penalty) for _, ids, log_p, penalty in (*ended, *cut)]


def step(beam: Group, tree: int, limit: int, penalties: dict[int, float], stop: Stop) -> None:
    candidates, width = [], beam.width
    for ids, log_p, penalty in beam.rows:
        log_probs = logits(tree, (BOS, *ids)).log_softmax(-1).tolist()
        for token in (*TEXT_TOKENS, EOS):
            scores = log_p + log_probs[token], penalty - penalties[token]
            candidates.append((sum(scores), [*ids, token], *scores))
    candidates.sort(key=lambda candidate: -candidate[0])
    ending = [candidate[1:] for candidate in candidates[:width] if candidate[1][-1] == EOS]
    continuing = [candidate[1:] for candidate in candidates if candidate[1][-1] != EOS][:width]
    beam.finished += [((log_p + penalty) / len(ids), ids, log_p, penalty) for ids, log_p, penalty in ending]
    beam.finished = sorted(beam.finished, reverse=True)[:width]
    if len(beam.rows[0][0]) == limit:
        before = [ids[:-1] for ids, *_ in ending]
        beam.cut = [((p + q) / max(1, len(ids)), ids, p, q) for ids, p, q in beam.rows if ids not in before]
        beam.cut = sorted(beam.cut, reverse=True)[: width - len(beam.finished)]
        beam.done = True
    elif len(beam.finished) == width:
        best_open = max((log_p + penalty) / len(ids) for ids, log_p, penalty in continuing)
        beam.done = stop == "first" or best_open <= beam.finished[-1][0]
    beam.rows = continuing


@pytest.mark.parametrize("stop", ["first", "settled"])
@pytest.mark.parametrize(("width", "groups", "strength"), [(4, 2, 0.7), (6, 3, 0.3), (3, 3, 1.0)])
def test_diverse_beams_equal_those_of_plain_python(width: int, groups: int, strength: float, stop: Stop) -> None:
    last = search_steps(DiverseBeam(width, groups, strength, stop=stop), LIMITS)[-1].hypotheses
    penalised = 0
    for tree, limit in enumerate(LIMITS):
        ours = last.select_sentences(torch.tensor([tree]))
        exists = [row for row in range(width) if ours.log_probability[row] != NEG_INF]
        expected = search_in_plain_python(tree, limit, width, groups, strength, stop)
        assert [token_ids(ours)[row] for row in exists] == [ids for ids, *_ in expected]
        for row, (_, log_p, penalty) in zip(exists, expected, strict=True):
            assert ours.log_probability[row].item() == pytest.approx(log_p, abs=1e-5)
            assert ours.penalty[row].item() == pytest.approx(penalty, abs=1e-5)
            penalised += penalty < 0
    assert penalised > 3


@pytest.mark.parametrize("stop", ["first", "settled", "exhaustive"])
@pytest.mark.parametrize("width", [1, 3])
def test_one_group_equals_a_plain_beam_bit_for_bit(width: int, stop: Stop) -> None:
    ranking = Ranking("gnmt", 0.6)
    plain = search_steps(Beam(width, ranking, stop), LIMITS)
    diverse = search_steps(DiverseBeam(width, 1, 0.8, ranking, stop), LIMITS)
    assert len(plain) == len(diverse)
    for one, other in zip(plain, diverse, strict=True):
        for name in ("ids", "length", "log_probability", "penalty", "open", "ended", "cut"):
            assert torch.equal(getattr(one.hypotheses, name), getattr(other.hypotheses, name))
            assert torch.equal(getattr(one, name), getattr(other, name))


def test_with_strength_zero_all_groups_are_equal() -> None:
    last = search_steps(DiverseBeam(6, 3, 0.0), [4] * 8)[-1].hypotheses
    plain = search_steps(Beam(2), [4] * 8)[-1].hypotheses
    for tree in range(8):
        ours, beam = (each.select_sentences(torch.tensor([tree])) for each in (last, plain))
        assert token_ids(ours)[::3] == token_ids(beam)
        assert token_ids(ours)[1::3] == token_ids(ours)[2::3] == token_ids(beam)


def test_a_later_group_avoids_tokens_of_an_earlier_group() -> None:
    """a .6, b .3: the first group takes a. With strength 1, log .6 - 1 < log .3, so the second group takes b."""
    table: BigramTable = {BOS: {A: 0.6, B: 0.3, UNK: 0.1}, A: {EOS: 1.0}, B: {EOS: 1.0}}
    state, row_limits = BigramState(torch.arange(1)), make_limits(torch.tensor([4]))
    for strength, second, penalty in ((1.0, B, 0.0), (0.5, A, -0.5)):
        *_, last = search(
            Bigrams(table), state, row_limits, DiverseBeam(2, 2, strength, stop="first"), [SuppressTokens()]
        )
        assert token_ids(last.hypotheses) == [[A, EOS], [second, EOS]]
        assert last.hypotheses.penalty.tolist() == pytest.approx([0.0, penalty])
        assert last.hypotheses.log_probability.exp().tolist() == pytest.approx([0.6, 0.6 if second == A else 0.3])


def test_D1_a_sentence_has_the_same_hypotheses_alone_and_among_others() -> None:
    strategy = DiverseBeam(6, 3, 0.6)
    together = search_steps(strategy, LIMITS)[-1].hypotheses
    for tree, limit in enumerate(LIMITS[:5]):
        alone, among = (
            search_steps(strategy, [limit], tree)[-1].hypotheses,
            together.select_sentences(torch.tensor([tree])),
        )
        assert token_ids(alone) == token_ids(among)
        for name in ("log_probability", "penalty", "ended", "cut"):
            assert torch.equal(getattr(alone, name), getattr(among, name))


def test_finished_sentences_stay_unchanged_and_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = search_steps(DiverseBeam(4, 2, 0.6), LIMITS)[-1].hypotheses
    monkeypatch.setattr(loop, "CLOSED_SHARE", 2.0)
    kept = search_steps(DiverseBeam(4, 2, 0.6), LIMITS)[-1].hypotheses
    assert token_ids(removed) == token_ids(kept)
    scores = Ranking().score(kept).view(-1, 4)
    ended = kept.ended.view(-1, 4)
    assert (ended.byte().diff(dim=1) != 1).all()
    assert ((scores.diff(dim=1) <= 0) | (ended[:, :-1] != ended[:, 1:]) | (scores[:, 1:] == NEG_INF)).all()


def test_D3_the_reported_log_probability_excludes_rules_and_groups() -> None:
    rules = [SuppressTokens(), NoRepeatNgram(2)]
    *_, last = search(
        Trees(), TreeState.start(*range(9)), make_limits(torch.tensor([5] * 9)), DiverseBeam(4, 2, 0.9), rules
    )
    hypotheses = last.hypotheses
    assert (hypotheses.penalty < 0).sum() > 5
    for row, (ids, reported) in enumerate(zip(token_ids(hypotheses), hypotheses.log_probability.tolist(), strict=True)):
        assert reported == NEG_INF or reported == pytest.approx(log_probability(row // 4, ids), abs=1e-5)


def test_no_step_synchronises_the_host() -> None:
    strategy = DiverseBeam(4, 2, 0.5)
    frontier = strategy.start(make_limits(torch.tensor([3, 5])))
    log_probs = torch.stack([logits(n, (BOS,)).log_softmax(-1) for n in range(8)])
    with SyncDetector() as detector:
        for _ in range(3):
            _, frontier = strategy.advance(frontier, log_probs, log_probs)
    assert detector.operations > 0
    assert not detector.caught


def test_groups_that_do_not_divide_the_width_are_rejected() -> None:
    for width, groups in ((4, 3), (4, 0), (0, 1), (2, 4)):
        with pytest.raises(UsageError, check=has_code("width_not_divisible_by_groups", groups=groups, width=width)):
            DiverseBeam(width, groups)
    with pytest.raises(UsageError, check=has_code("diversity_strength_negative")):
        DiverseBeam(4, 2, -1.0)
