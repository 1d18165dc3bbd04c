"""Training pairs of a model that has something before every source and answer, such as the token of a language."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from attendo.data.batch import Batch
from attendo.data.pools import POOL_PAIRS
from attendo.data.prepared import Prepared
from attendo.data.stream import START, BatchStream, Placed, Position
from attendo.text_model.phrasing import Ids


class PrefixedStream(BatchStream):
    """The same batches, with the ids in `prefixes` before all sources and at the beginning of all targets."""

    def __init__(
        self,
        prepared: Prepared,
        batch_tokens: int,
        seed: int,
        dropout: float,
        prefixes: tuple[Ids, Ids],
        sort_within: int = POOL_PAIRS,
    ) -> None:
        super().__init__(prepared, batch_tokens, seed, dropout, sort_within)
        self._prefixes = prefixes

    def batches(self, position: Position = START, workers: int = 0, pin: bool = False) -> Generator[Placed, None, None]:
        if not any(self._prefixes):
            yield from super().batches(position, workers, pin)
            return
        pinned = pin and torch.cuda.is_available()
        with closing(super().batches(position, workers)) as plain:
            for placed in plain:
                batch = with_prefixes(placed.batch, *self._prefixes)
                yield replace(placed, batch=batch.pin() if pinned else batch)


def with_prefixes(batch: Batch, before: Sequence[int], begin: Sequence[int]) -> Batch:
    """`before` every source; `begin` behind bos of every target, to be predicted like all else."""
    rows, mask = batch.source_ids.size(0), batch.source_mask
    return Batch(
        source_ids=torch.cat((_columns(before, rows), batch.source_ids), dim=1),
        source_mask=None if mask is None else torch.cat((mask.new_ones(rows, len(before)), mask), dim=1),
        target_ids=torch.cat((batch.target_ids[:, :1], _columns(begin, rows), batch.target_ids[:, 1:]), dim=1),
        labels=torch.cat((_columns(begin, rows), batch.labels), dim=1),
        numbers=batch.numbers,
        tokens=batch.tokens + rows * len(begin),
        source_tokens=batch.source_tokens + rows * len(before),
    )


def _columns(ids: Sequence[int], rows: int) -> Int[Tensor, "B P"]:
    return torch.tensor([list(ids)] * rows, dtype=torch.int64)
