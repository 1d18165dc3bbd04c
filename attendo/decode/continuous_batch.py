"""Continuous batching on the CPU: requests join and leave the running batch between decoding steps."""

import copy
from collections import deque
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor, nn

from attendo.decode.frontier import Frontier, zip_tensors
from attendo.decode.prefill import prefill_prefix
from attendo.decode.requests import DecodeRequest, FinishedBatch, encode_and_start, limit_tensors, pad_sources
from attendo.decode.search import Rule, Strategy, decode_step
from attendo.model.cpu_decoder_state import ContinuousCacheState
from attendo.model.decoder_state import DecoderState
from attendo.model.transformer import Transformer

# With fewer rows a product is limited by memory, with more by arithmetic, in either layout.
_COLUMN_MAJOR_ROWS, _COLUMN_MAJOR_ROWS_ONE_THREAD = range(16, 65), range(24, 145)
_REFILL_DIVISOR = 4  # a quarter of the sentences is inserted or removed at once


class ColumnMajorWeights:
    """A network, with a column-major copy of its weights for batch sizes at which that is faster.

    The numbers are the same. On one thread, products are 1.3 times as fast with 64 rows and 1.2 times with 128. On two
    threads they are 1.3 times as fast with 32 (measured with MKL). The copy needs as much memory as the matrices. It is
    created on first use, and again if a matrix has changed. Changes through `.data` are not detected.
    """

    def __init__(self, network: Transformer) -> None:
        self._network = network
        self._copy, self._copied_versions = network, list[tuple[int, int]]()

    def select_network(self, rows: int) -> Transformer:
        """Return the network for products of `rows` rows."""
        kind = self._network.output.weight
        suited = _COLUMN_MAJOR_ROWS_ONE_THREAD if torch.get_num_threads() == 1 else _COLUMN_MAJOR_ROWS
        if rows not in suited or self._network.training or kind.is_cuda or kind.dtype != torch.float32:
            return self._network
        matrices = [_weight_version(each.weight) for each in self._network.modules() if isinstance(each, nn.Linear)]
        if matrices != self._copied_versions:
            self._copy, self._copied_versions = _copy_column_major(self._network), matrices
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


class ContinuousBatch:
    """A batch of at most `max_sentences` sentences, with the interface of `StaticBatch`.

    It is faster on a CPU, because every row costs time there.
    """

    def __init__(
        self, weights: ColumnMajorWeights, strategy: Strategy, rules: Sequence[Rule], max_sentences: int
    ) -> None:
        self._weights, self._strategy, self._rules, self._max_sentences = weights, strategy, rules, max_sentences
        self._requests: list[DecodeRequest | None] = []  # one slot per sentence; None: free
        self._state: ContinuousCacheState | None = None
        self._frontier: Frontier | None = None

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return any(each is not None for each in self._requests)

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        return self._max_sentences - sum(each is not None for each in self._requests)

    @torch.no_grad()
    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        """Insert waiting requests into free slots, decode one token per row, and return finished requests."""
        if waiting and self.num_free >= min(len(waiting), -(-self._max_sentences // _REFILL_DIVISOR)):
            self._insert([waiting.popleft() for _ in range(min(len(waiting), self.num_free))])
        if not self.busy or self._state is None or self._frontier is None:
            return iter(())
        network = self._weights.select_network(len(self._requests) * self._strategy.width)
        self._state, self._frontier = decode_step(network, self._state, self._frontier, self._strategy, self._rules)
        return iter(self._collect_finished(self._frontier))

    def cancel(self, request_ids: Collection[int] | None = None) -> None:
        """Drop these requests, or all requests if None."""
        self._requests = [
            None if each is None or request_ids is None or each.request_id in request_ids else each
            for each in self._requests
        ]
        self._compact()

    def peek(self, request_ids: Collection[int]) -> Iterator[tuple[DecodeRequest, Frontier]]:
        """Yield the current frontier of these requests."""
        for place, request in enumerate(self._requests):
            if request is not None and request.request_id in request_ids and self._frontier is not None:
                yield request, self._frontier.select_sentences(torch.tensor([place]))

    def _collect_finished(self, frontier: Frontier) -> list[FinishedBatch]:
        is_open = frontier.open.view(-1, self._strategy.width).any(dim=1).tolist()
        done = {
            place: request
            for place, (request, open_) in enumerate(zip(self._requests, is_open, strict=True))
            if request is not None and not open_
        }
        if not done:
            return []
        answers = FinishedBatch([*done.values()], frontier.hypotheses.select_sentences(torch.tensor([*done])))
        self._requests = [None if place in done else each for place, each in enumerate(self._requests)]
        self._compact()
        return [answers]

    def _insert(self, new: list[DecodeRequest]) -> None:
        """Insert requests, into free slots first. Appending requires a copy of all others."""
        free = [place for place, request in enumerate(self._requests) if request is None][: len(new)]
        for requests, places in ((new[: len(free)], free), (new[len(free) :], None)):
            if not requests:
                continue
            start, frontier = self._prefill(requests)
            if self._state is None or self._frontier is None:
                self._state, self._frontier = ContinuousCacheState.empty(start, self._strategy.width), frontier
                self._requests = [*requests]
            elif places is None:
                self._state = self._state.append_sentences(start)
                self._frontier = _stack(*_pad_both(self._frontier, frontier))
                self._requests.extend(requests)
            else:
                self._insert_into_free(places, requests, start, frontier)

    def _insert_into_free(
        self, slots: list[int], requests: list[DecodeRequest], start: DecoderState, new: Frontier
    ) -> None:
        assert self._state is not None
        assert self._frontier is not None
        sentences = torch.tensor(slots)
        here, there = _pad_both(self._frontier, new)
        self._state = self._state.replace_sentences(sentences, here.row_indices(sentences), start)
        self._frontier = here.replace_sentences(sentences, there)
        for place, request in zip(slots, requests, strict=True):
            self._requests[place] = request

    def _prefill(self, requests: list[DecodeRequest]) -> tuple[DecoderState, Frontier]:
        """Encode the sources and read the target prefixes."""
        ids, mask = pad_sources(requests, torch.device("cpu"))
        frontier = self._strategy.start(limit_tensors(requests, torch.device("cpu")))
        network: Transformer = self._weights.select_network(max(ids.numel(), frontier.limits.prefix.numel()))
        start: DecoderState = encode_and_start(network, ids, None if bool(mask.all()) else mask)
        return prefill_prefix(network, start, frontier, self._strategy, self._rules)

    def _compact(self) -> None:
        """Remove free slots if they make up at least a quarter, which justifies the copy."""
        staying = [place for place, request in enumerate(self._requests) if request is not None]
        if not staying:
            self._requests, self._state, self._frontier = [], None, None
            return
        if len(staying) > (1 - 1 / _REFILL_DIVISOR) * len(self._requests):
            return
        assert self._state is not None
        assert self._frontier is not None
        sentences = torch.tensor(staying)
        self._state = self._state.select(sentences, self._frontier.row_indices(sentences))
        self._requests = [self._requests[place] for place in staying]
        self._frontier = _trim(self._frontier.select_sentences(sentences))


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
