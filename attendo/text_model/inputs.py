"""Encoding of texts as source lines or prompts, with length limits, and joining of sentence results."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch

from attendo.decode.config import SOURCE_SETTINGS, GenerationConfig
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.errors import UsageError, shorten
from attendo.text import BOS, CONTROL_PIECES, EOS, Tokenizer
from attendo.text.model_card import CONTEXT_SEPARATOR, escape_context, join_context
from attendo.text.tokenizer import strip_line_end
from attendo.text_model.constraints import (
    Ids,
    Phrase,
    RequiredIds,
    contains,
    encode_constraints,
    encode_prefix,
    encode_prompt,
)
from attendo.text_model.copying import lower_unknown
from attendo.text_model.options import GenerateOptions, TooLongError
from attendo.text_model.results import Alignment, Hypothesis, HypothesisScore, Result, TermReport, empty_result
from attendo.text_model.sentence_splitting import Segment, join_segments, split_segments
from attendo.text_model.terminology import SentenceTerms, Terminology, shift_reports

_REQUEST_ID_BYTES = 6
_MAX_NAMED_SYMBOLS = 12  # symbols listed in an error message


@dataclass(frozen=True)
class SourceLine:
    """One source with its own limits. A decoder-only model has no source: the text is the prefix."""

    source: Ids
    max_length: int
    min_length: int = 0
    prefix: Ids = ()
    phrases: tuple[Phrase, ...] = ()  # required phrases
    phrase_variants: tuple[tuple[RequiredIds, ...], ...] = ((),)  # alternative encodings of all phrases
    truncated_tokens: int = field(default=0, compare=False)  # source tokens cut at the end
    text: str = field(default="", compare=False)  # the text of the source
    line_breaks: str = field(default="", compare=False)  # line breaks between the previous sentence and this one
    unsplit: int = field(default=0, compare=False)  # sentences left unsplit for a model of single sentences
    terms: SentenceTerms | None = field(default=None, compare=False)  # glossary terms and kept texts
    context_tokens: int = field(default=0, compare=False)  # of preceding sentences, at the start of the source

    @property
    def source_tokens(self) -> int:
        """Tokens of the text, without eos."""
        return len(self.source or self.prefix) - int(EOS in self.source)

    @cached_property
    def request_id(self) -> int:
        """Hash of the line, also used to seed sampling: equal lines give equal outputs in any batch."""
        written_out = repr((self.source, self.prefix, self.phrases)).encode()
        return int.from_bytes(hashlib.blake2b(written_out, digest_size=_REQUEST_ID_BYTES).digest(), "big")

    def to_request(self) -> DecodeRequest:
        return DecodeRequest(self.request_id, self.source, self.max_length, self.min_length, self.prefix)


class SourceEncoder:
    """Encodes texts as source lines. `max_sequence_length` limits source and target tokens. None is no limit."""

    def __init__(
        self,
        options: GenerateOptions,
        config: GenerationConfig,
        source: Tokenizer,
        target: Tokenizer,
        max_sequence_length: int | None,
        split_by_default: bool = False,
    ) -> None:
        """`split_by_default` applies if the call does not set `split`."""
        self._splits = split_by_default if options.split is None else options.split
        self._options, self._config, self._source, self._target = options, config, source, target
        self._symbols = encode_symbols(config, source, target)
        self._max_sequence_length = max_sequence_length
        self.terminology = Terminology(options, source, target) if options.has_terms else None
        self._has_context = CONTEXT_SEPARATOR in source.symbols
        if config.context_sentences and not self._has_context:
            raise UsageError("context_not_trained", count=config.context_sentences)
        limits = (config.max_source, max_sequence_length)
        self._max_source_tokens = min(limit for limit in limits if limit is not None)

    @property
    def source_prefix_tokens(self) -> int:
        """Number of prefix tokens before every source."""
        return len(self._symbols.before)

    def encode(self, texts: Sequence[str]) -> list[list[SourceLine]]:
        """Return the lines of each text. A blank text has none."""
        prefixes, phrases = self._options.expand_prefixes(len(texts)), self._options.expand_constraints(len(texts))
        made: list[list[SourceLine]] = []
        for number, (text, prefix, required) in enumerate(
            zip(map(strip_line_end, texts), prefixes, phrases, strict=True)
        ):
            self._options.check_banned_phrases(prefix, required)
            lines = self._encode_text(text, prefix, required, number, len(texts))
            made.append(lines if text.strip() else [])
        return made

    def join_results(
        self, line_results: Sequence[Result], lines_per_text: Sequence[Sequence[SourceLine]]
    ) -> list[Result]:
        """Join the results of the lines into one result per text, in the order of the texts."""
        rest, results = iter(line_results), []
        for lines, phrases in zip(lines_per_text, self._options.expand_constraints(len(lines_per_text)), strict=True):
            text_results = [next(rest) for _ in lines] or [empty_result(len(phrases), self._options.alignments)]
            results.append(self._join_sentences(text_results, lines) if len(text_results) > 1 else text_results[0])
        return results

    def read(self, text: str) -> str:
        """Return the text as the network reads it: with `transfer_case`, some words are in lower case."""
        return lower_unknown(text, self._source) if self._options.transfer_case else text

    def join(self, outputs: Sequence[str], lines: Sequence[SourceLine]) -> str:
        """Join the outputs of the first `len(outputs)` lines into one text."""
        return join_segments(outputs, [line.line_breaks for line in lines[: len(outputs)]])

    def _encode_text(
        self, text: str, prefix: str, required: tuple[str, ...], number: int, total: int
    ) -> list[SourceLine]:
        if not text.strip():
            return []
        given_context = self._has_context and CONTEXT_SEPARATOR in text
        parts = split_segments(text) if self._splits and not given_context else [Segment(text)]
        unsplit = 0
        if len(parts) > 1 and (conflict := self._find_split_conflict(prefix, required)):
            if self._options.split:
                raise conflict
            parts, unsplit = [Segment(text)], len(parts)
        self._check_lengths([part.text for part in parts], number, total)
        lines = [
            self._encode_line(part.text, "" if n else prefix, required, self._find_context(parts, n))
            for n, part in enumerate(parts)
        ]
        return [
            replace(line, text=part.text, line_breaks=part.line_breaks, unsplit=unsplit)
            for line, part in zip(lines, parts, strict=True)
        ]

    def _find_context(self, parts: Sequence[Segment], number: int) -> list[str]:
        """Return the sentences before one, up to the number and the length that the network can read.

        With a glossary or text to keep there are none, because terms of another sentence would be found in them.
        """
        if not self._config.context_sentences or self.terminology is not None:
            return []
        preceding = [
            escape_context(each.text) for each in parts[max(0, number - self._config.context_sentences) : number]
        ]
        while preceding and self._count_tokens(join_context(preceding, parts[number].text)) > self._max_source_tokens:
            del preceding[0]
        return preceding

    def _find_split_conflict(self, prefix: str, required: tuple[str, ...]) -> UsageError | None:
        """Return the reason why several sentences must stay one line, or None if they can be split."""
        if required:
            return UsageError("constraints_split_conflict")
        if len(split_segments(prefix)) > 1:
            return UsageError("prefix_split_conflict")
        return None

    def _check_lengths(self, sentences: Sequence[str], number: int, total: int) -> None:
        if self._config.long_source == "truncate":
            return
        for part in sentences:
            if (tokens := self._count_tokens(part)) <= self._max_source_tokens:
                continue
            limit = self._max_source_tokens
            if self._splits and self._options.split is not False:
                raise TooLongError(
                    "sentence_exceeds_model_limit", number, total, sentence=shorten(part), tokens=tokens, limit=limit
                )
            raise TooLongError("text_exceeds_model_limit", number, total, tokens=tokens, limit=limit)

    def join_reports(self, text: str, result: Result, lines: Sequence[SourceLine]) -> tuple[TermReport, ...]:
        """Return the reports about the terms of a text, from those of its sentences."""
        sentences = result.sentences or (result,)[: len(lines)]
        outputs = [each.text for each in sentences]
        begins = [len(self.join(outputs[:n], lines).removesuffix(output)) for n, output in enumerate(outputs, start=1)]
        return shift_reports(text, [line.text for line in lines], sentences, begins)

    def _join_sentences(self, results: Sequence[Result], lines: Sequence[SourceLine]) -> Result:
        """Join the results of the sentences of one text."""
        wholes = [
            self.join_hypotheses(each, lines) for each in _select_best_combinations(results, self._options.n_best)
        ]
        return Result(tuple(wholes), sentences=tuple(results))

    def join_hypotheses(self, hypotheses: Sequence[Hypothesis], lines: Sequence[SourceLine]) -> Hypothesis:
        """Join one hypothesis of each line into one."""
        tokens = sum(each.parts.tokens for each in hypotheses)
        divisor, reward = Ranking.from_config(self._config).terms(tokens)
        log_probability, penalty, coverage = (
            sum(getattr(each.parts, name) for each in hypotheses) for name in ("log_probability", "penalty", "coverage")
        )
        return Hypothesis(
            text=self.join([each.text for each in hypotheses], lines),
            ids=tuple(number for each in hypotheses for number in each.ids),
            pieces=tuple(piece for each in hypotheses for piece in each.pieces),
            parts=HypothesisScore(log_probability, penalty, tokens, divisor, reward, coverage),
            cut=any(each.cut for each in hypotheses),
            alignment=self._join_alignments(hypotheses, lines),
        )

    def _join_alignments(self, hypotheses: Sequence[Hypothesis], lines: Sequence[SourceLine]) -> Alignment | None:
        """Join the sentence alignments block-diagonally. The last column is the eos of each sentence."""
        alignments = [each.alignment for each in hypotheses if each.alignment is not None]
        if len(alignments) < len(hypotheses):
            return None
        weights = torch.block_diag(*(each.weights[:, :-1] for each in alignments))
        ends = torch.cat([each.weights[:, -1:] for each in alignments])
        sources = self._count_words_before([line.text for line in lines], lines)
        targets = self._count_words_before([each.text for each in hypotheses], lines)
        return Alignment(
            torch.cat([weights, ends], dim=1),
            tuple(piece for each in alignments for piece in each.source_pieces),
            _offset_words([each.source_words for each in alignments], sources),
            _offset_words([each.target_words for each in alignments], targets),
        )

    def _count_words_before(self, texts: Sequence[str], lines: Sequence[SourceLine]) -> list[int]:
        """Return the number of words before the first word of each text, after joining.

        The first word may continue the last word of the previous text.
        """
        found: list[int] = []
        for count, text in enumerate(texts, start=1):
            before = self.join(texts[:count], lines).removesuffix(text)
            goes_on = before != "" and not before[-1].isspace() and not text[:1].isspace()
            found.append(len(before.split()) - int(goes_on))
        return found

    def _count_tokens(self, text: str) -> int:
        return self._symbols.source_tokens + len(self._source.encode(text))

    def encode_terms(self, line: SourceLine, terms: SentenceTerms) -> SourceLine:
        """Return a line with other terms, which may change the text that the network reads."""
        made = self._make_line(terms.source, line.prefix[len(self._symbols.begin) :], line.phrases)
        return replace(made, text=line.text, line_breaks=line.line_breaks, unsplit=line.unsplit, terms=terms)

    def require(self, line: SourceLine, required: Sequence[Phrase]) -> SourceLine:
        """Return a line whose output must contain more phrases."""
        phrases = (*line.phrases, *required)
        return replace(line, phrases=phrases, phrase_variants=tuple(encode_constraints(self._target, phrases)))

    def _encode_line(self, text: str, prefix: str, phrases: tuple[str, ...], context: Sequence[str] = ()) -> SourceLine:
        begin = encode_prefix(self._target, prefix) if prefix else ()
        terms = self.terminology.find(text) if self.terminology is not None else None
        if terms is None:
            return self._make_line(self.read(text), begin, phrases, context)
        return replace(self._make_line(terms.source, begin, phrases), terms=terms)

    def _make_line(
        self, text: str, prefix: Ids, phrases: tuple[Phrase, ...], context: Sequence[str] = ()
    ) -> SourceLine:
        whole = join_context(context, text)
        ids, begin = self._source.encode(whole) if whole else [], (*self._symbols.begin, *prefix)
        context_tokens = self._count_context(ids)
        source, left_out = truncate(ids, self._config, self._max_source_tokens - self._symbols.source_tokens)
        limit, least = self._limits(len(source) - context_tokens, len(begin))
        variants = tuple(encode_constraints(self._target, phrases)) if phrases else ((),)
        return SourceLine(
            *(self._symbols.wrap_source(source) if text else (), limit, least, begin, phrases, variants, left_out),
            context_tokens=context_tokens,
        )

    def _count_context(self, ids: Sequence[int]) -> int:
        """Return the number of tokens up to the last separator of preceding sentences, which is included."""
        if not self._has_context:
            return 0
        separator = EOS + 1 + self._source.symbols.index(CONTEXT_SEPARATOR)
        return next((n for n in range(len(ids), 0, -1) if ids[n - 1] == separator), 0)

    def _limits(self, source_tokens: int, prefix_tokens: int) -> tuple[int, int]:
        """Return the maximum and minimum length of the output, in tokens."""
        config, given = self._config, self._options.max_length
        if given is not None and prefix_tokens > given:
            raise UsageError("prefix_longer_than_max_length", tokens=prefix_tokens, limit=given)
        limit = given or int(config.max_length_factor * source_tokens) + config.max_length_extra
        limit = max(limit, prefix_tokens + config.max_length_extra) if given is None and prefix_tokens else limit
        if self._max_sequence_length is not None:
            limit = min(limit, self._max_sequence_length)
        least = int(config.min_length_factor * source_tokens) + config.min_length_extra
        if self._options.min_length is not None:
            least = self._options.min_length
        limit = max(limit, least) if given is None and self._max_sequence_length is None else limit
        if least > limit and self._options.min_length is not None:
            raise UsageError("min_length_exceeds_model_limit", min_length=least, limit=limit)
        # If any token may be the last, the limit counts all tokens; otherwise those before eos.
        return limit - int(config.at_limit == "any"), min(limit, least)


def _offset_words(words: Sequence[Sequence[int]], offsets: Sequence[int]) -> tuple[int, ...]:
    """Convert word indices in a sentence to word indices in the joined text."""
    pairs = zip(words, offsets, strict=True)
    return tuple(number if number < 0 else number + shift for numbers, shift in pairs for number in numbers)


def _select_best_combinations(results: Sequence[Result], count: int) -> list[tuple[Hypothesis, ...]]:
    """Return the `count` combinations of one hypothesis per sentence with the highest total score."""
    combinations: list[tuple[float, tuple[Hypothesis, ...]]] = [(0.0, ())]
    for result in results:
        # A cut hypothesis ranks last, so its score is capped at the lowest score above it.
        ranks = accumulate((_score(each) for each in result.hypotheses), min)
        ranked = list(zip(ranks, result.hypotheses, strict=True))
        longer = [(total + rank, (*before, each)) for total, before in combinations for rank, each in ranked]
        combinations = sorted(longer, key=lambda each: -each[0])[:count]
    return [each for _, each in combinations]


def _score(hypothesis: Hypothesis) -> float:
    return hypothesis.score if hypothesis.utility is None else hypothesis.utility


def truncate(source: Sequence[int], config: GenerationConfig, max_tokens: int) -> tuple[Sequence[int], int]:
    """Return the source, cut if the settings allow it, and the number of tokens that were cut."""
    if config.long_source == "error" or len(source) <= max_tokens:
        return source, 0
    return source[:max_tokens], len(source) - max_tokens


class PromptEncoder(SourceEncoder):
    """Encodes texts as prompts of a decoder-only model, one line per text. A text may be empty."""

    def encode(self, texts: Sequence[str]) -> list[list[SourceLine]]:
        made: list[list[SourceLine]] = []
        for number, (text, required) in enumerate(
            zip(texts, self._options.expand_constraints(len(texts)), strict=True)
        ):
            self._options.check_banned_phrases("", required)
            for banned in self._options.banned_phrases:
                if contains(text, banned):
                    raise UsageError("prompt_contains_banned_phrase", text=text, banned=banned)
            self._check_length(text, number, len(texts))
            made.append([replace(self._make_line("", encode_prompt(self._target, text), required), text=text)])
        return made

    def _check_length(self, text: str, number: int, count: int) -> None:
        """Reject a prompt that is too long. It cannot be cut, because its end depends on its beginning."""
        tokens = len(self._symbols.begin) + len(encode_prompt(self._target, text))
        limit = self._options.max_length
        if tokens > self._max_source_tokens:
            raise TooLongError(
                "prompt_exceeds_model_limit", number, count, tokens=tokens, limit=self._max_source_tokens
            )
        if limit is not None and tokens > limit:
            raise TooLongError("prompt_longer_than_max_length", number, count, tokens=tokens, limit=limit)


def reject_source_options(options: GenerateOptions, config: GenerationConfig, given: Mapping[str, Any]) -> None:
    """Reject options that need a source, and `prefix`, for a decoder-only model.

    `given` are the options of the call.
    """
    if options.prefix:
        raise UsageError("prefix_with_decoder_only_model")
    # The length factors have source-based defaults, so only values given in the call are rejected.
    values = {name: given.get(name) if "factor" in name else getattr(config, name) for name in SOURCE_SETTINGS}
    names = [name for name, value in values.items() if value and value != SOURCE_SETTINGS[name]]
    of_source = (
        "split",
        "alignments",
        "glossary",
        "do_not_translate",
        "keep",
        "replace_unknown",
        "transfer_case",
    )
    checked = ["check"] if options.check != "off" else []
    for name in [*(each for each in of_source if getattr(options, each)), *checked, *names]:
        raise UsageError("source_option_without_encoder", option=name)


@dataclass(frozen=True)
class ModelSymbols:
    """The ids of the symbols that a model adds to every source and output."""

    before: Ids = ()  # `source_prefix`; after BOS the source has no EOS
    after: Ids = ()  # `source_suffix`, after EOS
    begin: Ids = ()  # `target_prefix`

    @property
    def source_tokens(self) -> int:
        """Number of symbols of a source."""
        return len(self.before) + len(self.after)

    def wrap_source(self, ids: Sequence[int]) -> Ids:
        """Return a source with its symbols. It has EOS only if symbols follow it (`end_source`)."""
        return (*self.before, *ids, EOS, *self.after) if self.after else (*self.before, *ids)

    def __bool__(self) -> bool:
        return bool(self.before or self.after or self.begin)


def encode_symbols(config: GenerationConfig, source: Tokenizer, target: Tokenizer) -> ModelSymbols:
    """Return the ids of `source_prefix`, `source_suffix` and `target_prefix`."""
    begins = config.source_prefix[:1] == (CONTROL_PIECES[BOS],)
    return ModelSymbols(
        ((BOS,) if begins else ()) + _symbol_ids(source, config.source_prefix[begins:], "source_prefix"),
        _symbol_ids(source, config.source_suffix, "source_suffix"),
        _symbol_ids(target, config.target_prefix, "target_prefix"),
    )


def _symbol_ids(tokenizer: Tokenizer, pieces: Sequence[str], name: str) -> Ids:
    """Return the ids of symbols, which follow eos in order."""
    for piece in pieces:
        if piece not in tokenizer.symbols:
            known = ", ".join(tokenizer.symbols[:_MAX_NAMED_SYMBOLS]) or "none"
            count = len(tokenizer.symbols) - _MAX_NAMED_SYMBOLS
            more = f" and {count} more" if count > 0 else ""
            raise UsageError("unknown_prefix_symbol", option=name, symbol=piece, known=known, more=more)
    return tuple(EOS + 1 + tokenizer.symbols.index(piece) for piece in pieces)
