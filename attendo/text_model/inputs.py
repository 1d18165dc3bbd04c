"""Encoding of texts as source lines or prompts, with length limits, and joining of sentence results."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch

from attendo.decode.config import OF_A_SOURCE, GenerationConfig
from attendo.decode.requests import Request
from attendo.errors import UsageError
from attendo.text import EOS, Tokenizer
from attendo.text.newlines import as_line
from attendo.text_model.constraints import Ids, beginning_ids, holds, prefix_ids, required_ways
from attendo.text_model.options import TooLongError, Wishes, shown
from attendo.text_model.results import Alignment, Hypothesis, Result, Score, empty
from attendo.text_model.search_setup import ranking_of
from attendo.text_model.sentence_splitting import Segment, join_segments, segments

_NUMBER_BYTES = 6  # of what names a request
_SHOWN = 12  # symbols that a message names


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


class LineMaker:
    """Knows what is asked for, and how many tokens can be read and said (`longest`; None: any number)."""

    def __init__(
        self,
        wishes: Wishes,
        config: GenerationConfig,
        source: Tokenizer,
        target: Tokenizer,
        longest: int | None,
        splits: bool = False,
    ) -> None:
        """`splits`: whether texts are split where the call does not say."""
        self._splits = splits if wishes.split is None else wishes.split
        self._wishes, self._config, self._source, self._target = wishes, config, source, target
        self._before, self._begin = prefixes_of(config, source, target)
        self._positions = longest
        self._most = config.max_source if self._positions is None else min(config.max_source, self._positions)

    @property
    def added(self) -> int:
        """Tokens that are put before every source."""
        return len(self._before)

    def of(self, texts: Sequence[str]) -> list[list[Line]]:
        """Of each text, none where there is nothing to answer."""
        prefixes, phrases = self._wishes.prefixes(len(texts)), self._wishes.phrases(len(texts))
        made: list[list[Line]] = []
        for number, (text, prefix, required) in enumerate(zip(map(as_line, texts), prefixes, phrases, strict=True)):
            self._wishes.check_ban(prefix, required)
            lines = self._of_text(text, prefix, required, number, len(texts))
            made.append(lines if text.strip() else [])
        return made

    def results(self, found: Sequence[Result], made: Sequence[Sequence[Line]]) -> list[Result]:
        """One for each text, in the order of the texts, from those of the lines that were made of them."""
        rest, told = iter(found), []
        for lines, phrases in zip(made, self._wishes.phrases(len(made)), strict=True):
            of_lines = [next(rest) for _ in lines] or [empty(len(phrases), self._wishes.alignments)]
            told.append(self._whole(of_lines, lines) if len(of_lines) > 1 else of_lines[0])
        return told

    def join(self, answers: Sequence[str], lines: Sequence[Line]) -> str:
        """The answers to the first of these lines, as one text."""
        return join_segments(answers, [line.breaks for line in lines[: len(answers)]])

    def _of_text(self, text: str, prefix: str, required: tuple[str, ...], number: int, total: int) -> list[Line]:
        if not text.strip():
            return []
        parts = segments(text) if self._splits else [Segment(text)]
        unsplit = 0
        if len(parts) > 1 and (conflict := self._find_split_conflict(prefix, required)):
            if self._wishes.split:
                raise conflict
            parts, unsplit = [Segment(text)], len(parts)
        self._check_lengths([part.text for part in parts], number, total)
        lines = [self._line(part.text, "" if n else prefix, required) for n, part in enumerate(parts)]
        return [
            replace(line, text=part.text, breaks=part.breaks, unsplit=unsplit)
            for line, part in zip(lines, parts, strict=True)
        ]

    def _find_split_conflict(self, prefix: str, required: tuple[str, ...]) -> UsageError | None:
        """Why a text of several sentences must be read as one; None if it can be split."""
        if required:
            return UsageError("constraints_split_conflict")
        if len(segments(prefix)) > 1:
            return UsageError("prefix_split_conflict")
        return None

    def _check_lengths(self, parts: Sequence[str], number: int, total: int) -> None:
        if self._config.long_source == "cut":
            return
        for part in parts:
            if (tokens := self._tokens(part)) <= self._most:
                continue
            values: dict[str, object] = {
                "position": number + 1,
                "total": total,
                "tokens": tokens,
                "limit": self._most,
            }
            if self._splits and self._wishes.split is not False:
                raise TooLongError("sentence_exceeds_model_limit", number, sentence=shown(part), **values)
            raise TooLongError("text_exceeds_model_limit", number, **values)

    def _whole(self, found: Sequence[Result], lines: Sequence[Line]) -> Result:
        """The answers to the sentences of one text as one answer."""
        wholes = [self._joined(each, lines) for each in _best_combinations(found, self._wishes.n_best)]
        return Result(tuple(wholes), sentences=tuple(found))

    def _joined(self, parts: Sequence[Hypothesis], lines: Sequence[Line]) -> Hypothesis:
        tokens = sum(each.parts.tokens for each in parts)
        divisor, reward = ranking_of(self._config).terms(tokens)
        log_probability, penalty, coverage = (
            sum(getattr(each.parts, name) for each in parts) for name in ("log_probability", "penalty", "coverage")
        )
        return Hypothesis(
            text=self.join([each.text for each in parts], lines),
            ids=tuple(number for each in parts for number in each.ids),
            pieces=tuple(piece for each in parts for piece in each.pieces),
            parts=Score(log_probability, penalty, tokens, divisor, reward, coverage),
            cut=any(each.cut for each in parts),
            alignment=self._joined_alignment(parts, lines),
        )

    def _joined_alignment(self, parts: Sequence[Hypothesis], lines: Sequence[Line]) -> Alignment | None:
        """The alignments of the sentences as one: each looks at its own source, and the last column is of any eos."""
        kept = [each.alignment for each in parts if each.alignment is not None]
        if len(kept) < len(parts):
            return None
        weights = torch.block_diag(*(each.weights[:, :-1] for each in kept))
        ends = torch.cat([each.weights[:, -1:] for each in kept])
        sources = self._words_before([line.text for line in lines], lines)
        targets = self._words_before([each.text for each in parts], lines)
        return Alignment(
            torch.cat([weights, ends], dim=1),
            tuple(piece for each in kept for piece in each.source_pieces),
            _shifted([each.source_words for each in kept], sources),
            _shifted([each.target_words for each in kept], targets),
        )

    def _words_before(self, texts: Sequence[str], lines: Sequence[Line]) -> list[int]:
        """Of each text how many words stand before its first when all are joined; that may go on with the last one."""
        found: list[int] = []
        for count, text in enumerate(texts, start=1):
            before = self.join(texts[:count], lines).removesuffix(text)
            goes_on = before != "" and not before[-1].isspace() and not text[:1].isspace()
            found.append(len(before.split()) - int(goes_on))
        return found

    def _tokens(self, text: str) -> int:
        return len(self._before) + len(self._source.encode(text))

    def _line(self, text: str, prefix: str, phrases: tuple[str, ...]) -> Line:
        return self._line_of(text, prefix_ids(self._target, prefix) if prefix else (), phrases)

    def _line_of(self, text: str, prefix: Ids, phrases: tuple[str, ...]) -> Line:
        whole, begin = self._source.encode(text) if text else [], (*self._begin, *prefix)
        source, left_out = shortened(whole, self._config, len(self._before), self._positions)
        limit, least = self._limits(len(source), len(begin))
        ways = tuple(required_ways(self._target, phrases)) if phrases else ((),)
        return Line((*self._before, *source), limit, least, begin, phrases, ways, left_out)

    def _limits(self, source_tokens: int, prefix_tokens: int) -> tuple[int, int]:
        """The most and the fewest tokens of the answer."""
        config, given = self._config, self._wishes.max_length
        if given is not None and prefix_tokens > given:
            raise UsageError("prefix_longer_than_max_length", tokens=prefix_tokens, limit=given)
        limit = given or int(config.max_length_factor * source_tokens) + config.max_length_extra
        limit = max(limit, prefix_tokens + config.max_length_extra) if given is None and prefix_tokens else limit
        if self._positions is not None:
            limit = min(limit, self._positions)
        least = int(config.min_length_factor * source_tokens) + config.min_length_extra
        if self._wishes.min_length is not None:
            least = self._wishes.min_length
        limit = max(limit, least) if given is None and self._positions is None else limit
        if least > limit and self._wishes.min_length is not None:
            raise UsageError("min_length_exceeds_model_limit", min_length=least, limit=limit)
        # With a free end the limit counts all tokens; otherwise those before eos.
        return limit - int(config.at_limit == "free"), min(limit, least)


def _shifted(words: Sequence[Sequence[int]], before: Sequence[int]) -> tuple[int, ...]:
    """Numbers of words in sentences as numbers in their text."""
    pairs = zip(words, before, strict=True)
    return tuple(number if number < 0 else number + shift for numbers, shift in pairs for number in numbers)


def _best_combinations(found: Sequence[Result], count: int) -> list[tuple[Hypothesis, ...]]:
    """One hypothesis of each sentence: those with the highest sums of scores, the best of each sentence first."""
    kept: list[tuple[float, tuple[Hypothesis, ...]]] = [(0.0, ())]
    for result in found:
        # A hypothesis that was cut stands behind all others: its score counts as no more than theirs.
        ranks = accumulate((_score(each) for each in result.hypotheses), min)
        ranked = list(zip(ranks, result.hypotheses, strict=True))
        longer = [(total + rank, (*before, each)) for total, before in kept for rank, each in ranked]
        kept = sorted(longer, key=lambda each: -each[0])[:count]
    return [each for _, each in kept]


def _score(hypothesis: Hypothesis) -> float:
    return hypothesis.score if hypothesis.utility is None else hypothesis.utility


def shortened(
    source: Sequence[int], config: GenerationConfig, before: int = 0, positions: int | None = None
) -> tuple[Sequence[int], int]:
    """What is read of a source, and how many tokens of it are not: none, unless long sources are cut."""
    most = (config.max_source if positions is None else min(config.max_source, positions)) - before
    if config.long_source == "refuse" or len(source) <= most:
        return source, 0
    return source[:most], len(source) - most


class BeginningMaker(LineMaker):
    """A line for every text, also for one that is empty, which begins with nothing."""

    def of(self, texts: Sequence[str]) -> list[list[Line]]:
        made: list[list[Line]] = []
        for number, (text, required) in enumerate(zip(texts, self._wishes.phrases(len(texts)), strict=True)):
            self._wishes.check_ban("", required)
            for banned in self._wishes.ban:
                if holds(text, banned):
                    raise UsageError("prompt_contains_banned_phrase", text=text, banned=banned)
            self._check_length(text, number, len(texts))
            made.append([replace(self._line_of("", beginning_ids(self._target, text), required), text=text)])
        return made

    def _check_length(self, text: str, number: int, count: int) -> None:
        """A text that is too long cannot be cut: its end would not know of its beginning."""
        tokens = len(self._begin) + len(beginning_ids(self._target, text))
        limit = self._wishes.max_length
        if tokens > self._most:
            raise TooLongError(
                "prompt_exceeds_model_limit", number, position=number + 1, total=count, tokens=tokens, limit=self._most
            )
        if limit is not None and tokens > limit:
            raise TooLongError(
                "prompt_longer_than_max_length", number, position=number + 1, total=count, tokens=tokens, limit=limit
            )


def refuse_source(wishes: Wishes, config: GenerationConfig, given: Mapping[str, Any]) -> None:
    """What is said of a source, or would say again how the answer begins; `given` are the options of the call."""
    if wishes.prefix:
        raise UsageError("prefix_with_decoder_only_model")
    # Lengths follow that of a source unless a call says otherwise; a model without one needs not be told so.
    meant = {name: given.get(name) if "factor" in name else getattr(config, name) for name in OF_A_SOURCE}
    said = [name for name, value in meant.items() if value and value != OF_A_SOURCE[name]]
    for name in [*(each for each in ("split", "alignments") if getattr(wishes, each)), *said]:
        raise UsageError("source_option_without_encoder", option=name)


def prefixes_of(config: GenerationConfig, source: Tokenizer, target: Tokenizer) -> tuple[Ids, Ids]:
    """The ids before a source, and those that an answer begins with."""
    return (
        _symbol_ids(source, config.source_prefix, "source_prefix"),
        _symbol_ids(target, config.target_prefix, "target_prefix"),
    )


def _symbol_ids(tokenizer: Tokenizer, pieces: Sequence[str], name: str) -> Ids:
    """Symbols have the ids behind eos, in their order."""
    for piece in pieces:
        if piece not in tokenizer.symbols:
            known = ", ".join(tokenizer.symbols[:_SHOWN]) or "none"
            more = f" and {len(tokenizer.symbols) - _SHOWN} more" if len(tokenizer.symbols) > _SHOWN else ""
            raise UsageError("unknown_prefix_symbol", option=name, symbol=piece, known=known, more=more)
    return tuple(EOS + 1 + tokenizer.symbols.index(piece) for piece in pieces)
