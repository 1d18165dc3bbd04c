"""A batch: sentences of token ids laid side by side, the target already shifted."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attendo.errors import UsageError
from attendo.text import BOS, EOS, PAD


@dataclass(frozen=True)
class Example:
    """One pair as ids, without control tokens."""

    source: Sequence[int]
    target: Sequence[int]

    @property
    def length(self) -> int:
        """Positions of the longer side in a batch, where a control token has joined it."""
        return max(len(self.source), len(self.target)) + 1


@dataclass(frozen=True)
class Batch:
    """Row by row: the source ends in eos; the target begins with bos; the labels are the target one step ahead.

        source  I love NLP </s>      target  <s> 我 爱 NLP      labels  我 爱 NLP </s>

    Short rows are filled with pad on the right. The mask is None where no source row is short.
    """

    source_ids: Int[Tensor, "B S"]
    source_mask: Bool[Tensor, "B S"] | None
    target_ids: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]

    @property
    def tokens(self) -> int:
        """Target tokens to be predicted: labels that are not padding."""
        return int((self.labels != PAD).sum())

    @property
    def positions(self) -> int:
        """All positions of both sides, padding included: what the batch costs."""
        return self.source_ids.numel() + self.target_ids.numel()

    def to(self, device: torch.device | str) -> "Batch":
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: t.to(device, non_blocking=True) for name, t in moved.items() if t is not None})


def collate(examples: Sequence[Example]) -> Batch:
    source_ids, source_mask = collate_sources([example.source for example in examples])
    return Batch(
        source_ids=source_ids,
        source_mask=source_mask,
        target_ids=_pad([[BOS, *example.target] for example in examples]),
        labels=_pad([[*example.target, EOS] for example in examples]),
    )


def collate_sources(sources: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"] | None]:
    """The source side alone, as generation needs it: ids and the mask of what is not padding."""
    rows = [[*source, EOS] for source in sources]
    ids = _pad(rows)
    lengths = torch.tensor([len(row) for row in rows])
    if bool((lengths == ids.size(1)).all()):
        return ids, None
    return ids, torch.arange(ids.size(1))[None, :] < lengths[:, None]


def _pad(rows: Sequence[Sequence[int]]) -> Int[Tensor, "B T"]:
    if not rows:
        raise UsageError("a batch needs at least one sentence")
    width = max(len(row) for row in rows)
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])
