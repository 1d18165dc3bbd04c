"""Worker thread of one model: inbox, lifecycle, heartbeat, yielding the GIL to the event loop.

While the event loop is busy, each of the hundreds of operations of a step waits for the GIL. So the worker yields
between steps: the loop then has little work during a step and sends rejections at once.
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
from attendo.serve.http.access_log import current_request, error_location
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.batches import BatchFactory
from attendo.serve.scheduling.jobs import (
    CallableJob,
    Chunk,
    GenerateJob,
    JobEvent,
    JobFailed,
    JobFinished,
    ScheduledJob,
)
from attendo.serve.scheduling.scheduler import BatchLimits, Scheduler
from attendo.text_model import Result, TextModel

T = TypeVar("T")
_DRAIN_POLL_SECONDS = 0.01  # between two checks while draining
_MAX_INTAKE_SECONDS = 0.02  # for receiving requests between two steps
_log = logging.getLogger("attendo.serve")
_YIELD_INTERVAL_SECONDS = 0.005  # of computing between two yields: waking the event loop costs 0.1 ms
_MAX_YIELD_SECONDS = 0.02  # of one yield, so that a flood of requests does not stop the admitted ones


class ModelWorker:
    """Runs the requests of any event loop in one thread. Deadlines are values of `time.monotonic`.

    The thread starts with the first request. An error fails only its own request. If the thread dies, `is_ready` is
    False and all requests are rejected.
    """

    def __init__(self, model: TextModel, limits: BatchLimits | None = None, static_shapes: bool | None = None) -> None:
        """`static_shapes` selects `StaticBatch` on a CPU too."""
        self.limits = limits or BatchLimits()
        seats = BatchFactory(model, self.limits.max_batch_size, static_shapes)
        self._scheduler = Scheduler(model, seats, self.limits, self._interleave)
        self._inbox: queue.SimpleQueue[ScheduledJob | None] = queue.SimpleQueue()
        self._jobs: set[ScheduledJob] = set()
        self._lock, self._yielder = threading.Lock(), EventLoopYielder()
        self._thread: threading.Thread | None = None
        self._draining, self._died = False, False
        self._idle, self._last_heartbeat = True, time.monotonic()
        self.on_finished: Callable[[float, float], None] | None = None  # receives seconds of waiting and of computing

    async def generate(self, texts: Sequence[str], deadline: float | None = None, **options: Any) -> list[Result]:
        """Return the results of `TextModel.generate` with these options."""
        if isinstance(texts, str):
            raise UsageError("texts_not_a_list")
        with self._submit(GenerateJob(tuple(texts), options), deadline) as heard:
            while not isinstance(event := await _next_event(heard, deadline), JobFinished):
                pass
            results: list[Result] = event.value
            return results

    async def stream(
        self,
        text: str,
        deadline: float | None = None,
        on_result: Callable[[Result], None] | None = None,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        """Yield the new text as it is decided. `on_result` receives the whole result at the end."""
        with self._submit(GenerateJob((text,), options, streamed=True), deadline) as heard:
            while isinstance(event := await _next_event(heard, deadline), Chunk):
                yield event.item
            if on_result is not None:
                on_result(event.value[0])

    async def run(self, work: Callable[[], T], deadline: float | None = None) -> T:
        """Run a function in the worker thread, between two decoding steps."""

        def once() -> Iterator[T]:
            yield work()

        found = [item async for item in self.iterate(once, deadline)]
        return found[0]

    async def iterate(self, work: Callable[[], Iterator[T]], deadline: float | None = None) -> AsyncGenerator[T, None]:
        """Yield the items of an iterator that runs in the worker thread, one item between two decoding steps."""
        with self._submit(CallableJob(work), deadline) as heard:
            while isinstance(event := await _next_event(heard, deadline), Chunk):
                yield event.item

    async def drain(self) -> None:
        """Reject new requests, finish those in flight within `drain_seconds`, then end the thread."""
        self._draining = True
        until = time.monotonic() + self.limits.drain_seconds
        while self._jobs and self.is_alive and time.monotonic() < until:
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        self._inbox.put(None)
        while self._thread is not None and self._thread.is_alive() and time.monotonic() < until + 1:
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        self._fail_all("draining")

    @property
    def num_waiting(self) -> int:
        """Number of requests that have not started."""
        return self._scheduler.num_waiting

    @property
    def is_full(self) -> bool:
        """True if a new request would be rejected because of the queue."""
        return self._is_overloaded(can_wait=False)

    @property
    def num_running(self) -> int:
        """Number of requests that have started."""
        with self._lock:
            return sum(job.has_started and job.is_active for job in self._jobs)

    @property
    def is_ready(self) -> bool:
        """True if the worker accepts requests, apart from the length of its queue."""
        return self.is_alive and not self._draining

    @property
    def is_alive(self) -> bool:
        return not self._died

    @property
    def seconds_since_step(self) -> float:
        """Seconds since the last heartbeat of the thread; 0 if it is idle.

        The number of waiting requests does not count: if the thread hangs, all of them end at their deadlines.
        """
        return 0.0 if self._idle else time.monotonic() - self._last_heartbeat

    @property
    def batch_size(self) -> int:
        """Number of running sentences."""
        return self._scheduler.batch_size

    @contextmanager
    def _submit(self, spec: GenerateJob | CallableJob, deadline: float | None) -> Iterator["asyncio.Queue[JobEvent]"]:
        """Queue a job and yield the queue of its events. On exit the job is cancelled before the next step."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[JobEvent]()

        def heard(event: JobEvent) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(events.put_nowait, event)

        job = ScheduledJob(spec, heard, deadline)
        self._yielder.loop = loop
        self._enqueue(job)
        try:
            yield events
            if self.on_finished is not None:
                self.on_finished(*job.wait_and_run_seconds)
        finally:
            job.cancel()
            with self._lock:
                self._jobs.discard(job)

    def _enqueue(self, job: ScheduledJob) -> None:
        with self._lock:
            if self._died or self._draining:
                raise ApiError("stopped" if self._died else "draining")
            # A `CallableJob` may always wait: users of the page prefer waiting to an error. An HTTP request is admitted
            # once: its later jobs may wait, such as the remaining sentences of a long text.
            request = current_request.get()
            job.can_wait = job.can_wait or (request is not None and request.admitted)
            if self._is_overloaded(job.can_wait):
                raise ApiError("busy", waiting=self.num_waiting)
            if request is not None:
                request.admitted = True
            self._jobs.add(job)
            self._scheduler.admission_queue.add(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_loop, name="attendo-batcher", daemon=True)
                self._thread.start()
        self._inbox.put(job)

    def _is_overloaded(self, can_wait: bool) -> bool:
        return self.num_waiting >= self.limits.max_queued or (
            not can_wait and self._scheduler.admission_queue.is_overloaded
        )

    def _run_loop(self) -> None:
        """Run the thread until `drain` ends it."""
        try:
            while self._receive_jobs():
                self._scheduler.step(time.monotonic())
                self._yield_between_steps()
        except BaseException as error:
            _log.critical("the thread that computes died: %s", error_location(error))
            self._died = True
            self._fail_all("stopped")

    def _receive_jobs(self) -> bool:
        """Pass new jobs to the scheduler for at most `_MAX_INTAKE_SECONDS`. Wait for a job if idle.

        Return False to end the thread.
        """
        until = time.monotonic() + _MAX_INTAKE_SECONDS
        with suppress(queue.Empty):
            job = self._next_job()
            while job is not None:
                self._heartbeat()
                self._scheduler.add(job)
                if time.monotonic() > until:
                    return True
                job = self._inbox.get_nowait()
            return False
        return True

    def _next_job(self) -> ScheduledJob | None:
        if self._scheduler.busy:
            return self._inbox.get_nowait()
        self._idle = True
        job = self._inbox.get()
        self._heartbeat()
        self._idle = False
        return job

    def _interleave(self) -> None:
        """Receive jobs and run a step of others; called between the steps of an exclusive job."""
        self._yield_between_steps()
        until = time.monotonic() + _MAX_INTAKE_SECONDS
        with suppress(queue.Empty):
            while time.monotonic() < until:
                if (job := self._inbox.get_nowait()) is None:
                    self._inbox.put(None)  # ends the thread after this job
                    break
                self._scheduler.add(job)
        self._scheduler.step_interleaved(time.monotonic())

    def _yield_between_steps(self) -> None:
        self._yielder.yield_now()
        self._heartbeat()

    def _heartbeat(self) -> None:
        self._last_heartbeat = time.monotonic()

    def _fail_all(self, code: str) -> None:
        with self._lock:
            left = [*self._jobs]
        for job in left:
            job.fail(ApiError(code))


async def _next_event(events: "asyncio.Queue[JobEvent]", deadline: float | None) -> Chunk | JobFinished:
    """Return the next event. The deadline is checked here too: the thread may be busy with a long step."""
    remaining = None if deadline is None else deadline - time.monotonic()
    try:
        event = await asyncio.wait_for(events.get(), remaining)
    except TimeoutError:
        raise ApiError("too_late") from None
    if isinstance(event, JobFailed):
        raise event.error
    return event


class EventLoopYielder:
    """Lets the event loop of the latest request take the GIL."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop | None = None
        self._handled = threading.Event()
        self._last_yield = time.monotonic()

    def yield_now(self) -> None:
        """Wait until the event loop has run its ready callbacks, if the last yield is long enough ago."""
        if self.loop is None or time.monotonic() - self._last_yield < _YIELD_INTERVAL_SECONDS:
            return
        self._handled.clear()
        with suppress(RuntimeError):  # the event loop is closed
            self.loop.call_soon_threadsafe(self._handled.set)
            self._handled.wait(_MAX_YIELD_SECONDS)
        self._last_yield = time.monotonic()
