"""Reinsertion of tags into a translation, by word alignment or in proportion."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, get_args

from attendo.errors import UsageError
from attendo.text.markup.parser import Kind, Outline, escaped, parts_of, writable
from attendo.text.markup.segments import Mark, Segment, Units, needs_space_before, needs_space_behind, segments_of

Between = tuple[int, int]  # the first unit and the one behind the last
CharacterLinks = Sequence[tuple[int, int]]  # a character of the source, and one of its translation


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


def written(document: str, segment: Segment, translation: str, links: CharacterLinks | None) -> str:
    """The translation of a segment as it stands in the document."""
    if translation == segment.text:
        return document[segment.begin : segment.end]
    text = writable(translation)
    if not segment.marks:
        return escaped(text)
    source, target = Units.of(segment.text), Units.of(text)
    cuts = source.cuts(mark.at for mark in segment.marks)
    source, target = source.cut(cuts), target.cut(cuts)
    marks = by_unit(segment.marks, [source.before(mark.at) for mark in segment.marks])
    if links and len(target):
        lead = len(translation) - len(translation.lstrip())
        placed = by_links(marks, len(source), len(target), _unit_links(source, target, links, lead))
    else:
        placed = in_proportion(marks, (0, len(source)), (0, len(target)))
    return "".join(_woven(target, placed, document))


def _unit_links(source: Units, target: Units, links: CharacterLinks, lead: int) -> list[int | None]:
    """The source unit of each unit of the target: the first of those that it is linked to most."""
    votes: list[dict[int, int]] = [{} for _ in range(len(target))]
    for here, there in links:
        counts = votes[target.at(there - lead)]
        unit = source.at(here)
        counts[unit] = counts.get(unit, 0) + 1
    return [max(counts, key=lambda unit: counts[unit]) if counts else None for counts in votes]


class _Item(NamedTuple):
    """What is written between two units. A tag whose other half is elsewhere says on which side it has its text."""

    raw: str
    closes: bool = False
    opens: bool = False
    space_before: bool = False
    space_behind: bool = False


def _woven(units: Units, placed: Sequence[Placed], document: str) -> Iterator[str]:
    text, done = units.text, 0
    for at, items in groupby(_items(placed, document), key=lambda each: each[0]):
        behind = units.ends[at - 1] if at else 0
        yield escaped(text[done:behind])
        done = units.begins[at] if at < len(units) else len(text)
        yield from _between(
            [item for _, item in items], text[behind:done], text[behind - 1 : behind], text[done : done + 1]
        )
    yield escaped(text[done:])


def _items(placed: Sequence[Placed], document: str) -> Iterator[tuple[int, _Item]]:
    begun = {each.mark.element: each.at for each in placed if each.mark.kind == "open"}
    ended = {each.mark.element: each.at for each in placed if each.mark.kind == "close"}
    for each in placed:
        mark, at = each.mark, each.at
        raw = document[mark.begin : mark.end]
        if mark.kind == "atom":
            before, behind = document[mark.begin - 1 : mark.begin], document[mark.end : mark.end + 1]
            yield at, _Item(raw, space_before=before.isspace(), space_behind=behind.isspace())
        else:
            closes = mark.kind == "close" and begun[mark.element] < at
            yield at, _Item(raw, closes=closes, opens=mark.kind == "open" and ended[mark.element] > at)


def _between(items: Sequence[_Item], gap: str, before: str, behind: str) -> Iterator[str]:
    """What closes comes before the space between two units, and what opens behind it: they are nested properly."""
    left = max((place + 1 for place, item in enumerate(items) if item.closes), default=0)
    right = next((place for place, item in enumerate(items) if item.opens), len(items))
    for item in items[:left]:
        yield " " if item.space_before and needs_space_behind(before) else ""
        yield item.raw
    yield from _spaced(items[left:right], gap, before, behind)
    for item in items[right:]:
        yield item.raw
        yield " " if item.space_behind and needs_space_before(behind) else ""


def _spaced(items: Sequence[_Item], gap: str, before: str, behind: str) -> Iterator[str]:
    """What had a space beside it has one again, in scripts that have any."""
    spaced = separated = False
    for item in items:
        if item.space_before and not spaced and (gap or needs_space_behind(before)):
            yield gap or " "
            separated = True
        yield item.raw
        spaced = item.space_behind and (gap != "" or needs_space_before(behind))
        if spaced:
            yield gap or " "
            separated = True
    if not separated:
        yield gap


class Markup:
    """Anything may be given, well-formed or not: it is read in time proportional to its length, and nothing is lost.

    Each tag, comment and placeholder of the input is in the output once; if the input was well-formed, so is the
    output. What is `ignored` (names of elements), `translate="no"`, code or a script, is kept as it is.
    """

    def __init__(self, text: str, kind: Kind, ignored: Collection[str] = (), outline: Outline | None = None) -> None:
        if kind not in get_args(Kind):
            raise UsageError("markup_kind_unknown", kind=kind, known=" or ".join(get_args(Kind)))
        self._text, self._kind = text, kind
        self._ignored, self._outline = frozenset(ignored), outline or Outline()

    @property
    def texts(self) -> list[str]:
        """What is to be translated, in order: without tags, without placeholders, with single spaces."""
        return [segment.text for segment in self._segments]

    def translated(self, translations: Sequence[str], links: Sequence[CharacterLinks | None] | None = None) -> str:
        """The input with a translation of each text. One that is as its text leaves its part of the input as it was.

        `links` are those of each translation, as `links_of` tells them: with them tags follow their words. Without them
        (None for all or for one) they keep their order, at places in proportion.
        """
        if len(translations) != len(self._segments):
            raise UsageError("translation_count_mismatch", count=len(translations), expected=len(self._segments))
        each_links = [None] * len(translations) if links is None else links
        pieces: list[str] = []
        at = 0
        for segment, translation, known in zip(self._segments, translations, each_links, strict=True):
            pieces += [self._text[at : segment.begin], written(self._text, segment, translation, known)]
            at = segment.end
        return "".join([*pieces, self._text[at:]])

    @cached_property
    def _segments(self) -> list[Segment]:
        return segments_of(self._text, parts_of(self._text, self._kind, self._ignored, self._outline), self._kind)
