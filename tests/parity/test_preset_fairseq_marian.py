"""`preset="fairseq"` and `preset="marian"` against plain reference searches for one sentence at a time."""

from collections import deque
from typing import Any

import pytest
import torch
from search_parity import Hypotheses, assert_same
from search_rows import make_limits
from trigrams import Trigrams, TrigramState

from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.presets import preset
from attendo.decode.ranking import Ranking
from attendo.decode.search import search
from attendo.text import BOS, EOS, PAD, UNK
from attendo.text_model.generation import make_rules, make_strategy

COUNT = 60
TABLES = Trigrams(COUNT)
Row = tuple[float, tuple[int, ...]]  # the value and the tokens


def fairseq(table: int, beam: int, length_penalty: float, min_length: int, max_length: int) -> Hypotheses:
    """At the last step only EOS is allowed. Finished rows fill `beam` slots. The search ends when all are filled."""
    rows: list[Row] = [(0.0, ())]
    finished: list[Row] = []
    for step in range(max_length + 1):
        forbidden = {PAD, BOS} | ({EOS} if step < min_length else set())
        candidates = [
            candidate
            for candidate in _continuations(table, rows, forbidden)
            if step < max_length or candidate[1][-1] == EOS
        ][: 2 * beam]
        for value, tokens in candidates[:beam]:
            if tokens[-1] == EOS and len(finished) < beam:
                finished.append((value / (step + 1) ** length_penalty, tokens))
        if len(finished) == beam:
            break
        rows = [candidate for candidate in candidates if candidate[1][-1] != EOS][:beam]
    return _best_first(finished)


def marian(table: int, beam: int, normalize: float, word_penalty: float, max_length: int) -> Hypotheses:
    """Each slot keeps one of the best continuations. One that ends removes its slot. At the last step all end."""
    rows: list[Row] = [(0.0, ())]
    finished: list[Row] = []
    slots = beam
    for length in range(1, max_length + 1):
        candidates = _continuations(table, rows, {PAD, BOS, UNK})[:slots]
        for value, tokens in candidates:
            if tokens[-1] == EOS or length == max_length:
                finished.append(((value - word_penalty * length) / length**normalize, tokens))
        rows = [candidate for candidate in candidates if candidate[1][-1] != EOS]
        slots = len(rows)
        if not rows:
            break
    return _best_first(finished)


@pytest.mark.parametrize("beam", [1, 2, 4, 5])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
def test_fairseq_hypotheses_are_equal(beam: int, length_penalty: float) -> None:
    ours = _search("fairseq", 9, beam=beam, length_penalty=length_penalty)
    theirs = [fairseq(table, beam, length_penalty, min_length=1, max_length=9) for table in range(COUNT)]
    assert_same(ours, theirs)
    assert len({len(ids) for found in theirs for ids, _ in found}) > 5
    assert beam > 1 or any(len(ids) == 9 for ((ids, _),) in theirs)  # EOS was forced


@pytest.mark.parametrize("beam", [1, 2, 4, 12])
@pytest.mark.parametrize(("normalize", "word_penalty"), [(0.0, 0.0), (0.6, 0.0), (1.0, 0.3), (0.0, -0.4)])
def test_marian_hypotheses_are_equal(beam: int, normalize: float, word_penalty: float) -> None:
    ours = _search("marian", 8, beam=beam, length_penalty=normalize, word_penalty=word_penalty)
    theirs = [marian(table, beam, normalize, word_penalty, max_length=9) for table in range(COUNT)]
    assert_same(ours, theirs)
    assert len({len(ids) for found in theirs for ids, _ in found}) > 5


def test_each_stop_rule_changes_the_answers() -> None:
    for system, limit in (("fairseq", 9), ("marian", 8)):
        theirs = _search(system, limit, beam=5)
        for stop in ("first", "settled", "exhaustive"):
            assert _search(system, limit, beam=5, stop=stop) != theirs


def _continuations(table: int, rows: list[Row], forbidden: set[int]) -> list[Row]:
    """All continuations of the rows, best first."""
    candidates = [
        (value + log_prob, (*tokens, token))
        for value, tokens in rows
        for token, log_prob in enumerate(TABLES.next_log_probs(table, tokens))
        if token not in forbidden
    ]
    return sorted(candidates, reverse=True)


def _best_first(finished: list[Row]) -> Hypotheses:
    return [
        (tuple(token for token in tokens if token != EOS), score) for score, tokens in sorted(finished, reverse=True)
    ]


def _search(system: str, limit: int, **settings: Any) -> list[Hypotheses]:
    """The hypotheses of our search. The limit counts the tokens before the last step."""
    config = preset(system, settings)
    limits = make_limits(torch.full((COUNT,), limit), min_length=config.min_length_extra)
    rules = make_rules(config, min_length=config.min_length_extra > 0)
    frontiers = search(TABLES, TrigramState(torch.arange(COUNT)), limits, make_strategy(config, config.beam), rules)
    hypotheses = deque(frontiers, maxlen=1).pop().hypotheses
    ranking = Ranking.from_config(config)
    scores = ranking.score(hypotheses).tolist()
    return [
        [(_tokens(hypotheses, row), scores[row]) for row in rows if hypotheses.log_probability[row] != NEG_INF]
        for rows in (ranking.order(hypotheses) + hypotheses.width * torch.arange(COUNT)[:, None]).tolist()
    ]


def _tokens(hypotheses: Frontier, row: int) -> tuple[int, ...]:
    return tuple(token for token in hypotheses.ids[row, 1:].tolist() if token not in (PAD, EOS))
