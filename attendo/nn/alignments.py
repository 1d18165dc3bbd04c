"""Exact dynamic programmes over alignments: CTC (Graves et al., 2006) and the DA-Transformer (Huang et al., 2022).

Both sum over all ways to place the target's tokens on a longer row of positions. All tensors are log-probabilities in
float32 or float64, with -inf for what is impossible. The sums have gradients of their own (posteriors from a forward
and a backward pass), because the gradient of `logsumexp` is NaN if all terms are -inf.

B batch, T target tokens without EOS, L positions (CTC) or vertices (graph), M = 2T + 1 states of CTC.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

NEVER = float("-inf")
_CHUNK_NUMBERS = 1 << 23  # logits widened at once: 32 MB in float32


def emission_scores(
    logits: Float[Tensor, "B L V"], ids: Int[Tensor, "B T"], silent: tuple[int, ...]
) -> Float[Tensor, "B L T"]:
    """Return the log-probabilities of these tokens at every position. Tokens in `silent` have probability 0.

    They may be in `ids` only as padding, whose log-probabilities mean nothing.
    """
    result: Tensor = _EmissionScores.apply(logits, ids, silent)
    return result


class _EmissionScores(torch.autograd.Function):
    """Keeps the logits in their own precision and one sum per position, instead of float32 probabilities.

    A canvas has several times as many positions as the target has tokens, so [B, L, V] in float32 would be the largest
    tensor of a training step. A few sentences at a time are widened, so that they stay in the processor's cache.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, ids: Tensor, silent: tuple[int, ...]) -> Tensor:
        impossible = _impossible_tokens(logits, silent)
        totals = torch.cat([(_widen(part) + impossible).logsumexp(-1, keepdim=True) for part in _split(logits)])
        ctx.save_for_backward(logits, ids, impossible, totals)
        return _widen(logits.gather(2, ids[:, None].expand(-1, logits.shape[1], -1))) - totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        logits, ids, impossible, totals = ctx.saved_tensors
        grad_logits = torch.empty_like(logits)
        size = len(_split(logits)[0]) if len(logits) else 1
        for start in range(0, len(logits), size):
            part = slice(start, start + size)
            wide = (_widen(logits[part]) + (impossible - totals[part])).exp_()
            wide *= -grad[part].sum(-1, keepdim=True)
            wide.scatter_add_(2, ids[part, None].expand(-1, logits.shape[1], -1), grad[part])
            grad_logits[part] = wide
        return grad_logits, None, None


def _split(logits: Float[Tensor, "B L V"]) -> tuple[Tensor, ...]:
    sentence = max(1, logits[0].numel()) if len(logits) else 1
    return logits.split(max(1, _CHUNK_NUMBERS // sentence))


def _impossible_tokens(logits: Float[Tensor, "B L V"], silent: tuple[int, ...]) -> Float[Tensor, " V"]:
    """Return -inf for the tokens in `silent`, 0 for the others."""
    impossible = _widen(logits.new_zeros(logits.shape[-1]))
    for token in silent:
        impossible[token : token + 1].fill_(NEVER)  # a slice: a single number would be copied from the host
    return impossible


def ctc_emissions(
    logits: Float[Tensor, "B L V"], ids: Int[Tensor, "B T"], blank: int, silent: tuple[int, ...]
) -> tuple[Float[Tensor, "B L"], Float[Tensor, "B L T"]]:
    """Return the log-probabilities of the blank and of these tokens at every position."""
    scores = emission_scores(logits, torch.nn.functional.pad(ids, (1, 0), value=blank), silent)
    return scores[..., 0], scores[..., 1:]


def graph_log_likelihood(
    emissions: Float[Tensor, "B T L"],
    links: Float[Tensor, "B L L"],
    num_tokens: Int[Tensor, " B"],
    num_vertices: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """Return log P(target | source), the sum over all paths from vertex 0 to the last vertex of each graph.

    `emissions[b, i, v]` is the log-probability of target token i at vertex v; the first and the last vertex emit none.
    `links[b, u, v]` is the log-probability of the hop from u to v, -inf unless u < v. The result is -inf, with gradient
    0, if the target has more tokens than the graph has inner vertices.
    """
    result: Tensor = _GraphLogLikelihood.apply(
        _mask_emissions(_widen(emissions), num_vertices), _widen(links), num_tokens, num_vertices
    )
    return result


def align_to_graph(
    emissions: Float[Tensor, "B T L"],
    links: Float[Tensor, "B L L"],
    num_tokens: Int[Tensor, " B"],
    num_vertices: Int[Tensor, " B"],
) -> Int[Tensor, "B T"]:
    """Return the vertex of each token on the most probable path; 0 after the last token."""
    emissions, links = _mask_emissions(_widen(emissions), num_vertices), _widen(links)
    scores, best_previous = _start_scores(links), []
    for i in range(emissions.shape[1]):
        best, previous = (scores[:, :, None] + links).max(1)
        best_previous.append(previous)
        scores = torch.where((i < num_tokens)[:, None], best + emissions[:, i], scores)
    vertex = (scores + _last_hops(links, num_vertices)).argmax(-1)
    path = []
    for i in reversed(range(emissions.shape[1])):
        inside = i < num_tokens
        path.append(torch.where(inside, vertex, 0))
        vertex = torch.where(inside, best_previous[i].gather(1, vertex[:, None])[:, 0], vertex)
    return torch.stack(path[::-1], 1) if path else links.new_zeros((len(links), 0), dtype=torch.long)


def visit_probabilities(links: Float[Tensor, "B L L"]) -> Float[Tensor, "B L"]:
    """Return the probability that a random path visits each vertex."""
    hops = links.exp()
    visits = torch.zeros_like(hops[:, 0])
    visits[:, 0] = 1
    for vertex in range(1, links.shape[1]):
        visits[:, vertex] = (visits * hops[:, :, vertex]).sum(-1)
    return visits


def follow_path(successors: Int[Tensor, "B L"]) -> Bool[Tensor, "B L"]:
    """Mark the vertices that are reached from vertex 0. The last vertex must be its own successor.

    The steps double: after k rounds every path of fewer than 2^k hops is marked. So a graph of L vertices needs log2(L)
    rounds.
    """
    visited = torch.zeros_like(successors, dtype=torch.bool)
    visited[:, 0] = True
    for _ in range(max(1, (successors.shape[1] - 1).bit_length())):
        reached = torch.zeros_like(successors).scatter_add_(1, successors, visited.long())
        visited = visited | (reached > 0)
        successors = successors.gather(1, successors)
    return visited


def decode_joint_viterbi(
    token_scores: Float[Tensor, "B L"],
    links: Float[Tensor, "B L L"],
    num_vertices: Int[Tensor, " B"],
    max_tokens: Int[Tensor, " B"],
    max_steps: int,
    length_penalty: float = 1.0,
) -> Bool[Tensor, "B L"]:
    """Mark the inner vertices of the path with the highest score / tokens ** `length_penalty` (Shao et al., 2022).

    `token_scores[b, v]` is the log-probability of the best token at vertex v. A path has 1 to `max_tokens[b]` tokens,
    and at most `max_steps`, which is known without waiting for the device. A graph without inner vertices has no marks.
    """
    batch, size = token_scores.shape
    token_scores = _mask_emissions(token_scores[:, None], num_vertices)[:, 0]
    last_hops = _last_hops(links, num_vertices)
    scores = links[:, 0] + token_scores
    totals, best_previous = [scores + last_hops], []
    for _ in range(1, min(max_steps, max(1, size - 2))):
        best, previous = (scores[:, :, None] + links).max(1)
        scores = best + token_scores
        totals.append(scores + last_hops)
        best_previous.append(previous)
    total, last = torch.stack(totals, 1).max(-1)  # [B, K]: the best path of each number of tokens
    lengths = torch.arange(1, len(totals) + 1, device=links.device)
    total = total.masked_fill(lengths > max_tokens[:, None], NEVER)
    chosen = (total / lengths**length_penalty).argmax(-1)
    vertex = last.gather(1, chosen[:, None])[:, 0]
    on_path = torch.zeros((batch, size), dtype=torch.bool, device=links.device)
    possible = total.gather(1, chosen[:, None])[:, 0] > NEVER
    for k in reversed(range(len(totals))):
        inside = (k <= chosen) & possible
        on_path |= torch.nn.functional.one_hot(vertex, size).bool() & inside[:, None]
        if k:
            vertex = torch.where(k <= chosen, best_previous[k - 1].gather(1, vertex[:, None])[:, 0], vertex)
    return on_path


class _GraphLogLikelihood(torch.autograd.Function):
    """Keeps the [B, T, L] scores of the forward pass instead of T tensors of [B, L, L]."""

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, links: Tensor, num_tokens: Tensor, num_vertices: Tensor) -> Tensor:
        forward = [_start_scores(links)]
        for i in range(emissions.shape[1]):
            reached = (forward[-1][:, :, None] + links).logsumexp(1) + emissions[:, i]
            forward.append(torch.where((i < num_tokens)[:, None], reached, forward[-1]))
        total = (forward[-1] + _last_hops(links, num_vertices)).logsumexp(-1)
        ctx.save_for_backward(emissions, links, num_tokens, num_vertices, torch.stack(forward, 1), total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor, Tensor, None, None]:
        emissions, links, num_tokens, num_vertices, forward, total = ctx.saved_tensors
        possible = (total > NEVER)[:, None]
        total = total[:, None].masked_fill(~possible, 0)
        last_hops = _last_hops(links, num_vertices)
        grad_emissions, grad_links = torch.zeros_like(emissions), torch.zeros_like(links)
        # Posterior of the last hop. `forward[:, -1]` holds the scores after the last token of every target.
        ends = (forward[:, -1] + last_hops - total).exp() * possible
        grad_links.scatter_(2, (num_vertices - 1)[:, None, None].expand(-1, links.shape[1], 1), ends[:, :, None])
        backward = last_hops
        for i in reversed(range(emissions.shape[1])):
            inside = possible & (i < num_tokens)[:, None]
            grad_emissions[:, i] = torch.where(inside, (forward[:, i + 1] + backward - total).exp(), 0)
            after = emissions[:, i] + backward - total  # what follows the hop into each vertex
            through = (forward[:, i, :, None] + links + after[:, None, :]).exp()
            grad_links += torch.where(inside[:, :, None], through, 0)
            earlier = (links + (emissions[:, i] + backward)[:, None, :]).logsumexp(-1)
            backward = torch.where((i < num_tokens)[:, None], earlier, backward)
        scale = grad_total[:, None, None]
        return grad_emissions * scale, grad_links * scale, None, None


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
    states = _interleave(_widen(blanks), _widen(emissions))
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
    states, may_skip = _interleave(_widen(blanks), _widen(emissions)), _may_skip(labels)
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
    states, may_skip = _interleave(_widen(blanks), _widen(emissions)), _may_skip(labels)
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


def _widen(scores: Tensor) -> Tensor:
    return scores if scores.dtype == torch.float64 else scores.float()


def _start_scores(links: Float[Tensor, "B L L"]) -> Float[Tensor, "B L"]:
    scores = torch.full_like(links[:, 0], NEVER)
    scores[:, 0] = 0
    return scores


def _last_hops(links: Float[Tensor, "B L L"], num_vertices: Int[Tensor, " B"]) -> Float[Tensor, "B L"]:
    last = (num_vertices - 1)[:, None, None].expand(-1, links.shape[1], 1)
    return links.gather(2, last)[:, :, 0]


def _mask_emissions(emissions: Float[Tensor, "B T L"], num_vertices: Int[Tensor, " B"]) -> Float[Tensor, "B T L"]:
    """Set the log-probabilities of vertices that emit no token to -inf."""
    vertex = torch.arange(emissions.shape[2], device=emissions.device)
    inner = (vertex > 0) & (vertex < (num_vertices - 1)[:, None])
    return emissions.masked_fill(~inner[:, None], NEVER)


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
