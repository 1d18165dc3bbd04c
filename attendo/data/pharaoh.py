"""Word alignments in Pharaoh format: one line per pair, such as `0-0 1-2`.

The source word is first. Words are separated by white space and counted from 0. fast_align and eflomal write
this format.
"""

import re

from attendo.errors import DataError, MessagePart

Link = tuple[int, int]  # source, target; from 0
_LINK = re.compile(r"(\d{1,6})([-?p])(\d{1,6})", re.ASCII)


def parse_links(line: str, location: MessagePart | str) -> tuple[frozenset[Link], frozenset[Link]]:
    """Return the sure and possible links of a line such as `0-0 1-2 3?4`; `?` or `p` marks a possible link."""
    sure: set[Link] = set()
    possible: set[Link] = set()
    for text in line.split():
        found = _LINK.fullmatch(text)
        if found is None:
            raise DataError("invalid_gold_link", place=location, text=text)
        (sure if found[2] == "-" else possible).add((int(found[1]), int(found[3])))
    return frozenset(sure), frozenset(possible)
