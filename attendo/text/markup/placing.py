"""Where the tags of a text go in its translation: by what was translated into what, or in proportion."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from attendo.text.markup.segments import Mark

Between = tuple[int, int]  # the first unit and the one behind the last


class Placed(NamedTuple):
    """A mark, and how many units of the translation stand before it."""

    mark: Mark
    at: int


def in_proportion(marks: Sequence[Mark], source: Between, target: Between) -> list[Placed]:
    """The marks in their order, so that they stay nested; `at` of a mark counts units here.

    What holds a unit of the source holds one of the target, if there is one left.
    """
    placed: list[Placed] = []
    opened: dict[int, Placed] = {}
    at = target[0]
    for mark in marks:
        wanted = _scaled(mark.at, source, target)
        if mark.kind == "close" and (begun := opened[mark.element]).mark.at < mark.at:
            wanted = max(wanted, begun.at + 1)
        at = min(max(at, wanted), target[1])
        placed.append(Placed(mark, at))
        if mark.kind == "open":
            opened[mark.element] = placed[-1]
    return placed


def by_links(marks: Sequence[Mark], source: int, target: int, links: Sequence[int | None]) -> list[Placed]:
    """The outermost elements go where the words in them went, and what is in these follows in proportion.

    `links` name the source unit of each unit of the target, None where it has none.
    """
    groups = _outermost(marks)
    places = _Places(source, target, links)
    ranges = places.of([(group[0].at, group[-1].at) for group in groups])
    placed: list[Placed] = []
    for (begin, end), number in sorted((between, number) for number, between in enumerate(ranges)):
        first, *inner = groups[number]
        placed.append(Placed(first, begin))
        if inner:
            *inner, last = inner
            placed += in_proportion(inner, (first.at, last.at), (begin, end))
            placed.append(Placed(last, end))
    return placed


def by_unit(marks: Sequence[Mark], units_before: Sequence[int]) -> list[Mark]:
    """The same marks with their places counted in units."""
    return [mark._replace(at=at) for mark, at in zip(marks, units_before, strict=True)]


class _Places:
    """Finds for each of some parts of the source, none within another, its part of the target; none overlap either."""

    def __init__(self, source: int, target: int, links: Sequence[int | None]) -> None:
        self._source, self._target, self._links = source, target, links
        self._taken: list[tuple[int, Between] | None] = [None] * target  # by which part
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        for place, unit in enumerate(links):
            if unit is not None:
                self._first.setdefault(unit, place)
                self._last[unit] = place

    def of(self, parts: Sequence[Between]) -> list[Between]:
        found = self._longest_runs(parts)
        for number, between in found.items():
            self._take(number, between)
        for number, (begin, end) in enumerate(parts):
            if number not in found and begin < end:
                found[number] = self._unlinked(number, begin, end)
        for number, (begin, _) in enumerate(parts):
            if number not in found:
                at = self._outside(self._boundary(begin), number)
                found[number] = at, at
        return [found[number] for number in range(len(parts))]

    def _longest_runs(self, parts: Sequence[Between]) -> dict[int, Between]:
        """The most words in a row that a part went to. One that went nowhere else may stand among them."""
        owners: list[int | None] = [None] * self._source
        for number, (begin, end) in enumerate(parts):
            owners[begin:end] = [number] * (end - begin)
        counts: Counter[int] = Counter()
        found: dict[int, Between] = {}
        run, begin, count = None, 0, 0
        for place, unit in enumerate(self._links):
            if unit is None:
                continue
            if owners[unit] != run or not count:
                run, begin, count = owners[unit], place, 0
            count += 1
            if run is not None and count > counts[run]:
                counts[run], found[run] = count, (begin, place + 1)
        return found

    def _unlinked(self, number: int, begin: int, end: int) -> Between:
        """One word in the right place, or nothing between two words."""
        if not self._target:
            return 0, 0
        middle = min(self._target - 1, (begin + end) * self._target // (2 * self._source))
        if taken := self._taken[middle]:
            at = taken[1][number > taken[0]]
            return at, at
        self._take(number, (middle, middle + 1))
        return middle, middle + 1

    def _boundary(self, at: int) -> int:
        if at in self._first:
            return self._first[at]
        if at - 1 in self._last:
            return self._last[at - 1] + 1
        return _scaled(at, (0, self._source), (0, self._target))

    def _outside(self, at: int, number: int) -> int:
        """This place, unless it is within another part: then before or behind that, as in the source."""
        taken = self._taken[at] if at < self._target else None
        return at if taken is None or taken[1][0] == at else taken[1][number > taken[0]]

    def _take(self, number: int, between: Between) -> None:
        self._taken[between[0] : between[1]] = [(number, between)] * (between[1] - between[0])


def _outermost(marks: Sequence[Mark]) -> list[list[Mark]]:
    """Each atom and each element that is in no other, with all that is in it."""
    groups: list[list[Mark]] = []
    depth = 0
    for mark in marks:
        if depth:
            groups[-1].append(mark)
        else:
            groups.append([mark])
        depth += {"open": 1, "close": -1, "atom": 0}[mark.kind]
    return groups


def _scaled(at: int, source: Between, target: Between) -> int:
    """Rounded; a place in one stretch as a place in another."""
    length, space = source[1] - source[0], target[1] - target[0]
    return target[0] + ((2 * (at - source[0]) * space + length) // (2 * length) if length else 0)
