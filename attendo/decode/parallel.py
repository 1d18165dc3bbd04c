"""Decoding of the networks that predict all tokens at once: token ids from one or a few passes."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.model.decoder_state import Memory
from attendo.model.parallel import LENGTH_CLASSES, Canvas, ParallelTransformer
from attendo.nn.alignments import decode_joint_viterbi, follow_path
from attendo.text import BOS, EOS, PAD


def decode_graph(
    network: ParallelTransformer, memory: Memory, canvas: Canvas, method: str = "lookahead", length_penalty: float = 1.0
) -> list[list[int]]:
    """Decode the best path: greedy, lookahead or viterbi (joint Viterbi)."""
    prediction = network.predict(memory, canvas)
    links = prediction.links
    assert links is not None
    log_probs, ids = _best_tokens(prediction.logits, [PAD, BOS, EOS])
    size, last = links.size(1), (canvas.lengths - 1)[:, None]
    if method == "viterbi":
        most = max(1, 2 * size // network.upsample)
        chosen = decode_joint_viterbi(log_probs, links, canvas.lengths, most, length_penalty)
    else:
        position = torch.arange(size, device=links.device)
        scores = links
        if method == "lookahead":
            scores = links + log_probs.masked_fill(position == last, 0)[:, None, :]
        successors = torch.where(position < last, scores.argmax(-1), position)
        chosen = follow_path(successors) & (position > 0) & (position < last)
    return _collect(ids, chosen)


def decode_ctc(network: ParallelTransformer, memory: Memory, canvas: Canvas) -> list[list[int]]:
    """Take the best token of every position, merge runs and drop blanks."""
    _, ids = _best_tokens(network.predict(memory, canvas).logits, [BOS, EOS])
    starts = torch.ones_like(ids, dtype=torch.bool)
    starts[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return _collect(ids, starts & (ids != PAD) & canvas.mask)


def decode_masked(
    network: ParallelTransformer, memory: Memory, source_lengths: Int[Tensor, " B"], passes: int = 10, lengths: int = 5
) -> list[list[int]]:
    """Mask-predict (Ghazvininejad et al., 2019): predict all, then the least confident tokens again, `passes` times."""
    length_logits = network._predict_lengths(memory)
    assert length_logits is not None
    classes = length_logits.topk(lengths, -1).indices - LENGTH_CLASSES // 2
    sizes = (source_lengths[:, None] + classes).clamp(min=1).flatten()
    rows = Memory(
        memory.states.repeat_interleave(lengths, 0),
        None if memory.mask is None else memory.mask.repeat_interleave(lengths, 0),
    )
    inside = torch.arange(int(sizes.max()), device=sizes.device) < sizes[:, None]
    ids, confidence = torch.zeros_like(inside, dtype=torch.long), torch.ones_like(inside, dtype=torch.float)
    for number in range(passes):
        count = sizes if number == 0 else (sizes * (passes - number) // passes).clamp(min=1)
        ranks = confidence.masked_fill(~inside, 2).argsort(-1).argsort(-1)
        hidden = (ranks < count[:, None]) & inside
        log_probs, found = _best_tokens(
            network.predict(rows, Canvas(ids, inside & ~hidden, inside)).logits, [PAD, BOS, EOS]
        )
        ids, confidence = torch.where(hidden, found, ids), torch.where(hidden, log_probs.exp(), confidence)
    score = (confidence.log() * inside).sum(-1) / sizes
    best = score.view(-1, lengths).argmax(-1) + torch.arange(len(source_lengths), device=sizes.device) * lengths
    return _collect(ids[best], inside[best])


def _best_tokens(logits: Float[Tensor, "B L V"], silent: list[int]) -> tuple[Float[Tensor, "B L"], Int[Tensor, "B L"]]:
    scores = logits.float()
    scores[..., silent] = float("-inf")
    best, ids = scores.max(-1)
    return best - scores.logsumexp(-1), ids


def _collect(ids: Int[Tensor, "B L"], chosen: Bool[Tensor, "B L"]) -> list[list[int]]:
    return [
        [token for token, keep in zip(*row, strict=True) if keep]
        for row in zip(ids.tolist(), chosen.tolist(), strict=True)
    ]
