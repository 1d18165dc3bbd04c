"""Rules: what may not be said (-∞), and what counts for less or more.

They change what is chosen and never what is told of it: the log-probability of an answer stays the model's, and what a
rule added is booked beside it. The token that a prefix asks for is out of reach of the others: nobody chose it. All
write in the numbers they are given. A rule that `only_masks` leaves all numbers as they are but for -∞. Where
`maskable_ids` says which tokens, it forbids no others behind the prefix and before the limit of an answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.frontier import NEG_INF, Frontier
from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD

_ANY_TOKEN = -1

RuleCall = Callable[[Any, Tensor, Frontier], Tensor]


def except_prefix(call: RuleCall) -> RuleCall:
    """The rule has no say in the token that a prefix asks for."""

    @wraps(call)
    def spared(self: Any, log_probs: Tensor, frontier: Frontier) -> Tensor:
        if frontier.limits.prefix.size(1) == 0:
            return call(self, log_probs, frontier)
        inside, token = _next_prefix_token(frontier)
        before = log_probs.gather(1, token)
        ruled = call(self, log_probs, frontier)
        return ruled.scatter_(1, token, torch.where(inside, before, ruled.gather(1, token)))

    return spared


@dataclass(frozen=True)
class SuppressTokens:
    """Tokens that are never chosen. What remains keeps its log-probability: scores stay those of the model."""

    only_masks: ClassVar[bool] = True

    ids: Sequence[int] = (PAD, BOS)

    @property
    def maskable_ids(self) -> Sequence[int]:
        return self.ids

    @except_prefix
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        for each in self.ids:  # one by one: a list of places would be sent to the device at every step
            log_probs[:, each].fill_(NEG_INF)
        return log_probs


@dataclass(frozen=True)
class MinLength:
    """No end before as many tokens as are asked for. Where the limit is lower, the answer is cut there."""

    only_masks: ClassVar[bool] = True
    maskable_ids: ClassVar[Sequence[int]] = (EOS,)

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        log_probs[:, EOS].masked_fill_(frontier.length < frontier.limits.min_length, NEG_INF)
        return log_probs


@dataclass(frozen=True)
class ForcedPrefix:
    """The answer begins with the prefix that is asked for: at each of its places nothing else may come."""

    only_masks: ClassVar[bool] = True
    maskable_ids: ClassVar[Sequence[int]] = ()

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        if frontier.limits.prefix.size(1) == 0:
            return log_probs
        inside, token = _next_prefix_token(frontier)
        others = torch.arange(log_probs.size(1), device=log_probs.device) != token
        return log_probs.masked_fill_(inside & others, NEG_INF)


@dataclass(frozen=True)
class UnscoredPrefix:
    """So many first tokens of every answer, which a prefix asks for, count as certain: they say nothing of its worth.

    Otherwise a model that must begin with the token of a language would favour long answers where it is improbable.
    """

    tokens: int

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        inside = frontier.length[:, None] < self.tokens
        return log_probs.masked_fill_(inside & (log_probs != NEG_INF), 0.0)


@dataclass(frozen=True)
class BannedPhrases:
    """Sequences of one token or more that never stand in an answer: the token that would complete one is forbidden."""

    only_masks: ClassVar[bool] = True

    phrases: Sequence[Sequence[int]]
    # Made once for each device: during a step nothing may be sent there.
    _tables: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False, compare=False)

    def __post_init__(self) -> None:
        check_phrases(self.phrases, "banned")
        object.__setattr__(self, "phrases", tuple(map(tuple, self.phrases)))  # rules are compared, and looked up by
        self._tables[torch.device("cpu")] = _build_tables(self.phrases)

    @except_prefix
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        if not self.phrases:
            return log_probs
        before, last = self._tables_on(log_probs.device)
        back = torch.arange(before.size(1), device=before.device)
        places = frontier.length[:, None] - back  # [R, K]
        said = frontier.ids.gather(1, places.clamp(min=0))  # before the first token bos again, which no phrase holds
        complete = ((said[:, None] == before) | (before == _ANY_TOKEN)).all(dim=-1)  # [R, N]
        return _mask_tokens(log_probs, last.expand_as(complete), complete)

    def _tables_on(self, device: torch.device) -> tuple[Int[Tensor, "N K"], Int[Tensor, " N"]]:
        if device not in self._tables:
            before, last = self._tables[torch.device("cpu")]
            self._tables[device] = before.to(device), last.to(device)
        return self._tables[device]


@dataclass(frozen=True)
class NoRepeatNgram:
    """No sequence of `size` tokens stands twice in an answer."""

    only_masks: ClassVar[bool] = True

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
        same = ends <= frontier.length[:, None]  # [R, windows]: the sequences that have been said
        for n in range(self.size - 1):
            place = (frontier.length + n - self.size + 2).clamp(min=0)
            same = same & (frontier.ids[:, n : n + windows] == frontier.ids.gather(1, place[:, None]))
        return _mask_tokens(log_probs, frontier.ids[:, self.size - 1 :], same)


@dataclass(frozen=True)
class ForceEosAtLimit:
    """Behind the last token that the limit allows nothing but the end may come, however improbable."""

    only_masks: ClassVar[bool] = True
    maskable_ids: ClassVar[Sequence[int]] = ()

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        others = torch.arange(log_probs.size(1), device=log_probs.device) != EOS
        return log_probs.masked_fill_(frontier.full[:, None] & others, NEG_INF)


@dataclass(frozen=True)
class Renormalise:
    """log p(v) - log(sum of p over what is not forbidden): what may not be said leaves its probability to the rest.

    It comes last. A token of a prefix is then certain, and costs nothing.
    """

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        there_is = (log_probs != NEG_INF).any(dim=1, keepdim=True)
        return torch.where(there_is, log_probs.log_softmax(-1), NEG_INF)  # of nothing the sum would be no number


@dataclass(frozen=True)
class RepetitionPenalty:
    """log p(v) * penalty for every token v that has been said, once however often: above 1 makes it less probable.

    With `applies_to_logits` it is the logit s(v) that becomes s(v) * penalty below 0 and s(v) / penalty above (Keskar et al.
    2019, section 4.1), and the probabilities are those of the logits then. Zero is nowhere in particular among logits,
    so the same penalty weighs differently on another network. Such a rule comes before all others.
    """

    penalty: float
    applies_to_logits: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.penalty < float("inf"):
            raise UsageError("repetition_penalty_not_positive", penalty=self.penalty)

    @except_prefix
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
        columns = torch.arange(frontier.ids.size(1), device=log_probs.device)
        # Where nothing stands yet, bos: that has been said in every row.
        said = torch.where(columns <= frontier.length[:, None], frontier.ids, BOS)
        before = log_probs.gather(1, said)
        return log_probs.scatter_(1, said, torch.where(before < 0, before * self.penalty, before / self.penalty))


def check_phrases(phrases: Sequence[Sequence[int]], kind: str) -> None:
    """Sequences of tokens that can be said."""
    for phrase in phrases:
        if not phrase:
            raise UsageError("phrase_without_tokens", kind=kind)
        if min(phrase) < 0 or {PAD, BOS, EOS} & {*phrase}:
            raise UsageError("phrase_with_control_tokens", kind=kind, pad=PAD, bos=BOS, eos=EOS, ids=[*phrase])


def _build_tables(phrases: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "N K"], Int[Tensor, " N"]]:
    """What must stand before the last token of each phrase, the nearest first, and that last token."""
    room = max(map(len, phrases), default=1) - 1
    before = [[*phrase[-2::-1], *[_ANY_TOKEN] * (room + 1 - len(phrase))] for phrase in phrases]
    return (
        torch.tensor(before, dtype=torch.long).view(len(phrases), room),
        torch.tensor([phrase[-1] for phrase in phrases], dtype=torch.long),
    )


def _mask_tokens(
    log_probs: Float[Tensor, "R V"], tokens: Int[Tensor, "R N"], forbidden: Bool[Tensor, "R N"]
) -> Float[Tensor, "R V"]:
    """The lesser of two numbers is the same in any order, so a token may stand among the others many times."""
    most = torch.where(forbidden, NEG_INF, -NEG_INF).to(log_probs.dtype)
    return log_probs.scatter_reduce_(1, tokens, most, "amin")


def _next_prefix_token(frontier: Frontier) -> tuple[Bool[Tensor, "R 1"], Int[Tensor, "R 1"]]:
    """Whether a row is still inside its prefix, and the token that comes there."""
    prefix, place = frontier.limits.prefix, frontier.length[:, None]
    token = prefix.gather(1, place.clamp(max=prefix.size(1) - 1))
    return (place < prefix.size(1)) & (token != PAD), token
