"""Batch groups: requests with the same batch key that are decoded in one running batch."""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Protocol

import torch

from attendo.decode.config import GenerationConfig
from attendo.decode.continuous_batch import Crowd, Layout
from attendo.decode.frontier import Frontier
from attendo.decode.requests import Answers, Request
from attendo.decode.search import Network, Rule, Strategy
from attendo.decode.static_batch import Slots, SlotSizes
from attendo.model.transformer import Transformer
from attendo.nn.devices import let_go, ran_out
from attendo.serve.scheduling.jobs import Job
from attendo.text_model import Result, TextModel
from attendo.text_model.generation import Call
from attendo.text_model.search_setup import covering

_log = logging.getLogger("attendo.serve")
_WIDTHS = (32, 128, 512, 2048)  # of sources that are answered together; then by the 2048
_PREFIXES = (0, 8, 64, 512)
_FEW_ROWS = 8  # of a sentence, that a crowd is faster with
_ON_CPU, _ON_GPU = 32, 128  # sentences side by side
_STEPS_BETWEEN_LOOKS = 4  # on a GPU, where a look waits for all that was asked of it before


class Seats(Protocol):
    """What answers sentences step by step."""

    @property
    def busy(self) -> bool: ...

    @property
    def free(self) -> int: ...

    def advance(self, waiting: "deque[Request]") -> Iterator[Answers]: ...

    def forget(self, numbers: Collection[int] | None = None) -> None: ...

    def look(self, numbers: Collection[int]) -> Iterator[tuple[Request, Frontier]]: ...


@dataclass(frozen=True)
class Kind:
    """Requests of the same kind can be answered side by side."""

    strategy: Strategy
    rules: tuple[Rule, ...]
    network: tuple[str, bool, bool]  # precision, whether attention is kept count of, whether it is compiled
    positions: int  # of sources side by side, once for each row
    width: int  # that sources are rounded up to; answers have twice as many tokens at most
    prefix: int


class SeatMaker:
    """Knows the model."""

    def __init__(self, model: TextModel, most: int | None = None, fixed: bool | None = None) -> None:
        """`most` sentences side by side. `fixed`: slots also on a CPU."""
        self._model, self._on_gpu = model, model.device.type == "cuda"
        self.most = most or (_ON_GPU if self._on_gpu else _ON_CPU)
        self._fixed = self._on_gpu if fixed is None else fixed
        self._networks: dict[tuple[str, bool, bool], Network] = {}
        self._layouts: dict[tuple[str, bool, bool], Layout] = {}

    @property
    def steps_between_looks(self) -> int:
        return _STEPS_BETWEEN_LOOKS if self._on_gpu else 1

    @property
    def any(self) -> bool:
        """Exported models have none: they answer call after call."""
        return self._model.runtime.name == "torch"

    def can_answer(self, call: Call) -> bool:
        return self.any and call.one_search

    def kinds(self, call: Call) -> Iterator[tuple[Kind, Request]]:
        """Of every line; a line that is there twice is told once."""
        requests, strategy, rules = call.search()
        config = call.config
        network = (config.precision, config.coverage_penalty > 0, config.compile)
        self._prepare(config, network)
        for request in dict.fromkeys(requests):
            width = _rounded(max(len(request.source) + 1, request.limit // 2), _WIDTHS)
            prefix = _rounded(len(request.prefix), _PREFIXES)
            yield Kind(strategy, tuple(rules), network, config.positions(self._on_gpu), width, prefix), request

    def make(self, kind: Kind) -> Seats:
        """As many as there is memory for."""
        width = kind.strategy.width
        most = max(1, min(self.most, kind.positions // (kind.width * width)))
        while True:
            try:
                return self._made(kind, most)
            except (RuntimeError, MemoryError) as error:
                if most == 1 or not ran_out(error):
                    raise
            _log.warning("memory does not suffice for %d sentences side by side: making do with %d", most, most // 2)
            most //= 2
            let_go()

    def _made(self, kind: Kind, most: int) -> Seats:
        network, width = self._networks[kind.network], kind.strategy.width
        if not self._fixed and isinstance(network, Transformer) and width <= _FEW_ROWS:
            layout = self._layouts.setdefault(kind.network, Layout(network))
            return Crowd(layout, kind.strategy, kind.rules, most)
        sizes = SlotSizes(most, kind.width, 2 * kind.width + 4, kind.prefix)
        return WatchedSlots(network, kind.strategy, kind.rules, sizes, compiled=kind.network[2])

    def _prepare(self, config: GenerationConfig, key: tuple[str, bool, bool]) -> None:
        if key not in self._networks:
            reader = self._model.runtime.reader(config)
            assert reader is not None  # torch tells the logits
            self._networks[key] = covering(config, reader)


class WatchedSlots(Slots):
    """Slots that can be looked into while they work."""

    @property
    def free(self) -> int:
        """Sentences that may come in."""
        return sum(each is None for each in self._serving)

    def look(self, numbers: Collection[int]) -> Iterator[tuple[Request, Frontier]]:
        """How far these requests have come. A GPU is waited for."""
        for slot, request in enumerate(self._serving):
            if request is not None and request.number in numbers:
                place = torch.tensor([slot], device=self._frontier.ids.device)
                yield request, self._frontier.keep(place).cpu()


def _rounded(width: int, widths: tuple[int, ...]) -> int:
    return next((each for each in widths if each >= width), -(-width // widths[-1]) * widths[-1])


class Reply:
    """What one job is told: all results together when the last one is found, or one text as it is decided."""

    def __init__(self, job: Job, call: Call, streamed: bool) -> None:
        self.job, self._call = job, call
        self._order = call.search()[0]
        self.missing = set(self._order)
        self._found: dict[Request, Result] = {}
        self._teller = call.teller() if streamed else None

    @property
    def streamed(self) -> bool:
        return self._teller is not None

    def look(self, frontier: Frontier) -> None:
        if self._teller is not None and (new := self._teller.new(frontier)):
            self.job.tell(new)

    def found(self, request: Request, hypotheses: Frontier) -> None:
        self.missing.discard(request)
        self._found[request] = self._call.told(hypotheses)
        if not self.missing:
            self.finish()

    def finish(self) -> None:
        results = self._call.results([self._found[request] for request in self._order])
        if self._teller is not None and (rest := self._teller.rest(results[0].text)):
            self.job.tell(rest)
        self.job.finish(results)


class Lane:
    """Makes its seats when they are needed. The same request of several jobs is answered once."""

    def __init__(self, make: Callable[[], Seats], steps_between_looks: int = 1) -> None:
        self._make, self._between = make, steps_between_looks
        self._seats: Seats | None = None
        self._waiting: deque[Request] = deque()
        self._suspects: deque[deque[Request]] = deque()  # that are answered apart, after trouble in the seats
        self._replies: dict[Request, list[Reply]] = {}
        self._steps = 0
        self._size = 0  # of the seats
        self._free: int | None = None
        self.closing = False  # takes nobody in until it is empty

    @property
    def busy(self) -> bool:
        """Whether a step would do anything."""
        return self._seated or bool(self._suspects) or (bool(self._waiting) and not self.closing)

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def seated(self) -> int:
        """Sentences; from any thread."""
        return max(0, len(self._replies) - len(self._waiting))

    @property
    def free(self) -> int | None:
        """Seats that nobody has; None as long as there are none. From any thread."""
        return 0 if self.closing else self._free

    @property
    def taken(self) -> int:
        """Seats that somebody has; from any thread."""
        free = self._free  # looked at once: the thread that steps may change it
        return 0 if free is None else self._size - free

    @property
    def _seated(self) -> bool:
        return self._seats is not None and self._seats.busy

    def add(self, request: Request, reply: Reply) -> None:
        if request in self._replies:
            if request not in self._waiting:
                reply.job.begin()
            self._replies[request].append(reply)
            return
        self._replies[request] = [reply]
        self._waiting.append(request)

    def remove(self, reply: Reply) -> None:
        """Nobody listens to it any more."""
        for request in reply.missing & self._replies.keys():
            others = [each for each in self._replies[request] if each is not reply]
            if others:
                self._replies[request] = others
            else:
                self._drop([request])

    def step(self) -> None:
        """One more token for everybody who is seated."""
        feed = self._feed
        before = [*feed]
        try:
            if self._seats is None:
                self._seats = self._make()
                self._size = self._seats.free
            answers = [*self._seats.advance(feed)]
        except Exception as error:  # whatever it is, the others are to be answered
            self._trouble(error)
            return
        for request in before[: len(before) - len(feed)]:
            for reply in self._replies[request]:
                reply.job.begin()
        # When those are counted as seated who have begun, not before: as long as they wait, their seats are free. And
        # before anybody hears an answer: whoever asks again at once is to find the seat free.
        self._free = self._seats.free
        for each in answers:
            for request, hypotheses in each.one_by_one():
                self._answered(request, hypotheses)
        if self._suspects and not self._suspects[0] and not self._seated:
            self._suspects.popleft()
        self._look()

    @property
    def _feed(self) -> "deque[Request]":
        """Whom the seats may take in."""
        if self._suspects:
            return self._suspects[0]
        return deque() if self.closing else self._waiting

    def _answered(self, request: Request, hypotheses: Frontier) -> None:
        for reply in self._replies.pop(request, ()):
            _guarded(reply, partial(reply.found, request, hypotheses))

    def _look(self) -> None:
        """What is decided of those who want to hear it at once."""
        self._steps += 1
        if self._seats is None or self._steps % self._between:
            return
        numbers = {request.number for request, each in self._replies.items() if any(reply.streamed for reply in each)}
        if not numbers:
            return
        for request, frontier in self._seats.look(numbers):
            for reply in self._replies.get(request, ()):
                _guarded(reply, partial(reply.look, frontier))

    def _trouble(self, error: Exception) -> None:
        """Whose fault it was is found by halves: everybody else is answered, from the start."""
        queued = {*self._waiting, *chain(*self._suspects)}
        seated = [request for request in self._replies if request not in queued] or [self._feed.popleft()]
        self._seats, self._free = None, None
        if self._suspects and not self._suspects[0]:
            self._suspects.popleft()
        if len(seated) == 1:
            for reply in self._replies[seated[0]]:
                reply.job.fail(error)
            self._drop(seated)
            return
        middle = len(seated) // 2
        self._suspects.extendleft((deque(seated[middle:]), deque(seated[:middle])))

    def _drop(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self._replies.pop(request, None)
            for queue in (self._waiting, *self._suspects):
                if request in queue:
                    queue.remove(request)
        # Seats know requests by their numbers, which two that differ only in their limits share.
        numbers = {each.number for each in requests} - {each.number for each in self._replies}
        if self._seats is not None and numbers:
            self._seats.forget(numbers)
            self._free = self._seats.free


def _guarded(reply: Reply, telling: Callable[[], None]) -> None:
    """What goes wrong with one answer is told to whom it is for."""
    try:
        telling()
    except Exception as error:
        reply.job.fail(error)
