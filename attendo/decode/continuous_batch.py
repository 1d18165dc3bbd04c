"""A running batch with as many rows as are in use. On a CPU, requests join it between decoding steps."""

import copy
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attendo.decode.coverage import CoverageNetwork, CoverageState
from attendo.decode.frontier import Frontier, zip_tensors
from attendo.decode.prefill import prefill_prefix
from attendo.decode.requests import (
    DecodeRequest,
    FinishedBatch,
    RunningBatch,
    encode_and_start,
    limit_tensors,
    pad_sources,
)
from attendo.decode.search import Rule, Seq2SeqNetwork, Strategy, decode_step
from attendo.model.cpu_decoder_state import SharedCacheState
from attendo.model.transformer import Transformer

# With fewer rows a product is limited by memory, with more by arithmetic, in either layout.
_COLUMN_MAJOR_ROWS, _COLUMN_MAJOR_ROWS_ONE_THREAD = range(16, 65), range(24, 145)
_REFILL_DIVISOR = 4  # a quarter of the sentences is inserted or removed at once
_MAX_SHARED_ROWS = 8  # rows per sentence up to which a shared cache is faster


class ColumnMajorWeights:
    """A network, with a column-major copy of its weights for batch sizes at which that is faster.

    The numbers are the same. On one thread, products are 1.3 times as fast with 64 rows and 1.2 times with 128. On two
    threads they are 1.3 times as fast with 32 (measured with MKL). The copy needs as much memory as the matrices. It is
    created on first use, and again if a matrix has changed. Changes through `.data` are not detected.
    """

    def __init__(self, network: Seq2SeqNetwork) -> None:
        self.network = network
        self._copy, self._copied_versions = network, list[tuple[int, int]]()

    def select_network(self, rows: int) -> Seq2SeqNetwork:
        """Return the network for products of `rows` rows. Only a Transformer has another layout."""
        if not isinstance(self.network, Transformer):
            return self.network
        kind = self.network.output.weight
        suited = _COLUMN_MAJOR_ROWS_ONE_THREAD if torch.get_num_threads() == 1 else _COLUMN_MAJOR_ROWS
        if rows not in suited or self.network.training or kind.is_cuda or kind.dtype != torch.float32:
            return self.network
        matrices = [_weight_version(each.weight) for each in self.network.modules() if isinstance(each, nn.Linear)]
        if matrices != self._copied_versions:
            self._copy, self._copied_versions = _copy_column_major(self.network), matrices
        return self._copy


def _weight_version(matrix: Tensor) -> tuple[int, int]:
    """Return a version that differs if the weights have changed."""
    return matrix.data_ptr(), 0 if matrix.is_inference() else matrix._version


@torch.no_grad()
def _copy_column_major(network: Transformer) -> Transformer:
    made = copy.deepcopy(network, {id(each): each for each in network.parameters()})  # shares them at first
    for module in made.modules():
        if isinstance(module, nn.Linear):  # a tied embedding stays row-major for lookups
            module.weight = nn.Parameter(module.weight.T.contiguous().T, requires_grad=False)
    return made


class ContinuousBatch(RunningBatch):
    """A batch of at most `max_sentences` sentences. Finished ones are removed, because every row costs time on a CPU.

    Requests join a running batch if it has a `SharedCacheState`: a Transformer on a CPU with few rows per sentence.
    Otherwise they wait until the batch is empty. `padding` adds source columns, which must not change the answers.
    """

    def __init__(
        self,
        network: Seq2SeqNetwork | ColumnMajorWeights,
        strategy: Strategy,
        rules: Sequence[Rule],
        max_sentences: int,
        padding: int = 0,
    ) -> None:
        self._weights = network if isinstance(network, ColumnMajorWeights) else None
        self._network: Seq2SeqNetwork = network.network if isinstance(network, ColumnMajorWeights) else network
        self._strategy, self._rules, self._max_sentences, self._padding = strategy, rules, max_sentences, padding
        self._device = self._network.device
        self._shares_cache = (
            isinstance(self._network, Transformer) and self._device.type == "cpu" and strategy.width <= _MAX_SHARED_ROWS
        )
        self._requests = []
        self._state: Any = None
        self._frontier = None

    @property
    def num_free(self) -> int:
        """Number of requests that can join."""
        if self._requests and not self._shares_cache:
            return 0
        return self._max_sentences - sum(request is not None for request in self._requests)

    @torch.no_grad()
    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        """Insert waiting requests, decode one token per row, and return finished requests."""
        if waiting and (free := self.num_free) >= min(len(waiting), -(-self._max_sentences // _REFILL_DIVISOR)):
            self._insert([waiting.popleft() for _ in range(min(len(waiting), free))])
        if self._frontier is None:
            return iter(())
        self._state, self._frontier = decode_step(
            self._network, self._state, self._frontier, self._strategy, self._rules
        )
        return iter(self._collect_finished(self._frontier))

    def cancel(self, request_ids: Collection[int] | None = None) -> None:
        """Drop these requests, or all requests if None."""
        super().cancel(request_ids)
        self._compact()

    def _collect_finished(self, frontier: Frontier) -> list[FinishedBatch]:
        is_open = frontier.open.view(-1, self._strategy.width).any(dim=1).tolist()
        finished = {
            slot: request
            for slot, (request, open_) in enumerate(zip(self._requests, is_open, strict=True))
            if request is not None and not open_
        }
        if not finished:
            return []
        hypotheses = frontier.hypotheses.select_sentences(torch.tensor([*finished], device=self._device)).cpu()
        self._requests = [None if slot in finished else request for slot, request in enumerate(self._requests)]
        self._compact()
        return [FinishedBatch([*finished.values()], hypotheses)]

    def _insert(self, new: list[DecodeRequest]) -> None:
        """Insert requests, into free slots first. Appending requires a copy of all others."""
        free = [slot for slot, request in enumerate(self._requests) if request is None][: len(new)]
        if free:
            self._insert_into_free(free, new[: len(free)])
        if new := new[len(free) :]:
            state, frontier = self._prefill(new)
            if self._frontier is not None:
                state = self._state.append_sentences(state)
                frontier = _stack(*_pad_both(self._frontier, frontier))
            else:
                state = SharedCacheState.empty(state, self._strategy.width) if self._shares_cache else state
            self._state, self._frontier = state, frontier
            self._requests = [*self._requests, *new]
        self._select_layout()

    def _insert_into_free(self, slots: list[int], requests: list[DecodeRequest]) -> None:
        assert self._frontier is not None
        sentences = torch.tensor(slots)
        state, frontier = self._prefill(requests)
        here, there = _pad_both(self._frontier, frontier)
        self._state = self._state.replace_sentences(sentences, here.row_indices(sentences), state)
        self._frontier = here.replace_sentences(sentences, there)
        for slot, request in zip(slots, requests, strict=True):
            self._requests[slot] = request

    def _prefill(self, requests: list[DecodeRequest]) -> tuple[Any, Frontier]:
        """Encode the sources and read the target prefixes."""
        strategy, longest = self._strategy, max(request.source_length for request in requests)
        has_padding = self._padding > 0 or any(request.source_length < longest for request in requests)
        ids, mask = pad_sources(requests, self._device, longest + self._padding)
        frontier = strategy.start(limit_tensors(requests, self._device))
        network = self._network
        if self._weights is not None:
            network = self._weights.select_network(max(ids.numel(), frontier.limits.prefix.numel()))
        state = encode_and_start(network, ids, mask if has_padding else None)
        state, frontier = prefill_prefix(
            network, state, frontier, strategy, self._rules, same_length=not self._shares_cache
        )
        if isinstance(network, CoverageNetwork):
            state = CoverageState.empty(state, mask, strategy.width)
        return state, frontier

    def _compact(self) -> None:
        """Remove free slots if they make up at least a quarter, which justifies the copy."""
        staying = [slot for slot, request in enumerate(self._requests) if request is not None]
        if not staying:
            self._requests, self._state, self._frontier = [], None, None
            return
        if len(staying) > (1 - 1 / _REFILL_DIVISOR) * len(self._requests):
            return
        assert self._frontier is not None
        sentences = torch.tensor(staying, device=self._device)
        self._state = self._state.select(sentences, self._frontier.row_indices(sentences))
        self._requests = [self._requests[slot] for slot in staying]
        self._frontier = _trim(self._frontier.select_sentences(sentences))
        self._select_layout()

    def _select_layout(self) -> None:
        """Select the network for the number of rows."""
        if self._weights is not None:
            self._network = self._weights.select_network(len(self._requests) * self._strategy.width)


def _pad_both(one: Frontier, other: Frontier) -> tuple[Frontier, Frontier]:
    """Pad both to the longer answers and prefixes."""
    columns = max(one.ids.size(1), other.ids.size(1))
    prefix = max(one.limits.prefix.size(1), other.limits.prefix.size(1))
    return one.pad_to(columns, prefix), other.pad_to(columns, prefix)


def _trim(frontier: Frontier) -> Frontier:
    """Remove columns that no remaining sentence needs."""
    return frontier.pad_to(frontier.limits.capacity, frontier.limits.prefix.size(1))


def _stack(one: Frontier, other: Frontier) -> Frontier:
    return zip_tensors(one, other, lambda first, second: torch.cat((first, second)))
