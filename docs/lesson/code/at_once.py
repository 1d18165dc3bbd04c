"""All tokens at once, on the smallest task with two answers: a target is "A B" or "B A", each half of the time."""

import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

A, B, MASK = 0, 1, 2
ANSWERS = ((A, B), (B, A))
Probability = Callable[[Sequence[int]], Tensor]


def fit(parameters: list[Tensor], loss: Callable[[], Tensor], steps: int = 140) -> float:
    """Minimise a loss and return its last value."""
    optimizer = torch.optim.Adam(parameters, lr=0.3)
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
    return value.item()


def mean_loss(probability: Probability) -> Callable[[], Tensor]:
    """-log p, averaged over the two answers. No model can be better than log 2 = 0.693."""
    return lambda: -torch.stack([probability(answer).log() for answer in ANSWERS]).mean()


def independent(logits: Tensor) -> Probability:
    """One distribution per position [T, V]: no position knows what another one says."""
    return lambda said: logits.softmax(-1)[range(len(said)), list(said)].prod()


def step_by_step(first: Tensor, second: Tensor) -> Probability:
    """Logits of the first token [V], and of the second one given the first [V, V]."""
    return lambda said: first.softmax(-1)[said[0]] * second.softmax(-1)[said[0], said[1]]


def masked_loss(logits: Tensor) -> Callable[[], Tensor]:
    """Logits [position, what the other position holds: A, B or MASK, V]. Both tokens are hidden, or one of them."""

    def loss() -> Tensor:
        log_p, total = logits.log_softmax(-1), torch.zeros(())
        for answer, place in itertools.product(ANSWERS, (0, 1)):
            for other in (MASK, answer[1 - place]):
                total = total - log_p[place, other, answer[place]]
        return total / 8

    return loss


def merge(row: Sequence[int], blank: int) -> tuple[int, ...]:
    """Merge runs of the same token, then drop the blanks."""
    return tuple(token for token, _ in itertools.groupby(row) if token != blank)


def ctc(logits: Tensor) -> Probability:
    """Logits [L, V + 1] of more positions than tokens; the last column is the blank. Sum over all rows."""
    blank = logits.size(1) - 1
    rows: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for row in itertools.product(range(blank + 1), repeat=len(logits)):
        rows.setdefault(merge(row, blank), []).append(row)

    def probability(said: Sequence[int]) -> Tensor:
        found = torch.tensor(rows.get(tuple(said), []), dtype=torch.long).view(-1, len(logits))
        return logits.softmax(-1)[range(len(logits)), found].prod(-1).sum()

    return probability


def graph(tokens: Tensor, links: Tensor) -> Probability:
    """Logits [L, V] of the token of each vertex, and [L, L] of the next vertex. The first and the last say nothing.

    `reached[v]`: the probability that a path has said the tokens so far and is at vertex v.
    """

    def probability(said: Sequence[int]) -> Tensor:
        hops, emits = hop_probabilities(links), tokens.softmax(-1)
        reached = torch.eye(len(links))[0]
        for token in said:
            reached = (reached @ hops) * emits[:, token]
            reached = reached * torch.tensor([0.0, *[1.0] * (len(links) - 2), 0.0])
        return (reached @ hops)[-1]

    return probability


def hop_probabilities(links: Tensor) -> Tensor:
    """[L, L]: a softmax over the later vertices. The last vertex has none."""
    earlier = torch.ones_like(links, dtype=torch.bool).tril()
    hops = links.masked_fill(earlier, float("-inf"))[:-1].softmax(-1)
    return torch.cat((hops, torch.zeros_like(links[:1])))


def start(*shape: int, seed: int) -> Tensor:
    """Random parameters to begin with."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()
