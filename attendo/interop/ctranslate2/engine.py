"""An engine from outside: the same requests and rules, answered by CTranslate2 from a folder exported to it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from attendo.decode.frontier import NOTHING, Frontier
from attendo.decode.requests import Answers, Request, asked_of
from attendo.decode.search import Rule, Strategy
from attendo.errors import ModelError, UsageError, cut_text
from attendo.interop.ctranslate2.folder import Exported
from attendo.interop.ctranslate2.options import Options, options_of
from attendo.interop.huggingface.vocabulary import ids_of
from attendo.nn.devices import ran_out
from attendo.text import BOS, EOS, PAD

_SHOWN = 200  # characters of its errors


class CTranslate2Engine:
    """Greedy, and beams with the meaning of `like="ctranslate2"`. What it cannot honour is a `UsageError`.

    `batch_tokens` is how many source tokens it takes side by side. The log-probabilities of answers are asked for
    afterwards: those that it searches by leave out what was forbidden.
    """

    def __init__(self, exported: Exported, batch_tokens: int = 4096) -> None:
        self._exported, self._batch_tokens = exported, batch_tokens
        self._source, self._target = exported.names
        self._numbers = ids_of(self._target)

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        options = options_of(strategy, rules, self._target)
        for request in requests:
            self._check(request)
        groups: dict[tuple[int, int], list[Request]] = {}
        for request in requests:
            least = request.least if options.has_least else 0
            groups.setdefault((request.limit, least), []).append(request)
        for (limit, least), group in groups.items():
            found = self._searched(group, limit, least, options)
            self._score(group, found, options)
            yield Answers(group, _frontier(group, found))

    def _check(self, request: Request) -> None:
        """Behind its table of positions CTranslate2 has nothing to add."""
        for what, tokens in (("a source", len(request.source)), ("an answer", request.limit)):
            if tokens >= self._exported.longest:
                most = self._exported.longest - 1
                raise UsageError("export_sequence_too_long", side=what, tokens=tokens, limit=most)

    def _searched(self, group: list[Request], limit: int, least: int, options: Options) -> list[list["_Row"]]:
        told = self._asked(
            self._exported.translator.translate_batch,
            [self._named(request) for request in group],
            target_prefix=[[self._target[each] for each in request.prefix] for request in group],
            max_decoding_length=limit + 1,  # eos counts there
            min_decoding_length=min(least, limit + 1),
            max_input_length=0,
            max_batch_size=self._batch_tokens,
            batch_type="tokens",
            return_scores=True,
            **options.settings,
        )
        return [
            [self._row(*each, limit, options) for each in zip(result.hypotheses, result.scores, strict=True)]
            for result in told
        ]

    def _row(self, pieces: list[str], score: float, limit: int, options: Options) -> "_Row":
        ids = [self._numbers[piece] for piece in pieces]
        ended = len(ids) <= limit
        tokens = len(ids) + int(ended)
        if not ended and not options.free_end:
            ids.pop()
        value = score * max(1, tokens) ** options.length_penalty if options.renormalised else None
        return _Row(ids, value, by_eos=ended, cut=not ended, ended=ended or options.free_end)

    def _score(self, group: list[Request], found: list[list["_Row"]], options: Options) -> None:
        """As the model has it: the log-probability of every token that was said, eos included."""
        rows = [(request, row) for request, rows in zip(group, found, strict=True) for row in rows]
        told = self._asked(
            self._exported.translator.score_batch,
            [self._named(request) for request, _ in rows],
            [[self._target[each] for each in row.ids] for _, row in rows],
            max_input_length=0,
            max_batch_size=self._batch_tokens,
            batch_type="tokens",
        )
        for (_, row), scored in zip(rows, told, strict=True):
            row.log_probability = sum(scored.log_probs[: len(row.ids) + int(row.by_eos)])
            if row.value is None:
                row.value = row.log_probability - sum(scored.log_probs[: options.given])

    def _asked(self, call: Callable[..., Any], *texts: Any, **options: Any) -> Any:
        """What CTranslate2 finds wrong with its folder only now is a `ModelError`."""
        try:
            return call(*texts, **options)
        except (RuntimeError, ValueError) as error:
            if ran_out(error):
                raise
            reason = cut_text(" ".join(str(error).split()), _SHOWN)
            raise ModelError("ctranslate2_inference_failed", reason=reason) from None

    def _named(self, request: Request) -> list[str]:
        return [self._source[each] for each in request.source]


@dataclass
class _Row:
    """A hypothesis."""

    ids: list[int]
    value: float | None  # what it was chosen by; None: its log-probability
    by_eos: bool
    cut: bool
    ended: bool
    log_probability: float = field(default=0.0, init=False)

    @property
    def said(self) -> list[int]:
        return [*self.ids, EOS] if self.by_eos else self.ids


def _frontier(group: Sequence[Request], found: Sequence[Sequence[_Row]]) -> Frontier:
    """As a search would leave it; places without a hypothesis stand last, and hold nothing."""
    width = max(map(len, found))
    asked = asked_of(group, torch.device("cpu"))
    empty = _Row([], None, by_eos=False, cut=True, ended=False)
    empty.log_probability = NOTHING
    rows = [row for each in found for row in (*each, *[empty] * (width - len(each)))]
    filled = [[BOS, *row.said, *[PAD] * (asked.capacity - 1 - len(row.said))] for row in rows]

    def column(values: Sequence[Any]) -> torch.Tensor:
        return torch.tensor(values)

    penalties = [0.0 if row.value is None else row.value - row.log_probability for row in rows]
    return Frontier(
        width=width,
        asked=asked.repeated(width),
        ids=column(filled),
        length=column([len(row.said) for row in rows]),
        log_probability=column([row.log_probability for row in rows]),
        penalty=column(penalties),
        open=torch.zeros(len(rows), dtype=torch.bool),
        ended=column([row.ended for row in rows]),
        cut=column([row.cut for row in rows]),
        coverage=torch.zeros(len(rows)),
    )
