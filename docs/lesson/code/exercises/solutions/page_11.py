"""Solutions of page 11."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Model = Callable[[list[int]], list[float]]


def greedy(model: Model, bos: int, eos: int, max_new: int) -> list[int]:
    """`model` takes the prefix from BOS and gives the probability of each next token."""
    ids = [bos]
    for _ in range(max_new):
        p = model(ids)
        token = max(range(len(p)), key=p.__getitem__)
        if token == eos:
            break
        ids.append(token)
    return ids[1:]


def beam(model: Model, bos: int, eos: int, width: int, max_new: int) -> tuple[list[int], float]:
    """The finished sentence with the largest sum of log-probabilities, without BOS and EOS, and this sum."""
    alive, finished = [([bos], 0.0)], []
    for _ in range(max_new):
        grown = [
            ([*ids, token], score + math.log(p)) for ids, score in alive for token, p in enumerate(model(ids)) if p > 0
        ]
        best = sorted(grown, key=lambda each: -each[1])[:width]
        finished += [(ids[1:-1], score) for ids, score in best if ids[-1] == eos]
        alive = [(ids, score) for ids, score in best if ids[-1] != eos]
    return max(finished, key=lambda each: each[1])


def top_p(probabilities: Tensor, p: float) -> Tensor:
    """[V]: the fewest most probable tokens that reach p together, renormalised; the others are 0."""
    ordered, places = probabilities.sort(descending=True)
    keep = ordered.cumsum(0) - ordered < p  # what stands before has not reached p
    kept = torch.zeros_like(probabilities).scatter(0, places, ordered * keep)
    return kept / kept.sum()
