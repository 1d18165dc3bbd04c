"""One generation call: requests for an engine, retries for banned phrases, hypotheses from the search."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial

from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine
from attendo.decode.frontier import NOTHING, Frontier
from attendo.decode.mbr import by_probability, least_risk
from attendo.decode.ranking import Ranking
from attendo.decode.requests import Request
from attendo.decode.search import Rule, Strategy
from attendo.decode.step_hook import between_steps
from attendo.errors import UsageError
from attendo.metrics.pairwise import pairwise_bleu, pairwise_chrf
from attendo.text import EOS, PAD, Tokenizer
from attendo.text.newlines import as_line
from attendo.text_model.alignment import with_words
from attendo.text_model.constraints import Ids, banned_ways, goes_on, held, holds, written
from attendo.text_model.inputs import Line, LineMaker
from attendo.text_model.options import NotANumberError, Wishes, candidates, is_wrong
from attendo.text_model.results import Hypothesis, Result, Score
from attendo.text_model.search_setup import ranking_of, rules_of, strategy_of
from attendo.text_model.streaming import Teller

_MOST_ROUNDS = 50  # of searching again for an answer without a banned phrase


class Answering:
    """What one call asks for, and how it is found."""

    def __init__(self, wishes: Wishes, config: GenerationConfig, tokenizer: Tokenizer) -> None:
        self._wishes, self._config, self._tokenizer = wishes, config, tokenizer
        self._banned = banned_ways(tokenizer, wishes.ban)
        self._ranking = ranking_of(config)

    def hypotheses(self, lines: Sequence[Line], engine: Engine) -> list[tuple[Hypothesis, ...]]:
        """Of each line, best first. The same line is answered once."""
        different = list(dict.fromkeys(lines))
        found = dict(zip(different, self._searched(different, engine, self._banned), strict=True))
        for line in different:
            found[line] = self._without_banned(line, found[line], engine)
        return [self._best(found[line]) for line in lines]

    def search(
        self, lines: Sequence[Line], banned: Sequence[Ids], way: int = 0
    ) -> tuple[list[Request], Strategy, list[Rule]]:
        """What an engine is to be asked. `way` is that of writing the constraints."""
        constraints = {line.number: line.ways[way] for line in lines if line.phrases}
        count = candidates(self._wishes, self._config)
        strategy = strategy_of(self._config, count, constraints, partial(goes_on, self._tokenizer))
        rules = rules_of(
            self._config,
            banned,
            prefix=any(line.prefix for line in lines),
            least=any(line.least for line in lines),
        )
        return [line.request() for line in lines], strategy, rules

    def told(self, frontier: Frontier, phrases: Sequence[tuple[str, ...]]) -> Iterator[tuple[Hypothesis, ...]]:
        """The best of each sentence, with the phrases it must hold; a beam may have found fewer than it has rows."""
        rows = _Rows.of(frontier, self._ranking)
        for sentence, places in enumerate(self._ranking.order(frontier).tolist()):
            first = sentence * frontier.width
            if is_wrong(rows.values[first : first + frontier.width]):
                number = int(frontier.asked.number[first])
                raise NotANumberError("answer_log_probability_nan", self._config.precision, number)
            needed = candidates(self._wishes, self._config)
            # What holds more of its phrases may stand far behind: all are put in order before the rest is left out.
            # Texts that were found twice leave their places to others.
            every = bool(phrases[sentence]) or self._distinct
            best = [first + place for place in places][: None if every else needed]
            found = [row for row in best if rows.log_probability[row] != NOTHING] or best[:needed]
            yield self._different(_in_order(self._hypothesis(rows, row, phrases[sentence]) for row in found))[:needed]

    def _searched(self, lines: Sequence[Line], engine: Engine, banned: Sequence[Ids]) -> list[tuple[Hypothesis, ...]]:
        found: dict[int, tuple[Hypothesis, ...]] = {}
        by_number = {line.number: line for line in lines}
        if len(by_number) < len(lines):
            raise UsageError("request_number_collision")
        for way in (0, 1):
            if asked := [line for line in lines if len(line.ways) > way]:
                for answers in engine.answers(*self.search(asked, banned, way)):
                    phrases = [by_number[request.number].phrases for request in answers.requests]
                    told = self.told(answers.hypotheses, phrases)
                    for request, hypotheses in zip(answers.requests, told, strict=True):
                        found[request.number] = _merged(found.get(request.number, ()), hypotheses)
        return [found[line.number] for line in lines]

    def _without_banned(self, line: Line, found: tuple[Hypothesis, ...], engine: Engine) -> tuple[Hypothesis, ...]:
        """What a tokenizer put together from other pieces than it cuts is banned too, and the line searched again."""
        banned = list(self._banned)
        for _ in range(_MOST_ROUNDS):
            new = {
                written(self._tokenizer, each.ids, phrase)
                for each in found
                for phrase in self._wishes.ban
                if holds(each.text, phrase)
            }
            if not new:
                return found
            banned.extend(sorted(new))
            (found,) = self._searched([line], engine, banned)
        raise UsageError("ban_cannot_be_met", phrases=", ".join(map(repr, self._wishes.ban)))

    def _best(self, found: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
        if self._config.mbr != "none":
            between_steps()  # comparing all with all takes its time
            found = self._by_risk(found)
        return self._different(found)[: self._wishes.n_best]

    @property
    def _distinct(self) -> bool:
        """Whether a text is told once; what minimum Bayes risk chooses from may hold it several times."""
        return bool(self._wishes.distinct) and self._wishes.n_best > 1 and self._config.mbr == "none"

    def _different(self, found: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
        """Of hypotheses with the same text the best, where texts are to differ."""
        if not self._distinct:
            return found
        kept: dict[str, Hypothesis] = {}
        for each in found:
            kept.setdefault(each.text, each)
        return tuple(kept.values())

    def _by_risk(self, found: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
        """The one that agrees most with the others first; what a beam found weighs what it is probable."""
        texts = [each.text for each in found]
        weights = None if self._config.sample else by_probability([each.log_probability for each in found])
        risk = least_risk(texts, pairwise_chrf if self._config.mbr == "chrf" else pairwise_bleu, weights)
        ordered = [replace(found[place], utility=risk.expected[place]) for place in risk.order]
        return tuple({each.text: each for each in ordered}.values())  # what was drawn twice is told once

    def _hypothesis(self, rows: "_Rows", row: int, phrases: tuple[str, ...]) -> Hypothesis:
        ids = tuple(each for each in rows.ids[row][1:] if each not in (PAD, EOS))
        text, tokens = self._tokenizer.decode(ids), rows.tokens[row]
        divisor, reward = self._ranking.terms(tokens)
        forced = self._config.at_limit == "end" and not rows.cut[row] and len(ids) >= rows.limit[row]
        return Hypothesis(
            text=text,
            ids=ids,
            pieces=tuple(self._tokenizer.pieces(ids)),
            parts=Score(
                log_probability=rows.log_probability[row],
                penalty=rows.penalty[row],
                tokens=tokens,
                divisor=divisor,
                reward=reward,
                coverage=rows.coverage[row],
            ),
            cut=rows.cut[row] or forced,
            constraints=held(text, phrases),
            end_forced=forced,
        )


@dataclass(frozen=True)
class _Rows:
    """A frontier as Python's own numbers: asking a tensor for each of them would take longer than the search."""

    ids: list[list[int]]
    tokens: list[int]
    log_probability: list[float]
    penalty: list[float]
    coverage: list[float]
    cut: list[bool]
    limit: list[int]

    @property
    def values(self) -> list[float]:
        return [one + other for one, other in zip(self.log_probability, self.penalty, strict=True)]

    @staticmethod
    def of(frontier: Frontier, ranking: Ranking) -> "_Rows":
        return _Rows(
            ids=frontier.ids.tolist(),
            tokens=ranking.tokens(frontier).tolist(),
            log_probability=frontier.log_probability.tolist(),
            penalty=frontier.penalty.tolist(),
            coverage=ranking.coverage(frontier).tolist(),
            cut=frontier.cut.tolist(),
            limit=frontier.asked.limit.tolist(),
        )


def _in_order(found: Iterable[Hypothesis]) -> tuple[Hypothesis, ...]:
    """They come best first; those that lack fewer constraints come before others, and of equals what has an end."""
    return tuple(
        sorted(found, key=lambda each: (each.constraints.count(False), not each.has_end) if each.constraints else ())
    )


def _merged(one: tuple[Hypothesis, ...], other: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
    """The best of two searches for the same line, as many as the longer found."""
    if not one:
        return other
    both = {each.ids: each for each in (*one, *other)}.values()
    return _in_order(sorted(both, key=lambda each: -each.score))[: max(len(one), len(other))]


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
