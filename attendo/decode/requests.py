"""Decoding requests: source ids with the limits of their answers, batching and padding."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.search import Seq2SeqNetwork
from attendo.text import EOS, PAD

Item = TypeVar("Item")


@dataclass(frozen=True)
class DecodeRequest:
    """A decoding request for one sentence."""

    request_id: int  # also seeds the random numbers of the sentence
    source: tuple[int, ...]  # without control tokens
    max_length: int  # maximum tokens of the answer, without BOS and EOS
    min_length: int = 0
    prefix: tuple[int, ...] = ()  # required first tokens of the answer

    @property
    def num_positions(self) -> int:
        """Positions it needs in a batch: the source with EOS, or the answer if there is no source."""
        return len(self.source) + 1 if self.source else self.max_length + 1


@dataclass(frozen=True)
class FinishedBatch:
    """The results of some requests: adjacent hypotheses of each sentence, on the CPU."""

    requests: Sequence[DecodeRequest]
    hypotheses: Frontier

    def split(self) -> Iterator[tuple[DecodeRequest, Frontier]]:
        for index, request in enumerate(self.requests):
            yield request, self.hypotheses.select_sentences(torch.tensor([index]))


def limit_tensors(requests: Sequence[DecodeRequest], device: torch.device, prefix_width: int = 0) -> RowLimits:
    limit, least, number = (
        torch.tensor([getattr(each, name) for each in requests], dtype=torch.long, device=device)
        for name in ("max_length", "min_length", "request_id")
    )
    longest = prefix_width or max((len(each.prefix) for each in requests), default=0)
    prefix = [[*each.prefix, *[PAD] * (longest - len(each.prefix))] for each in requests]
    ids = torch.tensor(prefix, dtype=torch.long, device=device).view(len(requests), longest)
    return RowLimits(limit, least, ids, number)


def pad_sources(
    requests: Sequence[DecodeRequest], device: torch.device, width: int | None = None
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Return sources with EOS, padded to `width` or the longest, and the mask of tokens."""
    rows = [[*each.source, EOS] for each in requests]
    width = width or max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, torch.arange(width, device=device) < lengths[:, None]


def encode_and_start(
    network: Seq2SeqNetwork, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None
) -> Any:
    """Encode the sources and return the state before the first token. A decoder-only network ignores the sources."""
    if network.decoder_only:
        source_ids, source_mask = source_ids[:, :0], None
    return network.start(network.encode(source_ids, source_mask))


def length_batches(items: Sequence[Item], length: Callable[[Item], int], max_positions: int) -> Iterator[list[Item]]:
    """Yield batches of similar length, longest first, so that memory runs out early if at all.

    A batch has at most `max_positions` positions, unless a single item is longer.
    """
    group: list[Item] = []
    for item in sorted(items, key=length, reverse=True):
        if group and (len(group) + 1) * length(group[0]) > max_positions:
            yield group
            group = []
        group.append(item)
    if group:
        yield group
