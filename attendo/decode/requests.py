"""What an engine is asked for: sources as ids, with what their answers must keep to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attendo.decode.frontier import Asked, Frontier
from attendo.text import EOS, PAD


@runtime_checkable
class Reading(Protocol):
    """What reads sources. A `decoder_only` that is true says that there are none."""

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Any: ...

    def start(self, memory: Any) -> Any: ...


@dataclass(frozen=True)
class Request:
    """One sentence."""

    number: int  # names it, also for what is drawn at random
    source: tuple[int, ...]  # without control tokens
    limit: int  # most tokens of the answer, bos and eos not counted
    least: int = 0
    prefix: tuple[int, ...] = ()  # how the answer begins

    @property
    def width(self) -> int:
        """What it costs beside others, in positions: of the source with its eos, or of an answer without a source."""
        return len(self.source) + 1 if self.source else self.limit + 1


@dataclass(frozen=True)
class Answers:
    """What was found for some requests: the hypotheses of each sentence side by side, on the CPU."""

    requests: Sequence[Request]
    hypotheses: Frontier

    def one_by_one(self) -> Iterator[tuple[Request, Frontier]]:
        for place, request in enumerate(self.requests):
            yield request, self.hypotheses.keep(torch.tensor([place]))


def asked_of(requests: Sequence[Request], device: torch.device, prefix_width: int = 0) -> Asked:
    limit, least, number = (
        torch.tensor([getattr(each, name) for each in requests], dtype=torch.long, device=device)
        for name in ("limit", "least", "number")
    )
    longest = prefix_width or max((len(each.prefix) for each in requests), default=0)
    prefix = [[*each.prefix, *[PAD] * (longest - len(each.prefix))] for each in requests]
    ids = torch.tensor(prefix, dtype=torch.long, device=device).view(len(requests), longest)
    return Asked(limit, least, ids, number)


def sources_of(
    requests: Sequence[Request], device: torch.device, width: int | None = None
) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Sources side by side, each with its eos, in `width` columns or as many as are needed; and what is not padding."""
    rows = [[*each.source, EOS] for each in requests]
    width = width or max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, torch.arange(width, device=device) < lengths[:, None]


def begun(network: Reading, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Any:
    """The state before the first token, the sources being read; a network without an encoder reads nothing of them."""
    if getattr(network, "decoder_only", False):
        source_ids, source_mask = source_ids[:, :0], None
    return network.start(network.encode(source_ids, source_mask))


def by_length(requests: Sequence[Request], batch_tokens: int) -> Iterator[list[Request]]:
    """Batches of like length, the longest first: whoever runs out of memory learns it at once."""
    group: list[Request] = []
    for request in sorted(requests, key=lambda each: -each.width):
        if group and (len(group) + 1) * group[0].width > batch_tokens:
            yield group
            group = []
        group.append(request)
    if group:
        yield group
