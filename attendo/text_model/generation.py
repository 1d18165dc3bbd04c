"""One generation call: requests for an engine, retries for banned phrases, hypotheses from the search."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial

from attendo.decode.beam import Beam
from attendo.decode.config import GenerationConfig
from attendo.decode.constrained_beam import ConstrainedBeam, Constraints, ExtendsLastWord, never_extends
from attendo.decode.diverse_beam import DiverseBeam
from attendo.decode.engines import Engine
from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.mbr import probability_weights, rank_by_utility
from attendo.decode.ranking import Ranking
from attendo.decode.requests import DecodeRequest
from attendo.decode.rules import (
    BannedPhrases,
    ForcedPrefix,
    ForceEosAtLimit,
    MinLength,
    NoRepeatNgram,
    Renormalise,
    RepetitionPenalty,
    SuppressTokens,
    UnscoredPrefix,
)
from attendo.decode.search import Rule, Strategy, run_step_hook
from attendo.decode.strategies import Greedy, Sampling, SamplingFilter
from attendo.errors import UsageError
from attendo.metrics.pairwise import pairwise_bleu, pairwise_chrf
from attendo.text import BOS, EOS, PAD, UNK, Tokenizer
from attendo.text.tokenizer import strip_line_end
from attendo.text_model.alignment import add_word_indices
from attendo.text_model.checking import OutputChecker, join_reports
from attendo.text_model.constraints import (
    Ids,
    Phrase,
    contains,
    contains_each,
    encode_banned_phrases,
    extends_last_word,
    find_phrase_ids,
)
from attendo.text_model.copying import SourceText, WordCopier
from attendo.text_model.inputs import SourceEncoder, SourceLine
from attendo.text_model.options import GenerateOptions, NotANumberError, has_nan, num_candidates
from attendo.text_model.results import CheckReport, Hypothesis, HypothesisScore, Result
from attendo.text_model.segment_map import TextSegment, map_segments
from attendo.text_model.streaming import StreamDecoder

_MAX_BAN_ROUNDS = 50  # searches for an output without a banned phrase


class Generation:
    """The search of one call, with its options and settings."""

    def __init__(self, options: GenerateOptions, config: GenerationConfig, tokenizer: Tokenizer) -> None:
        self._options, self._config, self._tokenizer = options, config, tokenizer
        self._banned = encode_banned_phrases(tokenizer, options.banned_phrases)
        self._ranking = Ranking.from_config(config)

    def generate(self, lines: Sequence[SourceLine], engine: Engine) -> list[tuple[Hypothesis, ...]]:
        """Return the hypotheses of each line, best first. Duplicate lines are computed once."""
        different = list(dict.fromkeys(lines))
        found = dict(zip(different, self._search(different, engine, self._banned), strict=True))
        for line in different:
            found[line] = self._retry_without_banned(line, found[line], engine)
        return [self._select_best(found[line]) for line in lines]

    def prepare_search(
        self, lines: Sequence[SourceLine], banned: Sequence[Ids], variant: int = 0
    ) -> tuple[list[DecodeRequest], Strategy, list[Rule]]:
        """Return requests, strategy and rules for an engine. `variant` selects the encoding of the constraints."""
        constraints = {line.request_id: line.phrase_variants[variant] for line in lines if line.phrases}
        count = num_candidates(self._options, self._config)
        strategy = make_strategy(self._config, count, constraints, partial(extends_last_word, self._tokenizer))
        rules = make_rules(
            self._config,
            banned,
            prefix=any(line.prefix for line in lines),
            min_length=any(line.min_length for line in lines),
        )
        return [line.to_request() for line in lines], strategy, rules

    def to_hypotheses(
        self, frontier: Frontier, phrases: Sequence[tuple[Phrase, ...]]
    ) -> Iterator[tuple[Hypothesis, ...]]:
        """Yield the best hypotheses of each sentence. A beam may find fewer than it has rows.

        `phrases` are the required phrases of each sentence.
        """
        rows = _FrontierRows.from_frontier(frontier, self._ranking)
        for sentence, order in enumerate(self._ranking.order(frontier).tolist()):
            first = sentence * frontier.width
            if has_nan(rows.values[first : first + frontier.width]):
                number = int(frontier.limits.request_id[first])
                raise NotANumberError("answer_log_probability_nan", self._config.precision, number)
            needed = num_candidates(self._options, self._config)
            # A hypothesis that meets more constraints may rank low, so sort before truncating.
            # Duplicate texts are dropped, so that other hypotheses fill the list.
            every = bool(phrases[sentence]) or self._removes_duplicates
            best = [first + index for index in order][: None if every else needed]
            valid = [row for row in best if rows.log_probability[row] != NEG_INF] or best[:needed]
            yield self._drop_duplicates(
                _sort_by_constraints(self._make_hypothesis(rows, row, phrases[sentence]) for row in valid)
            )[:needed]

    def _search(
        self, lines: Sequence[SourceLine], engine: Engine, banned: Sequence[Ids]
    ) -> list[tuple[Hypothesis, ...]]:
        found: dict[int, tuple[Hypothesis, ...]] = {}
        by_number = {line.request_id: line for line in lines}
        if len(by_number) < len(lines):
            raise UsageError("request_number_collision")
        for variant in (0, 1):
            if variant_lines := [line for line in lines if len(line.phrase_variants) > variant]:
                for answers in engine.generate(*self.prepare_search(variant_lines, banned, variant)):
                    phrases = [by_number[request.request_id].phrases for request in answers.requests]
                    hypotheses_per_request = self.to_hypotheses(answers.hypotheses, phrases)
                    for request, hypotheses in zip(answers.requests, hypotheses_per_request, strict=True):
                        found[request.request_id] = _merge_hypotheses(found.get(request.request_id, ()), hypotheses)
        return [found[line.request_id] for line in lines]

    def _retry_without_banned(
        self, line: SourceLine, found: tuple[Hypothesis, ...], engine: Engine
    ) -> tuple[Hypothesis, ...]:
        """Search again with banned phrases that were produced from other pieces than their encoding."""
        banned = list(self._banned)
        for _ in range(_MAX_BAN_ROUNDS):
            new = {
                find_phrase_ids(self._tokenizer, each.ids, phrase)
                for each in found
                for phrase in self._options.banned_phrases
                if contains(each.text, phrase)
            }
            if not new:
                return found
            banned.extend(sorted(new))
            (found,) = self._search([line], engine, banned)
        raise UsageError("banned_phrases_unavoidable", phrases=", ".join(map(repr, self._options.banned_phrases)))

    def _select_best(self, found: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
        if self._config.mbr != "none":
            run_step_hook()  # pairwise comparison is slow
            found = self._rank_by_mbr(found)
        return self._drop_duplicates(found)[: self._options.n_best]

    @property
    def _removes_duplicates(self) -> bool:
        """Whether each text is returned once. MBR candidates may contain duplicates."""
        return bool(self._options.distinct) and self._options.n_best > 1 and self._config.mbr == "none"

    def _drop_duplicates(self, found: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
        """Keep the best hypothesis of each text, if texts must be distinct."""
        if not self._removes_duplicates:
            return found
        by_text: dict[str, Hypothesis] = {}
        for each in found:
            by_text.setdefault(each.text, each)
        return tuple(by_text.values())

    def _rank_by_mbr(self, found: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
        """Sort by expected utility, highest first (minimum Bayes risk).

        Beam hypotheses are weighted by their probability, samples equally.
        """
        texts = [each.text for each in found]
        weights = None if self._config.sample else probability_weights([each.log_probability for each in found])
        risk = rank_by_utility(texts, pairwise_chrf if self._config.mbr == "chrf" else pairwise_bleu, weights)
        ordered = [replace(found[index], utility=risk.expected[index]) for index in risk.order]
        return tuple({each.text: each for each in ordered}.values())  # duplicate samples are returned once

    def _make_hypothesis(self, rows: "_FrontierRows", row: int, phrases: tuple[Phrase, ...]) -> Hypothesis:
        ids = tuple(each for each in rows.ids[row][1:] if each not in (PAD, EOS))
        text, tokens = self._tokenizer.decode(ids), rows.tokens[row]
        divisor, reward = self._ranking.terms(tokens)
        forced = self._config.at_limit == "force_eos" and not rows.cut[row] and len(ids) >= rows.max_length[row]
        return Hypothesis(
            text=text,
            ids=ids,
            pieces=tuple(self._tokenizer.pieces(ids)),
            parts=HypothesisScore(
                log_probability=rows.log_probability[row],
                penalty=rows.penalty[row],
                tokens=tokens,
                divisor=divisor,
                reward=reward,
                coverage=rows.coverage[row],
            ),
            cut=rows.cut[row] or forced,
            constraints=contains_each(text, phrases),
            end_forced=forced,
        )


@dataclass(frozen=True)
class _FrontierRows:
    """A frontier as Python numbers. Reading tensors element by element takes longer than the search."""

    ids: list[list[int]]
    tokens: list[int]
    log_probability: list[float]
    penalty: list[float]
    coverage: list[float]
    cut: list[bool]
    max_length: list[int]

    @property
    def values(self) -> list[float]:
        return [one + other for one, other in zip(self.log_probability, self.penalty, strict=True)]

    @staticmethod
    def from_frontier(frontier: Frontier, ranking: Ranking) -> "_FrontierRows":
        return _FrontierRows(
            ids=frontier.ids.tolist(),
            tokens=ranking.tokens(frontier).tolist(),
            log_probability=frontier.log_probability.tolist(),
            penalty=frontier.penalty.tolist(),
            coverage=ranking.coverage(frontier).tolist(),
            cut=frontier.cut.tolist(),
            max_length=frontier.limits.max_length.tolist(),
        )


def _sort_by_constraints(found: Iterable[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Sort hypotheses by missing constraints, fewest first.

    Ties are sorted by whether they have an eos, and then keep their order.
    """
    return tuple(
        sorted(found, key=lambda each: (each.constraints.count(False), not each.has_end) if each.constraints else ())
    )


def _merge_hypotheses(one: tuple[Hypothesis, ...], other: tuple[Hypothesis, ...]) -> tuple[Hypothesis, ...]:
    """Merge two searches of the same line. The result has the length of the longer one."""
    if not one:
        return other
    both = {each.ids: each for each in (*one, *other)}.values()
    return _sort_by_constraints(sorted(both, key=lambda each: -each.score))[: max(len(one), len(other))]


@dataclass(frozen=True)
class PreparedCall:
    """A call that is validated and encoded. No computation has run yet."""

    texts: Sequence[str]
    options: GenerateOptions
    config: GenerationConfig
    source_encoder: SourceEncoder
    lines_per_text: Sequence[Sequence[SourceLine]]
    generation: Generation
    tokenizers: tuple[Tokenizer, Tokenizer]  # of the source and of the target
    checker: OutputChecker | None = None  # with `check`

    @cached_property
    def lines(self) -> list[SourceLine]:
        return [line for each in self.lines_per_text for line in each]

    @property
    def is_single_search(self) -> bool:
        """Whether one search per line is enough, so that it can be batched with those of other calls.

        Then `to_result` turns the frontier of a line into its result without further computation.
        """
        options, config = self.options, self.config
        several = bool(options.constraints or options.banned_phrases or options.has_terms) or config.mbr != "none"
        more_passes = options.reads_attention or self._searches_again
        return not several and not more_passes and config.engine in ("auto", "fast")

    @property
    def _searches_again(self) -> bool:
        """Whether `check` needs passes of the network after the search."""
        return self.options.check == "repair" or self.options.check_detached

    def prepare_search(self) -> tuple[list[DecodeRequest], Strategy, list[Rule]]:
        """Return requests, strategy and rules for an engine, in the order of the lines."""
        return self.generation.prepare_search(self.lines, ())

    def to_result(self, frontier: Frontier) -> Result:
        """Return the result of the line that this frontier belongs to."""
        with self.name_text_in_errors():
            return Result(next(self.generation.to_hypotheses(frontier, [()])))

    @contextmanager
    def name_text_in_errors(self) -> Iterator[None]:
        """Replace the request id in an error by the position of its text."""
        try:
            yield
        except NotANumberError as error:
            index = next(
                n for n, lines in enumerate(self.lines_per_text) for line in lines if line.request_id == error.number
            )
            raise NotANumberError("text_log_probability_nan", error.precision, index, len(self.texts)) from None

    def collect_results(self, line_results: Sequence[Result]) -> list[Result]:
        """Check the results of the lines, unless they have reports, and join them into one result per text."""
        if self.checker is not None:
            line_results = self._check_sentences(line_results, self.checker)
        if self.options.alignments:
            line_results = [
                self._add_word_indices(result, line) for result, line in zip(line_results, self.lines, strict=True)
            ]
        joined = zip(
            self.source_encoder.join_results(line_results, self.lines_per_text),
            self.texts,
            self.lines_per_text,
            strict=True,
        )
        return [
            replace(
                result,
                unknown=self._find_unknown(text, lines),
                source_tokens=sum(line.source_tokens for line in lines),
                source_left_out=sum(line.truncated_tokens for line in lines),
                unsplit=sum(line.unsplit for line in lines),
                terms=self.source_encoder.join_reports(text, result, lines) if self.options.has_terms else (),
                report=self._make_report(result, lines) if self.checker is not None else None,
                segments=_map_segments(text, result, lines),
            )
            for result, text, lines in joined
        ]

    def _check_sentences(self, line_results: Sequence[Result], checker: OutputChecker) -> list[Result]:
        """Check the results of lines of split texts. That of a single line is checked with its text, in one copy."""
        splits = [len(lines) > 1 for lines in self.lines_per_text for _ in lines]
        return [
            replace(result, report=checker.check(line.text, result.best)) if split and not result.report else result
            for result, line, split in zip(line_results, self.lines, splits, strict=True)
        ]

    def _make_report(self, result: Result, lines: Sequence[SourceLine]) -> CheckReport:
        if result.sentences or result.report or not lines:
            return join_reports(result)
        assert self.checker is not None
        return self.checker.check(lines[0].text, result.best)

    @property
    def source_tokens(self) -> list[int]:
        """Source tokens of each text, without eos."""
        return [sum(line.source_tokens for line in lines) for lines in self.lines_per_text]

    @property
    def max_alignment_weights(self) -> int:
        """Upper bound on alignment weights: one per target token and source token, eos included."""
        wanted = self.options.n_best if self.options.reads_attention else 0
        return wanted * sum((len(line.source) + 1) * line.max_length for line in self.lines)

    def with_max_length(self, max_length: int) -> "PreparedCall":
        """Return the call with outputs limited to `max_length` tokens."""
        if (longest := max((len(line.prefix) for line in self.lines), default=0)) > max_length:
            raise UsageError("prefix_longer_than_max_length", tokens=longest, limit=max_length)
        shorter = [
            [replace(line, max_length=min(line.max_length, max_length)) for line in lines]
            for lines in self.lines_per_text
        ]
        return replace(self, lines_per_text=shorter)

    def check_stream(self) -> None:
        if self.options.n_best > 1 or self.options.reads_attention or self._searches_again:
            raise UsageError("stream_option_unsupported")

    def make_stream_decoder(self) -> StreamDecoder:
        return StreamDecoder(Ranking.from_config(self.config), self.tokenizers[1])

    def copy_words(self, results: Sequence[Result]) -> list[Result]:
        """Return the aligned results of the lines with words and case of their sources."""
        copier, before = WordCopier(self.options, *self.tokenizers), self.source_encoder.source_prefix_tokens
        copied = [
            copier.apply(each, SourceText(line.text, self.source_encoder.read(line.text), line.source, before))
            for each, line in zip(results, self.lines, strict=True)
        ]
        if self.options.alignments:
            return copied
        return [
            replace(each, hypotheses=tuple(replace(one, alignment=None) for one in each.hypotheses)) for each in copied
        ]

    def _add_word_indices(self, result: Result, line: SourceLine) -> Result:
        added = self.source_encoder.source_prefix_tokens + line.context_tokens
        found = (add_word_indices(each, line.source, added, self.tokenizers) for each in result.hypotheses)
        return replace(result, hypotheses=tuple(found))

    def _find_unknown(self, text: str, lines: Sequence[SourceLine]) -> tuple[str, ...]:
        if self.options.has_terms:  # the network does not read all of the text
            text = " ".join(line.terms.source if line.terms is not None else line.text for line in lines)
        text = self.source_encoder.read(text)
        return tuple(self.tokenizers[0].unknown(strip_line_end(text))) if text.strip() else ()


def _map_segments(text: str, result: Result, lines: Sequence[SourceLine]) -> tuple[TextSegment, ...]:
    outputs = [each.text for each in result.sentences]
    return map_segments(text, [line.text for line in lines] if outputs else (), result.text, outputs)


def make_strategy(
    config: GenerationConfig,
    count: int,
    constraints: Constraints | None = None,
    extends_last_word: ExtendsLastWord = never_extends,
) -> Strategy:
    """Build the search strategy.

    `count` is the number of hypotheses needed. `constraints` are phrases by request id. `extends_last_word` returns
    whether a token after a phrase extends its last word.
    """
    ranking, free_end = Ranking.from_config(config), config.at_limit == "any"
    if constraints:
        return ConstrainedBeam(config.beam, ranking, config.stop, config.patience, constraints, extends_last_word)
    if config.sample:
        shape = SamplingFilter(config.temperature, config.top_k, config.top_p, config.min_p, config.typical_p)
        return Sampling(count, config.seed, shape, free_end)
    if config.beam == 1:
        return Greedy(free_end)
    if config.beam_groups > 1:
        return DiverseBeam(config.beam, config.beam_groups, config.diversity_penalty, ranking, config.stop)
    return Beam(config.beam, ranking, config.stop, config.patience, num_hypotheses=count, free_end=free_end)


def make_rules(
    config: GenerationConfig, banned: Sequence[Ids] = (), prefix: bool = False, min_length: bool = False
) -> list[Rule]:
    """Build the rules in the order in which they apply.

    `prefix` and `min_length`: whether any request has a forced prefix or a minimum length. Each rule changes the output
    of the previous one: penalties first, then bans, then the prefix.
    """
    rules: list[Rule] = []
    if config.repetition_penalty != 1:
        rules.append(RepetitionPenalty(config.repetition_penalty, config.repetition_of == "logits"))
    rules.append(SuppressTokens() if config.allow_unk else SuppressTokens((PAD, BOS, UNK)))
    if config.no_repeat_ngram_size:
        rules.append(NoRepeatNgram(config.no_repeat_ngram_size))
    if banned:
        rules.append(BannedPhrases(tuple(map(tuple, banned))))
    if min_length:
        rules.append(MinLength())
    if config.at_limit == "force_eos":
        rules.append(ForceEosAtLimit())
    if prefix:
        rules.append(ForcedPrefix())
    if prefix and config.target_prefix:
        rules.append(UnscoredPrefix(len(config.target_prefix)))
    if config.renormalise:
        rules.append(Renormalise())
    return rules
