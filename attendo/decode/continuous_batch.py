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

# With fewer rows a product waits for memory, with more for arithmetic, in either layout.
_COLUMN_MAJOR_ROWS, _COLUMN_MAJOR_ROWS_ONE_THREAD = range(16, 65), range(24, 145)
_REFILL_DIVISOR = 4  # of the sentences, one of so many: as many come in at once, or leave their rows


class ColumnMajorWeights:
    """A network, and where that is faster a copy of it whose matrices lie in memory column by column.

    The numbers are the same, and products faster: on one thread 1.3 times those of 64 rows and 1.2 times those of 128,
    on two threads 1.3 times those of 32 (measured with MKL). The copy takes as much memory as the matrices do. It is
    made when it is first needed, and again when one of them has changed since, unless that was done behind torch's
    back, through `.data`.
    """

    def __init__(self, network: Transformer) -> None:
        self._network = network
        self._copy, self._copied_versions = network, list[tuple[int, int]]()

    def select_network(self, rows: int) -> Transformer:
        """For products of so many rows."""
        kind = self._network.output.weight
        suited = _COLUMN_MAJOR_ROWS_ONE_THREAD if torch.get_num_threads() == 1 else _COLUMN_MAJOR_ROWS
        if rows not in suited or self._network.training or kind.is_cuda or kind.dtype != torch.float32:
            return self._network
        matrices = [_weight_version(each.weight) for each in self._network.modules() if isinstance(each, nn.Linear)]
        if matrices != self._copied_versions:
            self._copy, self._copied_versions = _copy_column_major(self._network), matrices
        return self._copy


def _weight_version(matrix: Tensor) -> tuple[int, int]:
    """Another one when the numbers have changed."""
    return matrix.data_ptr(), 0 if matrix.is_inference() else matrix._version


@torch.no_grad()
def _copy_column_major(network: Transformer) -> Transformer:
    made = copy.deepcopy(network, {id(each): each for each in network.parameters()})  # shares them for now
    for module in made.modules():
        if isinstance(module, nn.Linear):  # a tied table stays as it is: its rows are looked up one by one
            module.weight = nn.Parameter(module.weight.T.contiguous().T, requires_grad=False)
    return made


class ContinuousBatch:
    """At most so many sentences side by side. As `StaticBatch` are used, and faster on a CPU, where every row costs time."""

    def __init__(
        self, weights: ColumnMajorWeights, strategy: Strategy, rules: Sequence[Rule], max_sentences: int
    ) -> None:
        self._weights, self._strategy, self._rules, self._max_sentences = weights, strategy, rules, max_sentences
        self._requests: list[DecodeRequest | None] = []  # a place for each sentence; None: free
        self._state: ContinuousCacheState | None = None
        self._frontier: Frontier | None = None

    @property
    def busy(self) -> bool:
        """Whether anybody's answer is still to come."""
        return any(each is not None for each in self._requests)

    @property
    def num_free(self) -> int:
        """Sentences that may come in."""
        return self._max_sentences - sum(each is not None for each in self._requests)

    @torch.no_grad()
    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        """One more token for everybody, and what has been found. Who can be taken in leaves the queue first."""
        if waiting and self.num_free >= min(len(waiting), -(-self._max_sentences // _REFILL_DIVISOR)):
            self._insert([waiting.popleft() for _ in range(min(len(waiting), self.num_free))])
        if not self.busy or self._state is None or self._frontier is None:
            return iter(())
        network = self._weights.select_network(len(self._requests) * self._strategy.width)
        self._state, self._frontier = decode_step(network, self._state, self._frontier, self._strategy, self._rules)
        return iter(self._collect_finished(self._frontier))

    def cancel(self, request_ids: Collection[int] | None = None) -> None:
        """Nobody waits for the answers to these requests any more, or to any."""
        self._requests = [
            None if each is None or request_ids is None or each.request_id in request_ids else each
            for each in self._requests
        ]
        self._compact()

    def peek(self, request_ids: Collection[int]) -> Iterator[tuple[DecodeRequest, Frontier]]:
        """How far these requests have come."""
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
        """Into free places first: all others would have to move for one behind them."""
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
        """Sources, and how the answers begin."""
        ids, mask = pad_sources(requests, torch.device("cpu"))
        frontier = self._strategy.start(limit_tensors(requests, torch.device("cpu")))
        network: Transformer = self._weights.select_network(max(ids.numel(), frontier.limits.prefix.numel()))
        start: DecoderState = encode_and_start(network, ids, None if bool(mask.all()) else mask)
        return prefill_prefix(network, start, frontier, self._strategy, self._rules)

    def _compact(self) -> None:
        """A copy of the rest is worth it where enough places are free."""
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
    """Both with room for the longest answers and prefixes of either."""
    columns = max(one.ids.size(1), other.ids.size(1))
    prefix = max(one.limits.prefix.size(1), other.limits.prefix.size(1))
    return one.pad_to(columns, prefix), other.pad_to(columns, prefix)


def _trim(frontier: Frontier) -> Frontier:
    """Without room for what nobody asks for any more."""
    return frontier.pad_to(frontier.limits.capacity, frontier.limits.prefix.size(1))


def _stack(one: Frontier, other: Frontier) -> Frontier:
    return zip_tensors(one, other, lambda first, second: torch.cat((first, second)))
