"""Text that a translation keeps unchanged: placeholders, addresses, numbers and given terms."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from attendo.errors import UsageError
from attendo.settings import suggest_name
from attendo.text.markup import PLACEHOLDER, CharacterLinks, needs_space_after, needs_space_before, place_atoms
from attendo.text.scripts import is_unspaced, unspaced_class
from attendo.text_model.constraints import is_inside_word, validate_phrases
from attendo.text_model.glossary import Glossary, Span, Term, select_longest

KeptKind = Literal["placeholder", "url", "email", "number", "do_not_translate"]
KEEP: dict[str, KeptKind] = {"placeholders": "placeholder", "urls": "url", "emails": "email", "numbers": "number"}
_ADDRESS_END = rf"[^\s<>\"'.,;:!?()\[\]{{}}{unspaced_class()}，。；：！？、（）《》「」]"
_PATTERNS: dict[KeptKind, re.Pattern[str]] = {
    # A format such as {price:.2f} or {name!r} besides those of markup.
    "placeholder": re.compile(
        rf"{PLACEHOLDER} | \{{ [\w.\[\]]{{0,64}} (?:![rsa])? (?: :[^{{}}\s]{{1,32}} )? \}}", re.X
    ),
    # A letter of a script without spaces ends an address: it belongs to the sentence.
    "url": re.compile(
        rf"(?:https?://|ftp://|www\.)[^\s<>\"'{unspaced_class()}，。；：！？、（）《》「」]{{0,2000}}{_ADDRESS_END}",
        re.I,
    ),
    "email": re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}"),
    "number": re.compile(r"\d+(?:[.,:/-]\d+)*"),
}
_SEPARATE = ("url", "email")  # have white space around them, because a letter would belong to the address


@dataclass(frozen=True)
class KeptText:
    """A part of a text that its translation keeps unchanged."""

    kind: KeptKind
    text: str
    begin: int
    end: int

    @property
    def span(self) -> Span:
        return self.begin, self.end

    def overlaps(self, span: Span) -> bool:
        return self.begin < span[1] and span[0] < self.end


class KeptTextFinder:
    """Finds the text to keep. `keep` are names of `KEEP`, and `terms` are texts that are not translated."""

    def __init__(self, keep: Sequence[str] = (), terms: Sequence[str] = ()) -> None:
        if isinstance(keep, str):
            raise UsageError("keep_not_list", value=keep)
        if other := [name for name in keep if name not in KEEP]:
            raise UsageError("keep_unknown", value=other[0], suggestion=suggest_name(str(other[0]), list(KEEP)))
        self._kinds = [KEEP[name] for name in dict.fromkeys(keep)]
        unique = dict.fromkeys(validate_phrases(terms, "do_not_translate"))
        self._terms = Glossary(Term(term, term) for term in unique)

    def __bool__(self) -> bool:
        return bool(self._kinds or self._terms.terms)

    def find(self, text: str) -> list[KeptText]:
        """Return the text to keep, in order. Of matches that overlap, the longest is kept, then the first."""
        matches = [
            KeptText(kind, found[0], *found.span())
            for kind in self._kinds
            for found in _PATTERNS[kind].finditer(text)
            if kind != "number" or not any(is_inside_word(text, at) for at in found.span())
        ]
        matches += [
            KeptText("do_not_translate", text[slice(*each.span)], *each.span) for each in self._terms.find(text)
        ]
        return select_longest(matches, len(text))

    def keeps_exactly(self, kept: Sequence[KeptText], text: str) -> bool:
        """Whether a translation has each kept text as often as the source."""
        wanted = Counter(each.text for each in kept)
        return Counter(each.text for each in self.find(text) if each.text in wanted) == wanted

    def delete(self, kept: Sequence[KeptText], text: str) -> str:
        """Return a translation without the texts that are kept: those that the network repeated from its training."""
        texts = {each.text for each in kept}
        while found := [each for each in self.find(text) if each.text in texts]:
            for each in reversed(found):
                text = f"{text[: each.begin].rstrip()} {text[each.end :].lstrip()}".strip()
        return text


class Removal(NamedTuple):
    """A text without its kept parts. `origins` are the positions of its characters in the whole text."""

    text: str
    origins: tuple[int, ...]

    def place(self, position: int) -> int:
        """Return where a character of the whole text is, or where it would be."""
        return bisect_left(self.origins, position)


def remove_kept(text: str, kept: Sequence[KeptText]) -> Removal:
    """Remove the kept parts of a text, with one of the spaces around each."""
    origins: list[int] = []
    at = 0
    for each in kept:
        origins += range(at, each.begin)
        at = each.end
        if (not origins or text[origins[-1]].isspace()) and text[at : at + 1].isspace():
            at += 1
    origins += range(at, len(text))
    return Removal("".join(text[position] for position in origins), tuple(origins))


def insert_kept(
    source: str,
    kept: Sequence[KeptText],
    translation: str,
    links: CharacterLinks | None,
    whole: Sequence[Span] = (),
    separate: bool = False,
) -> str:
    """Return the translation of `remove_kept(source, kept)` with the kept texts at the places of their words.

    `links` are character links between the text without the kept parts and the translation. Nothing is inserted into
    the `whole` spans of the translation. With `separate`, every kept text has spaces around it.
    """
    removal = remove_kept(source, kept)
    places = place_atoms(removal.text, translation, [removal.place(each.begin) for each in kept], links)
    places = [_leave_words(translation, place, whole) for place in places]
    segmented = " " in translation
    text, at = "", 0
    placed = sorted(zip(places, kept, strict=True), key=lambda pair: pair[0])
    for number, (place, each) in enumerate(placed, start=1):
        text, at = text + translation[at:place], place
        space = separate or _needs_space_before(text, each, source[each.begin - 1 : each.begin], segmented)
        text += f" {each.text}" if space and text and not text[-1].isspace() else each.text
        following = translation[at : at + 1]
        is_last = number == len(placed) or placed[number][0] > place
        if is_last and following and not following.isspace():
            after = source[each.end : each.end + 1]
            text += " " if separate or _needs_space_after(following, each, after, segmented) else ""
    return text + translation[at:]


def _leave_words(translation: str, place: int, whole: Sequence[Span]) -> int:
    """Return the end of the span or of the word that a place is in, else the place.

    If a translation in a script without spaces has spaces between its words, its words are whole, too.
    """
    place = next((end for begin, end in whole if begin < place < end), place)
    if " " in translation:
        while 0 < place < len(translation) and all(map(is_unspaced, translation[place - 1 : place + 1])):
            place += 1
    return place


def _needs_space_before(text: str, kept: KeptText, source_neighbour: str, segmented: bool) -> bool:
    """Whether a space separates a kept text from the text before it. In the source it followed `source_neighbour`."""
    last = text[-1:]
    if is_inside_word(last + kept.text[0], 1) or (kept.kind in _SEPARATE and last.isalnum()):
        return True
    if last == source_neighbour or source_neighbour.isalnum():
        return False
    return needs_space_after(last) or (segmented and source_neighbour.isspace())


def _needs_space_after(following: str, kept: KeptText, source_neighbour: str, segmented: bool) -> bool:
    if is_inside_word(kept.text[-1] + following, 1) or (kept.kind in _SEPARATE and following.isalnum()):
        return True
    if following == source_neighbour or source_neighbour.isalnum():
        return False
    return needs_space_before(following) or (segmented and source_neighbour.isspace() and following.isalnum())
