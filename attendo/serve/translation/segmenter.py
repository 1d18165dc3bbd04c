"""Splits a text into sentences and reassembles it from their translations."""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

from attendo.text.markup import CharacterLinks, Markup, TagRules
from attendo.text_model.sentence_splitting import join_texts, split_sentences

TextFormat = Literal["text", "html", "xml"]
SplitRule = Literal["lines", "signs", "never"]
_LINE_BREAKS = {ord(sign): " " for sign in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}


class TranslatedSentence(Protocol):
    """The translation of a sentence; `links` align characters of source and translation, if known."""

    @property
    def text(self) -> str: ...

    @property
    def links(self) -> CharacterLinks | None: ...


class SegmentationOptions(NamedTuple):
    """Text format, elements that are not translated (`ignored_tags`), and the sentence boundaries.

    `split`: with `lines`, sentences end at punctuation and at line ends. With `signs` they end at punctuation only and
    may span lines. With `never`, a text, or the text between splitting tags, is one sentence. `tag_rules` classify
    tags.
    """

    text_format: TextFormat = "text"
    ignored_tags: Sequence[str] = ()
    split: SplitRule = "lines"
    tag_rules: TagRules = TagRules()


class SegmentedText:
    """A text split into blocks and sentences. `sentences` are those that contain a letter, in order."""

    def __init__(
        self, text: str, options: SegmentationOptions | TextFormat, fits: Callable[[str], bool] | None = None
    ) -> None:
        """`fits` returns True for a line that the model reads without splitting it into sentences."""
        options = SegmentationOptions(options) if isinstance(options, str) else options
        self._document = _parse_document(text, options)
        self._blocks = [
            _TextBlock(each, options.split != "never" and not (fits and fits(each))) for each in self._document.texts
        ]
        self.sentences = [part.text for unit in self._blocks for part in unit.spans if part.translatable]

    def assemble(self, translations: Sequence[TranslatedSentence]) -> str:
        """Return the whole text, with one translation for each of `sentences`."""
        remaining = iter(translations)
        blocks = [unit.assemble(remaining) for unit in self._blocks]
        return self._document.insert_translations([text for text, _ in blocks], [links for _, links in blocks])


def _parse_document(text: str, options: SegmentationOptions) -> "_PlainText | Markup":
    return (
        _PlainText(text, options.split)
        if options.text_format == "text"
        else Markup(text, options.text_format, options.ignored_tags, options.tag_rules)
    )


class _PlainText:
    """A text without tags, with the interface of `Markup`."""

    def __init__(self, text: str, split: SplitRule) -> None:
        self._text = text
        self._spans = [*_find_spans(text, split)]

    @property
    def texts(self) -> list[str]:
        """The blocks, each joined to one line."""
        return [join_texts([line.strip() for line in self._text[slice(*span)].splitlines()]) for span in self._spans]

    def insert_translations(
        self, translations: Sequence[str], links: Sequence[CharacterLinks | None] | None = None
    ) -> str:
        """Return the text with its translations. A block equal to its translation keeps its line breaks."""
        pieces: list[str] = []
        at = 0
        for (begin, end), text, translation in zip(self._spans, self.texts, translations, strict=True):
            pieces += [self._text[at:begin], self._text[begin:end] if translation == text else translation]
            at = end
        return "".join([*pieces, self._text[at:]])


def _find_spans(text: str, split: SplitRule) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each block, without surrounding white space."""
    block_begin: int | None = None
    end = 0
    for begin, end in _find_lines(text):
        block_begin = begin if block_begin is None else block_begin
        if split == "lines" or (split == "signs" and split_sentences(f"{text[begin:end]} x")[-1] == "x"):
            yield block_begin, end
            block_begin = None
    if block_begin is not None:
        yield block_begin, end


def _find_lines(text: str) -> Iterator[tuple[int, int]]:
    """Yield the begin and end of each line that is not blank."""
    at = 0
    for line in text.splitlines(keepends=True):
        if body := line.strip():
            begin = at + line.index(body)
            yield begin, begin + len(body)
        at += len(line)


class _SentenceSpan(NamedTuple):
    text: str
    begin: int
    translatable: bool


class _TextBlock:
    """A line, or the text between splitting tags."""

    def __init__(self, text: str, by_sentence: bool) -> None:
        self.spans: list[_SentenceSpan] = []
        end = 0
        for sentence in split_sentences(text) if by_sentence else [text]:
            begin = text.index(sentence, end)
            end = begin + len(sentence)
            self.spans.append(_SentenceSpan(sentence, begin, any(character.isalpha() for character in sentence)))

    def assemble(self, translations: Iterator[TranslatedSentence]) -> tuple[str, CharacterLinks | None]:
        """Return the text and its links. The links are None if one sentence has none."""
        joined, links = "", list[tuple[int, int]]()
        linked = True
        for part in self.spans:
            text, known = (
                _strip_translation(next(translations)) if part.translatable else (part.text, _identity_links(part.text))
            )
            joined = join_texts([joined, text])
            shift = len(joined) - len(text)
            linked = linked and known is not None
            last = len(part.text) - 1  # a normalising tokenizer may give positions past the end
            links += [(part.begin + min(here, last), shift + there) for here, there in known or ()]
        return joined, links if linked else None


def _strip_translation(translation: TranslatedSentence) -> tuple[str, CharacterLinks | None]:
    """Return the translation on one line, stripped: the white space of the source is kept."""
    lead = len(translation.text) - len(translation.text.lstrip())
    text = translation.text.strip().translate(_LINE_BREAKS)
    if translation.links is None:
        return text, None
    last = max(0, len(text) - 1)
    return text, [(here, min(max(0, there - lead), last)) for here, there in translation.links]


def _identity_links(text: str) -> CharacterLinks:
    return [(index, index) for index in range(len(text))]
