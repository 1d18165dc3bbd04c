"""Requests of one kind on their way through seats: who waits, who is being answered, who has left."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from attendo.decode.frontier import Frontier
from attendo.decode.requests import Request
from attendo.serve.jobs import Job
from attendo.serve.seats import Seats
from attendo.text_model import Result
from attendo.text_model.calls import Call


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
