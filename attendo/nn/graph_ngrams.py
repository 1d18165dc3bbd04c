"""Expected matches between the bigrams of a graph's outputs and those of the target (FA-DAT, Ma et al., 2023).

An output follows a random path from vertex 0 to the last vertex, and every inner vertex emits a random token. Bigrams
have boundaries: a target of T tokens has T + 1, from (BOS, first token) to (last token, EOS). The expected number of a
bigram (a, b) in an output is

    sum over v < u of visit[v] · P(a at v) · P(hop from v to u) · P(b at u)

The visits need log2(L) products of [L, L] matrices, the rest one product. Nothing here waits for the device.

B batch, T target tokens without EOS, L vertices, at least 2 per graph.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.nn.graph_paths import mask_emissions, visit_probabilities
from attendo.nn.token_scores import NEVER, widen

_BOS, _EOS = -1, -2  # ids of the boundaries, which are no tokens of the target


def bigram_score(
    emissions: Float[Tensor, "B T L"],
    links: Float[Tensor, "B L L"],
    ids: Int[Tensor, "B T"],
    num_tokens: Int[Tensor, " B"],
    num_vertices: Int[Tensor, " B"],
) -> Float[Tensor, " B"]:
    """Return expected bigram precision · brevity penalty, from 0 to 1. Arguments as in `match_bigrams`."""
    matched, hops = match_bigrams(emissions, links, ids, num_tokens, num_vertices)
    brevity_penalty = (1 - (num_tokens + 1) / hops).clamp(max=0).exp()
    return brevity_penalty * matched / hops


def match_bigrams(
    emissions: Float[Tensor, "B T L"],
    links: Float[Tensor, "B L L"],
    ids: Int[Tensor, "B T"],
    num_tokens: Int[Tensor, " B"],
    num_vertices: Int[Tensor, " B"],
) -> tuple[Float[Tensor, " B"], Float[Tensor, " B"]]:
    """Return the bigrams of an output that match the target, and all bigrams of an output, both as expected numbers.

    `emissions` and `links` are those of `graph_log_likelihood`, and `ids` the target's tokens. A bigram matches at most
    as often as the target has it. As in the paper, this limits the expected number. The expectation of the limited
    number would need a sum over all outputs.
    """
    with torch.autocast(links.device.type, enabled=False):
        links = widen(links)
        visits = visit_probabilities(links)
        expected = _count_bigrams(widen(emissions), links.exp(), visits, num_tokens, num_vertices)
        count = _count_in_target(ids, num_tokens)
        matched = (torch.minimum(expected, count) / count).sum(-1)  # equal bigrams of the target count once
        return matched, visits.sum(-1) - 1


def _count_bigrams(
    emissions: Float[Tensor, "B T L"],
    hops: Float[Tensor, "B L L"],
    visits: Float[Tensor, "B L"],
    num_tokens: Int[Tensor, " B"],
    num_vertices: Int[Tensor, " B"],
) -> Float[Tensor, "B N"]:
    """Return the expected number of each of the N = T + 1 bigrams of the target; 0 for padding."""
    batch, tokens, vertices = emissions.shape
    token, vertex = _range(tokens + 1, hops), _range(vertices, hops)
    says_eos = (vertex == (num_vertices - 1)[:, None])[:, None].to(hops.dtype)  # [B, 1, L]
    says_bos = (vertex == 0).to(hops.dtype).expand(batch, 1, -1)
    # Mask before `exp`: the scores of padding mean nothing, and may be large.
    said = mask_emissions(emissions, num_vertices).masked_fill((token[:-1] >= num_tokens[:, None])[..., None], NEVER)
    said = said.exp()
    first = torch.cat((says_bos, said), 1)  # [B, N, L]: the probability of each bigram's first part at each vertex
    second = torch.cat((said, torch.zeros_like(says_bos)), 1)
    second = torch.where((token == num_tokens[:, None])[..., None], says_eos, second)
    return ((first * visits[:, None]) @ hops * second).sum(-1)


def _count_in_target(ids: Int[Tensor, "B T"], num_tokens: Int[Tensor, " B"]) -> Int[Tensor, "B N"]:
    """Return how often the target has each of its bigrams; 1 for padding."""
    token = _range(ids.shape[1] + 1, ids)
    boundary = torch.full_like(num_tokens, _BOS, dtype=ids.dtype)[:, None]
    first = torch.cat((boundary, ids), 1)
    second = torch.cat((ids, boundary), 1).masked_fill(token == num_tokens[:, None], _EOS)
    is_inside: Bool[Tensor, "B N"] = token <= num_tokens[:, None]
    equal = (first[:, :, None] == first[:, None]) & (second[:, :, None] == second[:, None]) & is_inside[:, None]
    return equal.sum(-1).clamp(min=1)


def _range(size: int, like: Tensor) -> Int[Tensor, " N"]:
    return torch.arange(size, device=like.device)
