"""What the network expected at each place of an answer."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.text import EOS, Tokenizer

TOP = 10


def predictions(
    logits: Float[Tensor, "T V"], predicted: Sequence[int], tokenizer: Tokenizer, count: int = TOP
) -> list[dict[str, Any]]:
    """Of each token that stands there, and the most probable ones beside it. Entropy is in nats."""
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
