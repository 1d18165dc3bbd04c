"""Distributions of the next token of a graph after each prefix of the target, and their divergence between two passes.

    r[1, v]   = P(hop from vertex 0 to v)
    a[i, v]   = r[i, v] · P(token i at v), normalised: the vertex of token i, given the tokens up to it
    r[i+1, v] = sum over u of a[i, u] · P(hop from u to v)
    p(w | tokens before i) = sum over v of r[i, v] · P(w at v)

The last vertex emits EOS. These are the distributions that a search over the graph uses. They do not depend on which
vertex emits a token, only on the text that the graph predicts.

B batch, T target tokens without EOS, N = T + 1, L vertices, R = 2B rows of two passes.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from attendo.nn import triton_launch
from attendo.nn.graph_paths import mask_emissions
from attendo.nn.token_scores import impossible_tokens, split_sentences, widen
from attendo.nn.triton_launch import launch, next_power_of_2

_UNLIKELY = -1e30  # finite: the gradient of a softmax over -inf alone is NaN
# Of the kernels: numbers that a program has in registers.
_MAX_VERTEX_NUMBERS, _SAID_NUMBERS = 8192, 4096
_MAX_TOTAL_BLOCK, _LOGITS_PER_WARP = 8192, 1024  # as for the scores of tokens
_VOCAB_PARTS = 4  # of the weights' gradient: programs per row


def reach_vertices(
    emissions: Float[Tensor, "B T L"], links: Float[Tensor, "B L L"], num_vertices: Int[Tensor, " B"]
) -> Float[Tensor, "B N L"]:
    """Return the probability of each vertex to emit the next token, after each prefix of the target.

    `emissions` and `links` are those of `graph_log_likelihood`. Rows after the end of a target mean nothing.
    """
    with torch.autocast(links.device.type, enabled=False):
        links = widen(links)
        hops = links.exp()
        said = mask_emissions(widen(emissions), num_vertices).clamp(min=_UNLIKELY)
        reached = [hops[:, 0]]
        for i in range(emissions.shape[1]):
            possible = reached[-1] > 0
            scores = torch.where(possible, reached[-1], 1).log() + said[:, i]
            here = scores.masked_fill(~possible, _UNLIKELY).softmax(-1)
            reached.append((here[:, None] @ hops)[:, 0])
        return torch.stack(reached, 1)


def next_token_divergence(
    logits: Float[Tensor, "R L V"],
    reached: Float[Tensor, "R N L"],
    num_vertices: Int[Tensor, " R"],
    silent: tuple[int, ...],
    eos: int,
) -> Float[Tensor, "B N"]:
    """Return (KL(p ‖ q) + KL(q ‖ p)) / 2 of the next token between row b and row B + b, after each prefix.

    Tokens in `silent` have probability 0 at every vertex; `eos` is one of them.
    """
    inner = mask_emissions(torch.zeros_like(reached[:, :1]), num_vertices) == 0
    last = (num_vertices - 1)[:, None, None].expand(-1, reached.shape[1], 1)
    ends = reached.gather(2, last)[..., 0]
    with torch.autocast(logits.device.type, enabled=False):
        compute = _KernelNextTokenDivergence if _has_kernel(logits, reached) else _NextTokenDivergence
        result: Tensor = compute.apply(logits, reached * inner, ends, silent, eos)
    return result


class _NextTokenDivergence(torch.autograd.Function):
    """Keeps only the logits. The probabilities of a few sentences at a time are computed again for the gradient."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, reached: Tensor, ends: Tensor, silent: tuple[int, ...], eos: int) -> Tensor:
        impossible = impossible_tokens(logits, silent)
        ctx.save_for_backward(logits, reached, ends, impossible)
        ctx.eos = eos
        found = []
        for part in split_sentences(logits.chunk(2)[0]):
            p, q = (mixed for _, mixed in _mix_passes(logits, reached, ends, impossible, eos, part))
            found.append(((p - q) * (_log(p) - _log(q))).sum(-1) / 2)
        return torch.cat(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        logits, reached, ends, impossible = ctx.saved_tensors
        grads = torch.empty_like(logits), torch.empty_like(reached), torch.empty_like(ends)
        for part in split_sentences(logits.chunk(2)[0]):
            said, mixed = zip(*_mix_passes(logits, reached, ends, impossible, ctx.eos, part), strict=True)
            difference = _log(mixed[0]) - _log(mixed[1])
            for number, sign in enumerate((1, -1)):
                ratio = (mixed[1 - number] / mixed[number].clamp(min=_tiny(difference))).masked_fill(
                    mixed[number] == 0, 1
                )
                into_mixed = grad[part, :, None] / 2 * (sign * difference + 1 - ratio)
                into_logits, into_reached, into_ends = (each.chunk(2)[number] for each in grads)
                into_ends[part] = into_mixed[..., ctx.eos]
                into_reached[part] = into_mixed @ said[number].transpose(1, 2)
                into_said = reached.chunk(2)[number][part].transpose(1, 2) @ into_mixed
                into_said -= (into_said * said[number]).sum(-1, keepdim=True)
                into_logits[part] = into_said * said[number]
        return *grads, None, None


class _KernelNextTokenDivergence(torch.autograd.Function):
    """The same on a GPU, without probabilities of the vocabulary in memory."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, reached: Tensor, ends: Tensor, silent: tuple[int, ...], eos: int) -> Tensor:
        from attendo.nn.graph_next_tokens_triton import next_token_kernel, total_kernel

        logits, reached, ends = logits.contiguous(), reached.contiguous(), ends.contiguous()
        rows, vertices, vocab_size = logits.shape
        steps, totals = reached.shape[1], reached.new_empty((rows, vertices))
        block = min(_MAX_TOTAL_BLOCK, next_power_of_2(vocab_size))
        sizes = {"vocab_size": vocab_size, "silent": silent}
        launch(
            total_kernel,
            (vertices, rows),
            *(logits, totals, vertices),
            **sizes,
            vocab_block=block,
            num_warps=max(1, block // _LOGITS_PER_WARP),
        )
        ctx.sizes = {**sizes, "eos": eos, **_kernel_sizes(logits, steps)}
        ctx.block = max(16, min(64, _SAID_NUMBERS // ctx.sizes["size"]))
        blocks = -(-vocab_size // ctx.block)
        parts = reached.new_empty((rows // 2, blocks, steps))
        launch(
            next_token_kernel,
            (blocks, rows // 2),
            *(logits, totals, reached, ends, parts, rows // 2, steps, vertices),
            **ctx.sizes,
            vocab_block=ctx.block,
        )
        ctx.save_for_backward(logits, totals, reached, ends)
        return parts.sum(1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        from attendo.nn.graph_next_tokens_triton import logit_grad_kernel, weight_grad_kernel

        logits, totals, reached, ends = ctx.saved_tensors
        rows, steps, vertices = reached.shape
        half = max(16, ctx.block // 2)  # the weights' gradient needs more registers
        blocks, halves = (-(-logits.shape[2] // each) for each in (ctx.block, half))
        parts = min(_VOCAB_PARTS, halves)
        given = (logits, totals, reached, ends, grad.contiguous())
        lengths = (rows // 2, steps, vertices)
        grad_reached = reached.new_empty((rows, parts, steps, vertices))
        grad_ends, shares = reached.new_empty((rows, parts, steps)), reached.new_empty((rows, parts, vertices))
        launch(
            weight_grad_kernel,
            (parts, rows),
            *(*given, grad_reached, grad_ends, shares, *lengths, -(-halves // parts)),
            **ctx.sizes,
            vocab_block=half,
        )
        grad_logits = torch.empty_like(logits)
        launch(
            logit_grad_kernel,
            (blocks, rows),
            *(*given, shares.sum(1), grad_logits, *lengths),
            **ctx.sizes,
            vocab_block=ctx.block,
        )
        return grad_logits, grad_reached.sum(1), grad_ends.sum(1), None, None


def _has_kernel(logits: Float[Tensor, "R L V"], reached: Float[Tensor, "R N L"]) -> bool:
    """Return whether the kernels compute this: the probabilities of all vertices must fit into registers."""
    steps, size = (next_power_of_2(each) for each in reached.shape[1:])
    return triton_launch.runs_kernels(logits) and steps * size <= _MAX_VERTEX_NUMBERS


def _kernel_sizes(logits: Tensor, steps: int) -> dict[str, Any]:
    blocks = {"steps": next_power_of_2(steps), "size": next_power_of_2(logits.shape[1])}
    # With 4 warps, a thread needs more registers than it has. But with 8, Triton 3.6 computes wrong gradients in TF32
    # for 64 prefixes and 128 vertices on an H200.
    warps = 4 if blocks == {"steps": 64, "size": 128} else 8
    return {**blocks, "precision": "ieee" if logits.dtype == torch.float32 else "tf32", "num_warps": warps}


def _mix_passes(
    logits: Tensor, reached: Tensor, ends: Tensor, impossible: Tensor, eos: int, part: slice
) -> list[tuple[Float[Tensor, "C L V"], Float[Tensor, "C N V"]]]:
    """Return the probabilities at every vertex and those of the next token, of the sentences `part` in both passes."""
    found = []
    for scores, weights, end in zip(logits.chunk(2), reached.chunk(2), ends.chunk(2), strict=True):
        said = (widen(scores[part]) + impossible).softmax(-1)
        mixed = weights[part] @ said
        mixed[..., eos] = end[part]
        found.append((said, mixed))
    return found


def _log(probabilities: Tensor) -> Tensor:
    return probabilities.clamp(min=_tiny(probabilities)).log()


def _tiny(like: Tensor) -> float:
    return torch.finfo(like.dtype).tiny
