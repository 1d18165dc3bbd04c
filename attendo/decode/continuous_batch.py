"""Continuous batching on the CPU: requests join and leave the running batch between decoding steps."""

import copy
from collections import deque
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor, nn

from attendo.decode.frontier import Frontier, combined
from attendo.decode.prefill import read_ahead
from attendo.decode.requests import Answers, Request, asked_of, begun, sources_of
from attendo.decode.search import Rule, Strategy, turn
from attendo.model.cpu_decoder_state import JoinedState
from attendo.model.decoder_state import DecoderState
from attendo.model.transformer import Transformer

# With fewer rows a product waits for memory, with more for arithmetic, in either layout.
_ROWS, _ROWS_OF_ONE_THREAD = range(16, 65), range(24, 145)
_SHARE = 4  # of the sentences, one of so many: as many come in at once, or leave their rows


class Layout:
    """A network, and where that is faster a copy of it whose matrices lie in memory column by column.

    The numbers are the same, and products faster: on one thread 1.3 times those of 64 rows and 1.2 times those of 128,
    on two threads 1.3 times those of 32 (measured with MKL). The copy takes as much memory as the matrices do. It is
    made when it is first needed, and again when one of them has changed since, unless that was done behind torch's
    back, through `.data`.
    """

    def __init__(self, network: Transformer) -> None:
        self._network = network
        self._copy, self._made_of = network, list[tuple[int, int]]()

    def network(self, rows: int) -> Transformer:
        """For products of so many rows."""
        kind = self._network.output.weight
        suited = _ROWS_OF_ONE_THREAD if torch.get_num_threads() == 1 else _ROWS
        if rows not in suited or self._network.training or kind.is_cuda or kind.dtype != torch.float32:
            return self._network
        matrices = [_identity(each.weight) for each in self._network.modules() if isinstance(each, nn.Linear)]
        if matrices != self._made_of:
            self._copy, self._made_of = _column_by_column(self._network), matrices
        return self._copy


def _identity(matrix: Tensor) -> tuple[int, int]:
    """Another one when the numbers have changed."""
    return matrix.data_ptr(), 0 if matrix.is_inference() else matrix._version


@torch.no_grad()
def _column_by_column(network: Transformer) -> Transformer:
    made = copy.deepcopy(network, {id(each): each for each in network.parameters()})  # shares them for now
    for module in made.modules():
        if isinstance(module, nn.Linear):  # a tied table stays as it is: its rows are looked up one by one
            module.weight = nn.Parameter(module.weight.T.contiguous().T, requires_grad=False)
    return made


class Crowd:
    """At most so many sentences side by side. As `Slots` are used, and faster on a CPU, where every row costs time."""

    def __init__(self, layout: Layout, strategy: Strategy, rules: Sequence[Rule], most: int) -> None:
        self._layout, self._strategy, self._rules, self._most = layout, strategy, rules, most
        self._serving: list[Request | None] = []  # a place for each sentence; None: free
        self._state: JoinedState | None = None
        self._frontier: Frontier | None = None

    @property
    def busy(self) -> bool:
        """Whether anybody's answer is still to come."""
        return any(each is not None for each in self._serving)

    @property
    def free(self) -> int:
        """Sentences that may come in."""
        return self._most - sum(each is not None for each in self._serving)

    @torch.no_grad()
    def advance(self, waiting: "deque[Request]") -> Iterator[Answers]:
        """One more token for everybody, and what has been found. Who can be taken in leaves the queue first."""
        if waiting and self.free >= min(len(waiting), -(-self._most // _SHARE)):
            self._take_in([waiting.popleft() for _ in range(min(len(waiting), self.free))])
        if not self.busy or self._state is None or self._frontier is None:
            return iter(())
        network = self._layout.network(len(self._serving) * self._strategy.width)
        self._state, self._frontier = turn(network, self._state, self._frontier, self._strategy, self._rules)
        return iter(self._done(self._frontier))

    def forget(self, numbers: Collection[int] | None = None) -> None:
        """Nobody waits for the answers to these requests any more, or to any."""
        self._serving = [
            None if each is None or numbers is None or each.number in numbers else each for each in self._serving
        ]
        self._make_room()

    def look(self, numbers: Collection[int]) -> Iterator[tuple[Request, Frontier]]:
        """How far these requests have come."""
        for place, request in enumerate(self._serving):
            if request is not None and request.number in numbers and self._frontier is not None:
                yield request, self._frontier.keep(torch.tensor([place]))

    def _done(self, frontier: Frontier) -> list[Answers]:
        is_open = frontier.open.view(-1, self._strategy.width).any(dim=1).tolist()
        done = {
            place: request
            for place, (request, open_) in enumerate(zip(self._serving, is_open, strict=True))
            if request is not None and not open_
        }
        if not done:
            return []
        answers = Answers([*done.values()], frontier.hypotheses.keep(torch.tensor([*done])))
        self._serving = [None if place in done else each for place, each in enumerate(self._serving)]
        self._make_room()
        return [answers]

    def _take_in(self, new: list[Request]) -> None:
        """Into free places first: all others would have to move for one behind them."""
        free = [place for place, request in enumerate(self._serving) if request is None][: len(new)]
        for requests, places in ((new[: len(free)], free), (new[len(free) :], None)):
            if not requests:
                continue
            start, frontier = self._read(requests)
            if self._state is None or self._frontier is None:
                self._state, self._frontier = JoinedState.empty(start, self._strategy.width), frontier
                self._serving = [*requests]
            elif places is None:
                self._state = self._state.joined(start)
                self._frontier = _stacked(*_as_wide(self._frontier, frontier))
                self._serving.extend(requests)
            else:
                self._replace(places, requests, start, frontier)

    def _replace(self, places: list[int], requests: list[Request], start: DecoderState, new: Frontier) -> None:
        assert self._state is not None
        assert self._frontier is not None
        sentences = torch.tensor(places)
        here, there = _as_wide(self._frontier, new)
        self._state = self._state.replaced(sentences, here.rows_of(sentences), start)
        self._frontier = here.put(sentences, there)
        for place, request in zip(places, requests, strict=True):
            self._serving[place] = request

    def _read(self, requests: list[Request]) -> tuple[DecoderState, Frontier]:
        """Sources, and how the answers begin."""
        ids, mask = sources_of(requests, torch.device("cpu"))
        frontier = self._strategy.start(asked_of(requests, torch.device("cpu")))
        network: Transformer = self._layout.network(max(ids.numel(), frontier.asked.prefix.numel()))
        start: DecoderState = begun(network, ids, None if bool(mask.all()) else mask)
        return read_ahead(network, start, frontier, self._strategy, self._rules)

    def _make_room(self) -> None:
        """A copy of the rest is worth it where enough places are free."""
        staying = [place for place, request in enumerate(self._serving) if request is not None]
        if not staying:
            self._serving, self._state, self._frontier = [], None, None
            return
        if len(staying) > (1 - 1 / _SHARE) * len(self._serving):
            return
        assert self._state is not None
        assert self._frontier is not None
        sentences = torch.tensor(staying)
        self._state = self._state.keep(sentences, self._frontier.rows_of(sentences))
        self._serving = [self._serving[place] for place in staying]
        self._frontier = _as_narrow(self._frontier.keep(sentences))


def _as_wide(one: Frontier, other: Frontier) -> tuple[Frontier, Frontier]:
    """Both with room for the longest answers and prefixes of either."""
    columns = max(one.ids.size(1), other.ids.size(1))
    prefix = max(one.asked.prefix.size(1), other.asked.prefix.size(1))
    return one.wide(columns, prefix), other.wide(columns, prefix)


def _as_narrow(frontier: Frontier) -> Frontier:
    """Without room for what nobody asks for any more."""
    return frontier.wide(frontier.asked.capacity, frontier.asked.prefix.size(1))


def _stacked(one: Frontier, other: Frontier) -> Frontier:
    return combined(one, other, lambda first, second: torch.cat((first, second)))
