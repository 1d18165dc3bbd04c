"""A translation with its tags in it again."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from attendo.text.markup.placing import Placed, by_links, by_unit, in_proportion
from attendo.text.markup.reading import escaped, writable
from attendo.text.markup.segments import Segment
from attendo.text.markup.units import Units, needs_space_before, needs_space_behind

CharacterLinks = Sequence[tuple[int, int]]  # a character of the source, and one of its translation


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
