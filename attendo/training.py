"""`attendo.train`: a training run from Python, as a loop over its reports."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from attendo.data.prepare import Preparing
from attendo.doctor import Finding, run_quick_checks
from attendo.errors import AttendoError, UsageError
from attendo.runs.auto_config import SettingChoice
from attendo.runs.config import RunConfig, load_run_config
from attendo.runs.new_run import is_data_file, read_settings, resolve_settings
from attendo.runs.run import Run
from attendo.runs.run_folder import check_free, make_folder
from attendo.text_model import TextModel, load, pick_device
from attendo.train.distributed import Distributed, init_distributed
from attendo.train.loop import DivergedError, Report
from attendo.train.validation import MetricFunction

# Settings of [data] that are accepted without their table.
_FILE_SETTINGS = ("source", "target", "file", "text", "source_field", "target_field", "text_field", "valid_source")
_DATA_SETTINGS = (*_FILE_SETTINGS, "valid_target", "valid_file", "valid_text", "prepared")
_IN_MEMORY = {"pairs": "file", "valid_pairs": "valid_file", "texts": "text", "valid_texts": "valid_text"}
_TRAIN_SETTINGS = ("steps", "epochs")


def train(
    run_file: str | Path | None = None,
    *,
    out: str | Path | None = None,
    resume: str | Path | None = None,
    metrics: Mapping[str, MetricFunction] | None = None,
    device: str = "auto",
    overwrite: bool = False,
    **settings: Any,
) -> "Training":
    """Train a model: loop over the returned object, or call its `run()`.

        for report in attendo.train(source="a.en", target="a.de", out="runs/mine", steps=500):
            print(report)
        model = attendo.load("runs/mine/model")

    The training text is `source` and `target`, `file`, or `text`, each a path or a list of paths. It can also be given
    as `pairs` (of two strings) or `texts`. `valid_source` and the like name the validation text. `run_file` is a run
    file or a data file with both sides. Any other setting has its name from the run file: `steps=500`,
    `preset="small"`, `train={"peak_lr": 1e-3}`, or `**{"train.peak_lr": 1e-3}`. Other settings are chosen from the
    data.

    `resume` continues the run in a folder. `metrics` are functions of outputs and references. Each is computed at every
    validation.
    """
    if resume is not None:
        if run_file is not None or out is not None or settings or overwrite:
            raise UsageError("resume_with_other_arguments")
        return Training(Path(resume), load_run_config(Path(resume)), (), device, metrics, resumes=True)
    if out is None:
        raise UsageError("run_folder_missing")
    folder = Path(out)
    check_free(folder, overwrite)
    given = _group_by_table(settings, folder)
    path = None if run_file is None else Path(run_file)
    if path is not None and is_data_file(path):
        given.setdefault("data", {})["file"], path = path, None
    new = resolve_settings(read_settings(path, {}), (), path, given)
    return Training(folder, new.config, new.choices, device, metrics, overwrites=overwrite)


class Training:
    """A run that trains while it is iterated. Each report is an object of `attendo.train.loop`.

    If the loop is left early, the state is saved and `attendo.train(resume=folder)` continues from it.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        choices: Iterable[SettingChoice],
        device: str,
        metrics: Mapping[str, MetricFunction] | None,
        resumes: bool = False,
        overwrites: bool = False,
    ) -> None:
        self.folder, self.config, self.choices = folder, config, tuple(choices)
        self.warnings: list[str] = []
        self.step = 0
        self._device, self._metrics = pick_device(device), dict(metrics or {})
        self._resumes, self._overwrites = resumes, overwrites

    def __iter__(self) -> Iterator[Preparing | Report]:
        """Prepare the data, train to the end and write the model. A second loop continues the first."""
        with init_distributed(self._device) as (world, device):
            run = self._open(device, world)
            yield from run.prepare()
            self.config = run.config
            run.build()
            self.step = run.trainer.step
            self.warnings += [*run.warnings, *(finding.line for finding in check_before_training(run))]
            yield from self._train(run)

    def run(self) -> TextModel:
        """Train to the end and return the model."""
        for _ in self:
            pass
        return self.model

    @property
    def model(self) -> TextModel:
        """The best model so far. It exists after the first validation."""
        return load(self.folder / "model", str(self._device))

    def __repr__(self) -> str:
        position = f"step {self.step} of {self.config.train.steps}"
        return f"<attendo.train into {self.folder}: {position}; loop over it, or call run()>"

    def _open(self, device: Any, world: Distributed) -> Run:
        if self._resumes:
            run = Run.resume(self.folder, device, world)
        else:
            run = Run.begin(self.config, self.folder, device, self._overwrites, world)
        run.user_metrics = self._metrics
        self._resumes = True
        return run

    def _train(self, run: Run) -> Iterator[Report]:
        try:
            for report in run.train():
                self.step = run.trainer.step
                yield report
            run.finish()
        except DivergedError:
            raise
        except BaseException:  # includes GeneratorExit, when the loop is left
            save_after_error(run)
            raise


def check_before_training(run: Run) -> list[Finding]:
    """Run the quick checks of a new run. A fault that would waste the run raises its error; return other findings.

    With several ranks nothing is checked: a check on one rank would block the others. Sharded weights are not checked
    either: the checks read the whole network.
    """
    is_sharded = run.trainer.updater.placement.is_sharded
    findings = [] if run.trainer.step or run.world.size > 1 or is_sharded else run_quick_checks(run)
    for finding in findings:
        if finding.level == "fault" and finding.stops:
            raise finding.to_error()
    return findings


def save_after_error(run: Run) -> None:
    """Save a checkpoint after an error, so that the training progress is not lost.

    In the middle of an update nothing is saved, because a resumed run would differ. With several ranks nothing is
    saved, because saving needs all ranks and the others do not know of the error.
    """
    if run.trainer.all_reported and run.world.size == 1:
        with suppress(AttendoError, OSError, RuntimeError, MemoryError):  # the first error is the one to report
            run.save()


def _group_by_table(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Group settings by table, as in a run file."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name in _IN_MEMORY:
            table, name, value = "data", _IN_MEMORY[name], _write_jsonl(value, name, folder)
        elif name in _DATA_SETTINGS:
            table = "data"
        elif name in _TRAIN_SETTINGS:
            table = "train"
        else:
            table, _, name = name.rpartition(".")
        if "." in table:
            raise UsageError("setting_name_too_deep", table=table, name=name)
        section = values.setdefault(table, {}) if table else values
        if not table and isinstance(value, Mapping):
            value = {**values.get(name, {}), **value}
        if name in section and not isinstance(value, Mapping):
            raise UsageError("training_setting_duplicate", name=name)
        section[name] = value
    return values


def _write_jsonl(items: Iterable[Any], name: str, folder: Path) -> Path:
    """Write in-memory text to a file of the run folder, so that the run can be resumed."""
    lines = []
    for number, each in enumerate(items):
        pair = name.endswith("pairs")
        parts = list(each) if pair and not isinstance(each, str) else [each]
        if len(parts) != 1 + pair or not all(isinstance(part, str) for part in parts):
            what = "a source and a target" if pair else "a text"
            raise UsageError("training_item_wrong_type", name=name, number=number, what=what, value=str(each)[:80])
        content = dict(zip(("source", "target") if pair else ("text",), parts, strict=True))
        lines.append(json.dumps(content, ensure_ascii=False) + "\n")
    make_folder(folder)
    path = folder / f"{name.replace('_', '-')}.jsonl"
    path.write_text("".join(lines), "utf-8", errors="surrogatepass")
    return path
