"""One call of a text model, made ready: what must be searched for, and what becomes of that."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from attendo.data.line_breaks import as_line
from attendo.decode.config import GenerationConfig
from attendo.decode.frontier import Frontier
from attendo.decode.requests import Request
from attendo.decode.search import Rule, Strategy
from attendo.errors import UsageError
from attendo.text import Tokenizer
from attendo.text_model.answering import Answering, Line
from attendo.text_model.choices import ranking_of
from attendo.text_model.faults import NotANumberError
from attendo.text_model.lines import LineMaker
from attendo.text_model.links import with_words
from attendo.text_model.results import Result
from attendo.text_model.streaming import Teller
from attendo.text_model.wishes import Wishes


@dataclass(frozen=True)
class Call:
    """Checked, and in ids; nothing has been computed."""

    texts: Sequence[str]
    wishes: Wishes
    config: GenerationConfig
    maker: LineMaker
    made: Sequence[Sequence[Line]]  # of each text
    answering: Answering
    tokenizers: tuple[Tokenizer, Tokenizer]  # of the source and of the target

    @cached_property
    def lines(self) -> list[Line]:
        return [line for each in self.made for line in each]

    @property
    def one_search(self) -> bool:
        """Whether each line is answered by one search of ours, which can go on beside those of other calls.

        Then `told` makes a result of what was found for a line, without anything more being computed.
        """
        wishes, config = self.wishes, self.config
        several = bool(wishes.constraints or wishes.ban) or config.mbr != "none"
        return not several and not wishes.alignments and config.engine in ("auto", "fast")

    def search(self) -> tuple[list[Request], Strategy, list[Rule]]:
        """What an engine is to be asked, in the order of the lines; each line is to be found once."""
        return self.answering.search(self.lines, ())

    def told(self, found: Frontier) -> Result:
        """The result of the line that these hypotheses are of."""
        with self.naming_texts():
            return Result(next(self.answering.told(found, [()])))

    @contextmanager
    def naming_texts(self) -> Iterator[None]:
        """A search knows lines by their numbers alone."""
        try:
            yield
        except NotANumberError as error:
            place = next(n for n, lines in enumerate(self.made) for line in lines if line.number == error.number)
            raise NotANumberError(
                "text_log_probability_nan", error.precision, place, position=place + 1, total=len(self.texts)
            ) from None

    def results(self, found: Sequence[Result]) -> list[Result]:
        """One for each text, from those of the lines."""
        if self.wishes.alignments:
            found = [self._with_words(result, line) for result, line in zip(found, self.lines, strict=True)]
        told = zip(self.maker.results(found, self.made), self.texts, self.made, strict=True)
        return [
            replace(
                result,
                unknown=self._unknown(text),
                source_tokens=sum(line.read for line in lines),
                source_left_out=sum(line.left_out for line in lines),
                unsplit=sum(line.unsplit for line in lines),
            )
            for result, text, lines in told
        ]

    @property
    def source_tokens(self) -> list[int]:
        """Of each text, eos left out."""
        return [sum(line.read for line in lines) for lines in self.made]

    @property
    def most_weights(self) -> int:
        """That the alignments may have: one for each token of an answer and of its source, with eos."""
        wanted = self.wishes.n_best if self.wishes.alignments else 0
        return wanted * sum((len(line.source) + 1) * line.limit for line in self.lines)

    def within(self, answer_tokens: int) -> "Call":
        """The same with no answer longer than this."""
        if (longest := max((len(line.prefix) for line in self.lines), default=0)) > answer_tokens:
            raise UsageError("prefix_longer_than_max_length", tokens=longest, limit=answer_tokens)
        shorter = [[replace(line, limit=min(line.limit, answer_tokens)) for line in lines] for lines in self.made]
        return replace(self, made=shorter)

    def check_stream(self) -> None:
        if self.wishes.n_best > 1 or self.wishes.alignments:
            raise UsageError("stream_option_unsupported")

    def teller(self) -> Teller:
        return Teller(ranking_of(self.config), self.tokenizers[1])

    def _with_words(self, result: Result, line: Line) -> Result:
        found = (with_words(each, line.source, self.maker.added, self.tokenizers) for each in result.hypotheses)
        return replace(result, hypotheses=tuple(found))

    def _unknown(self, text: str) -> tuple[str, ...]:
        return tuple(self.tokenizers[0].unknown(as_line(text))) if text.strip() else ()
