"""Logits processors ("rules"): forbid tokens (-∞) or change their scores.

Rules change the choice of tokens but not the reported log-probability, which stays the model's. The amount that a rule
adds is stored separately as a penalty. Other rules do not affect the token that a prefix requires.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.frontier import NEG_INF, Frontier
from attendo.decode.search import Rule
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD

_ANY_TOKEN = -1

RuleCall = Callable[[Any, Tensor, Frontier], Tensor]


def except_prefix(call: RuleCall) -> RuleCall:
    """Exempt the required token of a prefix from a rule."""

    @wraps(call)
    def apply_except_prefix(self: Any, log_probs: Tensor, frontier: Frontier) -> Tensor:
        if frontier.limits.prefix.size(1) == 0:
            return call(self, log_probs, frontier)
        inside, token = _next_prefix_token(frontier)
        before = log_probs.gather(1, token)
        ruled = call(self, log_probs, frontier)
        return ruled.scatter_(1, token, torch.where(inside, before, ruled.gather(1, token)))

    return apply_except_prefix


@dataclass(frozen=True)
class SuppressTokens(Rule):
    """Forbids tokens. The others keep their log-probability, so scores stay those of the model."""

    only_masks = True

    ids: Sequence[int] = (PAD, BOS)

    @property
    def maskable_ids(self) -> Sequence[int]:
        return self.ids

    @except_prefix
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        for each in self.ids:  # one by one, because indexing with a list copies it to the device each step
            log_probs[:, each].fill_(NEG_INF)
        return log_probs


@dataclass(frozen=True)
class MinLength(Rule):
    """Forbids EOS before the minimum length. If the maximum is lower, the answer is cut there."""

    only_masks = True
    maskable_ids = (EOS,)

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        log_probs[:, EOS].masked_fill_(frontier.length < frontier.limits.min_length, NEG_INF)
        return log_probs


@dataclass(frozen=True)
class ForcedPrefix(Rule):
    """Forces the answer to start with the required prefix."""

    only_masks = True
    maskable_ids = ()

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        if frontier.limits.prefix.size(1) == 0:
            return log_probs
        inside, token = _next_prefix_token(frontier)
        others = torch.arange(log_probs.size(1), device=log_probs.device) != token
        return log_probs.masked_fill_(inside & others, NEG_INF)


@dataclass(frozen=True)
class UnscoredPrefix(Rule):
    """Gives the first `tokens` tokens of every answer, which a prefix requires, log-probability 0.

    Otherwise an improbable language token would favour long answers.
    """

    tokens: int

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        inside = frontier.length[:, None] < self.tokens
        return log_probs.masked_fill_(inside & (log_probs != NEG_INF), 0.0)


@dataclass(frozen=True)
class BannedPhrases(Rule):
    """Forbids sequences of one or more tokens: the token that would complete one is masked."""

    only_masks = True

    phrases: Sequence[Sequence[int]]
    # Cached per device, because no data may be copied to the device during a step.
    _tables: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        check_phrases(self.phrases, "banned")
        object.__setattr__(self, "phrases", tuple(map(tuple, self.phrases)))  # hashable, because rules are dict keys
        self._tables[torch.device("cpu")] = _build_tables(self.phrases)

    @except_prefix
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        if not self.phrases:
            return log_probs
        before, last = self._tables_on(log_probs.device)
        back = torch.arange(before.size(1), device=before.device)
        positions = frontier.length[:, None] - back  # [R, K]
        last_ids = frontier.ids.gather(1, positions.clamp(min=0))  # BOS before the first token; no phrase contains it
        complete = ((last_ids[:, None] == before) | (before == _ANY_TOKEN)).all(dim=-1)  # [R, N]
        return _mask_tokens(log_probs, last.expand_as(complete), complete)

    def _tables_on(self, device: torch.device) -> tuple[Int[Tensor, "N K"], Int[Tensor, " N"]]:
        if device not in self._tables:
            before, last = self._tables[torch.device("cpu")]
            self._tables[device] = before.to(device), last.to(device)
        return self._tables[device]


@dataclass(frozen=True)
class NoRepeatNgram(Rule):
    """Forbids a second occurrence of any n-gram of `size` tokens."""

    only_masks = True

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError("ngram_size_below_one", size=self.size)

    @except_prefix
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        windows = frontier.ids.size(1) - self.size + 1
        if windows < 1:
            return log_probs
        ends = torch.arange(self.size - 1, frontier.ids.size(1), device=log_probs.device)
        same = ends <= frontier.length[:, None]  # [R, windows]: the n-grams so far
        for n in range(self.size - 1):
            position = (frontier.length + n - self.size + 2).clamp(min=0)
            same = same & (frontier.ids[:, n : n + windows] == frontier.ids.gather(1, position[:, None]))
        return _mask_tokens(log_probs, frontier.ids[:, self.size - 1 :], same)


@dataclass(frozen=True)
class ForceEosAtLimit(Rule):
    """Allows only EOS after the last token within the limit."""

    only_masks = True
    maskable_ids = ()

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        others = torch.arange(log_probs.size(1), device=log_probs.device) != EOS
        return log_probs.masked_fill_(frontier.full[:, None] & others, NEG_INF)


@dataclass(frozen=True)
class Renormalise(Rule):
    """Renormalises after masking: log p(v) - log(sum of p over the allowed tokens).

    It must be the last rule. A prefix token then has probability 1 and costs nothing.
    """

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        there_is = (log_probs != NEG_INF).any(dim=1, keepdim=True)
        return torch.where(there_is, log_probs.log_softmax(-1), NEG_INF)  # without any token, log_softmax gives NaN


@dataclass(frozen=True)
class RepetitionPenalty(Rule):
    """Multiplies log p(v) by `penalty` once for every token v so far. Above 1, v becomes less probable.

    With `applies_to_logits`, the logit s(v) becomes s(v) * penalty below 0 and s(v) / penalty above 0 (Keskar et al.
    2019, section 4.1). The probabilities are then computed from these logits. The zero point of logits is arbitrary, so
    the effect of a penalty depends on the network. Such a rule must be the first.
    """

    penalty: float
    applies_to_logits: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.penalty < float("inf"):
            raise UsageError("repetition_penalty_not_positive", penalty=self.penalty)

    @except_prefix
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        columns = torch.arange(frontier.ids.size(1), device=log_probs.device)
        # Use BOS for empty positions: it occurs in every row.
        tokens = torch.where(columns <= frontier.length[:, None], frontier.ids, BOS)
        before = log_probs.gather(1, tokens)
        return log_probs.scatter_(1, tokens, torch.where(before < 0, before * self.penalty, before / self.penalty))


def check_phrases(phrases: Sequence[Sequence[int]], kind: str) -> None:
    """Raise UsageError for phrases that are empty or contain control tokens."""
    for phrase in phrases:
        if not phrase:
            raise UsageError("phrase_without_tokens", kind=kind)
        if min(phrase) < 0 or {PAD, BOS, EOS} & {*phrase}:
            raise UsageError("phrase_with_control_tokens", kind=kind, pad=PAD, bos=BOS, eos=EOS, ids=[*phrase])


def _build_tables(phrases: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "N K"], Int[Tensor, " N"]]:
    """Return the tokens before the last one of each phrase, nearest first, and the last tokens."""
    room = max(map(len, phrases), default=1) - 1
    before = [[*phrase[-2::-1], *[_ANY_TOKEN] * (room + 1 - len(phrase))] for phrase in phrases]
    return (
        torch.tensor(before, dtype=torch.long).view(len(phrases), room),
        torch.tensor([phrase[-1] for phrase in phrases], dtype=torch.long),
    )


def _mask_tokens(
    log_probs: Float[Tensor, "R V"], tokens: Int[Tensor, "R N"], forbidden: Bool[Tensor, "R N"]
) -> Float[Tensor, "R V"]:
    """Mask tokens with a minimum, which is independent of order, so tokens may be repeated."""
    most = torch.where(forbidden, NEG_INF, -NEG_INF).to(log_probs.dtype)
    return log_probs.scatter_reduce_(1, tokens, most, "amin")


def _next_prefix_token(frontier: Frontier) -> tuple[Bool[Tensor, "R 1"], Int[Tensor, "R 1"]]:
    """Return whether a row is still inside its prefix, and the next prefix token."""
    prefix, position = frontier.limits.prefix, frontier.length[:, None]
    token = prefix.gather(1, position.clamp(max=prefix.size(1) - 1))
    return (position < prefix.size(1)) & (token != PAD), token
