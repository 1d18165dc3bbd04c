"""Token pieces for the explorer: grouping into words, prefix ids, predicted probabilities."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.serve.http.errors import ApiError
from attendo.text import BOS, CONTROL_PIECES, EOS, PAD, UNK, Tokenizer
from attendo.text.scripts import is_unspaced

Ids = Sequence[int]
_WORD_LEVEL_TOKENIZERS = ("words", "spaced", "characters", "decomposed")  # their pieces are not joined into words
TOP_TOKENS = 10


def group_words(tokenizer: Tokenizer, ids: Ids) -> list[list[int]]:
    """Return the indices of the pieces of each word. A word begins at a space.

    Each character of a script without spaces is a word, as are control tokens and symbols.
    """
    groups: list[list[int]] = []
    joinable = False
    for index, token in enumerate(ids):
        alone = tokenizer.kind in _WORD_LEVEL_TOKENIZERS or token <= EOS + len(tokenizer.symbols)
        if joinable and not alone and not _begins_word(tokenizer, ids[:index], token):
            groups[-1].append(index)
        else:
            groups.append([index])
        joinable = not alone
    return groups


def _begins_word(tokenizer: Tokenizer, previous: Ids, token: int) -> bool:
    """Return whether the token's text begins with a space or with a character of a script without spaces."""
    nearest = previous[-4:]  # enough for a character split into bytes
    text, longer = tokenizer.decode(nearest), tokenizer.decode([*nearest, token])
    new = longer[len(text) :] if longer.startswith(text) else ""
    return new[:1].isspace() or (new[:1] != "" and is_unspaced(new[0]))


def resolve_prefix_ids(
    prefix: Sequence[str | int], tokenizer: Tokenizer, log_probabilities: Callable[[list[int]], Sequence[float]]
) -> tuple[int, ...]:
    """Return the ids of a prefix. Only the last may be EOS. Of several ids with the same piece, use the most probable.

    `log_probabilities` returns the log-probability of every next token after some ids.
    """
    ids: list[int] = []
    by_label = _ids_by_label(tokenizer) if any(isinstance(piece, str) for piece in prefix) else {}
    for index, piece in enumerate(prefix):
        token = piece if isinstance(piece, int) else _resolve_piece(piece, ids, by_label, log_probabilities)
        if token >= tokenizer.vocab_size:
            raise ApiError("unknown_piece", piece=token)
        if token in (PAD, BOS) or (token == EOS and index < len(prefix) - 1):
            raise ApiError("forced_control", piece=CONTROL_PIECES[token], end=CONTROL_PIECES[EOS])
        ids.append(token)
    return tuple(ids)


def _resolve_piece(
    piece: str,
    previous: list[int],
    by_label: dict[str, tuple[int, ...]],
    log_probabilities: Callable[[list[int]], Sequence[float]],
) -> int:
    if piece in CONTROL_PIECES:
        return CONTROL_PIECES.index(piece)
    candidates = by_label.get(piece, ())
    if not candidates:
        raise ApiError("unknown_piece", piece=piece[:100])
    if len(candidates) == 1:
        return candidates[0]
    likely = log_probabilities(previous)
    return max(candidates, key=lambda token: likely[token])


def _ids_by_label(tokenizer: Tokenizer) -> dict[str, tuple[int, ...]]:
    """Return the ids of each piece that an output can contain."""
    ids_by_label: dict[str, tuple[int, ...]] = {}
    for token, piece in enumerate(tokenizer.pieces(range(tokenizer.vocab_size))):
        if token == UNK or token > EOS:
            ids_by_label[piece] = (*ids_by_label.get(piece, ()), token)
    return ids_by_label


def describe_predictions(
    logits: Float[Tensor, "T V"], predicted: Sequence[int], tokenizer: Tokenizer, count: int = TOP_TOKENS
) -> list[dict[str, Any]]:
    """Describe each predicted token and the `count` most probable tokens at its position. Entropy is in nats."""
    log_probs = logits.float().log_softmax(-1)
    probabilities = log_probs.exp()
    labels = torch.tensor(list(predicted), device=logits.device)[:, None]
    chosen = log_probs.gather(-1, labels)[:, 0].tolist()
    entropy = -torch.special.xlogy(probabilities, probabilities).sum(dim=-1)
    best = probabilities.topk(min(count, logits.size(-1)), dim=-1)
    columns = (
        tokenizer.pieces(predicted),
        predicted,
        chosen,
        probabilities.gather(-1, labels)[:, 0].tolist(),
        entropy.tolist(),
        probabilities[:, EOS].tolist(),
        best.indices.tolist(),
        best.values.tolist(),
    )
    return [
        {
            "piece": piece,
            "id": token,
            "log_probability": log_probability,
            "probability": probability,
            "entropy": nats,
            "eos": end,
            "top": [
                {"piece": name, "id": number, "probability": value}
                for name, number, value in zip(tokenizer.pieces(ids), ids, values, strict=True)
            ],
        }
        for piece, token, log_probability, probability, nats, end, ids, values in zip(*columns, strict=True)
    ]
