"""Decoding requests with the limits of their answers, and the running batch that they join and leave."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.search import Seq2SeqNetwork, run_step_hook
from attendo.nn.devices import halve_on_out_of_memory
from attendo.text import PAD
from attendo.text.tokenizer import end_source, is_complete_source

Item = TypeVar("Item")


@dataclass(frozen=True)
class DecodeRequest:
    """A decoding request for one sentence."""

    request_id: int  # also seeds the random numbers of the sentence
    source: tuple[int, ...]  # without EOS, unless symbols follow it (`end_source`)
    max_length: int  # maximum tokens of the answer, without BOS and EOS
    min_length: int = 0
    prefix: tuple[int, ...] = ()  # required first tokens of the answer

    @property
    def num_positions(self) -> int:
        """Positions it needs in a batch: the source with EOS, or the answer if there is no source."""
        return self.source_length if self.source else self.max_length + 1

    @property
    def source_length(self) -> int:
        """Tokens that the encoder reads, EOS included."""
        return len(self.source) + int(not is_complete_source(self.source))


@dataclass(frozen=True)
class FinishedBatch:
    """The results of some requests: adjacent hypotheses of each sentence, on the CPU."""

    requests: Sequence[DecodeRequest]
    hypotheses: Frontier

    def split(self) -> Iterator[tuple[DecodeRequest, Frontier]]:
        for index, request in enumerate(self.requests):
            yield request, self.hypotheses.select_sentences(torch.tensor([index]))


class RunningBatch(ABC):
    """Sentences that are decoded together, one token per step. A request has a slot until it is finished."""

    _requests: list[DecodeRequest | None]  # one per slot; None: free
    _frontier: Frontier | None  # the rows of all slots; None if there are no slots

    @abstractmethod
    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        """Insert waiting requests into free slots, decode one token per row, and yield finished requests."""

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return any(self._requests)

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        return sum(request is None for request in self._requests)

    def generate(self, requests: Sequence[DecodeRequest]) -> Iterator[FinishedBatch]:
        """Yield answers as soon as they are finished. Requests left from an abandoned call are dropped."""
        self.cancel()
        waiting = deque(requests)
        while waiting or self.busy:
            run_step_hook()
            yield from self.step(waiting)

    def stream(self, request: DecodeRequest) -> Iterator[Frontier]:
        """Yield the frontier of one request after every token. The last one is its hypotheses."""
        waiting = deque([request])
        while waiting or self.busy:
            run_step_hook()
            finished = [answers.hypotheses for answers in self.step(waiting)]
            yield from finished or (frontier for _, frontier in self.peek({request.request_id}))

    def cancel(self, request_ids: Collection[int] | None = None) -> None:
        """Drop these requests, or all requests if None, and free their slots."""
        self._requests = [
            None if request is None or request_ids is None or request.request_id in request_ids else request
            for request in self._requests
        ]

    def peek(self, request_ids: Collection[int]) -> Iterator[tuple[DecodeRequest, Frontier]]:
        """Yield the current frontier of each of these requests. This synchronises a GPU."""
        for slot, request in enumerate(self._requests):
            if request is not None and request.request_id in request_ids and self._frontier is not None:
                sentence = torch.tensor([slot], device=self._frontier.ids.device)
                yield request, self._frontier.select_sentences(sentence).cpu()


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
    rows = [end_source(each.source) for each in requests]
    width = width or max(map(len, rows))
    ids = torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return ids, torch.arange(width, device=device) < lengths[:, None]


def encode_and_start(
    network: Seq2SeqNetwork, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None
) -> Any:
    """Encode the sources and return the state before the first token. A decoder-only network ignores the sources."""
    if network.continues_text:
        source_ids, source_mask = source_ids[:, :0], None
    return network.start(network.encode(source_ids, source_mask))


def length_batches(items: Sequence[Item], length: Callable[[Item], int], max_positions: int) -> Iterator[list[Item]]:
    """Yield batches of similar length, longest first, so that memory runs out early if at all.

    A batch has at most `max_positions` positions, unless a single item is longer.
    """
    return split_runs(
        sorted(items, key=length, reverse=True),
        lambda batch, _: (len(batch) + 1) * length(batch[0]) > max_positions,
    )


def split_runs(items: Iterable[Item], is_closed: Callable[[list[Item], Item], bool]) -> Iterator[list[Item]]:
    """Yield runs of consecutive items. `is_closed` returns whether a run ends before the next item."""
    run: list[Item] = []
    for item in items:
        if run and is_closed(run, item):
            yield run
            run = []
        run.append(item)
    if run:
        yield run


def run_in_length_batches(
    lengths: Sequence[int], max_positions: int, run_batch: Callable[[Sequence[int]], None]
) -> None:
    """Call `run_batch` with the numbers of sequences of similar length. A batch that runs out of memory is halved."""

    def run(group: Sequence[int], size: int) -> Sequence[int]:
        run_batch(group[:size])
        return group[size:]

    for group in length_batches(range(len(lengths)), lengths.__getitem__, max_positions):
        left: Sequence[int] = group
        while left:
            left = halve_on_out_of_memory(len(left), partial(run, left))
