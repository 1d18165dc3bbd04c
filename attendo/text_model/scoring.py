"""Given targets, scored token by token."""

from collections.abc import Sequence

import torch

from attendo.data.batch import Example, collate
from attendo.text import EOS, Tokenizer
from attendo.text_model.grouping import of_like_length
from attendo.text_model.networks import Reader
from attendo.text_model.results import ScoredTarget

_POSITIONS = 1024  # of a batch: for each there is a number for every token of the vocabulary


@torch.inference_mode()
def scored(pairs: Sequence[Example], reader: Reader, device: torch.device, tokenizer: Tokenizer) -> list[ScoredTarget]:
    """In the order given."""
    found: dict[int, ScoredTarget] = {}
    for group in of_like_length([pair.length for pair in pairs], _POSITIONS):
        batch = collate([pairs[number] for number in group]).to(device)
        state = reader.start(reader.encode(batch.source_ids, batch.source_mask))
        logits, _ = reader.step(batch.target_ids, state)
        each = logits.float().log_softmax(-1).gather(-1, batch.labels[..., None])[..., 0].cpu()
        for row, number in enumerate(group):
            ids = [*pairs[number].target, EOS]
            found[number] = ScoredTarget(tuple(tokenizer.pieces(ids)), tuple(each[row, : len(ids)].tolist()))
    return [found[number] for number in range(len(pairs))]
