"""Engines: textbook, cached, fast and stepping search over one network; retry with a smaller batch on OOM.

textbook    no cache, explicit attention: slow, and plain enough to be believed
cached      keys and values grow column by column; sentences that are done leave the batch
fast        shapes that never change, sentences that take each other's places; recorded on a GPU, compiled if asked
"""

import warnings
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable
from weakref import WeakSet

import torch

from attendo.decode.continuous_batch import Layout
from attendo.decode.coverage import Covered, Covering
from attendo.decode.frontier import Frontier
from attendo.decode.networks import Textbook
from attendo.decode.prefill import read_ahead
from attendo.decode.requests import Answers, Request, asked_of, begun, by_length, sources_of
from attendo.decode.search import Network, Rule, SearchState, Strategy, search
from attendo.decode.static_batch import Slots, SlotSizes
from attendo.model.cpu_decoder_state import JoinedState, SharedState
from attendo.model.decoder_state import DecoderState
from attendo.model.transformer import Transformer
from attendo.nn.devices import let_go, ran_out

_WIDTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # of sources and answers in slots; then by the 1024
_FEW_ROWS = 8
_FULL, _NARROW = 4, 64
_SLOTS_KEPT = 8  # recorded batches that wait for more of their kind


@runtime_checkable
class Engine(Protocol):
    """Answers in any order, as soon as they are known."""

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        """All requests, some at a time."""


class TextbookEngine:
    def __init__(self, network: Transformer, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        textbook, device = Textbook(self._network), self._network.output.weight.device
        for group in by_length(requests, self._batch_tokens // strategy.width):
            with torch.no_grad():
                state = textbook.start(*sources_of(group, device))
            last = deque(search(textbook, state, asked_of(group, device), strategy, rules), maxlen=1).pop()
            yield Answers(group, last.hypotheses.cpu())


class CachedEngine:
    """`padding` more columns than a batch needs change nothing: whoever doubts it can ask for them."""

    def __init__(self, network: Transformer, batch_tokens: int, padding: int = 0) -> None:
        self._layout, self._batch_tokens, self._padding = Layout(network), batch_tokens, padding

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        for group in by_length(requests, self._batch_tokens // strategy.width):
            network = self._layout.network(len(group) * strategy.width)
            device = network.device
            shortest, *_, longest = sorted(len(request.source) for request in (*group, group[0]))
            ids, mask = sources_of(group, device, longest + 1 + self._padding)
            all_alike = shortest + 1 == ids.size(1)
            in_place = device.type == "cpu" and strategy.width <= _FEW_ROWS
            frontier = strategy.start(asked_of(group, device))
            with torch.no_grad():
                start = begun(network, ids, None if all_alike else mask)
                start, frontier = read_ahead(network, start, frontier, strategy, rules, alike=not in_place)
            state = _in_place(start, strategy.width) if in_place else start
            last = deque(search(network, state, frontier, strategy, rules), maxlen=1).pop()
            yield Answers(group, last.hypotheses.cpu())


class FastEngine:
    """Batches of slots are kept for the next requests: recording and compiling them takes longer than many answers.

    `most` is how many sentences stand side by side, however few positions they have.
    """

    def __init__(self, network: Network, batch_tokens: int, compiled: bool = False, most: int = 1024) -> None:
        self._network, self._batch_tokens, self._compiled, self._most = network, batch_tokens, compiled, most
        self._kept: dict[Hashable, Slots] = {}

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        def most(source_width: int) -> int:
            return max(1, min(self._most, self._batch_tokens // (source_width * strategy.width)))

        for source_width, group in _by_width(requests, most):
            capacity = _rounded(max(request.limit for request in group) + 2)
            longest = max(len(request.prefix) for request in group)
            prefix_width = _rounded(longest) if longest else 0  # what is recorded then serves others too
            count = min(most(source_width), 1 << (len(group) - 1).bit_length())
            sizes = SlotSizes(count, source_width, capacity, prefix_width)
            with self._lent(strategy, tuple(rules), sizes) as slots:
                yield from slots.answers(group)

    @contextmanager
    def _lent(self, strategy: Strategy, rules: tuple[Rule, ...], sizes: SlotSizes) -> Iterator[Slots]:
        """To one alone: what is answered within the steps of another call has slots of its own."""
        key = (strategy, rules, sizes)
        slots = self._kept.pop(key, None) or Slots(self._network, strategy, rules, sizes, self._compiled)
        try:
            yield slots
        finally:
            self._kept[key] = slots  # behind all others: the first is the one that was not asked for longest
            if len(self._kept) > _SLOTS_KEPT:
                del self._kept[next(iter(self._kept))]


def _in_place(start: DecoderState, width: int) -> SearchState:
    return JoinedState.empty(start, width) if start.past else SharedState.empty(start, width)


def _by_width(requests: Sequence[Request], most: Callable[[int], int]) -> Iterator[tuple[int, list[Request]]]:
    """Of like source length, the longest first. At most so many fit side by side, by their width.

    The last of a group leave slots empty, so a group is worth it from several times as many on. Fewer take along those
    that are shorter, but not by much where that matters.
    """
    group: list[Request] = []
    width = 0
    for request in sorted(requests, key=lambda each: (-each.width, -each.limit)):
        own = _rounded(request.width)
        if group and own < width and (len(group) >= _FULL * most(width) or (width > _NARROW and 2 * own < width)):
            yield width, group
            group = []
        if not group:
            width = own
        group.append(request)
    if group:
        yield width, group


def _rounded(width: int) -> int:
    return next((each for each in _WIDTHS if each >= width), -(-width // _WIDTHS[-1]) * _WIDTHS[-1])


class LessAtOnceWarning(UserWarning):
    """Answers take longer than they might, for want of memory."""


class MakingDo:
    """`made` makes an engine for so many positions side by side: `positions` of them, or half as many, and so on.

    What has been answered stays answered. What engines keep for later calls is given up before any size is, and a size
    that answers is kept; one that does not proves nothing for other requests.
    """

    def __init__(self, made: Callable[[int], Engine], positions: int) -> None:
        self._made, self._positions = made, positions
        self._engine: Engine | None = made(positions)
        _ALL.add(self)

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        waiting = {request.number: request for request in requests}
        engine, positions, keeps_nothing = self._ready(), self._positions, False
        while waiting:
            try:
                for answers in engine.answers([*waiting.values()], strategy, rules):
                    self._keep(engine, positions)
                    for request in answers.requests:
                        del waiting[request.number]
                    yield answers
            except (RuntimeError, MemoryError) as error:
                if not ran_out(error):
                    raise
                if keeps_nothing and positions <= 1:
                    error.add_note("one sentence at a time is too much: take a smaller beam, or the device cpu")
                    raise
            # The error is gone here, and with it all that its traceback held.
            if waiting:
                positions = max(1, positions // 2) if keeps_nothing else positions
                engine, keeps_nothing = self._made(positions), True
                _give_up_what_is_kept()

    def _ready(self) -> Engine:
        engine = self._engine or self._made(self._positions)
        self._engine = engine
        return engine

    def _keep(self, engine: Engine, positions: int) -> None:
        """Now that it is known to fit."""
        wanted, self._positions, self._engine = self._positions, positions, engine
        if positions < wanted:
            warnings.warn(
                f"memory does not suffice for {wanted:,} source positions side by side: going on with {positions:,} "
                "(batch_tokens)",
                LessAtOnceWarning,
                stacklevel=2,
            )


_ALL: WeakSet[MakingDo] = WeakSet()


def _give_up_what_is_kept() -> None:
    """Batches that wait for more of their kind, of all models. Whoever is at work holds its own engine."""
    for each in list(_ALL):
        each._engine = None
    let_go()


class SearchEngine:
    """An engine that can also be watched."""

    def __init__(self, network: Network, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        """All requests, batch by batch."""
        for group in by_length(requests, self._batch_tokens // strategy.width):
            last = deque(self.frontiers(group, strategy, rules), maxlen=1).pop()
            yield Answers(group, last.hypotheses.cpu())

    def frontiers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Frontier]:
        """All sentences together, after every token."""
        network, device = self._network, self._network.device
        ids, mask = sources_of(requests, device)
        frontier = strategy.start(asked_of(requests, device))
        all_alike = len({len(request.source) for request in requests}) == 1
        with torch.inference_mode():
            state: Any = begun(network, ids, None if all_alike else mask)
            state, frontier = read_ahead(network, state, frontier, strategy, rules, alike=True)
            if isinstance(network, Covering):
                state = Covered.nothing(state, mask, strategy.width)
        return search(network, state, frontier, strategy, rules)
