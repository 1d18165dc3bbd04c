"""Terms of a sentence: what its translation must contain, what the network does not read, and the report about both."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from attendo.decode.config import GenerationConfig
from attendo.text import UNK, Tokenizer
from attendo.text.markup import CharacterLinks
from attendo.text_model.constraints import can_generate, contains, contains_each, encode_constraints, find_occurrences
from attendo.text_model.glossary import Span, TermMatch
from attendo.text_model.kept_text import KeptText, Removal, insert_kept, remove_kept
from attendo.text_model.options import GenerateOptions
from attendo.text_model.results import Hypothesis, Result, TermReport

_COPIED_KINDS = ("number", "do_not_translate")  # the network reads these texts if it can, as words of the sentence
_BEAM_SIZES = (8, 16, 32)
_SPARE_ROWS = 4  # of a beam, besides one for each token of the terms


class WantedTerm(NamedTuple):
    """A part of the text that the network reads, and the forms of which the output must have one."""

    begin: int
    end: int
    forms: tuple[str, ...]


@dataclass(frozen=True)
class SentenceTerms:
    """The glossary terms and the kept texts of one sentence."""

    text: str
    matches: tuple[TermMatch, ...]
    forms: tuple[tuple[str, ...], ...]  # of each match: those that can be generated
    copied: tuple[KeptText, ...]  # the network reads them, and the output must contain them
    removed: tuple[KeptText, ...]  # the network does not read them: they are inserted into the output

    @cached_property
    def wanted(self) -> tuple[WantedTerm, ...]:
        """The terms that the output must contain, with their places in `source`."""
        spans = [(*match.span, forms) for match, forms in zip(self.matches, self.forms, strict=True) if forms]
        spans += [(*each.span, (each.text,)) for each in self.copied]
        place = self.removal.place
        return tuple(WantedTerm(place(begin), place(end), forms) for begin, end, forms in sorted(spans))

    @property
    def required(self) -> tuple[tuple[str, ...], ...]:
        """The forms of each phrase that the output must contain."""
        return tuple(each.forms for each in self.wanted)

    def find_unmet(self, output: str) -> list[WantedTerm]:
        """Return the terms that an output does not have. Of equal ones, the last are missing."""
        met = contains_each(output, self.required)
        return [each for each, is_met in zip(self.wanted, met, strict=True) if not is_met]

    @cached_property
    def removal(self) -> Removal:
        return remove_kept(self.text, self.removed)

    @property
    def source(self) -> str:
        """The text that the network reads. It is empty if nothing has to be translated."""
        text = self.removal.text
        return text if self.wanted or any(character.isalnum() for character in text) else ""


class Terminology:
    """The glossary and the kept texts of one call."""

    def __init__(self, options: GenerateOptions, source: Tokenizer, target: Tokenizer) -> None:
        self._glossary, self._finder = options.glossary, options.kept_text_finder
        self._banned, self._source, self._target = options.banned_phrases, source, target

    def find(self, text: str) -> SentenceTerms | None:
        """Return the terms of a sentence, or None if it has none."""
        kept = self._finder.find(text)
        matches = self._glossary.find(text, [each.span for each in kept]) if self._glossary is not None else []
        if not kept and not matches:
            return None
        copied = tuple(each for each in kept if self._can_write(each))
        return SentenceTerms(
            text,
            tuple(matches),
            tuple(tuple(filter(self._can_generate, each.term.targets)) for each in matches),
            copied,
            tuple(each for each in kept if each not in copied),
        )

    def remove_copied(self, terms: SentenceTerms) -> SentenceTerms:
        """Return the terms with all kept texts removed from the sentence."""
        removed = sorted((*terms.copied, *terms.removed), key=lambda each: each.begin)
        return SentenceTerms(terms.text, terms.matches, terms.forms, (), tuple(removed))

    def select_copies(self, terms: SentenceTerms, found: Sequence[Hypothesis]) -> tuple[Hypothesis, ...]:
        """Return the hypotheses that have the copied texts as often as the sentence."""
        return tuple(each for each in found if self._finder.keeps_exactly(terms.copied, each.text))

    def insert_removed(self, terms: SentenceTerms, translation: str, links: CharacterLinks | None) -> str:
        """Return a translation with the removed texts, each as often as in the sentence."""
        if not terms.source:
            return terms.text
        if not terms.removed:
            return translation
        clean = self._finder.delete(terms.removed, translation)
        known = links if clean == translation else None
        whole = [span for each in terms.matches for span in find_occurrences(clean, each.term.targets)]
        text = insert_kept(terms.text, terms.removed, clean, known, whole)
        if self._finder.keeps_exactly(terms.removed, text):
            return text
        return insert_kept(terms.text, terms.removed, clean, known, whole, separate=True)

    def report(self, terms: SentenceTerms, best: Hypothesis, cut: bool) -> tuple[TermReport, ...]:
        """Return a report about each term and each kept text of a sentence, in the order of the sentence.

        `cut` is True if a search for all terms reached the length limit.
        """
        found = [*self._report_glossary(terms, best, cut), *self._report_kept(terms, best)]
        return tuple(sorted(found, key=lambda each: each.source_span))

    def _report_glossary(self, terms: SentenceTerms, best: Hypothesis, cut: bool) -> Iterator[TermReport]:
        removed = {each.text for each in terms.removed}
        inserted = [each for each in self._finder.find(best.text) if each.text in removed]
        places: dict[tuple[str, ...], Iterator[Span]] = {}
        for match, forms in zip(terms.matches, terms.forms, strict=True):
            targets = match.term.targets
            if targets not in places:
                spans = find_occurrences(best.text, targets)
                places[targets] = (span for span in spans if not any(each.overlaps(span) for each in inserted))
            span = next(places[targets], None)
            report = TermReport("glossary", terms.text[slice(*match.span)], match.span, match.term.target, span)
            yield report if span else replace(report, reason=self._find_reason(targets, forms, cut))

    def _report_kept(self, terms: SentenceTerms, best: Hypothesis) -> Iterator[TermReport]:
        places = [(each.text, each.span) for each in self._finder.find(best.text)]
        used: Counter[str] = Counter()
        for each in (*terms.copied, *terms.removed):
            spans = [span for text, span in places if text == each.text]
            span = spans[used[each.text]] if used[each.text] < len(spans) else None
            used[each.text] += 1
            yield TermReport(each.kind, each.text, each.span, each.text, span, "" if span else "search")

    def _find_reason(
        self, targets: Sequence[str], forms: Sequence[str], cut: bool
    ) -> Literal["vocabulary", "banned", "length", "search"]:
        """Return why an output has none of the `targets`. `forms` are those that can be generated."""
        if not forms:
            return "banned" if any(can_generate(self._target, each) for each in targets) else "vocabulary"
        return "length" if cut else "search"

    def _can_generate(self, form: str) -> bool:
        return can_generate(self._target, form) and not any(contains(form, banned) for banned in self._banned)

    def _can_write(self, kept: KeptText) -> bool:
        """Whether the network can read a kept text and write it without a change."""
        if kept.kind not in _COPIED_KINDS or UNK in self._source.encode(kept.text):
            return False
        if any(contains(kept.text, banned) for banned in self._banned):
            return False
        ids = self._target.encode(kept.text)
        return UNK not in ids and self._target.decode(ids).strip() == kept.text


def choose_beam(config: GenerationConfig, tokenizer: Tokenizer, required: Sequence[tuple[str, ...]]) -> int:
    """Return the beam size for a sentence: the beam needs a row for each token of its terms, and some without."""
    (encodings,) = encode_constraints(tokenizer, required)
    tokens = sum(min(map(len, forms)) for forms in encodings if forms and isinstance(forms[0], tuple))
    fitting = (size for size in _BEAM_SIZES if size >= tokens + _SPARE_ROWS)
    return max(config.beam, next(fitting, _BEAM_SIZES[-1]))


def shift_reports(
    text: str, sentences: Sequence[str], results: Sequence[Result], outputs: Sequence[int]
) -> tuple[TermReport, ...]:
    """Return the reports of all sentences, with positions in the whole text and in the whole output.

    `outputs` are the positions of the outputs of the sentences in the joined output.
    """
    found: list[TermReport] = []
    end = 0
    for sentence, result, output in zip(sentences, results, outputs, strict=True):
        begin = text.find(sentence, end)
        begin = end if begin < 0 else begin  # sentences that were joined by a space
        end = min(len(text), begin + len(sentence))
        found += [each.shift(begin, output) for each in result.terms]
    return tuple(found)
