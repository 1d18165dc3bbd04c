"""Reinsertion of tags into a translation, by word alignment or proportionally."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import NamedTuple, get_args

from attendo.errors import UsageError
from attendo.text.markup.parser import MarkupFormat, TagRules, escape_text, parse_spans, remove_unwritable
from attendo.text.markup.segments import (
    InlineTag,
    MarkupSegment,
    WordSpans,
    build_segments,
    needs_space_after,
    needs_space_before,
)

UnitRange = tuple[int, int]  # the first unit and the one after the last
CharacterLinks = Sequence[tuple[int, int]]  # (source character, translation character)


class PlacedTag(NamedTuple):
    """A tag, and the number of units of the translation before it."""

    tag: InlineTag
    at: int


def place_in_proportion(tags: Sequence[InlineTag], source: UnitRange, target: UnitRange) -> list[PlacedTag]:
    """Place tags proportionally in their order, so that they stay nested. `at` of a tag counts units.

    An element around a source unit gets at least one target unit, if one is left.
    """
    placed: list[PlacedTag] = []
    open_tags: dict[int, PlacedTag] = {}
    at = target[0]
    for mark in tags:
        target_position = _scale(mark.at, source, target)
        if mark.type == "close" and (opening := open_tags[mark.element]).tag.at < mark.at:
            target_position = max(target_position, opening.at + 1)
        at = min(max(at, target_position), target[1])
        placed.append(PlacedTag(mark, at))
        if mark.type == "open":
            open_tags[mark.element] = placed[-1]
    return placed


def place_by_alignment(
    tags: Sequence[InlineTag], source: int, target: int, links: Sequence[int | None]
) -> list[PlacedTag]:
    """Place the outermost elements around the aligned words, and the tags inside them proportionally.

    `links` give the source unit of each target unit, or None.
    """
    groups = _group_outermost(tags)
    placer = _TagPlacer(source, target, links)
    ranges = placer.place([(group[0].at, group[-1].at) for group in groups])
    placed: list[PlacedTag] = []
    for (begin, end), number in sorted((between, number) for number, between in enumerate(ranges)):
        first, *inner = groups[number]
        placed.append(PlacedTag(first, begin))
        if inner:
            *inner, last = inner
            placed += place_in_proportion(inner, (first.at, last.at), (begin, end))
            placed.append(PlacedTag(last, end))
    return placed


class _TagPlacer:
    """Maps disjoint ranges of the source to disjoint ranges of the target."""

    def __init__(self, source: int, target: int, links: Sequence[int | None]) -> None:
        self._source, self._target, self._links = source, target, links
        self._reserved: list[tuple[int, UnitRange] | None] = [None] * target  # range that occupies the unit
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        for index, unit in enumerate(links):
            if unit is not None:
                self._first.setdefault(unit, index)
                self._last[unit] = index

    def place(self, ranges: Sequence[UnitRange]) -> list[UnitRange]:
        found = self._find_longest_runs(ranges)
        for number, between in found.items():
            self._reserve(number, between)
        for number, (begin, end) in enumerate(ranges):
            if number not in found and begin < end:
                found[number] = self._place_unlinked(number, begin, end)
        for number, (begin, _) in enumerate(ranges):
            if number not in found:
                at = self._move_outside(self._boundary(begin), number)
                found[number] = at, at
        return [found[number] for number in range(len(ranges))]

    def _find_longest_runs(self, ranges: Sequence[UnitRange]) -> dict[int, UnitRange]:
        """Return the longest run of target units linked to each range.

        Unlinked units may occur inside a run.
        """
        owners: list[int | None] = [None] * self._source
        for number, (begin, end) in enumerate(ranges):
            owners[begin:end] = [number] * (end - begin)
        counts: Counter[int] = Counter()
        found: dict[int, UnitRange] = {}
        run, begin, count = None, 0, 0
        for index, unit in enumerate(self._links):
            if unit is None:
                continue
            if owners[unit] != run or not count:
                run, begin, count = owners[unit], index, 0
            count += 1
            if run is not None and count > counts[run]:
                counts[run], found[run] = count, (begin, index + 1)
        return found

    def _place_unlinked(self, number: int, begin: int, end: int) -> UnitRange:
        """Return the proportional unit, or an empty range next to the range that occupies it."""
        if not self._target:
            return 0, 0
        middle = min(self._target - 1, (begin + end) * self._target // (2 * self._source))
        if reserved := self._reserved[middle]:
            at = reserved[1][number > reserved[0]]
            return at, at
        self._reserve(number, (middle, middle + 1))
        return middle, middle + 1

    def _boundary(self, at: int) -> int:
        if at in self._first:
            return self._first[at]
        if at - 1 in self._last:
            return self._last[at - 1] + 1
        return _scale(at, (0, self._source), (0, self._target))

    def _move_outside(self, at: int, number: int) -> int:
        """Return `at`, or the edge of the range that contains it, on the same side as in the source."""
        reserved = self._reserved[at] if at < self._target else None
        return at if reserved is None or reserved[1][0] == at else reserved[1][number > reserved[0]]

    def _reserve(self, number: int, between: UnitRange) -> None:
        self._reserved[between[0] : between[1]] = [(number, between)] * (between[1] - between[0])


def _group_outermost(tags: Sequence[InlineTag]) -> list[list[InlineTag]]:
    """Group each outermost atom or element with all tags inside it."""
    groups: list[list[InlineTag]] = []
    depth = 0
    for mark in tags:
        if depth:
            groups[-1].append(mark)
        else:
            groups.append([mark])
        depth += {"open": 1, "close": -1, "atom": 0}[mark.type]
    return groups


def _scale(at: int, source: UnitRange, target: UnitRange) -> int:
    """Map a position in one range to another range, rounded."""
    length, space = source[1] - source[0], target[1] - target[0]
    return target[0] + ((2 * (at - source[0]) * space + length) // (2 * length) if length else 0)


def write_segment(document: str, segment: MarkupSegment, translation: str, links: CharacterLinks | None) -> str:
    """Return the translation of a segment with its tags, as written to the document."""
    if translation == segment.text:
        return document[segment.begin : segment.end]
    text = remove_unwritable(translation)
    if not segment.tags:
        return escape_text(text)
    source, target = WordSpans.from_text(segment.text), WordSpans.from_text(text)
    cuts = source.find_inner_cuts(mark.at for mark in segment.tags)
    source, target = source.split_at(cuts), target.split_at(cuts)
    marks = [mark._replace(at=source.count_before(mark.at)) for mark in segment.tags]  # positions in units
    if links and len(target):
        leading_spaces = len(translation) - len(translation.lstrip())
        placed = place_by_alignment(marks, len(source), len(target), _unit_links(source, target, links, leading_spaces))
    else:
        placed = place_in_proportion(marks, (0, len(source)), (0, len(target)))
    return "".join(_insert_tags(target, placed, document))


def place_atoms(
    text: str, translation: str, positions: Sequence[int], links: CharacterLinks | None = None
) -> list[int]:
    """Return the character of a translation before which each atom goes. `positions` are characters of its source.

    The atoms follow the words they stood beside if there are `links`. Atoms at an edge of the source stay at that edge.
    """
    source, target = WordSpans.from_text(text), WordSpans.from_text(translation)
    atoms = [InlineTag("atom", source.count_before(at), number, number) for number, at in enumerate(positions)]
    inner = [each for each in atoms if 0 < each.at < len(source)]
    if links and len(target):
        placed = place_by_alignment(inner, len(source), len(target), _unit_links(source, target, links, 0))
    else:
        placed = place_in_proportion(inner, (0, len(source)), (0, len(target)))
    units = {each.tag.begin: each.at for each in placed}
    starts = [*target.begins, len(translation)]
    return [starts[units.get(number, len(target) if each.at else 0)] for number, each in enumerate(atoms)]


def _unit_links(source: WordSpans, target: WordSpans, links: CharacterLinks, lead: int) -> list[int | None]:
    """Return the source unit with the most links for each target unit. The first wins a tie."""
    votes: list[dict[int, int]] = [{} for _ in range(len(target))]
    for source_offset, target_offset in links:
        counts = votes[target.index_at(target_offset - lead)]
        unit = source.index_at(source_offset)
        counts[unit] = counts.get(unit, 0) + 1
    return [max(counts, key=lambda unit: counts[unit]) if counts else None for counts in votes]


class _TagItem(NamedTuple):
    """A tag to write between two units. `closes`: its text precedes it. `opens`: its text follows it."""

    raw: str
    closes: bool = False
    opens: bool = False
    space_before: bool = False
    space_after: bool = False


def _insert_tags(units: WordSpans, placed_tags: Sequence[PlacedTag], document: str) -> Iterator[str]:
    text, start = units.text, 0
    for at, items in groupby(_make_items(placed_tags, document), key=lambda each: each[0]):
        unit_end = units.ends[at - 1] if at else 0
        yield escape_text(text[start:unit_end])
        start = units.begins[at] if at < len(units) else len(text)
        yield from _write_between(
            [item for _, item in items], text[unit_end:start], text[unit_end - 1 : unit_end], text[start : start + 1]
        )
    yield escape_text(text[start:])


def _make_items(placed_tags: Sequence[PlacedTag], document: str) -> Iterator[tuple[int, _TagItem]]:
    starts = {each.tag.element: each.at for each in placed_tags if each.tag.type == "open"}
    ends = {each.tag.element: each.at for each in placed_tags if each.tag.type == "close"}
    for each in placed_tags:
        mark, at = each.tag, each.at
        raw = document[mark.begin : mark.end]
        if mark.type == "atom":
            preceding, following = document[mark.begin - 1 : mark.begin], document[mark.end : mark.end + 1]
            yield at, _TagItem(raw, space_before=preceding.isspace(), space_after=following.isspace())
        else:
            closes = mark.type == "close" and starts[mark.element] < at
            yield at, _TagItem(raw, closes=closes, opens=mark.type == "open" and ends[mark.element] > at)


def _write_between(items: Sequence[_TagItem], gap: str, before: str, after: str) -> Iterator[str]:
    """Write closing tags before the space between two units, and opening tags after it, to keep nesting."""
    left = max((index + 1 for index, item in enumerate(items) if item.closes), default=0)
    right = next((index for index, item in enumerate(items) if item.opens), len(items))
    for item in items[:left]:
        yield " " if item.space_before and needs_space_after(before) else ""
        yield item.raw
    yield from _write_spaced(items[left:right], gap, before, after)
    for item in items[right:]:
        yield item.raw
        yield " " if item.space_after and needs_space_before(after) else ""


def _write_spaced(items: Sequence[_TagItem], gap: str, before: str, after: str) -> Iterator[str]:
    """Write tags with the spaces they had in the source, in scripts with spaces."""
    spaced = separated = False
    for item in items:
        if item.space_before and not spaced and (gap or needs_space_after(before)):
            yield gap or " "
            separated = True
        yield item.raw
        spaced = item.space_after and (gap != "" or needs_space_before(after))
        if spaced:
            yield gap or " "
            separated = True
    if not separated:
        yield gap


class Markup:
    """A document to translate, well-formed or not. It is parsed in linear time, and no input is lost.

    Each tag, comment and placeholder of the input is in the output once. If the input is well-formed, so is the output.
    Elements in `ignored_tags`, `translate="no"`, code and scripts are kept unchanged.
    """

    def __init__(
        self, text: str, markup_format: MarkupFormat, ignored_tags: Collection[str] = (), rules: TagRules | None = None
    ) -> None:
        if markup_format not in get_args(MarkupFormat):
            raise UsageError("markup_kind_unknown", kind=markup_format, known=" or ".join(get_args(MarkupFormat)))
        self._text, self._format = text, markup_format
        self._ignored_tags, self._rules = frozenset(ignored_tags), rules or TagRules()

    @property
    def texts(self) -> list[str]:
        """The texts to translate, in order, without tags and placeholders and with single spaces."""
        return [segment.text for segment in self._segments]

    def insert_translations(
        self, translations: Sequence[str], links: Sequence[CharacterLinks | None] | None = None
    ) -> str:
        """Return the input with a translation of each text. A translation equal to its text leaves the input unchanged.

        `links` are the character links of each translation, from `link_characters`. With them, tags follow their words.
        Without them (None for all or for one), tags keep their order at proportional positions.
        """
        if len(translations) != len(self._segments):
            raise UsageError("translation_count_mismatch", count=len(translations), expected=len(self._segments))
        each_links = [None] * len(translations) if links is None else links
        pieces: list[str] = []
        at = 0
        for segment, translation, known in zip(self._segments, translations, each_links, strict=True):
            pieces += [self._text[at : segment.begin], write_segment(self._text, segment, translation, known)]
            at = segment.end
        return "".join([*pieces, self._text[at:]])

    @cached_property
    def _segments(self) -> list[MarkupSegment]:
        return build_segments(
            self._text, parse_spans(self._text, self._format, self._ignored_tags, self._rules), self._format
        )
