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
from attendo.data.sampler import BatchStream, BatchWithPosition
from attendo.errors import AttendoError
from attendo.nn.cpu_threads import adapt_threads
from attendo.train.checkpoint import Checkpoints, Snapshot, TrainState, restore, take_snapshot
from attendo.train.update import Update, Updater

_REPORT_INTERVAL = 10  # steps on a GPU between two waits for its results


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
class ValidationSample:
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
    samples: tuple[ValidationSample, ...] = ()
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
class CompletedUpdate:
    """An update that was sent on its way, and what it was made of."""

    step: int
    epoch: int
    batches: Sequence[Batch]
    update: Update


class Trainer:
    """Learns from a stream of batches; whole, and ready to be saved, after every report."""

    def __init__(
        self, updater: Updater, stream: BatchStream, validator: Callable[[int], Validation] | None,
        checkpoints: Checkpoints, facts: dict[str, object] | None = None,
    ) -> None:  # fmt: skip
        self.updater, self.stream, self.checkpoints = updater, stream, checkpoints
        self.config = updater.config
        self.state = TrainState()
        self._validator = validator
        self._facts = facts or {}
        self.all_reported = True  # whether every update was reported: a good moment to stop
        self._save_failures = 0
        self._report_interval = _REPORT_INTERVAL if updater.device.type == "cuda" else 1

    @property
    def step(self) -> int:
        return self.updater.step

    def train(self, stop_at: int | None = None) -> Iterator[Report]:
        """Up to the last step, or until patience runs out. Stop listening and training stops.

        Whoever wants to stop listening at a certain step says so: on a GPU steps are reported in groups.
        """
        on_gpu = self.updater.device.type == "cuda"
        stream = self.stream.batches(self.state.position, self.config.workers, pin=on_gpu)
        with closing(stream):
            if self._is_validation_due():  # the run was interrupted between a step and its validation
                yield self._run_validation()
            while self.step < self.config.steps and not self._is_patience_exhausted():
                yield from self._run_steps(stream, stop_at)
                best = False
                if self._is_validation_due():
                    validation = self._run_validation()
                    best = validation.best
                    yield validation
                # A run that ends early is saved where it ends, or a resumed one would repeat its last steps.
                ends = self.step == self.config.steps or self._is_patience_exhausted()
                if best or ends or self.step % self.config.save_every == 0:
                    yield self.save()
        if self._is_patience_exhausted():
            waited = self.state.since_best
            yield Stopped(self.step, f"no better {self.config.best} in {waited} validations")

    def validate(self) -> Validation:
        """How well the model does now. Nothing of the run changes: what is best so far stays."""
        assert self._validator is not None
        return self._validator(self.step)

    def save(self) -> Saved | SaveFailed:
        """A checkpoint of this moment; older ones go when it is durable. Full disks are waited for."""
        snapshot = self.snapshot()
        if not self.updater.world.is_main:
            return Saved(self.step, "", 0)
        try:
            folder = self.checkpoints.save(snapshot)
            self.checkpoints.prune(self.config.num_checkpoints_to_keep, self.state.best_step)
        except (DiskFullError, OSError) as error:
            self._save_failures += 1
            if self._save_failures >= self.config.max_save_failures:
                raise SaveError("checkpoint_saves_failed", count=self._save_failures, error=error) from None
            return SaveFailed(self.step, str(error), self._save_failures)
        self._save_failures = 0
        return Saved(self.step, str(folder), sum(path.stat().st_size for path in folder.iterdir()))

    def snapshot(self) -> Snapshot:
        """All that the next step depends on. All ranks must ask together."""
        return take_snapshot(self.updater, self.state, self._facts)

    def restore(self, snapshot: Snapshot) -> bool:
        """Go on from there; False where the sources of chance could not be restored (another number of ranks)."""
        self.state, exact = restore(self.updater, snapshot)
        return exact

    def restart_pool(self) -> None:
        """From the first batch of the part of the data that is being read."""
        self.state = replace(self.state, position=replace(self.state.position, batch=0))

    def _run_steps(self, stream: Iterator[BatchWithPosition], stop_at: int | None) -> Iterator[Report]:
        """Updates up to the next thing to do; the device is waited for once, behind the last of them."""
        self.all_reported = False
        begin, done, waited = time.perf_counter(), [], 0.0
        while True:
            asked = time.perf_counter()
            placed = list(islice(stream, self.config.accumulate))
            waited += time.perf_counter() - asked
            adapt_threads()
            batches = [each.batch for each in placed]
            update = self.updater.update(batches)
            done.append(CompletedUpdate(self.step, self.state.position.epoch, batches, update))
            self.state = replace(self.state, position=placed[-1].next_position)
            if len(done) == self._report_interval or self.step == stop_at or self._is_pause_due():
                break
        values = torch.stack([torch.stack((d.update.loss, d.update.norm, d.update.skipped)) for d in done])
        values[:, 0] = self.updater.world.sum(values[:, 0].clone())
        rows = values.tolist()
        times = ((time.perf_counter() - begin) / len(done), waited / len(done))
        told = [report for each, row in zip(done, rows, strict=True) for report in self._make_reports(each, row, times)]
        for number, report in enumerate(told, start=1):
            self.all_reported = number == len(told)
            yield report
        self._check_divergence()

    def _make_reports(
        self, completed: CompletedUpdate, row: Sequence[float], times: tuple[float, float]
    ) -> list[Report]:
        """What an update came to; the counters follow."""
        (loss, norm, _), skipped, (seconds, waited) = row, bool(row[2]), times
        now = self.state
        self.state = replace(
            now,
            tokens=now.tokens + (0 if skipped else completed.update.tokens),
            seconds=now.seconds + seconds,
            skipped=now.skipped + skipped,
            skipped_in_a_row=now.skipped_in_a_row + 1 if skipped else 0,
        )
        step = Step(
            step=completed.step,
            epoch=completed.epoch,
            loss=math.nan if skipped else loss / completed.update.tokens,
            lr=completed.update.lr,
            norm=norm,
            tokens=completed.update.tokens,
            positions=sum(batch.positions for batch in completed.batches),
            padding=sum(batch.padding for batch in completed.batches),
            seconds=self.state.seconds,
            waited=waited,
            skipped=skipped,
        )
        pairs = tuple(number for batch in completed.batches for number in batch.numbers)
        return [step, Skipped(completed.step, pairs)] if skipped else [step]

    def _check_divergence(self) -> None:
        in_a_row = self.state.skipped_in_a_row
        overflows = 16 if self.updater.precision == "fp16" else 0  # the loss scale may need that many to settle
        if in_a_row >= self.config.max_skipped + overflows:
            raise DivergedError("training_diverged", steps=in_a_row)

    def _run_validation(self) -> Validation:
        assert self._validator is not None
        validation = self._validator(self.step)
        # Ranks that disagreed in a last bit could disagree about what is the best, and one would wait for the others.
        loss = self.updater.world.broadcast(validation.loss)
        value = self.updater.world.broadcast({"loss": validation.loss, **validation.scores}[self.config.best])
        self.state, best = self.state.after_validation(self.step, value, self.config.best, loss)
        return replace(validation, best=best)

    def _is_validation_due(self) -> bool:
        if self._validator is None or self.step == self.state.validated:
            return False
        return self.step % self.config.validate_every == 0 or self.step == self.config.steps

    def _is_pause_due(self) -> bool:
        last = self.step >= self.config.steps
        return last or self.step % self.config.save_every == 0 or self._is_validation_due()

    def _is_patience_exhausted(self) -> bool:
        return bool(self.config.patience) and self.state.since_best >= self.config.patience
