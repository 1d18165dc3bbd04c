"""The training loop, a generator of reports, and the report classes."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import torch

from attendo.data.batch import Batch
from attendo.data.sampler import BatchStream, BatchWithPosition
from attendo.errors import AttendoError, LocalizedText
from attendo.nn.cpu_threads import adapt_threads
from attendo.train.checkpoint import Checkpoints, Snapshot, TrainState, restore, take_snapshot
from attendo.train.checkpoint_writer import CheckpointWriter
from attendo.train.update import Update, Updater

_REPORT_INTERVAL = 10  # steps on a GPU between two synchronisations


@dataclass(frozen=True)
class Step:
    """Report of one update. The loss is per target token."""

    step: int
    epoch: int
    loss: float  # label smoothing included; NaN if the step was skipped
    lr: float
    norm: float  # of the gradient, before clipping
    tokens: int  # target tokens trained on
    positions: int  # positions of both sides, padding included
    padding: int  # padding positions among these
    seconds: float  # training time since the run began, without validation and saving
    waited: float = 0.0  # seconds of this step spent waiting for a batch
    skipped: bool = False  # the loss or the gradient was NaN or infinite, and the weights did not change
    alignment_loss: float | None = None  # per target token: of guided alignment, without its weight
    # Minimum risk training, means per sentence: utility of the samples (0 to 100), entropy of Q in nats.
    reward: float | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class Skipped:
    """A step with a non-finite loss or gradient, and the numbers of its pairs."""

    step: int
    pairs: tuple[int, ...]


@dataclass(frozen=True)
class ValidationSample:
    """A validation sentence with the model's output and the reference."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Validation:
    """Loss and metrics on the validation pairs."""

    step: int
    loss: float  # per target token, without label smoothing
    scores: dict[str, float] = field(default_factory=dict)  # metrics of the decoded text, by name: bleu, chrf ...
    signatures: dict[str, str] = field(default_factory=dict)  # how each score was computed
    best: bool = False  # better than all earlier validations, by `train.best`
    samples: tuple[ValidationSample, ...] = ()
    old: dict[str, float] = field(default_factory=dict)  # fine-tuning: metrics on the old model's validation pairs


@dataclass(frozen=True)
class Saved:
    """A checkpoint was written and is durable."""

    step: int
    folder: str
    bytes: int
    weights_only: bool = False  # a run cannot be resumed from it


@dataclass(frozen=True)
class SaveFailed:
    """A checkpoint could not be written. Training continues and tries again at the next interval."""

    step: int
    reason: str
    failures: int  # consecutive


@dataclass(frozen=True)
class Stopped:
    """Training ended before the last step."""

    step: int
    reason: str


Report = Step | Skipped | Validation | Saved | SaveFailed | Stopped


class DivergedError(AttendoError):
    """The loss is NaN or infinite."""


class SaveError(AttendoError):
    """Checkpoints cannot be written."""


@dataclass(frozen=True)
class CompletedUpdate:
    """An update that was launched, with its batches. The device may not have finished it."""

    step: int
    epoch: int
    batches: Sequence[Batch]
    update: Update


class Trainer:
    """Trains on a stream of batches. Its state is consistent and can be saved after every report."""

    def __init__(
        self, updater: Updater, stream: BatchStream, validator: Callable[[int], Validation] | None,
        checkpoints: Checkpoints, facts: dict[str, object] | None = None,
    ) -> None:  # fmt: skip
        self.updater, self.stream, self.checkpoints = updater, stream, checkpoints
        self.config = updater.config
        self.state = TrainState()
        self._validator = validator
        # Writes a weights-only checkpoint and returns its folder. Set by the run, which has the tokenizers.
        self.write_weights: Callable[[int], Path] | None = None
        self._facts = facts or {}
        self.all_reported = True  # every update was reported: a safe point to stop
        self._save_failures = 0
        self._writer = CheckpointWriter()  # of train.async_checkpoints
        self._report_interval = _REPORT_INTERVAL if updater.device.type == "cuda" else 1

    @property
    def step(self) -> int:
        return self.updater.step

    def train(self, stop_at: int | None = None) -> Iterator[Report]:
        """Train up to the last step, or until patience runs out. Closing the generator stops training.

        Pass `stop_at` to stop at a certain step: on a GPU steps are reported in groups.
        """
        try:
            yield from self._train(stop_at)
            yield from self._report_written(wait=True)
        except (Exception, GeneratorExit):
            self._writer.wait()
            raise
        if self._is_patience_exhausted():
            waited = self.state.since_best
            reason = LocalizedText("no better {best} in {waited} validations", best=self.config.best, waited=waited)
            yield Stopped(self.step, reason)

    def _train(self, stop_at: int | None) -> Iterator[Report]:
        on_gpu = self.updater.device.type == "cuda"
        stream = self.stream.batches(self.state.position, self.config.workers, pin=on_gpu)
        with closing(stream):
            if self._is_validation_due():  # the run was interrupted between a step and its validation
                yield self._run_validation()
            if self._are_weights_due():  # also if the run was stopped between a step and this
                yield self._save_weights()
            while self.step < self.config.steps and not self._is_patience_exhausted():
                yield from self._run_steps(stream, stop_at)
                yield from self._report_written(wait=False)
                if self._are_weights_due():  # before a checkpoint of this step, after which no run returns to it
                    yield self._save_weights()
                best = False
                if self._is_validation_due():
                    validation = self._run_validation()
                    best = validation.best
                    yield validation
                # Save at the end of the run, or a resumed run would repeat its last steps.
                ends = self.step == self.config.steps or self._is_patience_exhausted()
                if best or ends or self.step % self.config.save_every == 0:
                    if self.config.async_checkpoints:
                        yield from self._start_save()
                    else:
                        yield self.save()

    def validate(self) -> Validation:
        """Validate without changing the state of the run."""
        assert self._validator is not None
        return self._validator(self.step)

    def save(self) -> Saved | SaveFailed:
        """Write a checkpoint, then remove older ones. A failed write is retried at the next interval."""
        if self._writer.step is not None:
            self._finish_write()
        snapshot = self.snapshot()
        return self._try_to_write(lambda: self._write(snapshot))

    def _write(self, snapshot: Snapshot) -> Path:
        folder = self.checkpoints.save(snapshot)
        best_step = TrainState.from_json(snapshot.state).best_step  # a thread must not read `self.state`
        self.checkpoints.prune(self.config.num_checkpoints_to_keep, best_step)
        return folder

    def _start_save(self) -> Iterator[Saved | SaveFailed]:
        """Begin to write a checkpoint in a thread. It is reported later, when it is durable."""
        yield from self._report_written(wait=True)
        snapshot = self.snapshot()
        if self.updater.world.is_main:
            self._writer.start(snapshot, self._write)
        else:
            self._writer.step = self.step

    def _report_written(self, wait: bool) -> Iterator[Saved | SaveFailed]:
        """Report the checkpoint of the thread if it is written, or wait for that. All ranks report it together."""
        if self._writer.step is not None and (wait or self.updater.world.broadcast_bool(self._writer.is_done)):
            yield self._finish_write()

    def _finish_write(self) -> Saved | SaveFailed:
        step, self._writer.step = self._writer.step, None
        return self._try_to_write(self._writer.fetch, step=step)

    def _save_weights(self) -> Saved | SaveFailed:
        """Write a weights-only checkpoint. Collective: call it on all ranks."""
        write = self.write_weights
        assert write is not None
        with self.updater.eval_weights():
            return self._try_to_write(lambda: write(self.step), weights_only=True)

    def _try_to_write(
        self, write: Callable[[], Path], weights_only: bool = False, step: int | None = None
    ) -> Saved | SaveFailed:
        step = self.step if step is None else step
        if not self.updater.world.is_main:
            return Saved(step, "", 0, weights_only)
        try:
            folder = write()
        except (AttendoError, OSError) as error:
            self._save_failures += 1
            if self._save_failures >= self.config.max_save_failures:
                raise SaveError("checkpoint_saves_failed", count=self._save_failures, error=error) from None
            return SaveFailed(step, LocalizedText("{error}", error=error), self._save_failures)
        self._save_failures = 0
        size = sum(path.stat().st_size for path in folder.iterdir())
        return Saved(step, str(folder), size, weights_only)

    def snapshot(self) -> Snapshot:
        """Return the complete state that the next step depends on. Collective: call it on all ranks."""
        return take_snapshot(self.updater, self.state, self._facts)

    def restore(self, snapshot: Snapshot) -> bool:
        """Continue from a snapshot. Return False if the random state was not restored (different number of ranks)."""
        self.state, exact = restore(self.updater, snapshot)
        return exact

    def restart_pool(self) -> None:
        """Restart at the first batch of the current shuffle buffer."""
        self.state = replace(self.state, position=replace(self.state.position, batch=0))

    def _run_steps(self, stream: Iterator[BatchWithPosition], stop_at: int | None) -> Iterator[Report]:
        """Run updates until the next report, validation or save. Synchronise with the device once, at the end."""
        self.all_reported = False
        begin, completed, waited = time.perf_counter(), [], 0.0
        while True:
            requested_at = time.perf_counter()
            placed = list(islice(stream, self.config.accumulate))
            waited += time.perf_counter() - requested_at
            adapt_threads()
            batches = [each.batch for each in placed]
            update = self.updater.update(batches)
            completed.append(CompletedUpdate(self.step, self.state.position.epoch, batches, update))
            self.state = replace(self.state, position=placed[-1].next_position)
            if len(completed) == self._report_interval or self.step == stop_at or self._is_pause_due():
                break
        values = torch.stack(
            [torch.stack((d.update.loss, d.update.norm, d.update.skipped, *d.update.extras)) for d in completed]
        )
        summed = [0, *range(3, values.size(1))]  # over the ranks: all but the norm and `skipped`
        values[:, summed] = self.updater.world.sum(values[:, summed])
        rows = values.tolist()
        times = ((time.perf_counter() - begin) / len(completed), waited / len(completed))
        pairs = zip(completed, rows, strict=True)
        reports = [report for update, row in pairs for report in self._make_reports(update, row, times)]
        for number, report in enumerate(reports, start=1):
            self.all_reported = number == len(reports)
            yield report
        self._check_divergence()

    def _make_reports(
        self, completed: CompletedUpdate, row: Sequence[float], times: tuple[float, float]
    ) -> list[Report]:
        """Update the counters and return the reports of one update."""
        (loss, norm, _, *extras), skipped, (seconds, waited) = row, bool(row[2]), times
        alignment_loss, reward, entropy = None, None, None
        if completed.update.rewards:
            reward, entropy = (each / completed.update.sentences for each in extras)
        elif extras:
            alignment_loss = extras[0] / completed.update.tokens
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
            alignment_loss=alignment_loss,
            reward=reward,
            entropy=entropy,
        )
        pairs = tuple(number for batch in completed.batches for number in batch.numbers)
        return [step, Skipped(completed.step, pairs)] if skipped else [step]

    def _check_divergence(self) -> None:
        in_a_row = self.state.skipped_in_a_row
        overflows = 16 if self.updater.precision == "fp16" else 0  # the loss scale may need 16 overflows to settle
        if in_a_row >= self.config.max_skipped + overflows:
            raise DivergedError("training_diverged", steps=in_a_row)

    def _run_validation(self) -> Validation:
        assert self._validator is not None
        validation = self._validator(self.step)
        # Broadcast: ranks that differ in the last bit could disagree about the best step, and one would wait forever.
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
        saves = self.step % self.config.save_every == 0 or self._are_weights_due()
        return last or saves or self._is_validation_due()

    def _are_weights_due(self) -> bool:
        return self.write_weights is not None and self.step in self.config.weight_checkpoint_steps

    def _is_patience_exhausted(self) -> bool:
        return bool(self.config.patience) and self.state.since_best >= self.config.patience
