"""Prefill: the network reads a required target prefix in one pass instead of token by token.

The tokens of a prefix are given, so the rules can be applied to all positions at once. The log-probability of a prefix
is the sum over its tokens, as is the penalty from the rules. Every row then has the same state as after single steps.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from attendo.decode.beam import is_on_host
from attendo.decode.frontier import Frontier, RowLimits, difference, map_tensors
from attendo.decode.networks import Ensemble
from attendo.decode.rules import ForcedPrefix
from attendo.decode.search import Rule, Strategy, apply_rules
from attendo.model.transformer import Transformer
from attendo.text import BOS, EOS, PAD

# Logits at a time: 64 MB, and 512 MB on a GPU. Longer prefixes are read in several parts.
_MAX_LOGITS, _MAX_LOGITS_GPU = 1 << 24, 1 << 27


@torch.no_grad()
def prefill_prefix(
    network: Any, start: Any, frontier: Frontier, strategy: Strategy, rules: Sequence[Rule], same_length: bool = False
) -> tuple[Any, Frontier]:
    """Return state and frontier after the required prefixes. `start` must not have read any of them.

    The state has one row per sentence before and after, with its own number of read tokens. With `same_length` it has
    the rows of the frontier, all at the same position: the length of the shortest prefix. The search reads the rest
    token by token. If the network, strategy or rules do not support prefill, nothing is read here.
    """
    members = _members(network)
    if members is None or not _can_prefill(frontier, strategy, rules):
        return start, frontier
    limits = map_tensors(frontier.limits, lambda each: each[:: frontier.width])
    count = _count_columns(members, frontier, counts := _prefix_lengths(limits), same_length)
    if count == 0:
        return start, frontier
    worth = _PrefixScorer(limits, frontier.ids.size(1), strategy, rules)
    most = (_MAX_LOGITS_GPU if counts.is_cuda else _MAX_LOGITS) // members[0].output.out_features
    state, log_probability, value = _read_prefix(network, start, count, worth, most)
    in_prefix = torch.arange(count, device=counts.device) < counts[:, None]
    is_read = (in_prefix & value.isfinite()).cumprod(dim=1).bool()  # a forbidden token ends the row in a later step
    if same_length and not is_read.all():
        return start, frontier
    sentences = torch.arange(counts.size(0), device=counts.device)
    state = state.reorder(sentences.repeat_interleave(frontier.width)) if same_length else state.with_past_mask(is_read)
    added = (log_probability, difference(value, log_probability))
    frontier = _append_prefix(frontier, worth.ids, is_read, *(each.where(is_read, 0.0).sum(dim=1) for each in added))
    return state, frontier if _has_prefix_left(limits, is_read) else frontier.pad_to(frontier.ids.size(1), prefix=0)


def _members(network: Any) -> Sequence[Transformer] | None:
    """Return the networks that read the prefix, or None if a member is not a plain Transformer."""
    members = network.members if isinstance(network, Ensemble) else (network,)
    networks = [each for each in members if isinstance(each, Transformer)]
    return networks if len(networks) == len(members) else None


def _can_prefill(frontier: Frontier, strategy: Strategy, rules: Sequence[Rule]) -> bool:
    has_rule = any(isinstance(rule, ForcedPrefix) for rule in rules)
    return has_rule and frontier.limits.prefix.size(1) > 0 and strategy.supports_prefill


def _prefix_lengths(limits: RowLimits) -> Int[Tensor, " B"]:
    """Return the number of tokens of each prefix after which the row stays open."""
    goes_on = (limits.prefix != PAD) & (limits.prefix != EOS)
    return torch.minimum(goes_on.cumprod(dim=1).sum(dim=1), limits.max_length)


def _count_columns(
    members: Sequence[Transformer], frontier: Frontier, counts: Int[Tensor, " B"], same_length: bool
) -> int:
    """Return the number of tokens to read. If the host must not read the counts, return the maximum."""
    if same_length or is_on_host(counts):
        return int(counts.min() if same_length else counts.max())
    longest = [each.config.max_length for each in members if each.config.positions == "learned"]
    return min(frontier.limits.prefix.size(1), frontier.ids.size(1) - 2, *longest)


def _has_prefix_left(limits: RowLimits, is_read: Bool[Tensor, "B P"]) -> bool:
    """Return whether the rules still need the prefix. True if the host must not read the counts."""
    left = is_read.sum(dim=1) < (limits.prefix != PAD).sum(dim=1)
    return not is_on_host(left) or bool(left.any())


class _PrefixScorer:
    """Log-probabilities of the prefix tokens, by the model and after the rules."""

    def __init__(self, limits: RowLimits, capacity: int, strategy: Strategy, rules: Sequence[Rule]) -> None:
        self._limits, self._strategy = limits, strategy
        # Rules that only mask do not affect a prefix.
        self._rules = () if all(rule.only_masks for rule in rules) else rules
        ids = torch.cat((torch.full_like(limits.prefix[:, :1], BOS), limits.prefix), dim=1)
        self.ids = pad(ids, (0, capacity - ids.size(1)), value=PAD)

    def __call__(self, logits: Float[Tensor, "B T V"], first: int) -> tuple[Float[Tensor, "B T"], Float[Tensor, "B T"]]:
        """Return the log-probabilities of the tokens from position `first` on, before and after the rules."""
        count = logits.size(1)
        if not self._rules:
            log_probs = ruled = logits.float().log_softmax(-1)
        else:
            both = apply_rules(logits.flatten(0, 1), self._position_rows(first, count), self._strategy, self._rules)
            log_probs, ruled = (each.unflatten(0, (-1, count)) for each in both)
        token = self.ids[:, first + 1 : first + 1 + count, None]
        return log_probs.gather(2, token)[..., 0], ruled.gather(2, token)[..., 0]

    def _position_rows(self, first: int, count: int) -> Frontier:
        """Return one row for each of these positions, in its state before that token."""
        rows = Frontier.start(self._limits, count, self.ids.size(1))
        length = torch.arange(first, first + count, device=self.ids.device).repeat(self.ids.size(0))
        is_said = torch.arange(self.ids.size(1), device=length.device) <= length[:, None]
        return replace(rows, ids=self.ids.repeat_interleave(count, dim=0).where(is_said, PAD), length=length)


def _read_prefix(
    network: Any, state: Any, count: int, scorer: _PrefixScorer, max_positions: int
) -> tuple[Any, Float[Tensor, "B P"], Float[Tensor, "B P"]]:
    """Read `count` tokens, BOS included, in parts of at most `max_positions` positions.

    The next step reads the last token of the prefix.
    """
    part = max(1, max_positions // scorer.ids.size(0))
    scores = []
    for first in range(0, count, part):
        logits, state = network.step(scorer.ids[:, first : min(first + part, count)], state)
        scores.append(scorer(logits, first))
    log_probability, value = (torch.cat(each, dim=1) for each in zip(*scores, strict=True))
    return state, log_probability, value


def _append_prefix(
    frontier: Frontier, ids: Int[Tensor, "B C"], is_read: Bool[Tensor, "B P"], log_probability: Tensor, penalty: Tensor
) -> Frontier:
    """Append to each row the part of its prefix that has been read."""
    counts = is_read.sum(dim=1)
    prefix_ids = ids.where(torch.arange(ids.size(1), device=ids.device) <= counts[:, None], PAD)
    prefix_ids, counts, log_probability, penalty = (
        each.repeat_interleave(frontier.width, dim=0) for each in (prefix_ids, counts, log_probability, penalty)
    )
    return replace(
        frontier,
        ids=prefix_ids,
        length=counts,
        log_probability=frontier.log_probability + log_probability,
        penalty=frontier.penalty + penalty,
    )
