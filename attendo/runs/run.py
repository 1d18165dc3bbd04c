"""A training run: prepare data, train, save checkpoints, write the model folder, resume.

runs/NAME/  run.toml  run.json  metrics.jsonl  skipped.jsonl  data/  validation/  checkpoints/  weights/  model/
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from attendo import atomic_files
from attendo.data.lm_text import WindowBatches
from attendo.data.prepare import Preparing, settings_hash
from attendo.data.prepared import PreparedData, open_prepared
from attendo.data.sampler import count_batches
from attendo.data.shards import DamagedDataError
from attendo.errors import AttendoError, DataError, LocalizedText, ModelError, UsageError
from attendo.interop.load import load_stored_model
from attendo.model_folder import FORMAT, VERSION, check_manifest, load_weights, save_model
from attendo.nn.cpu_threads import available_cores, keep_threads, read_thread_setting
from attendo.nn.devices import is_out_of_memory
from attendo.runs.config import (
    RunConfig,
    check_metrics,
    check_objective_start,
    load_run_config,
    make_paths_absolute,
    to_toml,
)
from attendo.runs.corpora import PrefixedStream, prepare_corpora
from attendo.runs.report_sinks import MetricsFile, SampleFile, Sink, SkippedStepsFile
from attendo.runs.run_folder import (
    check_free,
    checkpoint_facts,
    describe_environment,
    init_run_folder,
    machine_differences,
    make_folder,
)
from attendo.runs.weights import count_unfit_pairs, initial_model, load_final_weights
from attendo.text_model import TextModel
from attendo.text_model.inputs import encode_symbols
from attendo.train.checkpoint import Checkpoints
from attendo.train.config import TrainConfig
from attendo.train.distributed import Distributed
from attendo.train.guided_alignment import keep_guided_head
from attendo.train.loop import Report, Saved, SaveFailed, Trainer, Validation
from attendo.train.minimum_risk import make_text_risk
from attendo.train.random_state import seed_everything, use_deterministic
from attendo.train.threads import choose_threads
from attendo.train.update import Updater
from attendo.train.validation import MetricFunction, Validator


class Run:
    """A training run in a folder: begin or resume, `prepare`, `train`, `finish`. `save` works after any report."""

    def __init__(self, config: RunConfig, folder: Path, device: torch.device, world: Distributed | None = None) -> None:
        self.config, self.folder, self.device = config, folder, device
        self.world = world or Distributed()
        self.checkpoints, self.weight_checkpoints = (Checkpoints(folder / name) for name in ("checkpoints", "weights"))
        self._has_overrides = False
        self.warnings: list[str] = []  # shown to the user before the first step
        self.stop_requested: Callable[[], bool] = lambda: False  # polled during validations, which may be long
        self.user_metrics: dict[str, MetricFunction] = {}  # on decoded validation text, in addition to train.metrics
        self.make_risk = make_text_risk  # of objective mrt; a control experiment replaces it
        self.sinks: list[Sink] = [MetricsFile(), SampleFile(), SkippedStepsFile()]
        self._model_fault: str | None = None
        self.trainer: Trainer
        self.model: TextModel
        self.data: PreparedData

    @classmethod
    def begin(
        cls,
        config: RunConfig,
        folder: Path,
        device: torch.device,
        overwrite: bool = False,
        world: Distributed | None = None,
    ) -> "Run":
        """Create a new run. The folder must not contain another one, unless `overwrite`."""
        check_metrics(config)
        check_objective_start(config)
        run = cls(make_paths_absolute(config), folder, device, world)
        if run.world.is_main:
            make_folder(folder)
            with run._lock_folder():
                check_free(folder, overwrite)
                threads = None if run._is_thread_count_open else torch.get_num_threads()
                environment = json.dumps(describe_environment(run.config, device, run.world, threads), indent=2)
                init_run_folder(folder, to_toml(run.config).encode(), f"{environment}\n".encode())
        run.world.barrier()
        return run

    @classmethod
    def resume(
        cls, folder: Path, device: torch.device, world: Distributed | None = None, config: RunConfig | None = None
    ) -> "Run":
        """Open the run in a folder, to continue from its newest checkpoint. `config` overrides its settings."""
        run = cls(config or load_run_config(folder), folder, device, world)
        check_metrics(run.config)
        check_objective_start(run.config)
        run._has_overrides = config is not None
        if run.world.is_main:
            with run._lock_folder():
                for written_folder in (
                    run.checkpoints.folder,
                    run.weight_checkpoints.folder,
                    folder,
                    folder / "validation",
                ):
                    atomic_files.remove_leftovers(written_folder)
                atomic_files.remove_backup(folder / "model")
        run.world.barrier()
        return run

    @property
    def data_folder(self) -> Path:
        return self.config.data.prepared or self.folder / "data"

    def prepare(self, verify: bool = False) -> Iterator[Preparing]:
        """Turn text into shards if that is not done yet, and open them."""
        if self.world.is_main and self.config.data.prepared is None and not (self.data_folder / "index.json").exists():
            with self._lock_folder():
                yield from prepare_corpora(self.config, self.data_folder)
        self.world.barrier()
        with self._explain_damaged_data():
            self.data = open_prepared(self.data_folder, verify)
        self._check_data_settings()
        if not self.data.valid:
            raise DataError("no_validation_pairs")
        self._convert_epochs_to_steps()

    def _convert_epochs_to_steps(self) -> None:
        """Replace `train.epochs` by steps. The number of batches per epoch is now known."""
        train = self.config.train
        if train.epochs is None:
            return
        batches = count_batches(self.data, train.batch_tokens, self.config.seed, train.sort_within)
        steps = max(1, math.ceil(train.epochs * batches / train.accumulate))
        self.config = self.config.replace(train=train.replace(epochs=None, steps=steps))
        if self.world.is_main and (self.folder / "run.toml").exists():
            atomic_files.replace_file(self.folder / "run.toml", to_toml(self.config).encode())

    def _check_data_settings(self) -> None:
        if self.config.data.prepared is not None or self.config.start_from is not None:
            return
        expected = settings_hash(self.config.data, self.config.tokenizer, self.config.seed)
        if self.data.settings_hash != expected:
            raise UsageError("prepared_settings_differ", folder=self.data_folder)

    def build(self) -> None:
        """Build the network, optimizer and batch stream, and restore the newest checkpoint."""
        seed_everything(self.config.seed, self.world)
        use_deterministic(self.config.train.deterministic)
        stored = initial_model(self.config, self.data)
        stored.network.to(self.device)
        self.model = TextModel(stored)
        train, model = self.config.train, self.model
        symbols = encode_symbols(model.generation, model.source_tokenizer, model.target_tokenizer)
        risk = self.make_risk(train, model.target_tokenizer)
        updater = Updater(model.network, train, self.world, symbols.begin, risk)
        settings = (train.batch_tokens, self.config.seed, self.config.tokenizer.dropout)
        stream = PrefixedStream(self.data, *settings, symbols, train.sort_within, train.input_noise)
        old = [] if self.config.start_from is None else load_stored_model(self.config.start_from).sample
        validate = Validator(
            self.model,
            self.data.valid,
            updater,
            old,
            self._make_valid_windows(),
            lambda: self.stop_requested(),
            self.user_metrics,
        )
        validate.measure_alignments(self.data.valid_links)
        self._warn_of_unfit_pairs()
        found = self.checkpoints.load_newest()
        self._set_threads(updater, None if found is None else found.snapshot.facts["threads"])
        now = checkpoint_facts(self.config, self.data.fingerprint, self.device, self.world)
        self.trainer = Trainer(updater, stream, validate, self.checkpoints, now)
        self.trainer.write_weights = self._write_weights
        if found is not None:
            self.warnings += [LocalizedText("passed over: {reason}", reason=reason) for reason in found.skipped_reasons]
            self._compare_facts(found.snapshot.facts, now)
            if not self.trainer.restore(found.snapshot):
                self.warnings.append(
                    LocalizedText("another number of processes or device: dropout is drawn anew, not bit for bit")
                )
        if self._has_overrides:
            self._store_overrides()

    def _warn_of_unfit_pairs(self) -> None:
        if unfit := count_unfit_pairs(self.model.network, self.data):
            self.warnings.append(
                LocalizedText(
                    "{unfit:,} of {pairs:,} pairs have more target tokens than the decoder has positions "
                    "(model.upsample): they do not change the weights",
                    unfit=unfit,
                    pairs=self.data.pairs,
                )
            )

    @property
    def _is_thread_count_open(self) -> bool:
        """Whether the thread count is chosen by timing: on a CPU with one process, unless the user set it."""
        return self.device.type == "cpu" and self.world.size == 1 and read_thread_setting() is None

    def _set_threads(self, updater: Updater, checkpoint_threads: int | None) -> None:
        """Use the run's stored thread count, because the last bits depend on it. Time a new run to choose it."""
        if not self._is_thread_count_open:
            return
        path = self.folder / "run.json"
        stored = json.loads(path.read_bytes()) if path.is_file() else {}
        threads, cores = checkpoint_threads or stored.get("threads"), available_cores()
        if threads is None:
            threads = choose_threads(updater, cores) if updater.compile_mode == "off" else cores
            atomic_files.replace_file(path, f"{json.dumps({**stored, 'threads': threads}, indent=2)}\n".encode())
        elif threads > cores:
            self.warnings.append(
                LocalizedText(
                    "the run has {threads} threads and this machine {cores} cores: it stays the same bit for bit and "
                    "is slow (--threads {cores} is faster, and its last bits differ)",
                    threads=threads,
                    cores=cores,
                )
            )
        torch.set_num_threads(threads)

    def _store_overrides(self) -> None:
        """Store changed settings in the run folder. Call it after all of them are known to fit."""
        before, now = load_run_config(self.folder).train, self.config.train
        other = [name for name in ("batch_tokens", "sort_within") if getattr(before, name) != getattr(now, name)]
        if other:  # batches are numbered within a shuffle buffer, whose batches have changed
            self.trainer.restart_pool()
            self.warnings.append(
                LocalizedText(
                    "train.{setting} is another: some pairs of this epoch come a second time", setting=other[0]
                )
            )
        if self.world.is_main:
            atomic_files.replace_file(self.folder / "run.toml", to_toml(self.config).encode())

    def _make_valid_windows(self) -> WindowBatches | None:
        """Return validation batches of language-model text, if the run uses it."""
        if self.data.valid_windows is None or self.data.window is None:
            return None
        return WindowBatches(self.data.valid_windows, max(1, self.config.train.batch_tokens // self.data.window))

    @property
    def faults(self) -> dict[str, str]:
        """Write errors other than those of checkpoints, by name, while they last. Training continues."""
        faults = {type(sink).__name__: getattr(sink, "fault", None) for sink in self.sinks}
        return {name: fault for name, fault in {**faults, "model": self._model_fault}.items() if fault}

    def train(self, stop_at: int | None = None) -> Iterator[Report]:
        """Train and pass every report to the sinks first. Steps up to `stop_at` are reported."""
        if not hasattr(self, "trainer"):
            self.build()
        sinks = self.sinks if self.world.is_main else []
        with ExitStack() as stack:
            stack.enter_context(self._lock_folder())
            stack.enter_context(keep_threads() if self.device.type == "cpu" else nullcontext())
            stack.enter_context(self._explain_damaged_data())
            stack.enter_context(oom_advice(self.config.train, self.folder, self.world.size))
            for sink in sinks:
                sink.open(self.folder, self.trainer.step)
                stack.callback(sink.close)
            for report in self.trainer.train(stop_at):
                for sink in sinks:
                    sink.write(report)
                self._save_if_best(report)
                yield report

    def save(self) -> Saved | SaveFailed:
        """Save a checkpoint of the current state."""
        return self.trainer.save()

    def finish(self) -> Path:
        """Write the model folder: the best weights, the last ones or an average of checkpoints, by train.final."""
        folder = self.folder / "model"
        self.trainer.updater.finalize()
        if self.world.is_main:
            self._load_final_weights()
            try:
                self._write_model()
            except atomic_files.DiskFullError as error:
                if saved := self.checkpoints.steps():
                    raise atomic_files.DiskFullError(
                        "disk_full_checkpoint_kept", error=error, step=saved[-1], folder=self.folder
                    ) from None
                raise atomic_files.DiskFullError("disk_full_no_checkpoint", error=error, folder=self.folder) from None
        self.world.barrier()
        return folder

    def _load_final_weights(self) -> None:
        state, config = self.trainer.state, self.config.train
        found = load_final_weights(config, self.checkpoints, state.best_step, self.folder / "model", self.device)
        weights, fault = found
        self._model_fault = fault or self._model_fault
        if weights is not None:  # otherwise the network has them
            load_weights(self.model.network, weights)

    def _write_model(self) -> None:
        state, best = self.trainer.state, self.config.train.best
        if state.best is not None:
            scores = {"step": self.trainer.step, "best_step": state.best_step, f"valid_{best}": state.best}
            self.model.scores.update(scores)
        self.model.save(self.folder / "model")

    def _write_weights(self, step: int) -> Path:
        """Write a weights-only checkpoint: a model folder in float16, or in float32 if a weight exceeds its range."""
        scores = {"step": step, **keep_guided_head(self.model.scores)}
        folder, stored = self.weight_checkpoints.path(step), replace(self.model.stored_model, scores=scores)
        if _is_intact(folder):  # a resumed run has the same weights: never replace durable data
            return folder
        largest = max(float(weight.detach().abs().max()) for weight in stored.network.parameters())
        save_model(folder, stored, torch.float16 if largest <= torch.finfo(torch.float16).max else torch.float32)
        return folder

    def _save_if_best(self, report: Report) -> None:
        """Save the best model so far. If the disk is full the run continues, and `finish` tries again."""
        if not (isinstance(report, Validation) and report.best and self.config.train.final == "best"):
            return
        with self.trainer.updater.eval_weights():
            if self.world.is_main:
                self._write_best(report)

    def _write_best(self, report: Validation) -> None:
        self.model.scores.update({f"valid_{name}": value for name, value in report.scores.items()})
        self.model.scores.update({"signatures": report.signatures})
        self._model_fault = None
        try:
            self._write_model()
        except (AttendoError, OSError) as error:
            self._model_fault = str(error)

    def _lock_folder(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes."""
        return atomic_files.folder_lock(self.folder) if self.world.is_main else nullcontext()

    @contextmanager
    def _explain_damaged_data(self) -> Iterator[None]:
        """Add advice to errors of damaged data that the run prepared: delete it, and the run prepares it again."""
        try:
            yield
        except DamagedDataError as error:
            if self.config.data.prepared is not None:
                raise
            raise DataError(
                "run_data_damaged", error=error.fault, data_folder=self.data_folder, folder=self.folder
            ) from None

    def _compare_facts(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        if before["config_sha256"] != now["config_sha256"] and not self._has_overrides:
            raise UsageError("checkpoint_settings_mismatch", path=self.folder / "run.toml")
        if before["data_sha256"] != now["data_sha256"]:
            raise ModelError("checkpoint_data_mismatch", folder=self.data_folder)
        self.warnings += machine_differences(before, now)


def _is_intact(folder: Path) -> bool:
    with suppress(ModelError):
        return bool(check_manifest(folder, FORMAT, VERSION))
    return False


@contextmanager
def oom_advice(train: TrainConfig, folder: Path, world_size: int) -> Iterator[None]:
    """Add advice to out-of-memory errors: half the batch and twice the accumulation give the same update size."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            smaller, more = max(1, train.batch_tokens // 2), train.accumulate * 2
            processes = LocalizedText("with {count} processes again, ", count=world_size)
            command = f"attendo train --resume {quote(str(folder))} --override "
            command += f"--set train.batch_tokens={smaller} --set train.accumulate={more}"
            error.add_note(
                LocalizedText(
                    "batches of {tokens:,} tokens are too much here; what was saved stays, go on with half of them: "
                    "{processes}{command}",
                    tokens=train.batch_tokens,
                    processes="" if world_size == 1 else processes,
                    command=command,
                )
            )
        raise
