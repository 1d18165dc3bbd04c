"""The sentences of a text to be translated, and the text with their translations in their places."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from attendo.text.markup import CharacterLinks, Markup, Outline
from attendo.text_model.sentence_splitting import joined, sentences

TextKind = Literal["text", "html", "xml"]
Split = Literal["lines", "signs", "never"]
_LINE_BREAKS = {ord(sign): " " for sign in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


class Said(Protocol):
    """The translation of a sentence; `links` where it is known which of its characters goes back to which."""

    @property
    def text(self) -> str: ...

    @property
    def links(self) -> CharacterLinks | None: ...


class Reading(NamedTuple):
    """How texts are taken apart: their kind, elements that stay as they are, and what ends a sentence.

    `split`: the end of a line as well as signs; signs alone, so that sentences go on in the next line; or nothing, so
    that a text, or what stands between tags that divide, is one. `outline`: what is known of such tags.
    """

    kind: TextKind = "text"
    ignored: Sequence[str] = ()
    split: Split = "lines"
    outline: Outline = Outline()


class TextPlan:
    """`asked` are the sentences for a model, in order: those that have a letter."""

    def __init__(self, text: str, how: Reading | TextKind, whole: Callable[[str], bool] | None = None) -> None:
        """`whole`: whether a model reads such a line as it is, however many sentences it has."""
        how = Reading(how) if isinstance(how, str) else how
        self._document = _document(text, how)
        self._units = [
            _Unit(each, how.split != "never" and not (whole and whole(each))) for each in self._document.texts
        ]
        self.asked = [part.text for unit in self._units for part in unit.parts if part.asked]

    def written(self, translations: Sequence[Said]) -> str:
        """The whole text, with a translation of each sentence asked."""
        said = iter(translations)
        written = [unit.written(said) for unit in self._units]
        return self._document.translated([text for text, _ in written], [links for _, links in written])


def _document(text: str, how: Reading) -> "_Lines | Markup":
    return _Lines(text, how.split) if how.kind == "text" else Markup(text, how.kind, how.ignored, how.outline)


class _Lines:
    """A text without tags, taken apart as `Markup` does it."""

    def __init__(self, text: str, split: Split) -> None:
        self._text = text
        self._places = [*_bodies(text, split)]

    @property
    def texts(self) -> list[str]:
        """Each on one line."""
        return [joined([line.strip() for line in self._text[slice(*place)].splitlines()]) for place in self._places]

    def translated(self, translations: Sequence[str], links: Sequence[CharacterLinks | None] | None = None) -> str:
        """What is translated by itself keeps its lines."""
        pieces: list[str] = []
        at = 0
        for (begin, end), text, translation in zip(self._places, self.texts, translations, strict=True):
            pieces += [self._text[at:begin], self._text[begin:end] if translation == text else translation]
            at = end
        return "".join([*pieces, self._text[at:]])


def _bodies(text: str, split: Split) -> Iterator[tuple[int, int]]:
    """Where what is read in one go begins and ends, without the white space around it."""
    begun: int | None = None
    end = 0
    for begin, end in _stripped_lines(text):
        begun = begin if begun is None else begun
        if split == "lines" or (split == "signs" and sentences(f"{text[begin:end]} x")[-1] == "x"):
            yield begun, end
            begun = None
    if begun is not None:
        yield begun, end


def _stripped_lines(text: str) -> Iterator[tuple[int, int]]:
    """Blank ones left out."""
    at = 0
    for line in text.splitlines(keepends=True):
        if body := line.strip():
            begin = at + line.index(body)
            yield begin, begin + len(body)
        at += len(line)


class _Part(NamedTuple):
    text: str
    begin: int
    asked: bool


class _Unit:
    """A line, or what stands between tags that divide."""

    def __init__(self, text: str, by_sentence: bool) -> None:
        self.parts: list[_Part] = []
        end = 0
        for sentence in sentences(text) if by_sentence else [text]:
            begin = text.index(sentence, end)
            end = begin + len(sentence)
            self.parts.append(_Part(sentence, begin, any(character.isalpha() for character in sentence)))

    def written(self, said: Iterator[Said]) -> tuple[str, CharacterLinks | None]:
        """The links are those of all sentences, or None where one of them has none."""
        whole, links = "", list[tuple[int, int]]()
        linked = True
        for part in self.parts:
            text, known = _stripped(next(said)) if part.asked else (part.text, _to_itself(part.text))
            whole = joined([whole, text])
            shift = len(whole) - len(text)
            linked = linked and known is not None
            last = len(part.text) - 1  # what a tokenizer spells longer may end behind it
            links += [(part.begin + min(here, last), shift + there) for here, there in known or ()]
        return whole, links if linked else None


def _stripped(said: Said) -> tuple[str, CharacterLinks | None]:
    """On one line, without white space around it: that of the source is there already."""
    lead = len(said.text) - len(said.text.lstrip())
    text = said.text.strip().translate(_LINE_BREAKS)
    if said.links is None:
        return text, None
    last = max(0, len(text) - 1)
    return text, [(here, min(max(0, there - lead), last)) for here, there in said.links]


def _to_itself(text: str) -> CharacterLinks:
    return [(place, place) for place in range(len(text))]
