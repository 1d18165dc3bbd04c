"""Merging the links of two directions: intersection, union and the grow-diag heuristics (Koehn et al. 2003).

`forward` are the links that each target word chose, `backward` those that each source word chose. Words are visited in
the order of the published pseudo-code: target words in the outer loop, source words in the inner one.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Literal, get_args

from attendo.data.pharaoh import Link
from attendo.errors import UsageError

Symmetrisation = Literal["intersection", "union", "grow-diag", "grow-diag-final", "grow-diag-final-and"]
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def check_symmetrisation(method: str) -> None:
    """Raise a `UsageError` for an unknown method."""
    if method not in get_args(Symmetrisation):
        raise UsageError("unknown_symmetrisation", method=method, methods=", ".join(get_args(Symmetrisation)))


def symmetrise(forward: Collection[Link], backward: Collection[Link], method: Symmetrisation) -> frozenset[Link]:
    """Return the merged links (source, target)."""
    check_symmetrisation(method)
    one, other = frozenset(forward), frozenset(backward)
    if method in ("intersection", "union"):
        return one & other if method == "intersection" else one | other
    grown = _Links(one & other)
    grown.grow(one | other)
    for links in (one, other) if method != "grow-diag" else ():
        grown.add_uncovered(links, all if method == "grow-diag-final-and" else any)
    return frozenset(grown.links)


class _Links:
    """Links that are added, with the words that they cover."""

    def __init__(self, links: Collection[Link]) -> None:
        self.links = set(links)
        self._sources, self._targets = {source for source, _ in links}, {target for _, target in links}

    def grow(self, allowed: Collection[Link]) -> None:
        """Add allowed neighbours of links, if one of their words has no link yet, until none is left."""
        added, visits = True, sorted(allowed, key=lambda each: each[::-1])
        while added:
            added = False
            for link in (each for each in visits if each in self.links):
                for neighbour in self._neighbours(link):
                    if neighbour in allowed and neighbour not in self.links and any(self._uncovered(neighbour)):
                        self._add(neighbour)
                        added = True

    def add_uncovered(self, links: Collection[Link], condition: Callable[[tuple[bool, bool]], bool]) -> None:
        """Add links of which any word, or all words, have no link yet."""
        for link in sorted(links, key=lambda each: each[::-1]):
            if condition(self._uncovered(link)):
                self._add(link)

    def _neighbours(self, link: Link) -> Iterator[Link]:
        return ((link[0] + source, link[1] + target) for target, source in _NEIGHBOURS)

    def _uncovered(self, link: Link) -> tuple[bool, bool]:
        return link[0] not in self._sources, link[1] not in self._targets

    def _add(self, link: Link) -> None:
        self.links.add(link)
        self._sources.add(link[0])
        self._targets.add(link[1])
