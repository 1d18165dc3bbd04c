"""One call of a text model: sources to requests, requests to an engine, what it found to results."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from attendo.decode.config import GenerationConfig
from attendo.decode.engines import Engine
from attendo.decode.frontier import NOTHING, Frontier
from attendo.decode.ranking import Ranking
from attendo.decode.requests import Request
from attendo.decode.risk import by_probability, least_risk
from attendo.decode.search import Rule, Strategy
from attendo.decode.watching import between_steps
from attendo.errors import UsageError
from attendo.metrics.pairwise import pairwise_bleu, pairwise_chrf
from attendo.text import EOS, PAD, Tokenizer
from attendo.text_model.choices import ranking_of, rules_of, strategy_of
from attendo.text_model.faults import NotANumberError, is_wrong
from attendo.text_model.phrasing import Ids, banned_ways, goes_on, held, holds, written
from attendo.text_model.results import Hypothesis, Score
from attendo.text_model.wishes import Wishes, candidates

_NUMBER_BYTES = 6  # of what names a request
_MOST_ROUNDS = 50  # of searching again for an answer without a banned phrase


@dataclass(frozen=True)
class Line:
    """One source, and what is asked for it alone. Without an encoder there is none: the text is the prefix."""

    source: Ids
    limit: int
    least: int = 0
    prefix: Ids = ()
    phrases: tuple[str, ...] = ()  # that must be said
    ways: tuple[tuple[Ids, ...], ...] = ((),)  # to write all of these
    left_out: int = field(default=0, compare=False)  # tokens of the source that are not read
    text: str = field(default="", compare=False)  # that the source was read from
    breaks: str = field(default="", compare=False)  # line breaks between the sentence before and this one
    unsplit: int = field(default=0, compare=False)  # sentences in it, of a model that learned from single ones

    @property
    def read(self) -> int:
        """Tokens of the text, eos left out."""
        return len(self.source or self.prefix)

    @cached_property
    def number(self) -> int:
        """Names it, also for what is drawn: the same line has the same answer wherever it stands."""
        written_out = repr((self.source, self.prefix, self.phrases)).encode()
        return int.from_bytes(hashlib.blake2b(written_out, digest_size=_NUMBER_BYTES).digest(), "big")

    def request(self) -> Request:
        return Request(self.number, self.source, self.limit, self.least, self.prefix)


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
