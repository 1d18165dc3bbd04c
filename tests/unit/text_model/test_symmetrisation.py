"""Two alignments are merged as in the published pseudo-code (Koehn et al. 2003; Koehn 2010, figure 4.14)."""

import random
from typing import get_args

import pytest
from error_codes import has_code

from attendo.errors import UsageError
from attendo.text_model.symmetrisation import Symmetrisation, symmetrise

Link = tuple[int, int]
METHODS: tuple[Symmetrisation, ...] = get_args(Symmetrisation)
NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def follow_pseudo_code(forward: set[Link], backward: set[Link], size: int, method: str) -> set[Link]:
    """The pseudo-code line by line, on a grid of e (target) and f (source)."""
    e2f, f2e = ({(e, f) for f, e in links} for links in (forward, backward))
    alignment = e2f & f2e

    def e_aligned(e: int) -> bool:
        return any((e, f) in alignment for f in range(size))

    def f_aligned(f: int) -> bool:
        return any((e, f) in alignment for e in range(size))

    while method.startswith("grow"):
        before = len(alignment)
        for e in range(size):
            for f in range(size):
                if (e, f) not in alignment:
                    continue
                for step_e, step_f in NEIGHBOURS:
                    new = e + step_e, f + step_f
                    if (not e_aligned(new[0]) or not f_aligned(new[1])) and new in e2f | f2e:
                        alignment.add(new)
        if len(alignment) == before:
            break
    for links in (e2f, f2e) if "final" in method else ():
        for e in range(size):
            for f in range(size):
                free = (not e_aligned(e), not f_aligned(f))
                if (e, f) in links and (all(free) if method.endswith("and") else any(free)):
                    alignment.add((e, f))
    return {(f, e) for e, f in alignment}


@pytest.mark.parametrize("method", ["grow-diag", "grow-diag-final", "grow-diag-final-and"])
def test_merging_follows_the_pseudo_code(method: Symmetrisation) -> None:
    dice = random.Random(4)
    different = 0
    for _ in range(300):
        size, share = dice.randint(1, 7), dice.choice([0.1, 0.3, 0.5])
        grid = [(f, e) for f in range(size) for e in range(size)]
        one, other = ({link for link in grid if dice.random() < share} for _ in range(2))
        found = symmetrise(one, other, method)
        assert found == follow_pseudo_code(one, other, size, method)
        different += found not in (one & other, one | other)
    assert different > 30


def test_a_worked_example() -> None:
    """Two directions of four words. 1-2 touches the intersection 0-1, and 0-3 then touches 1-2: both have a free word.

    Of the rest, 3-0 has two free words. Once it is added, only the source word of 2-0 is free.
    """
    forward, backward = {(0, 1), (1, 2), (3, 0)}, {(0, 1), (2, 0), (0, 3)}
    expected: dict[Symmetrisation, set[Link]] = {
        "intersection": {(0, 1)},
        "union": {(0, 1), (1, 2), (3, 0), (2, 0), (0, 3)},
        "grow-diag": {(0, 1), (1, 2), (0, 3)},
        "grow-diag-final": {(0, 1), (1, 2), (3, 0), (2, 0), (0, 3)},
        "grow-diag-final-and": {(0, 1), (1, 2), (0, 3), (3, 0)},
    }
    for method in METHODS:
        assert symmetrise(forward, backward, method) == expected[method], method


def test_equal_alignments_do_not_change() -> None:
    links = {(0, 0), (1, 2), (1, 3), (5, 1)}
    assert {symmetrise(links, links, method) for method in METHODS} == {frozenset(links)}
    assert {symmetrise(set(), set(), method) for method in METHODS} == {frozenset()}


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(UsageError, check=has_code("unknown_symmetrisation", method="grow")):
        symmetrise(set(), set(), "grow")  # type: ignore[arg-type]
