"""Scheduler of one model: validates jobs, chooses the batch that runs the next step."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from attendo.decode.search import Strategy
from attendo.nn.cpu_threads import tune_step
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.admission import BatchAdmissionQueue, UnbatchedAdmissionQueue
from attendo.serve.scheduling.batches import BatchFactory, BatchGroup, BatchKey, PendingResponse
from attendo.serve.scheduling.jobs import CallableJob, ScheduledJob
from attendo.serve.scheduling.unbatched import UnbatchedJobRunner
from attendo.text_model import TextModel
from attendo.text_model.generation import PreparedCall

_MAX_OPEN_GROUPS = 8  # batch groups that run in turn; others wait until one is empty
_MAX_STEPS_PER_GROUP = 64  # steps of a batch group before it is closed for one that waits
_MAX_IDLE_GROUPS = 8  # empty groups that are kept: on a GPU they hold a captured CUDA graph


@dataclass(frozen=True)
class BatchLimits:
    """Limits of one model. A request above a limit is rejected at once, never queued."""

    max_queued: int = 128  # requests that have not started
    max_queue_seconds: float = float("inf")  # estimated wait of a request
    max_batch_tokens: int = 262_144  # of all requests: source tokens plus maximum output length, times rows
    max_batch_size: int | None = None  # sentences of one batch key; None: 32 on a CPU, 128 on a GPU
    drain_seconds: float = 10.0  # for requests in flight at shutdown
    max_source_tokens: int = 1_000_000  # of one text
    max_output_tokens: int = 1_000_000  # of one answer; longer ones are truncated
    max_alignment_weights: int = 2_000_000  # of one request; about 10 bytes each as JSON


class Scheduler:
    """Schedules the jobs of one model. The worker thread runs `add` and `step`.

    Jobs that cannot be batched are added to `unbatched_runners`, which other threads step: one for calls of the model,
    one for `CallableJob`s, whose short items do not wait for a long call.
    """

    def __init__(self, model: TextModel, batch_factory: BatchFactory, limits: BatchLimits) -> None:
        self._model, self._batch_factory, self._limits = model, batch_factory, limits
        self._jobs: dict[ScheduledJob, tuple[PendingResponse, list[BatchGroup]]] = {}  # in batch groups
        self._groups: dict[BatchKey, BatchGroup] = {}  # least recently used first
        self._pending_groups: deque[BatchGroup] = deque()  # have requests but are not open
        self._open_groups: dict[BatchGroup, int] = {}  # number of steps each has run, oldest group first
        self._run_queue: deque[BatchGroup] = deque()
        # Jobs that cannot be batched have their own queue, so they do not cause rejections of batched ones.
        self._unbatched_queue = UnbatchedAdmissionQueue(limits.max_queue_seconds, batch_factory.max_batch_size)
        self._batch_queue = BatchAdmissionQueue(limits.max_queue_seconds, self._count_free_slots)
        self.admission_queue = self._batch_queue if batch_factory.supports_batching else self._unbatched_queue
        self._calls, self._callables = self.unbatched_runners = (
            UnbatchedJobRunner(model, self._unbatched_queue),
            UnbatchedJobRunner(model, self._unbatched_queue),
        )

    @property
    def busy(self) -> bool:
        """True if `step` has work to do."""
        return bool(self._jobs)

    @property
    def num_waiting(self) -> int:
        """Number of jobs that have not started; thread-safe."""
        return len(self._batch_queue.jobs) + len(self._unbatched_queue.jobs)

    @property
    def batch_size(self) -> int:
        """Number of running sentences."""
        return sum(group.num_running for group in [*self._open_groups])

    def add(self, job: ScheduledJob) -> None:
        """Queue a job, or fail it if its request is invalid."""
        try:
            self._dispatch(job)
        except Exception as error:  # of any kind: the other jobs must be finished
            self._remove(job)
            job.fail(error)

    def step(self, now: float) -> None:
        """Remove expired and cancelled jobs, then run one step of the next batch group."""
        self._remove_all(job for job in self._jobs if job.finished or job.check_expired(now))
        self._schedule_groups()
        if self._run_queue:
            self._run_step(self._run_queue.popleft())
            self._release_finished()

    def _count_free_slots(self) -> int:
        """Count free slots. If requests wait, only the groups that they wait for count. Thread-safe."""
        max_size, groups = self._batch_factory.max_batch_size, [*self._open_groups]
        free_slots = [group.num_free for group in groups if group.has_waiting]
        if not free_slots:
            return max(0, max_size - sum(group.num_used for group in groups))
        return sum(max_size if each is None else each for each in free_slots)

    def _run_step(self, group: BatchGroup) -> None:
        if group.busy:
            with torch_threads_for(self._model):
                group.step()
            self._open_groups[group] += 1
        if group.busy:
            self._run_queue.append(group)
        else:
            self._close_group(group)

    def _release_finished(self) -> None:
        """Remove finished jobs and update the wait estimate."""
        finished = [job for job in self._jobs if job.finished]
        self._remove_all(finished)
        self._batch_queue.record_finished(job for job in finished if job.has_started)
        self._batch_queue.set_running(self._jobs)

    def _remove_all(self, jobs: Iterable[ScheduledJob]) -> None:
        for job in [*jobs]:
            self._remove(job)

    def _dispatch(self, job: ScheduledJob) -> None:
        spec = job.spec
        if isinstance(spec, CallableJob):
            self._add_unbatched(job, self._callables)
            return
        call = self._model.prepare_call(spec.texts, **spec.options)
        if spec.streamed:
            call.check_stream()
        if any(line.max_length > self._limits.max_output_tokens for line in call.lines):
            call = call.with_max_length(self._limits.max_output_tokens)
            job.spec = replace(spec, options=_limit_length_options(self._limits.max_output_tokens, spec.options))
        self._check_limits(job, call)
        several = spec.streamed and len(call.lines) > 1
        if several or not self._batch_factory.can_batch(call):
            self._add_unbatched(job, self._calls)
            return
        self._add_to_groups(job, call, spec.streamed)

    def _add_unbatched(self, job: ScheduledJob, runner: UnbatchedJobRunner) -> None:
        if self._unbatched_queue is not self.admission_queue:
            if not job.can_wait and self._unbatched_queue.is_overloaded:
                raise ApiError("busy", waiting=len(self._unbatched_queue.jobs))
            self._unbatched_queue.add(job)
        runner.add(job)

    def _check_limits(self, job: ScheduledJob, call: PreparedCall) -> None:
        if (longest := max(call.source_tokens, default=0)) > self._limits.max_source_tokens:
            raise ApiError("source_too_long", tokens=longest, most=self._limits.max_source_tokens)
        if (weights := call.max_alignment_weights) > self._limits.max_alignment_weights:
            raise ApiError("alignments_too_large", count=weights, most=self._limits.max_alignment_weights)
        strategy: Strategy = call.prepare_search()[1]
        job.token_cost = sum(len(line.source) + line.max_length for line in call.lines) * strategy.width
        others = [each.token_cost for each in (*self._jobs, *self._calls.jobs) if each.is_active]
        if others and sum(others) + job.token_cost > self._limits.max_batch_tokens:
            raise ApiError("busy", waiting=len(others))

    def _add_to_groups(self, job: ScheduledJob, call: PreparedCall, streamed: bool) -> None:
        response = PendingResponse(job, call, streamed)
        if not response.pending:
            response.finish()
            return
        groups: list[BatchGroup] = []
        self._jobs[job] = response, groups
        for key, request in self._batch_factory.split_by_key(call):
            group = self._get_group(key)
            group.add(request, response)
            groups.append(group)

    def _get_group(self, key: BatchKey) -> BatchGroup:
        group = self._groups.pop(key, None) or BatchGroup(
            lambda: self._batch_factory.make(key), self._batch_factory.peek_interval
        )
        self._groups[key] = group
        if group not in self._open_groups and group not in self._pending_groups:
            self._pending_groups.append(group)
        return group

    def _schedule_groups(self) -> None:
        """Open pending groups. If some still wait, close the oldest open group after `_MAX_STEPS_PER_GROUP` steps."""
        while self._pending_groups and len(self._open_groups) < _MAX_OPEN_GROUPS:
            group = self._pending_groups.popleft()
            self._open_groups[group] = 0
            self._run_queue.append(group)
        if self._pending_groups and not any(group.closing for group in self._open_groups):
            first, steps = next(iter(self._open_groups.items()))
            first.closing = steps >= _MAX_STEPS_PER_GROUP

    def _close_group(self, group: BatchGroup) -> None:
        """Remove a group from the open ones. The least recently used idle groups are deleted."""
        group.closing = False
        del self._open_groups[group]
        if group.has_waiting:
            self._pending_groups.append(group)
        idle = [
            key
            for key, each in self._groups.items()
            if each not in self._open_groups and each not in self._pending_groups
        ]
        for key in idle[: max(0, len(idle) - _MAX_IDLE_GROUPS)]:
            del self._groups[key]

    def _remove(self, job: ScheduledJob) -> None:
        if (entry := self._jobs.pop(job, None)) is not None:
            response, groups = entry
            for group in groups:
                group.remove(response)


def _limit_length_options(max_tokens: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the server's limit in place of source-relative lengths, which would exceed it."""
    beyond = ("max_length_factor", "max_length_extra", "min_length_factor")
    limited = {name: value for name, value in options.items() if name not in beyond}
    if (limited.get("min_length_extra") or 0) > max_tokens:
        del limited["min_length_extra"]
    return {**limited, "max_length": max_tokens}


@contextmanager
def torch_threads_for(model: TextModel) -> Iterator[None]:
    """Set the torch threads and the inference mode for a step of this model.

    With an exported model torch only chooses the tokens, so it uses one thread. With two threads one sentence took
    four times as long, on two cores shared with other processes.
    """
    threads = torch.get_num_threads()
    exported = model.backend.name != "torch"
    try:
        if exported:
            torch.set_num_threads(1)
        tuned = not exported and model.device.type == "cpu"
        with tune_step() if tuned else nullcontext(), model.backend.inference_mode():
            yield
    finally:
        if exported:
            torch.set_num_threads(threads)
