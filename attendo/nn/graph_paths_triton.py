"""Triton kernels for the sum over the paths of a graph and for the best path. `graph_paths.py` launches them.

A program computes one sentence. The scores of its vertices stay in registers from token to token. Only the hops of
`block` vertices are in registers at a time, so a graph may have any size. Hops that lead nowhere are not read: those
backward and those to vertices that emit no token.
"""

import triton
import triton.language as tl


@triton.jit
def _take_block(scores, number, size: tl.constexpr, block: tl.constexpr):
    """Return `scores[number * block : (number + 1) * block]` of a vector in registers."""
    chosen = tl.arange(0, size // block)[:, None] == number
    return tl.sum(tl.where(chosen, tl.reshape(scores, [size // block, block]), 0.0), axis=0)


@triton.jit
def _load_hops(links, start, end, width, last, backward: tl.constexpr):
    """Load [start, end]: the hops to the inner vertices, which are `end`, or `start` if backward."""
    start, end = start[:, None], end[None, :]
    used = (end < start) & (start < last) if backward else (start < end) & (end < last)
    return tl.load(links + start * width + end, mask=used, other=float("-inf"))


@triton.jit
def _sum_hops(scores, links, width, last, backward: tl.constexpr, size: tl.constexpr, block: tl.constexpr):
    """Return the log of the sum over the previous vertices of each one.

    With `backward` over the next ones: `links[v, u]` is then the hop from u to v, so that a warp reads adjacent numbers
    and a thread adds its own.
    """
    end = tl.arange(0, size)
    top, total = tl.full([size], float("-inf"), tl.float32), tl.zeros([size], tl.float32)
    for first in range(0, last, block):
        links_here = _load_hops(links, first + tl.arange(0, block), end, width, last, backward)
        here = _take_block(scores, first // block, size, block)[:, None] + links_here
        highest = tl.maximum(top, tl.max(here, axis=0))
        level = tl.where(highest == float("-inf"), 0.0, highest)  # -inf - -inf is NaN
        total = total * tl.exp(top - level) + tl.sum(tl.exp(here - level[None, :]), axis=0)
        top = highest
    return tl.log(total) + tl.where(top == float("-inf"), 0.0, top)


@triton.jit
def _best_hops(scores, links, width, last, size: tl.constexpr, block: tl.constexpr):
    """Return the highest score of each vertex and the vertex before it, the first one of equal scores."""
    end = tl.arange(0, size)
    top, previous = tl.full([size], float("-inf"), tl.float32), tl.zeros([size], tl.int32)
    for first in range(0, last, block):
        links_here = _load_hops(links, first + tl.arange(0, block), end, width, last, False)
        here = _take_block(scores, first // block, size, block)[:, None] + links_here
        highest, which = tl.max(here, axis=0, return_indices=True)
        previous = tl.where(highest > top, first + which, previous)
        top = tl.maximum(top, highest)
    return top, previous


@triton.jit
def _load_ends(links, vertex, width, last):
    """Load the hops to the last vertex."""
    return tl.load(links + vertex * width + last, mask=vertex < last, other=float("-inf"))


@triton.jit(do_not_specialize=["max_tokens", "width", "emission_sentence", "emission_token", "emission_vertex"])
def sum_kernel(
    emissions,  # [B, T, L]
    links,  # [B, L, L]
    num_tokens,  # [B]
    num_vertices,  # [B]
    scores,  # [B, T + 1, L], an output: the sum over the paths to each vertex, before and after each token
    totals,  # [B], an output
    max_tokens,  # T
    width,  # L
    emission_sentence,  # strides
    emission_token,
    emission_vertex,
    size: tl.constexpr,  # a power of 2, at least L
    block: tl.constexpr,
):
    sentence = tl.program_id(0).to(tl.int64)
    tokens, last = tl.load(num_tokens + sentence), (tl.load(num_vertices + sentence) - 1).to(tl.int32)
    links, emissions = links + sentence * width * width, emissions + sentence * emission_sentence
    scores += sentence * (max_tokens + 1) * width
    vertex = tl.arange(0, size)
    inner = (vertex > 0) & (vertex < last)
    here = tl.where(vertex == 0, 0.0, float("-inf"))
    tl.store(scores + vertex, here, mask=vertex < width)
    for i in range(tokens):
        at = emissions + i * emission_token + vertex * emission_vertex
        said = tl.load(at, mask=inner, other=float("-inf"))
        here = _sum_hops(here, links, width, last, False, size, block) + said
        tl.store(scores + (i + 1) * width + vertex, here, mask=vertex < width)
    here += _load_ends(links, vertex, width, last)
    top = tl.max(here, axis=0)
    level = tl.where(top == float("-inf"), 0.0, top)
    tl.store(totals + sentence, tl.log(tl.sum(tl.exp(here - level), axis=0)) + level)


@triton.jit(do_not_specialize=["max_tokens", "width", "emission_sentence", "emission_token", "emission_vertex"])
def posterior_kernel(
    emissions,  # [B, T, L]
    reverse_links,  # [B, L, L], [v, u] is the hop from u to v
    num_tokens,  # [B]
    num_vertices,  # [B]
    scores,  # [B, T + 1, L]
    totals,  # [B]
    grad_totals,  # [B]
    following,  # [B, T, L], an output: token i at each vertex and all that follows, for `link_kernel`
    grad_emissions,  # [B, T, L], an output that is 0
    max_tokens,
    width,
    emission_sentence,
    emission_token,
    emission_vertex,
    size: tl.constexpr,
    block: tl.constexpr,
):
    sentence = tl.program_id(0).to(tl.int64)
    tokens, last = tl.load(num_tokens + sentence), (tl.load(num_vertices + sentence) - 1).to(tl.int32)
    total, scale = tl.load(totals + sentence), tl.load(grad_totals + sentence)
    reverse_links += sentence * width * width
    emissions += sentence * emission_sentence
    scores += sentence * (max_tokens + 1) * width
    following += sentence * max_tokens * width
    grad_emissions += sentence * max_tokens * width
    vertex = tl.arange(0, size)
    inner = (vertex > 0) & (vertex < last)
    here = tl.load(reverse_links + last * width + vertex, mask=vertex < last, other=float("-inf"))
    for step in range(tl.where(total > float("-inf"), tokens, 0)):
        i = tokens - 1 - step
        before = tl.load(scores + (i + 1) * width + vertex, mask=vertex < width, other=float("-inf"))
        tl.store(grad_emissions + i * width + vertex, tl.exp(before + here - total) * scale, mask=vertex < width)
        at = emissions + i * emission_token + vertex * emission_vertex
        here += tl.load(at, mask=inner, other=float("-inf"))
        tl.store(following + i * width + vertex, here, mask=vertex < width)
        here = _sum_hops(here, reverse_links, width, last, True, size, block)


@triton.jit(do_not_specialize=["max_tokens", "width"])
def link_kernel(
    links,  # [B, L, L]
    num_tokens,  # [B]
    num_vertices,  # [B]
    scores,  # [B, T + 1, L]
    totals,  # [B]
    grad_totals,  # [B]
    following,  # [B, T, L]
    grad_links,  # [B, L, L], the output
    max_tokens,
    width,
    block: tl.constexpr,
):
    """Compute a block of hops of one sentence: the sum of their probabilities over the tokens."""
    sentence = tl.program_id(2).to(tl.int64)
    tokens, last = tl.load(num_tokens + sentence), (tl.load(num_vertices + sentence) - 1).to(tl.int32)
    total, scale = tl.load(totals + sentence), tl.load(grad_totals + sentence)
    scores += sentence * (max_tokens + 1) * width
    following += sentence * max_tokens * width
    start = tl.program_id(1) * block + tl.arange(0, block)
    end = tl.program_id(0) * block + tl.arange(0, block)
    at = sentence * width * width + start[:, None] * width + end[None, :]
    forward = (start[:, None] < end[None, :]) & (end < width)[None, :]
    fits = total > float("-inf")
    hops = tl.load(links + at, mask=forward, other=float("-inf")) - tl.where(fits, total, 0.0)
    ends = tl.load(scores + tokens * width + start, mask=start < width, other=float("-inf"))
    found = tl.where((end == last)[None, :], tl.exp(ends[:, None] + hops), 0.0)
    steps = tl.where(fits & (tl.program_id(0) >= tl.program_id(1)), tokens, 0)  # none for hops backward
    for i in range(steps):
        before = tl.load(scores + i * width + start, mask=start < width, other=float("-inf"))
        after = tl.load(following + i * width + end, mask=end < width, other=float("-inf"))
        found += tl.exp(before[:, None] + (hops + after[None, :]))
    tl.store(grad_links + at, found * scale, mask=(start < width)[:, None] & (end < width)[None, :])


@triton.jit(do_not_specialize=["max_tokens", "width", "emission_sentence", "emission_token", "emission_vertex"])
def align_kernel(
    emissions,  # [B, T, L]
    links,  # [B, L, L]
    num_tokens,  # [B]
    num_vertices,  # [B]
    best_previous,  # [B, T, L], a buffer: the vertex before each vertex
    path,  # [B, T], an output that is 0
    max_tokens,
    width,
    emission_sentence,
    emission_token,
    emission_vertex,
    size: tl.constexpr,
    block: tl.constexpr,
):
    sentence = tl.program_id(0).to(tl.int64)
    tokens, last = tl.load(num_tokens + sentence), (tl.load(num_vertices + sentence) - 1).to(tl.int32)
    links, emissions = links + sentence * width * width, emissions + sentence * emission_sentence
    best_previous, path = best_previous + sentence * max_tokens * width, path + sentence * max_tokens
    vertex = tl.arange(0, size)
    inner = (vertex > 0) & (vertex < last)
    here = tl.where(vertex == 0, 0.0, float("-inf"))
    for i in range(tokens):
        here, previous = _best_hops(here, links, width, last, size, block)
        at = emissions + i * emission_token + vertex * emission_vertex
        here += tl.load(at, mask=inner, other=float("-inf"))
        tl.store(best_previous + i * width + vertex, previous, mask=vertex < width)
    chosen = tl.argmax(here + _load_ends(links, vertex, width, last), axis=0)
    tl.debug_barrier()  # every thread reads what other threads have stored
    for step in range(tokens):
        i = tokens - 1 - step
        tl.store(path + i, chosen)
        chosen = tl.load(best_previous + i * width + chosen)
