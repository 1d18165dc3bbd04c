"""Scheduler of one model: chooses which batch or exclusive job runs the next step.

It is the choice of tokens alone. Threads that share so little wait for each other most of the time: one sentence took
four times as long with two of them, on two cores that others used too.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from attendo.decode.search import Strategy
from attendo.decode.step_hook import unseen
from attendo.nn.cpu_threads import tune_step
from attendo.serve.http.errors import Refusal
from attendo.serve.scheduling.admission import Queue, SeatQueue
from attendo.serve.scheduling.background import Pieces
from attendo.serve.scheduling.batches import Kind, Lane, Reply, SeatMaker
from attendo.serve.scheduling.jobs import Job, Texts
from attendo.text_model import TextModel
from attendo.text_model.generation import Call

_OPEN = 8  # lanes that take turns; more wait until one of these is empty
_TURNS = 64  # that a lane has before it makes room for one that waits
_KEPT = 8  # that nobody is in: on a GPU their steps are recorded


@dataclass(frozen=True)
class BatchLimits:
    """What is above one of these is refused at once, never kept."""

    waiting: int = 128  # requests that have not begun
    queue_seconds: float = float("inf")  # that one would have to wait, by how fast it goes
    tokens: int = 262_144  # of all requests together: sources and the most of their answers, once for each row
    side_by_side: int | None = None  # sentences of a kind; unless given, 32 on a CPU and 128 on a GPU
    drain_seconds: float = 10.0  # for what is there when the server is shut down
    source_tokens: int = 1_000_000  # of a text
    answer_tokens: int = 1_000_000  # of an answer: a longer one is cut, as it would be at its own limit
    weights: int = 2_000_000  # of all alignments of a request: as JSON about ten bytes each


class Scheduler:
    """Everything happens in one thread. `meanwhile` is called all the time within a piece, which may take long: it can
    `take` jobs, and have the others go on by `aside`.
    """

    def __init__(self, model: TextModel, seats: SeatMaker, limits: BatchLimits, meanwhile: Callable[[], None]) -> None:
        self._model, self._seats, self._limits = model, seats, limits
        self._jobs: dict[Job, tuple[Reply, list[Lane]] | None] = {}
        self._lanes: dict[Kind, Lane] = {}  # the one that was asked for last at the end
        self._asking: deque[Lane] = deque()  # that have something to do and no turn
        self._open: dict[Lane, int] = {}  # that take turns, the first that came first, and how many it has had
        self._pieces = Pieces(model, meanwhile)
        self._turns: deque[Lane | Pieces] = deque()
        # Those who can have no seat wait apart: nobody who can is turned away for them.
        self._queue_aside = Queue(limits.queue_seconds, seats.most)
        self._queue = SeatQueue(limits.queue_seconds, self._free_seats)
        self.queue = self._queue if seats.any else self._queue_aside

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    @property
    def waiting(self) -> int:
        """Jobs that have not begun; from any thread."""
        return len(self._queue.jobs) + len(self._queue_aside.jobs)

    @property
    def batch_size(self) -> int:
        """Sentences that are being answered side by side."""
        return sum(lane.seated for lane in [*self._open])

    def take(self, job: Job) -> None:
        """What is wrong with a request is told at once."""
        try:
            self._take(job)
        except Exception as error:  # whatever it is, the others are to be answered
            self._remove(job)
            job.fail(error)

    def turn(self, now: float) -> None:
        """One step of whoever is next; before it, those leave whose time is over or to whom nobody listens."""
        self._remove_all(job for job in self._jobs if job.over or job.lost(now))
        self._give_turns()
        if self._turns:
            self._step(self._turns.popleft())
            self._let_go([*self._jobs])

    def aside(self, now: float) -> None:
        """As `turn`, while a piece is under way, whose end nobody has to wait for: one step of a lane, and an item of
        other work.
        """
        self._remove_all(job for job in self._seated() if job.over or job.lost(now))
        self._give_turns()
        lane = next((each for each in self._turns if isinstance(each, Lane)), None)
        # In the mode that steps have otherwise: what is made in a piece's own may be changed nowhere else.
        with unseen(), torch.inference_mode(mode=False):
            if lane is not None:
                self._turns.remove(lane)
                self._step(lane)
            self._pieces.aside()
        self._let_go(self._seated())

    def fail(self, refusal: Callable[[], Refusal]) -> None:
        """Everybody who is there is told."""
        for job in [*self._jobs]:
            job.fail(refusal())
        self._jobs.clear()

    def _free_seats(self) -> int:
        """Where somebody waits already, of the lanes that they wait for; from any thread."""
        most, lanes = self._seats.most, [*self._open]
        crowded = [lane.free for lane in lanes if lane.waiting]
        if not crowded:
            return max(0, most - sum(lane.taken for lane in lanes))
        return sum(most if each is None else each for each in crowded)

    def _step(self, next_one: "Lane | Pieces") -> None:
        if next_one.busy:
            with computing(self._model):
                next_one.step()
            if isinstance(next_one, Lane):
                self._open[next_one] += 1
        if next_one.busy and next_one not in self._turns:
            self._turns.append(next_one)
        elif isinstance(next_one, Lane):
            self._close(next_one)

    def _seated(self) -> list[Job]:
        """Those in lanes."""
        return [job for job, there in self._jobs.items() if there is not None]

    def _let_go(self, jobs: Sequence[Job]) -> None:
        """Those of them who are answered."""
        over = [job for job in jobs if job.over]
        seated = [job for job in over if self._jobs[job] is not None]
        aside = sum(isinstance(job.asked, Texts) for job in over) - len(seated)
        self._remove_all(over)
        self._queue.answered(job for job in seated if job.begun)
        self._queue.sit(self._seated())
        self._queue_aside.answered(aside)

    def _remove_all(self, jobs: Iterable[Job]) -> None:
        for job in [*jobs]:
            self._remove(job)

    def _take(self, job: Job) -> None:
        asked = job.asked
        if not isinstance(asked, Texts):
            self._set_aside(job)
            return
        call = self._model.call(asked.texts, **asked.options)
        if asked.streamed:
            call.check_stream()
        if any(line.limit > self._limits.answer_tokens for line in call.lines):
            call = call.within(self._limits.answer_tokens)
            job.asked = replace(asked, options=_cut_at(self._limits.answer_tokens, asked.options))
        self._admit(job, call)
        several = asked.streamed and len(call.lines) > 1
        if several or not self._seats.can_answer(call):
            self._set_aside(job)
            return
        self._seat(job, call, asked.streamed)

    def _set_aside(self, job: Job) -> None:
        if self._queue_aside is not self.queue:
            if not job.patient and self._queue_aside.too_long:
                raise Refusal("busy", waiting=len(self._queue_aside.jobs))
            self._queue_aside.add(job)
        self._jobs[job] = None
        self._pieces.add(job)

    def _admit(self, job: Job, call: Call) -> None:
        if (longest := max(call.source_tokens, default=0)) > self._limits.source_tokens:
            raise Refusal("source_too_long", tokens=longest, most=self._limits.source_tokens)
        if (weights := call.most_weights) > self._limits.weights:
            raise Refusal("alignments_too_large", count=weights, most=self._limits.weights)
        strategy: Strategy = call.search()[1]
        job.tokens = sum(len(line.source) + line.limit for line in call.lines) * strategy.width
        others = [each.tokens for each in self._jobs if each.listened_to]
        if others and sum(others) + job.tokens > self._limits.tokens:
            raise Refusal("busy", waiting=len(others))

    def _seat(self, job: Job, call: Call, streamed: bool) -> None:
        reply = Reply(job, call, streamed)
        if not reply.missing:
            reply.finish()
            return
        lanes: list[Lane] = []
        self._jobs[job] = reply, lanes
        for kind, request in self._seats.kinds(call):
            lane = self._lane(kind)
            lane.add(request, reply)
            lanes.append(lane)

    def _lane(self, kind: Kind) -> Lane:
        lane = self._lanes.pop(kind, None) or Lane(lambda: self._seats.make(kind), self._seats.steps_between_looks)
        self._lanes[kind] = lane
        if lane not in self._open and lane not in self._asking:
            self._asking.append(lane)
        return lane

    def _give_turns(self) -> None:
        """To a few lanes at a time. While others ask, one that has had many takes nobody in any more."""
        if self._pieces.busy and self._pieces not in self._turns:
            self._turns.append(self._pieces)
        while self._asking and len(self._open) < _OPEN:
            lane = self._asking.popleft()
            self._open[lane] = 0
            self._turns.append(lane)
        if self._asking and not any(lane.closing for lane in self._open):
            first, turns = next(iter(self._open.items()))
            first.closing = turns >= _TURNS

    def _close(self, lane: Lane) -> None:
        """It has nothing to do, or makes room for others."""
        lane.closing = False
        del self._open[lane]
        if lane.waiting:
            self._asking.append(lane)
        idle = [kind for kind, each in self._lanes.items() if each not in self._open and each not in self._asking]
        for kind in idle[: max(0, len(idle) - _KEPT)]:
            del self._lanes[kind]

    def _remove(self, job: Job) -> None:
        there = self._jobs.pop(job, None)
        self._pieces.remove(job)
        if there is not None:
            reply, lanes = there
            for lane in lanes:
                lane.remove(reply)


def _cut_at(tokens: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """With the limit of the server in place of lengths that follow the source: those lead beyond it."""
    beyond = ("max_length_factor", "max_length_extra", "min_length_factor")
    kept = {name: value for name, value in options.items() if name not in beyond}
    if (kept.get("min_length_extra") or 0) > tokens:
        del kept["min_length_extra"]
    return {**kept, "max_length": tokens}


@contextmanager
def computing(model: TextModel) -> Iterator[None]:
    """While this thread has the model compute something."""
    threads = torch.get_num_threads()
    exported = model.runtime.name != "torch"
    try:
        if exported:
            torch.set_num_threads(1)
        tuned = not exported and model.device.type == "cpu"
        with tune_step() if tuned else nullcontext(), model.runtime.evaluating():
            yield
    finally:
        if exported:
            torch.set_num_threads(threads)
