"""Which tags belong together, which are part of a sentence, and which stand between sentences."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Literal, NamedTuple

from attendo.text.markup.scanning import Kind, Token, scan

# text; a tag of a sentence that opens or closes; an atom: one thing in a sentence; a wall: what divides sentences
PartKind = Literal["text", "open", "close", "atom", "wall"]


class Part(NamedTuple):
    """A part of the input, from begin to end; the two tags of an element have the same number."""

    kind: PartKind
    begin: int
    end: int
    element: int = -1


class Outline(NamedTuple):
    """What is known of elements by their names: which divide sentences, and which never do.

    `found_out`: of all others it is seen from the names of HTML, or from where they stand.
    """

    dividing: frozenset[str] = frozenset()
    joining: frozenset[str] = frozenset()
    found_out: bool = True

    def lower(self) -> "Outline":
        """For names of HTML, which have no case."""
        dividing, joining = (frozenset(map(str.lower, names)) for names in (self.dividing, self.joining))
        return Outline(dividing, joining, self.found_out)


_FOUND_OUT = Outline()
_DIVIDING_NAMES = """
address article aside base blockquote body br canvas caption center col colgroup dd details dialog dir div dl dt
fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe legend li
link main menu meta nav noframes noscript object ol optgroup option p param pre script section select source style
summary table tbody td template textarea tfoot th thead title tr track ul xmp
"""
_DIVIDING = frozenset(_DIVIDING_NAMES.split())
_UNTRANSLATED = frozenset(("code", "iframe", "kbd", "math", "samp", "script", "style", "svg", "var", "xmp"))
_BY_LINES = frozenset(("pre", "textarea"))  # where a line break is meant
_ATTRIBUTE = re.compile(r"([^\s=/<>\"']+)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s>]*))?")
_LINE_BREAK = re.compile(r"\r\n?|\n")


def parts_of(text: str, kind: Kind, ignored: Collection[str], outline: Outline = _FOUND_OUT) -> list[Part]:
    """In order, without a gap; the tags of the elements of a sentence are properly nested.

    In HTML the name of an element says whether it divides sentences. In XML it does unless there is text beside it.
    What `outline` says comes first. An element that is not to be translated is an atom, or a wall, as a whole, and so
    is a tag without its other half.
    """
    tokens = scan(text, kind)
    tree = _Tree(text, tokens, kind, outline.lower() if kind == "html" else outline)
    names = {name.lower() for name in ignored} | _UNTRANSLATED if kind == "html" else set(ignored)
    parts: list[Part] = []
    place = by_lines = 0
    while place < len(tokens):
        token, mate = tokens[place], tree.mates[place]
        if token.kind == "open" and mate >= 0 and (token.name in names or _untranslated(text, token)):
            parts.append(Part("wall" if tree.divides(place) else "atom", token.begin, tokens[mate].end))
            place = mate
        elif token.kind == "text":
            parts += _lines(text, token) if by_lines else [Part("text", token.begin, token.end)]
        else:
            by_lines += _step(token, mate) if kind == "html" else 0
            parts.append(_tag(tree, place))
        place += 1
    return _without_crossings(parts)


class _Tree:
    """Of each token the other half of its element, -1 without one, and whether it stands beside text."""

    def __init__(self, text: str, tokens: Sequence[Token], kind: Kind, outline: Outline) -> None:
        self.tokens, self._kind, self._outline = tokens, kind, outline
        self.mates = [-1] * len(tokens)
        self._parents = [-1] * len(tokens)
        self._with_text: set[int] = set()
        opened: list[int] = []
        names: Counter[str] = Counter()  # of what is open, so that nothing is looked for in vain
        for place, token in enumerate(tokens):
            if token.kind == "close" and names[token.name]:
                self._close(place, opened, names)
            self._parents[place] = opened[-1] if opened else -1
            if token.kind == "open":
                opened.append(place)
                names[token.name] += 1
            elif token.kind == "text" and not text[token.begin : token.end].isspace():
                self._with_text.add(self._parents[place])

    def divides(self, place: int) -> bool:
        token = self.tokens[place]
        if token.kind in ("declaration", "other"):
            return token.kind == "declaration"
        if token.name in self._outline.dividing or token.name in self._outline.joining or not self._outline.found_out:
            return token.name in self._outline.dividing
        if self._kind == "html":
            return token.name in _DIVIDING
        return self._parents[place] not in self._with_text

    def _close(self, place: int, opened: list[int], names: Counter[str]) -> None:
        """What was opened behind its other half and never closed has none."""
        name = self.tokens[place].name
        while True:
            last = opened.pop()
            names[self.tokens[last].name] -= 1
            if self.tokens[last].name == name:
                self.mates[last], self.mates[place] = place, last
                return


def _tag(tree: _Tree, place: int) -> Part:
    token, mate = tree.tokens[place], tree.mates[place]
    if tree.divides(place):
        return Part("wall", token.begin, token.end)
    if mate < 0:
        return Part("atom", token.begin, token.end)
    return Part("open" if token.kind == "open" else "close", token.begin, token.end, min(place, mate))


def _step(token: Token, mate: int) -> int:
    """Into a part where lines count, or out of it."""
    if token.name not in _BY_LINES or mate < 0:
        return 0
    return 1 if token.kind == "open" else -1


def _lines(text: str, token: Token) -> Iterator[Part]:
    at = token.begin
    for found in _LINE_BREAK.finditer(text, token.begin, token.end):
        yield Part("text", at, found.start())
        yield Part("wall", found.start(), found.end())
        at = found.end()
    yield Part("text", at, token.end)


def _untranslated(text: str, token: Token) -> bool:
    tag = text[token.begin + 1 + len(token.name) : token.end - 1]
    if "translate" not in tag.lower():
        return False
    values = {name.lower(): value.strip("\"'").lower() for name, value in _ATTRIBUTE.findall(tag)}
    return values.get("translate") == "no"


def _without_crossings(parts: Sequence[Part]) -> list[Part]:
    """An element that begins in one sentence and ends behind a wall is two walls itself.

    What is nested properly stays so: whatever holds one of these two tags alone would be nested wrongly, and whatever
    holds both crosses the same wall.
    """
    walls = 0
    walls_before: dict[int, int] = {}
    crossing: set[int] = set()
    for part in parts:
        walls += part.kind == "wall"
        if part.kind == "open":
            walls_before[part.element] = walls
        elif part.kind == "close" and walls_before[part.element] != walls:
            crossing.add(part.element)
    return [part._replace(kind="wall", element=-1) if part.element in crossing else part for part in parts]
