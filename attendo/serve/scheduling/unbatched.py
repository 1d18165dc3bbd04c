"""Runs jobs that cannot be batched (MBR, constraints, alignments, work for the explorer page)."""

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from attendo.decode.search import step_hook
from attendo.serve.scheduling.admission import UnbatchedAdmissionQueue
from attendo.serve.scheduling.jobs import CallableJob, GenerateJob, ScheduledJob
from attendo.text_model import Result, TextModel

_MAX_CALL_TEXTS = 64  # texts in one call of the model
_MAX_CALL_CHARACTERS = 16_384  # of all texts in one call, to keep calls short


class _AllCancelled(Exception):  # noqa: N818  (not an error)
    """All jobs of the current call are cancelled or expired."""


class UnbatchedJobRunner:
    """Runs the job that has waited longest and the one with the lowest token cost in turn, so neither starves.

    A job with several calls or items moves to the end of the queue after each one. `step` belongs to one thread; other
    threads may `add` jobs. `pause` is called before every decoding step. If `stopped` is set, the current call ends at
    its next decoding step.
    """

    def __init__(self, model: TextModel, admission_queue: UnbatchedAdmissionQueue) -> None:
        self._model, self._admission_queue = model, admission_queue
        self.pause: Callable[[], None] = lambda: None
        self.stopped = False
        self._jobs: deque[ScheduledJob] = deque()  # longest wait first
        self._jobs_lock = threading.Lock()
        self._shortest_next = False
        self._iterators: dict[ScheduledJob, Iterator[Any]] = {}
        self._results: dict[ScheduledJob, list[Result]] = {}  # of jobs with some finished texts
        self._isolated: set[ScheduledJob] = set()  # run alone after a failed call of several jobs

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    @property
    def jobs(self) -> list[ScheduledJob]:
        """Jobs that are not finished; thread-safe."""
        with self._jobs_lock:
            return [*self._jobs]

    def add(self, job: ScheduledJob) -> None:
        """Queue a job; thread-safe."""
        with self._jobs_lock:
            self._jobs.append(job)

    def step(self) -> None:
        """Run one call of the model, or one item of a job."""
        now = time.monotonic()
        for each in self.jobs:
            if each.finished or each.check_expired(now):
                self._remove(each)
        if not self.busy:
            return
        job = self._next_job()
        shares = self._gather_texts(job)
        current = [*shares] or [job]
        with step_hook(lambda: self._check_cancelled(current)):
            self._run(current, lambda: self._run_call(shares) if shares else self._run_item(job))
        self._admission_queue.record_finished(
            sum(each.finished for each in current if isinstance(each.spec, GenerateJob))
        )

    def _remove(self, job: ScheduledJob) -> None:
        with self._jobs_lock, suppress(ValueError):
            self._jobs.remove(job)
        self._isolated.discard(job)
        self._results.pop(job, None)
        if (iterator := self._iterators.pop(job, None)) is not None and hasattr(iterator, "close"):
            iterator.close()

    def _next_job(self) -> ScheduledJob:
        first, *others = self.jobs
        if isinstance(first.spec, CallableJob):  # its items are always short
            return first
        least_now, self._shortest_next = self._shortest_next, not self._shortest_next
        return min((first, *others), key=lambda job: job.token_cost) if least_now else first

    def _move_to_back(self, job: ScheduledJob) -> None:
        with self._jobs_lock:
            self._jobs.remove(job)
            self._jobs.append(job)

    def _run(self, jobs: Sequence[ScheduledJob], work: Callable[[], None]) -> None:
        for each in jobs:
            each.start()
        try:
            work()
        except _AllCancelled:
            for each in jobs:
                self._remove(each)
        except Exception as error:  # of any kind: the other jobs must be finished
            if len(jobs) > 1:
                self._isolated.update(jobs)
                return
            self._remove(jobs[0])
            jobs[0].fail(error)

    def _check_cancelled(self, jobs: Sequence[ScheduledJob]) -> None:
        """Call `pause`, then raise if all jobs are expired or cancelled."""
        self.pause()
        now = time.monotonic()
        ended = [job.finished or job.check_expired(now) for job in jobs]  # a list, so that every expired job fails
        if self.stopped or all(ended):
            raise _AllCancelled

    def _run_item(self, job: ScheduledJob) -> None:
        """Run the next item of a `CallableJob` or a stream."""
        if job not in self._iterators:
            spec = job.spec
            self._iterators[job] = (
                spec.begin() if isinstance(spec, CallableJob) else self._model.stream(spec.texts[0], **spec.options)
            )
        try:
            item = next(self._iterators[job])
        except StopIteration as end:
            self._remove(job)
            job.finish([end.value])  # for a stream, the whole result
            return
        job.send_chunk(item)
        self._move_to_back(job)

    def _gather_texts(self, first: ScheduledJob) -> dict[ScheduledJob, Sequence[str]]:
        """Collect texts of the first job and of compatible later ones for one call; empty if it is run by items."""
        key, shares, room = _call_key(first), dict[ScheduledJob, Sequence[str]](), _CallBudget()
        if key is None:
            return {}
        for job in (first, *(each for each in self.jobs if each is not first)):
            if _call_key(job) != key or (shares and job in self._isolated) or not isinstance(job.spec, GenerateJob):
                continue
            rest = job.spec.texts[len(self._results.get(job, ())) :]
            share = room.take(rest) if _is_uniform(job.spec) else rest
            if shares and rest and not share:
                break
            shares[job] = share
            if len(share) < len(rest) or job in self._isolated:
                break
        return shares

    def _run_call(self, texts_by_job: dict[ScheduledJob, Sequence[str]]) -> None:
        """Generate these texts in one call. A job with texts left moves to the end of the queue."""
        spec = next(iter(texts_by_job)).spec
        assert isinstance(spec, GenerateJob)
        texts = [text for share in texts_by_job.values() for text in share]
        results = iter(self._model.generate(texts, **spec.options))
        for job, share in texts_by_job.items():
            job_results = self._results.setdefault(job, [])
            job_results += [next(results) for _ in share]
            if isinstance(job.spec, GenerateJob) and len(job_results) == len(job.spec.texts):
                self._remove(job)
                job.finish(job_results)
            else:
                self._move_to_back(job)


class _CallBudget:
    """Remaining texts and characters of one call."""

    def __init__(self) -> None:
        self._texts, self._characters = _MAX_CALL_TEXTS, _MAX_CALL_CHARACTERS

    def take(self, texts: Sequence[str]) -> Sequence[str]:
        """Return the texts that fit, at least one if the call is empty."""
        for count, text in enumerate(texts):
            empty = self._texts == _MAX_CALL_TEXTS
            if not empty and (self._texts == 0 or len(text) > self._characters):
                return texts[:count]
            self._texts, self._characters = self._texts - 1, self._characters - len(text)
        return texts


def _call_key(job: ScheduledJob) -> Hashable | None:
    """Return a key that is equal for jobs that can share a call; None for jobs run by items."""
    spec = job.spec
    if isinstance(spec, CallableJob) or spec.streamed:
        return None
    return repr(sorted(spec.options.items())) if _is_uniform(spec) else id(job)


def _is_uniform(spec: GenerateJob) -> bool:
    """True if the options are the same for all texts, so that the texts can be split over calls."""
    prefix, constraints = spec.options.get("prefix"), spec.options.get("constraints")
    return isinstance(prefix, str | None) and all(isinstance(each, str) for each in constraints or ())
