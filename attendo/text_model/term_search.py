"""Generation with a glossary and with text to keep: placement by alignment, constrained search, insertion of text."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attendo.decode.config import GenerationConfig
from attendo.errors import UsageError
from attendo.text import Tokenizer
from attendo.text.markup import CharacterLinks
from attendo.text.tokenizer import strip_line_end
from attendo.text_model.alignment import align, last_character_positions, link_characters
from attendo.text_model.constraints import Ids, contains_each, encode_phrase, is_inside_word
from attendo.text_model.generation import Generation, PreparedCall
from attendo.text_model.inputs import SourceLine
from attendo.text_model.options import is_plain_beam
from attendo.text_model.results import EMPTY_RESULT, Alignment, Hypothesis, Result
from attendo.text_model.terminology import SentenceTerms, Terminology, WantedTerm, choose_beam

if TYPE_CHECKING:
    from attendo.text_model.text_model import TextModel

Found = tuple[Hypothesis, ...]  # of one line, best first
_MIN_WEIGHT = 0.2  # attention to a term of the token that translates it
_SAME_TERM = 0.75  # least attention of the token before it that translates the same term, relative to the largest
_MAX_PLACED_FORMS = 8  # forms of a term that are tried at the place of its source


class TermSearch:
    """The searches of one call.

    1. Every line gets the output that it has without a glossary. It is kept if it has all terms.
    2. A missing term is placed where the output aligns with its source term. The search goes on after it.
    3. If that fails, a constrained beam finds an output with all terms, at any place.
    4. If an output does not have a number or a term to keep as often as its source, all kept text is removed from the
       source, and steps 1 to 3 are repeated. Removed text is inserted into the output by alignment.
    """

    def __init__(self, model: "TextModel", call: PreparedCall, terminology: Terminology) -> None:
        self._model, self._call, self._terminology = model, call, terminology
        self._encoder, self._config, self._target = call.source_encoder, call.config, call.tokenizers[1]
        beam_search = is_plain_beam(call.config) and not call.config.sample
        self._can_constrain = beam_search and self._supports(constraints=("x",), split=None)
        self._can_align = self._supports(alignments=True)
        self._cut: set[SourceLine] = set()  # whose terms do not fit into the length limit

    def generate(self) -> tuple[PreparedCall, list[Result]]:
        """Return the call with the lines that the network has read, and a result for each line."""
        lines = list(self._call.lines)
        found = self._search_terms(lines)
        again: list[int] = []
        for number, line in enumerate(lines):
            if line.terms is not None and line.terms.copied:
                if exact := self._terminology.select_copies(line.terms, found[number]):
                    found[number] = exact
                else:
                    again.append(number)
                    lines[number] = self._encoder.encode_terms(line, self._terminology.remove_copied(line.terms))
        for number, hypotheses in zip(again, self._search_terms([lines[number] for number in again]), strict=True):
            found[number] = hypotheses
        rest = iter(lines)
        read = [[next(rest) for _ in each] for each in self._call.lines_per_text]
        return replace(self._call, lines_per_text=read), self._finish(lines, found)

    def _search_terms(self, lines: Sequence[SourceLine]) -> list[Found]:
        """Return the hypotheses of each line. Those with missing terms are replaced if others have more terms."""
        found = self._search(lines, self._config, self._call.generation)
        if self._can_align and self._can_constrain:
            self._place_terms(lines, found)
        if self._can_constrain:
            self._constrain(lines, found)
        return found

    def _search(self, lines: Sequence[SourceLine], config: GenerationConfig, generation: Generation) -> list[Found]:
        """Return the hypotheses of each line. A line that the network does not read has an empty one."""
        read = [line for line in lines if line.terms is None or line.terms.source]
        constrained = any(line.phrases for line in read)
        results = iter(generation.generate(read, self._model.make_engine(config, constrained)) if read else ())
        return [next(results) if line.terms is None or line.terms.source else EMPTY_RESULT.hypotheses for line in lines]

    def _place_terms(self, lines: Sequence[SourceLine], found: list[Found]) -> None:
        """Place the missing terms of all lines, from left to right, one term of each line at a time."""
        states = {
            number: _Placement(line, found[number][0], self._call.tokenizers)
            for number, line in enumerate(lines)
            if line.terms is not None and line.terms.find_unmet(found[number][0].text)
        }
        while states:
            aligned = self._align(
                [state.line for state in states.values()], [(state.best,) for state in states.values()]
            )
            candidates = {
                number: state.list_candidates(best.alignment)
                for (number, state), (best,) in zip(states.items(), aligned, strict=True)
            }
            tries = [line for each in candidates.values() for line in each]
            results = iter(self._search(tries, self._config, self._call.generation))
            for number, tried in candidates.items():
                best = states[number].take([next(results) for _ in tried])
                found[number] = best or found[number]
            states = {number: state for number, state in states.items() if state.is_open}

    def _constrain(self, lines: Sequence[SourceLine], found: list[Found]) -> None:
        """Search with constraints for the lines that still miss a term, together if they need the same beam."""
        numbers_by_beam: dict[int, list[int]] = {}
        for number, line in enumerate(lines):
            if line.terms is not None and line.terms.find_unmet(found[number][0].text):
                beam = choose_beam(self._config, self._target, line.terms.required)
                numbers_by_beam.setdefault(beam, []).append(number)
        for beam, numbers in numbers_by_beam.items():
            config = self._config.override(beam=beam, engine="auto", compile=False)
            generation = Generation(self._call.options, config, self._target)
            some = [lines[number] for number in numbers]
            wanted = [self._encoder.require(line, line.terms.required) for line in some if line.terms is not None]
            for number, line, hypotheses in zip(numbers, some, self._search(wanted, config, generation), strict=True):
                self._cut |= {line} if hypotheses[0].cut else set()
                if line.terms and _count_unmet(line.terms, hypotheses) < _count_unmet(line.terms, found[number]):
                    found[number] = hypotheses

    def _finish(self, lines: Sequence[SourceLine], found: Sequence[Found]) -> list[Result]:
        """Insert the removed texts, and report about the terms."""
        numbers = [n for n, each in enumerate(lines) if each.terms and each.terms.removed and each.terms.source]
        links: Mapping[int, Sequence[CharacterLinks | None]] = {}
        if numbers and self._can_align:
            aligned = self._align([lines[number] for number in numbers], [found[number] for number in numbers])
            links = {number: self._link(lines[number], each) for number, each in zip(numbers, aligned, strict=True)}
        return [
            self._finish_line(line, hypotheses, links.get(number) or [None] * len(hypotheses))
            for number, (line, hypotheses) in enumerate(zip(lines, found, strict=True))
        ]

    def _finish_line(self, line: SourceLine, found: Found, links: Sequence[CharacterLinks | None]) -> Result:
        if line.terms is None:
            return Result(found)
        finished: list[Hypothesis] = []
        for each, known in zip(found, links, strict=True):
            text = self._terminology.insert_removed(line.terms, each.text, known)
            finished.append(replace(each, text=text, constraints=contains_each(text, line.phrases)))
        return Result(tuple(finished), terms=self._terminology.report(line.terms, finished[0], line in self._cut))

    def _align(self, lines: Sequence[SourceLine], found: Sequence[Found]) -> list[Found]:
        """Return the hypotheses of each line with their alignments."""
        model, results = self._model, [Result(each) for each in found]
        positions = self._config.resolve_batch_tokens(model.device.type == "cuda")
        aligned = align(results, [line.source for line in lines], model.networks, positions, model.scores)
        return [each.hypotheses for each in aligned]

    def _link(self, line: SourceLine, aligned: Found) -> list[CharacterLinks | None]:
        return [
            link_characters(each, line.terms.source, *self._call.tokenizers) if line.terms else None for each in aligned
        ]

    def _supports(self, **options: Any) -> bool:
        """Whether the backend supports these options."""
        try:
            self._model.backend.check(replace(self._call.options, **options), self._config)
        except UsageError:
            return False
        return True


class _Placement:
    """The placement of the missing terms of one line. `best` is the output so far."""

    def __init__(self, line: SourceLine, best: Hypothesis, tokenizers: tuple[Tokenizer, Tokenizer]) -> None:
        self.line, self.best = line, best
        source, self._target = tokenizers
        text = line.terms.source if line.terms is not None else line.text
        self._source_ends = last_character_positions(source, source.encode(strip_line_end(text)))
        self._tried: set[WantedTerm] = set()
        self._fixed = len(line.prefix)  # tokens of the output that stay
        self._prefixes: list[Ids] | None = None  # of the candidates

    @property
    def is_open(self) -> bool:
        return self._prefixes is not None and bool(self._list_missing())

    def list_candidates(self, alignment: Alignment | None) -> list[SourceLine]:
        """Return a line for each form of the next missing term. Its prefix ends with the form."""
        self._prefixes = None
        places = [
            (place, each) for each in self._list_missing() if (place := self._find_place(each, alignment)) is not None
        ]
        if not places:
            return []
        place, term = min(places)
        self._tried.add(term)
        encodings = [ids for form in term.forms[:_MAX_PLACED_FORMS] for ids in encode_phrase(self._target, form)]
        prefixes = [(*self.best.ids[:place], *ids) for ids in dict.fromkeys(encodings)]
        self._prefixes = [prefix for prefix in prefixes if len(prefix) < self.line.max_length]
        return [replace(self.line, prefix=prefix) for prefix in self._prefixes]

    def take(self, results: Sequence[Found]) -> Found | None:
        """Return the best hypotheses of the candidates if they have more of the terms."""
        terms, now = self.line.terms, self.best.text
        assert terms is not None
        better = [each for each in results if _count_unmet(terms, each) < len(terms.find_unmet(now))]
        if self._prefixes is None or not better:
            return None
        found = max(better, key=lambda each: (-_count_unmet(terms, each), each[0].score))
        self.best = found[0]
        self._fixed = len(self._prefixes[[each is found for each in results].index(True)])
        return found

    def _list_missing(self) -> list[WantedTerm]:
        terms = self.line.terms
        return [each for each in terms.find_unmet(self.best.text) if each not in self._tried] if terms else []

    def _find_place(self, term: WantedTerm, alignment: Alignment | None) -> int | None:
        """Return the token of the output at which the word begins that aligns with a term."""
        if alignment is None or not self.best.ids:
            return None
        added = alignment.weights.size(1) - 1 - len(self._source_ends)  # tokens that the model adds to every source
        columns = [added + n for n, end in enumerate(self._source_ends) if term.begin <= end < term.end]
        weights = alignment.weights[:, [each for each in columns if each >= 0]].sum(dim=1)
        token = int(weights.argmax())
        if weights[token] < _MIN_WEIGHT:
            return None
        while token > 0 and weights[token - 1] > _SAME_TERM * weights.max():
            token -= 1
        ends = last_character_positions(self._target, self.best.ids)
        while token > 0 and is_inside_word(self.best.text, ends[token - 1] + 1):
            token -= 1
        return token if token >= self._fixed else None


def _count_unmet(terms: SentenceTerms, found: Found) -> int:
    return len(terms.find_unmet(found[0].text))
