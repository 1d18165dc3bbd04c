"""Worker threads of one model: inbox, lifecycle, heartbeat, yielding the GIL to the event loop.

One thread steps the batches. Unbatched jobs have threads of their own. A lock lets one thread compute at a time, in
turn after every decoding step: on a GPU a CUDA graph may be captured, on a CPU two steps at once compete for the GIL
and the cores.

While the event loop is busy, each of the hundreds of operations of a step waits for the GIL. So the threads yield
between steps: the loop then has little work during a step and sends rejections at once.
"""

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, TypeVar

import torch

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
from attendo.serve.scheduling.scheduler import BatchLimits, Scheduler, torch_threads_for
from attendo.serve.scheduling.unbatched import UnbatchedJobRunner
from attendo.text_model import Result, TextModel

T = TypeVar("T")
_DRAIN_POLL_SECONDS = 0.01  # between two checks while draining
_MAX_INTAKE_SECONDS = 0.02  # for receiving requests between two steps
_log = logging.getLogger("attendo.serve")
_YIELD_INTERVAL_SECONDS = 0.005  # of computing between two yields: waking the event loop costs 0.1 ms
_MAX_YIELD_SECONDS = 0.02  # of one yield, so that a flood of requests does not stop the admitted ones


class ModelWorker:
    """Runs the requests of any event loop in threads. Deadlines are values of `time.monotonic`.

    The threads start when they are needed. An error fails only its own request. If a thread dies, `is_ready` is False
    and all requests are rejected.
    """

    def __init__(self, model: TextModel, limits: BatchLimits | None = None, static_shapes: bool | None = None) -> None:
        """`static_shapes` selects `StaticBatch` on a CPU too."""
        self.limits = limits or BatchLimits()
        self._model = model
        self._scheduler = Scheduler(model, BatchFactory(model, self.limits.max_batch_size, static_shapes), self.limits)
        self._inbox: queue.SimpleQueue[ScheduledJob | None] = queue.SimpleQueue()
        self._jobs: set[ScheduledJob] = set()
        self._lock, self._compute_lock, self._yielder = threading.Lock(), FairLock(), EventLoopYielder()
        self._batch_thread = WorkerThread("attendo-batcher", self._step_batches, lambda: not self._ended, self._die)
        self._unbatched_threads = [self._make_unbatched_thread(runner) for runner in self._scheduler.unbatched_runners]
        self._draining, self._ended, self._died = False, False, False
        self.on_finished: Callable[[float, float], None] | None = None  # receives seconds of waiting and of computing
        # For good: `inference_mode` of one thread would otherwise end that of another.
        if model.backend.name == "torch":
            for network in model.networks:
                network.eval()
        if model.device.type == "cuda":
            torch.backends.cuda.enable_cudnn_sdp(False)

    async def generate(self, texts: Sequence[str], deadline: float | None = None, **options: Any) -> list[Result]:
        """Return the results of `TextModel.generate` with these options."""
        if isinstance(texts, str):
            raise UsageError("texts_not_a_list")
        with self._submit(GenerateJob(tuple(texts), options), deadline) as events:
            while not isinstance(event := await _next_event(events, deadline), JobFinished):
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
        with self._submit(GenerateJob((text,), options, streamed=True), deadline) as events:
            while isinstance(event := await _next_event(events, deadline), Chunk):
                yield event.item
            if on_result is not None:
                on_result(event.value[0])

    async def run(self, work: Callable[[], T], deadline: float | None = None) -> T:
        """Run a function in a thread, between two decoding steps of others."""

        def run_once() -> Iterator[T]:
            yield work()

        found = [item async for item in self.iterate(run_once, deadline)]
        return found[0]

    async def iterate(self, work: Callable[[], Iterator[T]], deadline: float | None = None) -> AsyncGenerator[T, None]:
        """Yield the items of an iterator that runs in a thread, one item between two decoding steps of others."""
        with self._submit(CallableJob(work), deadline) as events:
            while isinstance(event := await _next_event(events, deadline), Chunk):
                yield event.item

    async def drain(self) -> None:
        """Reject new requests, finish those in flight within `drain_seconds`, then end the threads."""
        self._draining = True
        until = time.monotonic() + self.limits.drain_seconds
        while self._jobs and self.is_alive and time.monotonic() < until:
            await asyncio.sleep(_DRAIN_POLL_SECONDS)
        self._inbox.put(None)
        for runner in self._scheduler.unbatched_runners:
            runner.stopped = True
        while any(each.is_alive for each in self._threads) and time.monotonic() < until + 1:
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
        """Seconds since the last heartbeat of a thread with work; 0 if all are idle.

        The number of waiting requests does not count: if a thread hangs, all of them end at their deadlines.
        """
        return max(each.seconds_since_heartbeat for each in self._threads)

    @property
    def batch_size(self) -> int:
        """Number of running sentences."""
        return self._scheduler.batch_size

    @contextmanager
    def _submit(self, spec: GenerateJob | CallableJob, deadline: float | None) -> Iterator["asyncio.Queue[JobEvent]"]:
        """Queue a job and yield the queue of its events. On exit the job is cancelled before the next step."""
        loop, events = asyncio.get_running_loop(), asyncio.Queue[JobEvent]()

        def put_event(event: JobEvent) -> None:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(events.put_nowait, event)

        job = ScheduledJob(spec, put_event, deadline)
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
            self._batch_thread.start()
        self._inbox.put(job)

    def _is_overloaded(self, can_wait: bool) -> bool:
        return self.num_waiting >= self.limits.max_queued or (
            not can_wait and self._scheduler.admission_queue.is_overloaded
        )

    @property
    def _threads(self) -> "list[WorkerThread]":
        return [self._batch_thread, *self._unbatched_threads]

    def _make_unbatched_thread(self, runner: UnbatchedJobRunner) -> "WorkerThread":
        """Return the thread of this runner. It ends with the last job.

        An idle thread would keep its OpenMP threads, and GNU's OpenMP lets all threads sleep instead of spin if there
        are more of them than cores.
        """

        def step() -> None:
            with self._compute_lock, torch_threads_for(self._model):
                runner.step()
                self._yielder.yield_now()

        def pause() -> None:
            thread.beat()
            self._yielder.yield_now()
            self._compute_lock.pass_on()

        thread = WorkerThread("attendo-unbatched", step, lambda: runner.busy and not runner.stopped, self._die)
        runner.pause = pause
        return thread

    def _step_batches(self) -> None:
        """Receive jobs and run one step. Wait for a job if there is none."""
        first: Sequence[ScheduledJob | None] = ()
        if not self._scheduler.busy:
            self._batch_thread.idle = True
            first = (self._inbox.get(),)
            self._batch_thread.beat()
        with self._compute_lock:
            self._receive_jobs(first)
            self._scheduler.step(time.monotonic())
            self._yielder.yield_now()

    def _receive_jobs(self, first: Sequence[ScheduledJob | None]) -> None:
        """Pass new jobs to the scheduler for at most `_MAX_INTAKE_SECONDS`. None ends the thread."""
        until = time.monotonic() + _MAX_INTAKE_SECONDS
        for job in chain(first, self._poll_inbox()):
            if job is None:
                self._ended = True
                return
            self._batch_thread.beat()
            self._scheduler.add(job)
            if time.monotonic() > until:
                break
        for thread, runner in zip(self._unbatched_threads, self._scheduler.unbatched_runners, strict=True):
            if runner.busy:
                thread.start()

    def _poll_inbox(self) -> Iterator[ScheduledJob | None]:
        with suppress(queue.Empty):
            while True:
                yield self._inbox.get_nowait()

    def _die(self, error: BaseException) -> None:
        _log.critical("the thread that computes died: %s", error_location(error))
        self._died = True
        self._fail_all("stopped")

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


class WorkerThread:
    """A thread that repeats `step` while `has_work` is true, with a heartbeat. `on_death` receives the fatal error."""

    def __init__(
        self,
        name: str,
        step: Callable[[], None],
        has_work: Callable[[], bool],
        on_death: Callable[[BaseException], None],
    ) -> None:
        self._name, self._step, self._has_work, self._on_death = name, step, has_work, on_death
        self._thread: threading.Thread | None = None
        self._running, self._lock = False, threading.Lock()
        self.idle, self._last_heartbeat = True, time.monotonic()

    @property
    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def seconds_since_heartbeat(self) -> float:
        """Seconds since the last heartbeat; 0 if idle."""
        return 0.0 if self.idle else time.monotonic() - self._last_heartbeat

    def start(self) -> None:
        """Start the thread if it does not run. It uses as many torch threads as the caller."""
        with self._lock:
            if not self._running:
                self._running = True
                self.beat()
                self._thread = threading.Thread(
                    target=self._run, args=(torch.get_num_threads(),), name=self._name, daemon=True
                )
                self._thread.start()

    def beat(self) -> None:
        """Record that the thread makes progress."""
        self._last_heartbeat, self.idle = time.monotonic(), False

    def _run(self, num_threads: int) -> None:
        # Otherwise a new thread takes the number that any other thread has set last, perhaps for one step only.
        torch.set_num_threads(num_threads)
        try:
            while self._check_work():
                self._step()
                self.beat()
        except BaseException as error:
            self._on_death(error)

    def _check_work(self) -> bool:
        """Return whether to go on. If not, `start` starts a new thread from now on."""
        with self._lock:
            self._running = self._has_work()
            self.idle = not self._running
            return self._running


class FairLock:
    """A lock that is granted in the order of the requests, so that threads alternate.

    A `threading.Lock` that is released and acquired again by the same thread usually stays with it.
    """

    def __init__(self) -> None:
        self._lock, self._acquired = threading.Lock(), False
        self._waiting: deque[threading.Lock] = deque()

    def __enter__(self) -> None:
        with self._lock:
            if not self._acquired:
                self._acquired = True
                return
            granted = threading.Lock()
            granted.acquire()
            self._waiting.append(granted)
        granted.acquire()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()  # it stays acquired, by the next thread
            else:
                self._acquired = False

    def pass_on(self) -> None:
        """Let the threads that wait go first."""
        if self._waiting:
            self.__exit__()
            self.__enter__()


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
