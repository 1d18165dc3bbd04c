"""Worker thread of one model: inbox, lifecycle, heartbeat; yields to the event loop.

While the loop has work, each of the hundreds of operations of a step would wait for the interpreter once more. So the
loop gets time of its own between two steps, finds little to do within them, and answers refusals at once.
"""

import asyncio
import logging
import queue
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from attendo.errors import UsageError
from attendo.serve.http.access_log import CURRENT, where
from attendo.serve.http.errors import Refusal
from attendo.serve.scheduling.batches import SeatMaker
from attendo.serve.scheduling.jobs import Event, Failed, Finished, Job, Texts, Told, Work
from attendo.serve.scheduling.scheduler import BatchLimits, Scheduler
from attendo.text_model import Result, TextModel

T = TypeVar("T")
_LOOK_SECONDS = 0.01  # between two looks at whether all is done, while draining
_TAKING_SECONDS = 0.02  # in which requests are taken in between two steps
_log = logging.getLogger("attendo.serve")
_EVERY_SECONDS = 0.005  # of computing, after which the loop has a turn: waking it costs a tenth of a millisecond
_MOST_SECONDS = 0.02  # of a turn: whatever floods the loop, there is something left for those who were let in


class Batcher:
    """Takes requests from any event loop. Deadlines are moments of `time.monotonic`; whoever is cancelled is forgotten.

    The thread starts with the first request. What goes wrong with one request is told to that one alone; should the
    thread die all the same, `ready` is False and everybody is refused.
    """

    def __init__(self, model: TextModel, limits: BatchLimits | None = None, fixed: bool | None = None) -> None:
        """`fixed`: slots of fixed size also on a CPU."""
        self.limits = limits or BatchLimits()
        seats = SeatMaker(model, self.limits.side_by_side, fixed)
        self._scheduler = Scheduler(model, seats, self.limits, self._meanwhile)
        self._inbox: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._jobs: set[Job] = set()
        self._lock, self._turns = threading.Lock(), Turns()
        self._thread: threading.Thread | None = None
        self._draining, self._died = False, False
        self._idle, self._last_beat = True, time.monotonic()
        self.timed: Callable[[float, float], None] | None = None  # hears how long a request waited and was computed for

    async def generate(self, texts: Sequence[str], deadline: float | None = None, **options: Any) -> list[Result]:
        """What `TextModel.generate` answers with these options."""
        if isinstance(texts, str):
            raise UsageError("texts_not_a_list")
        with self._submitted(Texts(tuple(texts), options), deadline) as heard:
            while not isinstance(event := await _heard(heard, deadline), Finished):
                pass
            results: list[Result] = event.value
            return results

    async def stream(
        self,
        text: str,
        deadline: float | None = None,
        done: Callable[[Result], None] | None = None,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        """What is new of the answer, as it is decided; joined, the text of the result that `done` hears at the end."""
        with self._submitted(Texts((text,), options, streamed=True), deadline) as heard:
            while isinstance(event := await _heard(heard, deadline), Told):
                yield event.item
            if done is not None:
                done(event.value[0])

    async def run(self, work: Callable[[], T], deadline: float | None = None) -> T:
        """Anything else that needs the model, done in its thread between two steps of others."""

        def once() -> Iterator[T]:
            yield work()

        found = [item async for item in self.each(once, deadline)]
        return found[0]

    async def each(self, work: Callable[[], Iterator[T]], deadline: float | None = None) -> AsyncGenerator[T, None]:
        """What an iterator gives, an item between two steps of others."""
        with self._submitted(Work(work), deadline) as heard:
            while isinstance(event := await _heard(heard, deadline), Told):
                yield event.item

    async def drain(self) -> None:
        """Takes nothing new and finishes what is there, as long as the time for it lasts; then the thread ends."""
        self._draining = True
        until = time.monotonic() + self.limits.drain_seconds
        while self._jobs and self.ready_to_compute and time.monotonic() < until:
            await asyncio.sleep(_LOOK_SECONDS)
        self._inbox.put(None)
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until + 1:
            await asyncio.sleep(_LOOK_SECONDS)
        self._tell_all("draining")

    @property
    def waiting(self) -> int:
        """Requests that have not begun."""
        return self._scheduler.waiting

    @property
    def full(self) -> bool:
        """Whether a request that came now would be refused, for those who wait already."""
        return self._too_many(patient=False)

    @property
    def running(self) -> int:
        """Requests that have begun."""
        with self._lock:
            return sum(job.begun and job.listened_to for job in self._jobs)

    @property
    def ready(self) -> bool:
        """Whether a request would be taken, were there room for it."""
        return self.ready_to_compute and not self._draining

    @property
    def ready_to_compute(self) -> bool:
        return not self._died

    @property
    def seconds_without_a_step(self) -> float:
        """How long nothing has happened in the thread; 0 where it has nothing to do.

        Whether anybody still waits does not matter: from a thread that hangs all are gone after their deadlines.
        """
        return 0.0 if self._idle else time.monotonic() - self._last_beat

    @property
    def batch_size(self) -> int:
        """Sentences that are being answered side by side."""
        return self._scheduler.batch_size

    @contextmanager
    def _submitted(self, asked: Texts | Work, deadline: float | None) -> Iterator["asyncio.Queue[Event]"]:
        """Where the events of a request arrive. Whoever leaves is forgotten before the next step."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[Event]()

        def heard(event: Event) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody is there
                loop.call_soon_threadsafe(events.put_nowait, event)

        job = Job(asked, heard, deadline)
        self._turns.loop = loop
        self._enter(job)
        try:
            yield events
            if self.timed is not None:
                self.timed(*job.seconds)
        finally:
            job.leave()
            with self._lock:
                self._jobs.discard(job)

    def _enter(self, job: Job) -> None:
        with self._lock:
            if self._died or self._draining:
                raise Refusal("stopped" if self._died else "draining")
            # A person at the page would rather wait than be told to try again. Who has been let in may wait for what it
            # has asked itself, a long text for its first sentences.
            request = CURRENT.get()
            job.patient = job.patient or (request is not None and request.let_in)
            if self._too_many(job.patient):
                raise Refusal("busy", waiting=self.waiting)
            if request is not None:
                request.let_in = True
            self._jobs.add(job)
            self._scheduler.queue.add(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._compute, name="attendo-batcher", daemon=True)
                self._thread.start()
        self._inbox.put(job)

    def _too_many(self, patient: bool) -> bool:
        return self.waiting >= self.limits.waiting or (not patient and self._scheduler.queue.too_long)

    def _compute(self) -> None:
        """The thread: until it is told to end."""
        try:
            while self._taken_in():
                self._scheduler.turn(time.monotonic())
                self._between_steps()
        except BaseException as error:
            _log.critical("the thread that computes died: %s", where(error))
            self._died = True
            self._tell_all("stopped")

    def _taken_in(self) -> bool:
        """What has come since, or as much as leaves time for a step; without anything to do, the next is waited for."""
        until = time.monotonic() + _TAKING_SECONDS
        with suppress(queue.Empty):
            job = self._next()
            while job is not None:
                self._beat()
                self._scheduler.take(job)
                if time.monotonic() > until:
                    return True
                job = self._inbox.get_nowait()
            return False
        return True

    def _next(self) -> Job | None:
        if self._scheduler.busy:
            return self._inbox.get_nowait()
        self._idle = True
        job = self._inbox.get()
        self._beat()
        self._idle = False
        return job

    def _meanwhile(self) -> None:
        """Within something that takes long: whoever has come is taken in, and the others go on."""
        self._between_steps()
        until = time.monotonic() + _TAKING_SECONDS
        with suppress(queue.Empty):
            while time.monotonic() < until:
                if (job := self._inbox.get_nowait()) is None:
                    self._inbox.put(None)  # to end: when this is done
                    break
                self._scheduler.take(job)
        self._scheduler.aside(time.monotonic())

    def _between_steps(self) -> None:
        self._turns.give()
        self._beat()

    def _beat(self) -> None:
        self._last_beat = time.monotonic()

    def _tell_all(self, code: str) -> None:
        with self._lock:
            left = [*self._jobs]
        for job in left:
            job.fail(Refusal(code))


async def _heard(events: "asyncio.Queue[Event]", deadline: float | None) -> Told | Finished:
    """The next event. The deadline holds here too: the thread may be busy with something that takes long."""
    remaining = None if deadline is None else deadline - time.monotonic()
    try:
        event = await asyncio.wait_for(events.get(), remaining)
    except TimeoutError:
        raise Refusal("too_late") from None
    if isinstance(event, Failed):
        raise event.error
    return event


class Turns:
    """Of one thread, with the loop of whoever asked it last."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._handled = threading.Event()
        self._begun = time.monotonic()

    def give(self) -> None:
        """Waits until the loop has handled what was ready, where the last time is long enough ago."""
        if self.loop is None or time.monotonic() - self._begun < _EVERY_SECONDS:
            return
        self._handled.clear()
        with suppress(RuntimeError):  # the loop is closed: nobody is there
            self.loop.call_soon_threadsafe(self._handled.set)
            self._handled.wait(_MOST_SECONDS)
        self._begun = time.monotonic()
