"""Exact dynamic programmes over the paths of a graph, as in the DA-Transformer (Huang et al., 2022).

A path goes from vertex 0 to the last vertex, and every inner vertex emits one token. All tensors are log-probabilities
in float32 or float64, with -inf for what is impossible. The sum has a gradient of its own (posteriors from a forward
and a backward pass), because the gradient of `logsumexp` is NaN if all terms are -inf.

B batch, T target tokens without EOS, L vertices.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from attendo.nn import triton_launch
from attendo.nn.token_scores import NEVER, widen
from attendo.nn.triton_launch import launch, next_power_of_2

# Hops that a program of the kernels has in registers at a time: 32 per thread of 8 warps. A graph of up to 64
# vertices has no more. More would need too many registers. With fewer, the warps would wait for each other more often.
_HOPS_AT_ONCE, _HOPS_PER_WARP = 8192, 1024
# Vertices on each side of a block of the hops' gradient: 8 hops and 56 registers per thread. With 2 warps
# a thread needs 115 registers (Triton 3.6, sm_90), so a processor has half as many threads.
_LINK_BLOCK, _LINK_WARPS = 32, 4


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
    emissions, links = widen(emissions), widen(links)
    if triton_launch.runs_kernels(links):
        by_kernel: Tensor = _KernelGraphLogLikelihood.apply(emissions, links, num_tokens, num_vertices)
        return by_kernel
    emissions = mask_emissions(emissions, num_vertices)
    result: Tensor = _GraphLogLikelihood.apply(emissions, links, num_tokens, num_vertices)
    return result


def align_to_graph(
    emissions: Float[Tensor, "B T L"],
    links: Float[Tensor, "B L L"],
    num_tokens: Int[Tensor, " B"],
    num_vertices: Int[Tensor, " B"],
) -> Int[Tensor, "B T"]:
    """Return the vertex of each token on the most probable path; 0 after the last token."""
    emissions, links = widen(emissions), widen(links)
    if triton_launch.runs_kernels(links):
        return _align_by_kernel(emissions, links, num_tokens, num_vertices)
    emissions = mask_emissions(emissions, num_vertices)
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
    """Return the probability that a random path visits each vertex.

    This is the first row of I + E + E² + ... for the matrix E of hops, whose power L is 0. The sum equals the product
    of all I + E^(2^k), so a graph of L vertices needs log2(L) rounds. Autograd's gradient is finite, also for -inf.
    """
    hops = links.exp()
    visits = torch.zeros_like(hops[:, :1])
    visits[..., 0] = 1
    for number in range((links.shape[1] - 1).bit_length()):
        hops = hops @ hops if number else hops
        visits = visits + visits @ hops
    return visits[:, 0]


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
    token_scores = mask_emissions(token_scores[:, None], num_vertices)[:, 0]
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


class _KernelGraphLogLikelihood(torch.autograd.Function):
    """The same on a GPU, with one kernel forward and two backward. The kernels mask the emissions."""

    @staticmethod
    def forward(ctx: Any, emissions: Tensor, links: Tensor, num_tokens: Tensor, num_vertices: Tensor) -> Tensor:
        from attendo.nn.graph_paths_triton import sum_kernel

        batch, tokens, vertices = emissions.shape
        links = links.contiguous()
        scores, totals = links.new_empty((batch, tokens + 1, vertices)), links.new_empty(batch)
        given = (emissions, links, num_tokens, num_vertices)
        launch(
            sum_kernel,
            (batch,),
            *given,
            scores,
            totals,
            tokens,
            vertices,
            *emissions.stride(),
            **_kernel_sizes(vertices),
        )
        ctx.save_for_backward(*given, scores, totals)
        return totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_totals: Tensor) -> tuple[Tensor, Tensor, None, None]:
        from attendo.nn.graph_paths_triton import link_kernel, posterior_kernel

        emissions, links, num_tokens, num_vertices, scores, totals = ctx.saved_tensors
        batch, tokens, vertices = emissions.shape
        grad_totals = grad_totals.contiguous()
        following, grad_links = links.new_empty(emissions.shape), torch.empty_like(links)
        grad_emissions = links.new_zeros(emissions.shape)
        lengths, known = (num_tokens, num_vertices), (scores, totals, grad_totals)
        launch(
            posterior_kernel,
            (batch,),
            *(emissions, links.transpose(1, 2).contiguous(), *lengths, *known, following, grad_emissions),
            *(tokens, vertices, *emissions.stride()),
            **_kernel_sizes(vertices),
        )
        blocks = -(-vertices // _LINK_BLOCK)
        launch(
            link_kernel,
            (blocks, blocks, batch),
            *(links, *lengths, *known, following, grad_links, tokens, vertices),
            block=_LINK_BLOCK,
            num_warps=_LINK_WARPS,
        )
        return grad_emissions, grad_links, None, None


def _align_by_kernel(
    emissions: Float[Tensor, "B T L"],
    links: Float[Tensor, "B L L"],
    num_tokens: Int[Tensor, " B"],
    num_vertices: Int[Tensor, " B"],
) -> Int[Tensor, "B T"]:
    from attendo.nn.graph_paths_triton import align_kernel

    batch, tokens, vertices = emissions.shape
    best_previous = torch.empty((batch, tokens, vertices), dtype=torch.int32, device=links.device)
    path = torch.zeros((batch, tokens), dtype=torch.long, device=links.device)
    launch(
        align_kernel,
        (batch,),
        *(emissions, links.contiguous(), num_tokens, num_vertices, best_previous, path),
        *(tokens, vertices, *emissions.stride()),
        **_kernel_sizes(vertices),
    )
    return path


def _kernel_sizes(vertices: int) -> dict[str, int]:
    size = next_power_of_2(vertices)
    block = max(1, min(size, _HOPS_AT_ONCE // size))
    return {"size": size, "block": block, "num_warps": max(1, min(8, size * block // _HOPS_PER_WARP))}


def _start_scores(links: Float[Tensor, "B L L"]) -> Float[Tensor, "B L"]:
    scores = torch.full_like(links[:, 0], NEVER)
    scores[:, 0] = 0
    return scores


def _last_hops(links: Float[Tensor, "B L L"], num_vertices: Int[Tensor, " B"]) -> Float[Tensor, "B L"]:
    last = (num_vertices - 1)[:, None, None].expand(-1, links.shape[1], 1)
    return links.gather(2, last)[:, :, 0]


def mask_emissions(emissions: Float[Tensor, "B T L"], num_vertices: Int[Tensor, " B"]) -> Float[Tensor, "B T L"]:
    """Set the log-probabilities of vertices that emit no token to -inf."""
    vertex = torch.arange(emissions.shape[2], device=emissions.device)
    inner = (vertex > 0) & (vertex < (num_vertices - 1)[:, None])
    return emissions.masked_fill(~inner[:, None], NEVER)
