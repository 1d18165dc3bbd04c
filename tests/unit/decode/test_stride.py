"""Strides: with them is found what turns find, to the last bit, and turns are taken where something happens alone."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tables import ENDLESS, SHORT, SILENT, Bigrams, Rows, Said, Trees
from torch import Tensor

from attendo.decode.beam import Beam
from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.rules import (
    ForcedPrefix,
    ForceEosAtLimit,
    MinLength,
    NoRepeatNgram,
    RepetitionPenalty,
    SuppressTokens,
    UnscoredPrefix,
)
from attendo.decode.search import Rule, Strategy, search
from attendo.decode.step_hook import step_hook
from attendo.decode.strategies import Greedy
from attendo.interop.onnx.engine import InPlaceStepper, greedy_fast_path, run_search
from attendo.text import UNK

PLAIN: tuple[Rule, ...] = (SuppressTokens(), MinLength(), ForcedPrefix())
RULES: list[tuple[Rule, ...]] = [
    (),
    PLAIN,
    (*PLAIN, ForceEosAtLimit()),
    (SuppressTokens((0, 2, UNK)), MinLength()),
    (*PLAIN, NoRepeatNgram(2)),
    (*PLAIN, RepetitionPenalty(1.5)),
    (*PLAIN, UnscoredPrefix(1)),
]
PREFIXES: list[list[tuple[int, ...]] | None] = [None, [(4,), (5, 4, 4), (), (4,), (5,)]]


@pytest.mark.short(3)
@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("prefix", PREFIXES, ids=["", "prefix"])
@pytest.mark.parametrize("strategy", [Greedy(), Greedy(free_end=True), Beam(1)], ids=str)
def test_strides_find_what_turns_find(
    strategy: Strategy, prefix: list[tuple[int, ...]] | None, rules: Sequence[Rule]
) -> None:
    for first in range(0, 25, 5):
        asked = RowLimits.make(torch.tensor([9, 4, 0, 7, 12]), min_length=2, prefix=prefix)
        trees = range(first, first + 5)
        *_, last = search(Trees(), Said.nothing(*trees), asked, strategy, rules)
        assert_same(run_search(Striding(Trees()), Said.nothing(*trees), asked, strategy, rules), last.hypotheses)


def test_what_cannot_be_stepped_in_place_takes_turns() -> None:
    assert not hasattr(Bigrams(SHORT), "in_place_stepper")
    assert isinstance(Striding(Bigrams(SHORT)).in_place_stepper(Rows(torch.arange(1))), InPlaceStepper)
    asked = RowLimits.make(torch.tensor([8, 8]))
    *_, last = search(Bigrams(SHORT, ENDLESS), Rows(torch.arange(2)), asked, Greedy(), PLAIN)
    assert_same(run_search(Bigrams(SHORT, ENDLESS), Rows(torch.arange(2)), asked, Greedy(), PLAIN), last)


def test_turns_are_taken_only_where_a_row_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[Any] = []
    advance = Greedy.advance

    def counted(*given: Any) -> Any:
        turns.append(given)
        return advance(*given)

    monkeypatch.setattr(Greedy, "advance", counted)
    tables = Striding(Bigrams(SILENT, *[ENDLESS] * 4))
    found = run_search(tables, Rows(torch.arange(5)), RowLimits.make(torch.tensor([50] * 5)), Greedy(), PLAIN)
    assert found.length.tolist() == [1, 50, 50, 50, 50]
    assert len(turns) == 2  # when the silent one ends, and at the limit


def test_who_looks_on_is_asked_before_every_step() -> None:
    looks: list[int] = []
    with step_hook(lambda: looks.append(1)):
        run_search(
            Striding(Bigrams(ENDLESS)), Rows(torch.arange(1)), RowLimits.make(torch.tensor([50])), Greedy(), PLAIN
        )
    assert len(looks) == 51


def test_what_was_told_before_a_stride_stays_as_it_was() -> None:
    begin = Greedy().start(RowLimits.make(torch.tensor([9])))
    _, after = greedy_fast_path(Striding(Bigrams(SHORT)), Rows(torch.arange(1)), begin, Greedy(), PLAIN)
    assert after.length.tolist() == [3]
    assert_same(begin, Greedy().start(RowLimits.make(torch.tensor([9]))))


class Striding:
    """A table or a tree that can be stepped in place: what it told is overwritten by the next step."""

    def __init__(self, inner: Bigrams | Trees) -> None:
        self._inner = inner

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self._inner.step(ids, state)

    def in_place_stepper(self, state: Any) -> "Steps":
        return Steps(self._inner, state)


class Steps:
    def __init__(self, inner: Any, state: Any) -> None:
        self._inner, self.state = inner, state
        self._numbers: NDArray[np.float32] = np.zeros((0, 0), np.float32)

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        logits, self.state = self._inner.step(torch.from_numpy(ids), self.state)
        self._numbers[:] = np.nan
        self._numbers = logits[:, -1].log_softmax(-1).numpy()
        return self._numbers


def assert_same(one: Any, other: Any) -> None:
    """Every number of both."""
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, RowLimits | Frontier):
            assert_same(ours, theirs)
        elif isinstance(ours, Tensor):
            assert torch.equal(ours, theirs), field.name
        else:
            assert ours == theirs
