"""Writing: choose a token, append it, ask again. Greedy, by beam, and by chance."""

from collections.abc import Callable

import torch
from loss import BOS, EOS, PAD
from torch import Tensor
from transformer import Transformer

Chooser = Callable[[Tensor], Tensor]


def argmax(logits: Tensor) -> Tensor:
    """The most probable token of each row [B, V]: greedy search."""
    return logits.argmax(-1)


def sampler(temperature: float, seed: int) -> Chooser:
    """A chooser that draws: the higher the temperature, the more equal the chances."""
    generator = torch.Generator().manual_seed(seed)
    return lambda logits: torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)[:, 0]


@torch.no_grad()
def generate(model: Transformer, source: Tensor, max_new: int, choose: Chooser = argmax) -> list[list[int]]:
    """At most `max_new` tokens for each row of the source [B, S]; EOS ends a row and is not part of it."""
    memory, _ = model.encoder(source)  # once, however long the answer
    target = torch.full_like(source[:, :1], BOS)
    ended = torch.zeros_like(target[:, 0], dtype=torch.bool)
    for _ in range(max_new):
        chosen = choose(next_logits(model, target, source, memory)).masked_fill(ended, PAD)
        target = torch.cat((target, chosen[:, None]), dim=1)
        ended |= chosen == EOS
        if ended.all():
            break
    return [[n for n in row if n not in (BOS, EOS, PAD)] for row in target.tolist()]


@torch.no_grad()
def beam_search(model: Transformer, source: Tensor, width: int, max_new: int) -> list[tuple[float, list[int]]]:
    """The finished sentences for one source [1, S], best first, each with log p / length.

    Every step adds log-probabilities, keeps the `width` best that go on, and sets those aside that end. It stops when
    `width` have ended. The length counts the EOS, which has been paid for too.
    """
    memory, _ = model.encoder(source)
    alive, finished = [(0.0, [BOS])], []
    for _ in range(max_new):
        rows = source.new_tensor([ids for _, ids in alive])
        sources, memories = source.expand(len(rows), -1), memory.expand(len(rows), -1, -1)
        log_p = next_logits(model, rows, sources, memories).log_softmax(-1)
        totals = (log_p + log_p.new_tensor([score for score, _ in alive])[:, None]).flatten()
        best = totals.topk(min(2 * width, totals.numel()))
        grown = []
        for score, place in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            row, token = divmod(place, log_p.size(1))
            grown.append((score, [*alive[row][1], token]))
        finished += [(score / (len(ids) - 1), ids[1:-1]) for score, ids in grown[:width] if ids[-1] == EOS]
        alive = [(score, ids) for score, ids in grown if ids[-1] != EOS][:width]
        if len(finished) >= width:
            break
    return sorted(finished, reverse=True)


def next_logits(model: Transformer, target: Tensor, source: Tensor, memory: Tensor) -> Tensor:
    """[B, V]: what may follow the last token. Padding and a second beginning may not."""
    hidden, _, _ = model.decoder(target, source, memory)
    logits = model.projection(hidden[:, -1])
    logits[:, [PAD, BOS]] = float("-inf")
    return logits
