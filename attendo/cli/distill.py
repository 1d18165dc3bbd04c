"""The `attendo distill` command: replaces the targets of a corpus by translations of a teacher."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli.options import Device
from attendo.cli.output import print_stderr
from attendo.errors import UsageError

if TYPE_CHECKING:
    from attendo.recipes.distill import Distillation
    from attendo.runs.config import RunConfig
    from attendo.text_model import TextModel


def distill(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="Run folder of attendo train; without folds also a model folder.")
    ],
    source: Annotated[Path, typer.Option(metavar="FILE", help="Source text, one sentence per line (plain, .gz, .xz).")],
    target: Annotated[Path, typer.Option(metavar="FILE", help="Target text, line by line.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write: source.txt and target.txt.")],
    folds: Annotated[
        int,
        typer.Option(
            min=1, help="Parts of the text; each is translated by a teacher trained on the others. 1: by MODEL."
        ),
    ] = 4,
    beam: Annotated[int, typer.Option(min=1, max=1000, help="Beam size of the teachers.")] = 5,
    device: Device = "auto",
) -> None:
    """Replace the targets of parallel text by translations of a teacher, for a student to learn from.

    A model repeats the targets that it was trained on, so every part is translated by a teacher that has not seen it.
    The teachers are trained with the settings of MODEL's run. The same command continues an interrupted one.
    """
    from attendo.cli.train import check_ahead
    from attendo.recipes.distill import Distillation

    check_ahead(device)
    work = Distillation(out, source, target, folds, {"beam": beam, "split": False})
    config = _read_run(model) if folds > 1 else None
    work.begin()
    print_stderr(f"{work.split():,} lines in {folds} {'fold' if folds == 1 else 'folds'}")
    for fold in range(folds):
        _translate(work, fold, _load_teacher(work, fold, model, config, device))
    lines = work.merge()
    value = work.score()
    print_stderr(f"{lines:,} lines written to {work.outputs[0]} and {work.outputs[1]}")
    print_stderr(f"BLEU of the new targets against the old ones: {value.value:.1f} ({value.signature})")


def _read_run(model: Path) -> "RunConfig":
    """Return the settings of the run that trained the model: a run folder, or the model folder in it."""
    from attendo.runs.config import load_run_config

    for folder in (model, model.absolute().parent):
        if (folder / "run.toml").is_file():
            config = load_run_config(folder)
            if config.data.prepared is not None or config.data.text is not None:
                raise UsageError("distillation_run_unsuitable", folder=folder)
            return config
    raise UsageError("distillation_run_missing", model=model)


def _load_teacher(work: "Distillation", fold: int, model: Path, config: "RunConfig | None", device: str) -> "TextModel":
    """Return the teacher of a fold. Train it, or go on with its training, if it is not complete."""
    from attendo.recipes.files import compute_checksums, list_training_files
    from attendo.recipes.run_state import read_run_state, write_text_checksums
    from attendo.runs.run import Run
    from attendo.text_model import load, pick_device

    if config is None:
        return load(model / "model" if (model / "run.toml").is_file() else model, device)
    from attendo.cli.progress import train_with_progress

    folder, own = work.teacher_folder(fold), work.teacher_config(config, fold)
    texts = compute_checksums(list_training_files(own.data))
    state = read_run_state(folder, own, texts)
    if state != "complete":
        print_stderr(f"teacher {fold + 1} of {work.num_folds}: training, in {folder}")
        if state == "new":
            run = Run.begin(own, folder, pick_device(device))
            write_text_checksums(folder, texts)
        else:
            run = Run.resume(folder, pick_device(device))
        outcome = train_with_progress(run)
        if outcome.stopped:
            print_stderr("the same command goes on from here")
            raise typer.Exit(outcome.exit_code)
    return load(folder / "model", device)


def _translate(work: "Distillation", fold: int, teacher: "TextModel") -> None:
    from attendo.cli.stdin import LineCounter

    counter, before = LineCounter(), 0
    for done in work.translate(teacher, fold):
        counter.add(done - before)
        before = done
    counter.clear()
    print_stderr(f"fold {fold + 1} of {work.num_folds}: {before:,} lines translated")
