"""The training loop, a generator of reports, and the report classes."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice

import torch

from attendo.atomic_files import DiskFullError
from attendo.data.batch import Batch
from attendo.data.sampler import BatchStream, Placed
from attendo.errors import AttendoError
from attendo.nn.cpu_threads import adapt_threads
from attendo.train.checkpoint import Checkpoints, Snapshot, Standing, restore, take_snapshot
from attendo.train.update import Learner, Update

_REPORTED_TOGETHER = 10  # steps on a GPU between two waits for its results


@dataclass(frozen=True)
class Step:
    """After one update: the loss of its batches, per target token."""

    step: int
    epoch: int
    loss: float  # label smoothing included; nan where the step was skipped
    lr: float
    norm: float  # of the gradient, before clipping
    tokens: int  # target tokens learned from
    positions: int  # what the batches cost: both sides, padding included
    padding: int  # of these, padding
    seconds: float  # of training since the run began, validation and saving not counted
    waited: float = 0.0  # of this step's own seconds, those in which there was no batch yet
    skipped: bool = False  # the loss or the gradient was no number, and the weights stayed as they were


@dataclass(frozen=True)
class Skipped:
    """A step whose loss or gradient was no number: which pairs it was to learn from."""

    step: int
    pairs: tuple[int, ...]


@dataclass(frozen=True)
class Sample:
    """A validation sentence, what the model makes of it, and what it should be."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """How well the model does on the validation pairs."""

    step: int
    loss: float  # per target token, without label smoothing
    scores: dict[str, float] = field(default_factory=dict)  # of the decoded text, by name: bleu, chrf ...
    signatures: dict[str, str] = field(default_factory=dict)  # how each score was computed
    best: bool = False  # better than every validation before it, by `train.best`
    samples: tuple[Sample, ...] = ()
    old: dict[str, float] = field(default_factory=dict)  # fine-tuning: the same on the old model's validation pairs


@dataclass(frozen=True)
class Saved:
    """A checkpoint is whole and on disk."""

    step: int
    folder: str
    bytes: int


@dataclass(frozen=True)
class SaveFailed:
    """A checkpoint could not be written; training goes on, and the next interval tries again."""

    step: int
    reason: str
    failures: int  # in a row


@dataclass(frozen=True)
class Stopped:
    """Training ended before its last step."""

    step: int
    reason: str


Report = Step | Skipped | Validation | Saved | SaveFailed | Stopped


class DivergedError(AttendoError):
    """The loss is no longer a number."""


class SaveError(AttendoError):
    """Checkpoints cannot be written any more."""


@dataclass(frozen=True)
class Done:
    """An update that was sent on its way, and what it was made of."""

    step: int
    epoch: int
    batches: Sequence[Batch]
    update: Update


class Trainer:
    """Learns from a stream of batches; whole, and ready to be saved, after every report."""

    def __init__(
        self, learner: Learner, stream: BatchStream, validate: Callable[[int], Validation] | None,
        checkpoints: Checkpoints, facts: dict[str, object] | None = None,
    ) -> None:  # fmt: skip
        self.learner, self.stream, self.checkpoints = learner, stream, checkpoints
        self.config = learner.config
        self.standing = Standing()
        self._validate_at = validate
        self._facts = facts or {}
        self.all_told = True  # whether every update was reported: a good moment to stop
        self._save_failures = 0
        self._together = _REPORTED_TOGETHER if learner.device.type == "cuda" else 1

    @property
    def step(self) -> int:
        return self.learner.step

    def train(self, stop_at: int | None = None) -> Iterator[Report]:
        """Up to the last step, or until patience runs out. Stop listening and training stops.

        Whoever wants to stop listening at a certain step says so: on a GPU steps are reported in groups.
        """
        on_gpu = self.learner.device.type == "cuda"
        stream = self.stream.batches(self.standing.position, self.config.workers, pin=on_gpu)
        with closing(stream):
            if self._validation_due():  # the run was interrupted between a step and its validation
                yield self._validated()
            while self.step < self.config.steps and not self._out_of_patience():
                yield from self._steps(stream, stop_at)
                best = False
                if self._validation_due():
                    validation = self._validated()
                    best = validation.best
                    yield validation
                # A run that ends early is saved where it ends, or a resumed one would repeat its last steps.
                ends = self.step == self.config.steps or self._out_of_patience()
                if best or ends or self.step % self.config.save_every == 0:
                    yield self.save()
        if self._out_of_patience():
            waited = self.standing.since_best
            yield Stopped(self.step, f"no better {self.config.best} in {waited} validations")

    def validate(self) -> Validation:
        """How well the model does now. Nothing of the run changes: what is best so far stays."""
        assert self._validate_at is not None
        return self._validate_at(self.step)

    def save(self) -> Saved | SaveFailed:
        """A checkpoint of this moment; older ones go when it is durable. Full disks are waited for."""
        snapshot = self.snapshot()
        if not self.learner.world.leads:
            return Saved(self.step, "", 0)
        try:
            folder = self.checkpoints.save(snapshot)
            self.checkpoints.prune(self.config.checkpoints_kept, self.standing.best_step)
        except (DiskFullError, OSError) as error:
            self._save_failures += 1
            if self._save_failures >= self.config.max_save_failures:
                raise SaveError("checkpoint_saves_failed", count=self._save_failures, error=error) from None
            return SaveFailed(self.step, str(error), self._save_failures)
        self._save_failures = 0
        return Saved(self.step, str(folder), sum(path.stat().st_size for path in folder.iterdir()))

    def snapshot(self) -> Snapshot:
        """All that the next step depends on. All ranks must ask together."""
        return take_snapshot(self.learner, self.standing, self._facts)

    def restore(self, snapshot: Snapshot) -> bool:
        """Go on from there; False where the sources of chance could not be restored (another number of ranks)."""
        self.standing, exact = restore(self.learner, snapshot)
        return exact

    def begin_pool_again(self) -> None:
        """From the first batch of the part of the data that is being read."""
        self.standing = replace(self.standing, position=replace(self.standing.position, batch=0))

    def _steps(self, stream: Iterator[Placed], stop_at: int | None) -> Iterator[Report]:
        """Updates up to the next thing to do; the device is waited for once, behind the last of them."""
        self.all_told = False
        begin, done, waited = time.perf_counter(), [], 0.0
        while True:
            asked = time.perf_counter()
            placed = list(islice(stream, self.config.accumulate))
            waited += time.perf_counter() - asked
            adapt_threads()
            batches = [each.batch for each in placed]
            update = self.learner.update(batches)
            done.append(Done(self.step, self.standing.position.epoch, batches, update))
            self.standing = replace(self.standing, position=placed[-1].after)
            if len(done) == self._together or self.step == stop_at or self._something_due():
                break
        values = torch.stack([torch.stack((d.update.loss, d.update.norm, d.update.skipped)) for d in done])
        values[:, 0] = self.learner.world.sum(values[:, 0].clone())
        rows = values.tolist()
        times = ((time.perf_counter() - begin) / len(done), waited / len(done))
        told = [report for each, row in zip(done, rows, strict=True) for report in self._reports(each, row, times)]
        for number, report in enumerate(told, start=1):
            self.all_told = number == len(told)
            yield report
        self._refuse_to_go_on()

    def _reports(self, done: Done, row: Sequence[float], times: tuple[float, float]) -> list[Report]:
        """What an update came to; the counters follow."""
        (loss, norm, _), skipped, (seconds, waited) = row, bool(row[2]), times
        now = self.standing
        self.standing = replace(
            now,
            tokens=now.tokens + (0 if skipped else done.update.tokens),
            seconds=now.seconds + seconds,
            skipped=now.skipped + skipped,
            skipped_in_a_row=now.skipped_in_a_row + 1 if skipped else 0,
        )
        step = Step(
            step=done.step,
            epoch=done.epoch,
            loss=math.nan if skipped else loss / done.update.tokens,
            lr=done.update.lr,
            norm=norm,
            tokens=done.update.tokens,
            positions=sum(batch.positions for batch in done.batches),
            padding=sum(batch.padding for batch in done.batches),
            seconds=self.standing.seconds,
            waited=waited,
            skipped=skipped,
        )
        pairs = tuple(number for batch in done.batches for number in batch.numbers)
        return [step, Skipped(done.step, pairs)] if skipped else [step]

    def _refuse_to_go_on(self) -> None:
        in_a_row = self.standing.skipped_in_a_row
        overflows = 16 if self.learner.precision == "fp16" else 0  # the loss scale may need that many to settle
        if in_a_row >= self.config.max_skipped + overflows:
            raise DivergedError("training_diverged", steps=in_a_row)

    def _validated(self) -> Validation:
        assert self._validate_at is not None
        validation = self._validate_at(self.step)
        # Ranks that disagreed in a last bit could disagree about what is the best, and one would wait for the others.
        loss = self.learner.world.told(validation.loss)
        value = self.learner.world.told({"loss": validation.loss, **validation.scores}[self.config.best])
        self.standing, best = self.standing.after_validation(self.step, value, self.config.best, loss)
        return replace(validation, best=best)

    def _validation_due(self) -> bool:
        if self._validate_at is None or self.step == self.standing.validated:
            return False
        return self.step % self.config.validate_every == 0 or self.step == self.config.steps

    def _something_due(self) -> bool:
        last = self.step >= self.config.steps
        return last or self.step % self.config.save_every == 0 or self._validation_due()

    def _out_of_patience(self) -> bool:
        return bool(self.config.patience) and self.standing.since_best >= self.config.patience
