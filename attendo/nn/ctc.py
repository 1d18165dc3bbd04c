"""Exact dynamic programmes over the rows of CTC (Graves et al., 2006) that become the target when runs are merged.

All tensors are log-probabilities in float32 or float64, with -inf for what is impossible. The sum has a gradient of its
own (posteriors from a forward and a backward pass), because the gradient of `logsumexp` is NaN if all terms are -inf.

B batch, T target tokens without EOS, L positions, M = 2T + 1 states: blank, token 1, blank, token 2, ..., blank.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from attendo.nn import triton_launch
from attendo.nn.token_scores import NEVER, emission_scores, widen
from attendo.nn.triton_launch import launch, next_power_of_2

_MAX_STATES_PER_THREAD = 8  # of the kernels; one warp if possible, because more warps would wait for each other


def ctc_emissions(
    logits: Float[Tensor, "B L V"], ids: Int[Tensor, "B T"], blank: int, silent: tuple[int, ...]
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B L T"]]:
    """Return the log-probabilities of the blank and of these tokens at every position."""
    scores = emission_scores(logits, torch.nn.functional.pad(ids, (1, 0), value=blank), silent)
    return scores[..., 0], scores[..., 1:]


def ctc_log_likelihood(
    blanks: Float[Tensor, "B L"],
    emissions: Float[Tensor, "B L T"],
    labels: Int[Tensor, "B T"],
    num_positions: Int[Tensor, " B"],
    num_tokens: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """Return log P(target | source), the sum over all rows that become the target when runs are merged.

    `emissions[b, j, i]` is the log-probability of target token i at position j, `blanks[b, j]` that of the blank. The
    result is -inf, with gradient 0, if the target does not fit: it needs T positions and one more for each token that
    equals the token before it.
    """
    blanks, emissions = widen(blanks), widen(emissions)
    if triton_launch.runs_kernels(blanks):
        given = (blanks, emissions, labels, num_positions, num_tokens)
        by_kernel: Tensor = _KernelCtcLogLikelihood.apply(*given)
        return by_kernel
    states = _interleave(blanks, emissions)
    result: Tensor = _CtcLogLikelihood.apply(states, _may_skip(labels), num_positions, num_tokens)
    return result


def ctc_token_log_probs(
    blanks: Float[Tensor, "B L"],
    emissions: Float[Tensor, "B L T"],
    labels: Int[Tensor, "B T"],
    num_positions: Int[Tensor, " B"],
    num_tokens: Int[Tensor, " B"],
) -> Float[Tensor, "B T1"]:
    """Return the log-probability of each token given those before it, and of the end. Their sum is log P(target).

    A row that begins with some tokens says the last of them for the first time at one position. The sum over that
    position is the probability of the beginning.
    """
    states, may_skip = _interleave(widen(blanks), widen(emissions)), _may_skip(labels)
    scores = _first_ctc_scores(states)
    first = torch.full_like(scores, NEVER)
    first[:, 1:2] = states[:, 0, 1:2]
    begins = [first]
    for j in range(1, states.shape[1]):
        inside = (j < num_positions)[:, None]
        stay, step, skip = _arrivals(scores, may_skip)
        arrived = torch.logaddexp(step, skip) + states[:, j]
        begins.append(arrived.masked_fill(~inside, NEVER))
        scores = torch.where(inside, torch.logaddexp(arrived, stay + states[:, j]), scores)
    total = (scores + _ctc_ends(scores, num_tokens)).logsumexp(-1)
    prefixes = torch.stack(begins).logsumexp(0)[:, 1::2]  # [B, T]
    before = torch.nn.functional.pad(prefixes, (1, 0))  # the empty beginning has probability 1
    position = torch.arange(before.shape[1], device=before.device)
    reached = torch.where(position < num_tokens[:, None], torch.cat((prefixes, total[:, None]), 1), total[:, None])
    # A beginning that is impossible has no next token: its log-probability is -inf as well.
    found = torch.where(before == NEVER, NEVER, reached - before)
    return found.masked_fill(position > num_tokens[:, None], 0)


def align_to_ctc(
    blanks: Float[Tensor, "B L"],
    emissions: Float[Tensor, "B L T"],
    labels: Int[Tensor, "B T"],
    num_positions: Int[Tensor, " B"],
    num_tokens: Int[Tensor, " B"],
) -> Int[Tensor, "B L"]:
    """Return the target token (counted from 1) of each position in the most probable row; 0 is the blank."""
    blanks, emissions = widen(blanks), widen(emissions)
    if triton_launch.runs_kernels(blanks):
        return _align_by_kernel(blanks, emissions, labels, num_positions, num_tokens)
    states, may_skip = _interleave(blanks, emissions), _may_skip(labels)
    scores, best_steps = _first_ctc_scores(states), []
    for j in range(1, states.shape[1]):
        best, steps = torch.stack(_arrivals(scores, may_skip)).max(0)  # steps: 0, 1 or 2 states back
        best_steps.append(steps)
        scores = torch.where((j < num_positions)[:, None], best + states[:, j], scores)
    state = (scores + _ctc_ends(scores, num_tokens)).argmax(-1)
    row = []
    for j in reversed(range(states.shape[1])):
        inside = j < num_positions
        row.append(torch.where(inside & (state % 2 == 1), (state + 1) // 2, 0))
        if j:
            state = state - torch.where(inside, best_steps[j - 1].gather(1, state[:, None])[:, 0], 0)
    return torch.stack(row[::-1], 1)


class _CtcLogLikelihood(torch.autograd.Function):
    """Sum over the states of CTC: blank, token 1, blank, token 2, ..., blank."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, may_skip: Tensor, num_positions: Tensor, num_tokens: Tensor) -> Tensor:
        forward = [_first_ctc_scores(states)]
        for j in range(1, states.shape[1]):
            arrived = torch.stack(_arrivals(forward[-1], may_skip)).logsumexp(0) + states[:, j]
            forward.append(torch.where((j < num_positions)[:, None], arrived, forward[-1]))
        total = (forward[-1] + _ctc_ends(forward[-1], num_tokens)).logsumexp(-1)
        ctx.save_for_backward(states, may_skip, num_positions, num_tokens, torch.stack(forward, 1), total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor, None, None, None]:
        states, may_skip, num_positions, num_tokens, forward, total = ctx.saved_tensors
        possible = (total > NEVER)[:, None]
        total = total[:, None].masked_fill(~possible, 0)
        backward = _ctc_ends(states[:, 0], num_tokens)
        grad = torch.zeros_like(states)
        for j in reversed(range(states.shape[1])):
            inside = possible & (j < num_positions)[:, None]
            grad[:, j] = torch.where(inside, (forward[:, j] + backward - total).exp(), 0)
            here = backward + states[:, j]
            jumps = _shift(here.masked_fill(~may_skip, NEVER), -2)
            earlier = torch.stack([here, _shift(here, -1), jumps]).logsumexp(0)
            backward = torch.where((j < num_positions)[:, None], earlier, backward)
        return grad * grad_total[:, None, None], None, None, None


class _KernelCtcLogLikelihood(torch.autograd.Function):
    """The same on a GPU, with one kernel forward and one backward."""

    @staticmethod
    def forward(
        ctx: Any, blanks: Tensor, emissions: Tensor, labels: Tensor, num_positions: Tensor, num_tokens: Tensor
    ) -> Tensor:
        from attendo.nn.ctc_triton import sum_kernel

        batch, positions, tokens = emissions.shape
        scores, totals = blanks.new_empty((batch, positions, 2, tokens + 1)), blanks.new_empty(batch)
        given = (blanks, emissions, labels.contiguous(), num_positions, num_tokens)
        launch(sum_kernel, (batch,), *given, scores, totals, *_kernel_shape(blanks, emissions), **_kernel_sizes(tokens))
        ctx.save_for_backward(*given, scores, totals)
        return totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_totals: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        from attendo.nn.ctc_triton import posterior_kernel

        blanks, emissions, *others = ctx.saved_tensors
        batch, _, tokens = emissions.shape
        grad_blanks, grad_emissions = blanks.new_zeros(blanks.shape), blanks.new_zeros(emissions.shape)
        launch(
            posterior_kernel,
            (batch,),
            *(blanks, emissions, *others, grad_totals.contiguous(), grad_blanks, grad_emissions),
            *_kernel_shape(blanks, emissions),
            **_kernel_sizes(tokens),
        )
        return grad_blanks, grad_emissions, None, None, None


def _align_by_kernel(
    blanks: Float[Tensor, "B L"],
    emissions: Float[Tensor, "B L T"],
    labels: Int[Tensor, "B T"],
    num_positions: Int[Tensor, " B"],
    num_tokens: Int[Tensor, " B"],
) -> Int[Tensor, "B L"]:
    from attendo.nn.ctc_triton import align_kernel

    batch, positions, tokens = emissions.shape
    best_steps = torch.empty((batch, positions, 2 * (tokens + 1)), dtype=torch.int8, device=blanks.device)
    row = torch.zeros((batch, positions), dtype=torch.long, device=blanks.device)
    launch(
        align_kernel,
        (batch,),
        *(blanks, emissions, labels.contiguous(), num_positions, num_tokens, best_steps, row),
        *_kernel_shape(blanks, emissions),
        **_kernel_sizes(tokens),
    )
    return row


def _kernel_shape(blanks: Float[Tensor, "B L"], emissions: Float[Tensor, "B L T"]) -> tuple[int, ...]:
    return (*emissions.shape[1:], *blanks.stride(), *emissions.stride())


def _kernel_sizes(tokens: int) -> dict[str, int]:
    size = next_power_of_2(tokens + 1)
    return {"size": size, "num_warps": max(1, min(8, size // (32 * _MAX_STATES_PER_THREAD)))}


def _interleave(blanks: Float[Tensor, "B L"], emissions: Float[Tensor, "B L T"]) -> Float[Tensor, "B L M"]:
    """Return the states blank, token 1, blank, ..., token T, blank."""
    pairs = torch.stack([blanks[:, :, None].expand_as(emissions), emissions], -1).flatten(2)
    return torch.cat([pairs, blanks[:, :, None]], -1)


def _may_skip(labels: Int[Tensor, "B T"]) -> Bool[Tensor, "B M"]:
    """True for the states of tokens that differ from the token before: the blank between them may be left out."""
    may_skip = torch.zeros((len(labels), 2 * labels.shape[1] + 1), dtype=torch.bool, device=labels.device)
    may_skip[:, 3::2] = labels[:, 1:] != labels[:, :-1]
    return may_skip


def _first_ctc_scores(states: Float[Tensor, "B L M"]) -> Float[Tensor, "B M"]:
    scores = torch.full_like(states[:, 0], NEVER)
    scores[:, :2] = states[:, 0, :2]
    return scores


def _ctc_ends(scores: Float[Tensor, "B M"], num_tokens: Int[Tensor, " B"]) -> Float[Tensor, "B M"]:
    """Return 0 for the two states in which a row may end, the last token and the blank after it, else -inf."""
    state = torch.arange(scores.shape[1], device=scores.device)
    last = 2 * num_tokens[:, None]
    return torch.zeros_like(scores).masked_fill((state != last) & (state != last - 1), NEVER)


def _arrivals(scores: Float[Tensor, "B M"], may_skip: Bool[Tensor, "B M"]) -> list[Float[Tensor, "B M"]]:
    """Return the scores of the states from which each state is reached: itself, the one before, the one before that."""
    return [scores, _shift(scores, 1), _shift(scores, 2).masked_fill(~may_skip, NEVER)]


def _shift(scores: Float[Tensor, "B M"], by: int) -> Float[Tensor, "B M"]:
    """Move the scores `by` states to the right, or to the left if negative; -inf moves in."""
    size = scores.shape[1]
    moved = torch.full_like(scores, NEVER)
    if abs(by) >= size:
        return moved
    if by > 0:
        moved[:, by:] = scores[:, : size - by]
    else:
        moved[:, : size + by] = scores[:, -by:]
    return moved
