"""Engine that runs decoding requests with CTranslate2 on an exported folder."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.requests import DecodeRequest, FinishedBatch, limit_tensors
from attendo.decode.search import Rule, Strategy
from attendo.errors import ModelError, UsageError
from attendo.interop.ctranslate2.folder import CTranslate2Model
from attendo.interop.ctranslate2.options import CTranslate2Options, make_options
from attendo.interop.errors import convert_errors
from attendo.interop.huggingface.vocabulary import name_to_id
from attendo.text import BOS, EOS, PAD


class CTranslate2Engine:
    """Greedy and beam search with the semantics of `preset="ctranslate2"`. Unsupported options raise a `UsageError`.

    `batch_tokens` is the maximum number of source tokens in a batch. Log-probabilities of outputs are computed after
    the search, because CTranslate2's search scores are renormalised without the suppressed tokens.
    """

    def __init__(self, model: CTranslate2Model, batch_tokens: int = 4096) -> None:
        self._model, self._batch_tokens = model, batch_tokens
        self._source, self._target = model.names
        self._numbers = name_to_id(self._target)

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        options = make_options(strategy, rules, self._target)
        for request in requests:
            self._check(request)
        groups: dict[tuple[int, int], list[DecodeRequest]] = {}
        for request in requests:
            least = request.min_length if options.has_min_length else 0
            groups.setdefault((request.max_length, least), []).append(request)
        for (limit, least), group in groups.items():
            found = self._search(group, limit, least, options)
            self._score(group, found, options)
            yield FinishedBatch(group, _build_frontier(group, found))

    def _check(self, request: DecodeRequest) -> None:
        """Raise a `UsageError` if a sequence exceeds CTranslate2's position table."""
        for side, tokens in (("a source", len(request.source)), ("an answer", request.max_length)):
            if tokens >= self._model.max_length:
                most = self._model.max_length - 1
                raise UsageError("export_sequence_too_long", side=side, tokens=tokens, limit=most)

    def _search(
        self, group: list[DecodeRequest], max_length: int, min_length: int, options: CTranslate2Options
    ) -> list[list["_CTranslate2Hypothesis"]]:
        results = self._call(
            self._model.translator.translate_batch,
            [self._source_pieces(request) for request in group],
            target_prefix=[[self._target[each] for each in request.prefix] for request in group],
            max_decoding_length=max_length + 1,  # CTranslate2 counts eos
            min_decoding_length=min(min_length, max_length + 1),
            max_input_length=0,
            max_batch_size=self._batch_tokens,
            batch_type="tokens",
            return_scores=True,
            **options.settings,
        )
        return [
            [
                self._to_hypothesis(*each, max_length, options)
                for each in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _to_hypothesis(
        self, pieces: list[str], score: float, max_length: int, options: CTranslate2Options
    ) -> "_CTranslate2Hypothesis":
        ids = [self._numbers[piece] for piece in pieces]
        ended = len(ids) <= max_length
        tokens = len(ids) + int(ended)
        if not ended and not options.free_end:
            ids.pop()
        value = score * max(1, tokens) ** options.length_penalty if options.renormalised else None
        return _CTranslate2Hypothesis(ids, value, ended_by_eos=ended, cut=not ended, ended=ended or options.free_end)

    def _score(
        self, group: list[DecodeRequest], hypotheses: list[list["_CTranslate2Hypothesis"]], options: CTranslate2Options
    ) -> None:
        """Set the model's log-probability of every hypothesis, eos included."""
        rows = [(request, row) for request, rows in zip(group, hypotheses, strict=True) for row in rows]
        results = self._call(
            self._model.translator.score_batch,
            [self._source_pieces(request) for request, _ in rows],
            [[self._target[each] for each in row.ids] for _, row in rows],
            max_input_length=0,
            max_batch_size=self._batch_tokens,
            batch_type="tokens",
        )
        for (_, row), result in zip(rows, results, strict=True):
            row.log_probability = sum(result.log_probs[: len(row.ids) + int(row.ended_by_eos)])
            if row.value is None:
                row.value = row.log_probability - sum(result.log_probs[: options.unscored_tokens])

    def _call(self, call: Callable[..., Any], *texts: Any, **options: Any) -> Any:
        """Call CTranslate2. Raise a `ModelError` for faults of the folder that it finds only at inference."""
        failure = partial(ModelError, "ctranslate2_inference_failed")
        with convert_errors(failure, keep_out_of_memory=True):
            return call(*texts, **options)

    def _source_pieces(self, request: DecodeRequest) -> list[str]:
        return [self._source[each] for each in request.source]


@dataclass
class _CTranslate2Hypothesis:
    """An output of CTranslate2 with its scores."""

    ids: list[int]
    value: float | None  # ranking score; None: `_score` sets it from the log-probability
    ended_by_eos: bool
    cut: bool
    ended: bool
    log_probability: float = field(default=0.0, init=False)

    @property
    def output_ids(self) -> list[int]:
        return [*self.ids, EOS] if self.ended_by_eos else self.ids


def _build_frontier(group: Sequence[DecodeRequest], hypotheses: Sequence[Sequence[_CTranslate2Hypothesis]]) -> Frontier:
    """Return the hypotheses as a `Frontier`. Empty rows fill up each request to the same width."""
    width = max(map(len, hypotheses))
    limits = limit_tensors(group, torch.device("cpu"))
    empty = _CTranslate2Hypothesis([], None, ended_by_eos=False, cut=True, ended=False)
    empty.log_probability = NEG_INF
    rows = [row for each in hypotheses for row in (*each, *[empty] * (width - len(each)))]
    padded = [[BOS, *row.output_ids, *[PAD] * (limits.capacity - 1 - len(row.output_ids))] for row in rows]

    def column(values: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(values)

    penalties = [0.0 if row.value is None else row.value - row.log_probability for row in rows]
    return Frontier(
        width=width,
        limits=limits.repeat(width),
        ids=column(padded),
        length=column([len(row.output_ids) for row in rows]),
        log_probability=column([row.log_probability for row in rows]),
        penalty=column(penalties),
        open=torch.zeros(len(rows), dtype=torch.bool),
        ended=column([row.ended for row in rows]),
        cut=column([row.cut for row in rows]),
        coverage=torch.zeros(len(rows)),
    )
