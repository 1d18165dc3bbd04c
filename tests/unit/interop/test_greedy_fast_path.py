"""The greedy fast path equals the plain search bit for bit, and uses plain steps only if a row ends."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from search_rows import make_limits
from torch import Tensor
from toy_networks import ENDLESS, SHORT, SILENT, Bigrams, BigramState, Trees, TreeState

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
from attendo.decode.search import Rule, Strategy, search, step_hook
from attendo.decode.strategies import Greedy
from attendo.interop.onnx.engine import InPlaceNetwork, InPlaceStepper, greedy_fast_path, run_search
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
def test_the_fast_path_equals_the_plain_search(
    strategy: Strategy, prefix: list[tuple[int, ...]] | None, rules: Sequence[Rule]
) -> None:
    for first in range(0, 25, 5):
        row_limits = make_limits(torch.tensor([9, 4, 0, 7, 12]), min_length=2, prefix=prefix)
        trees = range(first, first + 5)
        *_, last = search(Trees(), TreeState.start(*trees), row_limits, strategy, rules)
        assert_same(
            run_search(Overwriting(Trees()), TreeState.start(*trees), row_limits, strategy, rules), last.hypotheses
        )


def test_toy_networks_satisfy_the_protocols() -> None:
    network = Overwriting(Bigrams(SHORT))
    assert isinstance(network, InPlaceNetwork)
    assert isinstance(network.in_place_stepper(BigramState(torch.arange(1))), InPlaceStepper)


def test_plain_steps_run_only_when_a_row_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_steps: list[Any] = []
    advance = Greedy.advance

    def record_step(*arguments: Any) -> Any:
        plain_steps.append(arguments)
        return advance(*arguments)

    monkeypatch.setattr(Greedy, "advance", record_step)
    tables = Overwriting(Bigrams(SILENT, *[ENDLESS] * 4))
    found = run_search(tables, BigramState(torch.arange(5)), make_limits(torch.tensor([50] * 5)), Greedy(), PLAIN)
    assert found.length.tolist() == [1, 50, 50, 50, 50]
    assert len(plain_steps) == 2  # when the first row ends, and at the limit


def test_the_step_hook_runs_before_every_step() -> None:
    hook_calls: list[int] = []
    with step_hook(lambda: hook_calls.append(1)):
        run_search(
            Overwriting(Bigrams(ENDLESS)),
            BigramState(torch.arange(1)),
            make_limits(torch.tensor([50])),
            Greedy(),
            PLAIN,
        )
    assert len(hook_calls) == 51


def test_the_fast_path_does_not_change_its_input_frontier() -> None:
    start = Greedy().start(make_limits(torch.tensor([9])))
    _, after = greedy_fast_path(Overwriting(Bigrams(SHORT)), BigramState(torch.arange(1)), start, Greedy(), PLAIN)
    assert after.length.tolist() == [3]
    assert_same(start, Greedy().start(make_limits(torch.tensor([9]))))


class Overwriting:
    """A toy network with an in-place stepper: each step overwrites the previous logits."""

    def __init__(self, inner: Bigrams | Trees) -> None:
        self._inner = inner

    def step(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        return self._inner.step(ids, state)

    def in_place_stepper(self, state: Any) -> "OverwritingStepper":
        return OverwritingStepper(self._inner, state)


class OverwritingStepper:
    def __init__(self, inner: Any, state: Any) -> None:
        self._inner, self.state = inner, state
        self._numbers: NDArray[np.float32] = np.zeros((0, 0), np.float32)

    def step(self, ids: NDArray[np.int64]) -> NDArray[np.float32]:
        logits, self.state = self._inner.step(torch.from_numpy(ids), self.state)
        self._numbers[:] = np.nan
        self._numbers = logits[:, -1].log_softmax(-1).numpy()
        return self._numbers


def assert_same(one: Any, other: Any) -> None:
    """Compares every field of both."""
    for field in fields(one):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if isinstance(ours, RowLimits | Frontier):
            assert_same(ours, theirs)
        elif isinstance(ours, Tensor):
            assert torch.equal(ours, theirs), field.name
        else:
            assert ours == theirs
