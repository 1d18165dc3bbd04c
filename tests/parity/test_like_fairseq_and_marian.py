"""`preset="fairseq"` and `preset="marian"` against their searches, written down plainly for one sentence at a time."""

from collections import deque
from typing import Any

import pytest
import torch
from talkative import Found, assert_same
from trigrams import Before, Trigrams

from attendo.decode.frontier import NEG_INF, Frontier, RowLimits
from attendo.decode.presets import preset
from attendo.decode.search import search
from attendo.text import BOS, EOS, PAD, UNK
from attendo.text_model.search_setup import make_ranking, make_rules, make_strategy

COUNT = 60
TABLES = Trigrams(COUNT)
Row = tuple[float, tuple[int, ...]]  # its value, and what it has said


def fairseq(table: int, beam: int, length_penalty: float, least: int, most: int) -> Found:
    """At the last step only eos may come. Who finishes gets one of `beam` places, and the search ends with the last."""
    rows: list[Row] = [(0.0, ())]
    finished: list[Row] = []
    for step in range(most + 1):
        forbidden = {PAD, BOS} | ({EOS} if step < least else set())
        ways = [way for way in _ways(table, rows, forbidden) if step < most or way[1][-1] == EOS][: 2 * beam]
        for value, said in ways[:beam]:
            if said[-1] == EOS and len(finished) < beam:
                finished.append((value / (step + 1) ** length_penalty, said))
        if len(finished) == beam:
            break
        rows = [way for way in ways if way[1][-1] != EOS][:beam]
    return _best_first(finished)


def marian(table: int, beam: int, normalize: float, word_penalty: float, most: int) -> Found:
    """As many continuations as there are rows; each that ends leaves one row fewer. At the last step all end."""
    rows: list[Row] = [(0.0, ())]
    finished: list[Row] = []
    places = beam
    for length in range(1, most + 1):
        ways = _ways(table, rows, {PAD, BOS, UNK})[:places]
        for value, said in ways:
            if said[-1] == EOS or length == most:
                finished.append(((value - word_penalty * length) / length**normalize, said))
        rows = [way for way in ways if way[1][-1] != EOS]
        places = len(rows)
        if not rows:
            break
    return _best_first(finished)


@pytest.mark.parametrize("beam", [1, 2, 4, 5])
@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
def test_fairseq(beam: int, length_penalty: float) -> None:
    ours = _found("fairseq", 9, beam=beam, length_penalty=length_penalty)
    theirs = [fairseq(table, beam, length_penalty, least=1, most=9) for table in range(COUNT)]
    assert_same(ours, theirs)
    assert len({len(ids) for found in theirs for ids, _ in found}) > 5
    assert beam > 1 or any(len(ids) == 9 for ((ids, _),) in theirs)  # by force


@pytest.mark.parametrize("beam", [1, 2, 4, 12])
@pytest.mark.parametrize(("normalize", "word_penalty"), [(0.0, 0.0), (0.6, 0.0), (1.0, 0.3), (0.0, -0.4)])
def test_marian(beam: int, normalize: float, word_penalty: float) -> None:
    ours = _found("marian", 8, beam=beam, length_penalty=normalize, word_penalty=word_penalty)
    theirs = [marian(table, beam, normalize, word_penalty, most=9) for table in range(COUNT)]
    assert_same(ours, theirs)
    assert len({len(ids) for found in theirs for ids, _ in found}) > 5


def test_each_rule_to_stop_matters() -> None:
    for system, limit in (("fairseq", 9), ("marian", 8)):
        theirs = _found(system, limit, beam=5)
        for stop in ("first", "settled", "exhaustive"):
            assert _found(system, limit, beam=5, stop=stop) != theirs


def _ways(table: int, rows: list[Row], forbidden: set[int]) -> list[Row]:
    """All that the rows can be continued by, the most valuable first."""
    ways = [
        (value + log_prob, (*said, token))
        for value, said in rows
        for token, log_prob in enumerate(TABLES.following(table, said))
        if token not in forbidden
    ]
    return sorted(ways, reverse=True)


def _best_first(finished: list[Row]) -> Found:
    return [(tuple(token for token in said if token != EOS), score) for score, said in sorted(finished, reverse=True)]


def _found(system: str, limit: int, **settings: Any) -> list[Found]:
    """By our search; the limit is that of the tokens before the last step."""
    config = preset(system, settings)
    asked = RowLimits.make(torch.full((COUNT,), limit), min_length=config.min_length_extra)
    rules = make_rules(config, min_length=config.min_length_extra > 0)
    told = search(TABLES, Before(torch.arange(COUNT)), asked, make_strategy(config, config.beam), rules)
    hypotheses = deque(told, maxlen=1).pop().hypotheses
    ranking = make_ranking(config)
    scores = ranking.score(hypotheses).tolist()
    return [
        [(_said(hypotheses, row), scores[row]) for row in rows if hypotheses.log_probability[row] != NEG_INF]
        for rows in (ranking.order(hypotheses) + hypotheses.width * torch.arange(COUNT)[:, None]).tolist()
    ]


def _said(hypotheses: Frontier, row: int) -> tuple[int, ...]:
    return tuple(token for token in hypotheses.ids[row, 1:].tolist() if token not in (PAD, EOS))
