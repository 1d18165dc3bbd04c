"""The `attendo distill` command: replaces the targets of a corpus by translations of a teacher."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attendo.cli.language import say
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
    jobs: Annotated[int, typer.Option(min=1, help="Parallel trainings, each in a process with a log file.")] = 1,
    device: Device = "auto",
) -> None:
    """Replace the targets of parallel text by translations of a teacher, for a student to learn from.

    A model repeats the targets that it was trained on, so every part is translated by a teacher that has not seen it.
    The teachers are trained with the settings of MODEL's run. The same command continues an interrupted one.
    """
    from attendo import atomic_files
    from attendo.cli.train import check_ahead
    from attendo.metrics import check_metric
    from attendo.recipes.distill import Distillation
    from attendo.runs.run_folder import make_folder

    if folds == 1 and jobs > 1:
        raise UsageError("distillation_jobs_unused", jobs=jobs)
    check_ahead(device)
    check_metric("bleu")
    run = _find_run(model)
    config = _read_suitable_run(run, model) if folds > 1 else None
    folder = run / "model" if run == model else model
    files = _list_teacher_files(folder) if config is None or run is None else [run / "run.toml"]
    options = {"beam": beam, "split": False, "long_source": "truncate"}
    work = Distillation(out, source, target, files, folds, options)
    settings = work.identify()
    only_teacher = _load_suitable_model(folder, model, device, options) if config is None else None
    make_folder(out)
    with atomic_files.folder_lock(out):
        work.begin(settings)
        counted = "{lines:,} lines in {folds} fold" if folds == 1 else "{lines:,} lines in {folds} folds"
        print_stderr(say(counted, lines=work.split(), folds=folds))
        if only_teacher is not None:
            _translate(work, 0, only_teacher)
        elif config is not None:
            _train_and_translate(work, config, device, jobs)
        _report_result(work)


def _report_result(work: "Distillation") -> None:
    lines, value = work.merge(), work.score()
    source, target = work.outputs
    print_stderr(say("{lines:,} lines written to {source} and {target}", lines=lines, source=source, target=target))
    text = "BLEU of the new targets against the old ones: {value:.1f} ({signature})"
    print_stderr(say(text, value=value.value, signature=value.signature))


def _find_run(model: Path) -> Path | None:
    """Return the folder of the run that trained the model: the folder itself, or the one that it is in."""
    folders = (model, model.absolute().parent) if model.exists() else ()
    return next((each for each in folders if (each / "run.toml").is_file()), None)


def _list_teacher_files(folder: Path) -> list[Path]:
    """Return the files that change with the only teacher."""
    from attendo.interop.foreign_folder import list_read_files
    from attendo.interop.load import is_foreign_model

    return list_read_files(folder) if is_foreign_model(folder) else [folder / "manifest.json"]


def _read_suitable_run(run: Path | None, model: Path) -> "RunConfig":
    """Return the settings for teachers. Raise for a run that cannot be repeated with other text."""
    from attendo.runs.config import load_run_config

    if run is None:
        raise UsageError("distillation_run_missing", model=model)
    config = load_run_config(run)
    data = config.data
    if any((data.prepared, data.text, data.tag, config.start_from)) or config.model.get("kind") in ("masked", "ctc"):
        raise UsageError("distillation_run_unsuitable", folder=run)
    return config


def _load_suitable_model(folder: Path, model: Path, device: str, options: Mapping[str, Any]) -> "TextModel":
    """Return the only teacher. Raise for a model without a source or without a beam."""
    from attendo.interop.load import load_torch_model

    teacher = load_torch_model(folder, device)
    if teacher.continues_text:
        raise UsageError("distillation_model_without_source", model=model)
    teacher.settings(**options)  # raises if its kind has no beam
    return teacher


def _train_and_translate(work: "Distillation", config: "RunConfig", device: str, jobs: int) -> None:
    """Train the teachers, and translate each fold with its teacher."""
    if jobs > 1:
        _train_teachers_in_parallel(work, config, device, jobs)
    for fold in range(work.num_folds):
        _translate(work, fold, _train_teacher(work, fold, config, device))


def _train_teachers_in_parallel(work: "Distillation", config: "RunConfig", device: str, max_jobs: int) -> None:
    """Train the teachers that are not complete, each in a process of its own."""
    from attendo.cli.progress import train_in_parallel
    from attendo.recipes.files import compute_checksums, list_training_files, write_text_file
    from attendo.recipes.jobs import TrainingJob
    from attendo.recipes.run_state import read_run_state, write_text_checksums
    from attendo.runs.config import to_toml

    jobs = []
    for fold in range(work.num_folds):
        folder, own = work.teacher_folder(fold), work.teacher_config(config, fold)
        texts = compute_checksums(list_training_files(own.data))
        state = read_run_state(folder, own, texts)
        if state == "complete":
            continue
        words = ["train", "--resume", str(folder)]
        if state == "new":
            run_file = folder.with_suffix(".toml")
            write_text_file(run_file, to_toml(own))
            write_text_checksums(folder, texts)
            words = ["train", str(run_file), "--out", str(folder)]
        name = say("teacher {fold} of {num_folds}", fold=fold + 1, num_folds=work.num_folds)
        jobs.append(TrainingJob(name, [*words, "--device", device], folder.with_suffix(".log")))
    train_in_parallel(jobs, min(max_jobs, work.num_folds))  # each has an equal share of the cores


def _train_teacher(work: "Distillation", fold: int, config: "RunConfig", device: str) -> "TextModel":
    """Return the teacher of a fold. Train it, or go on with its training, if it is not complete."""
    from attendo.cli.progress import train_with_progress
    from attendo.recipes.files import compute_checksums, list_training_files
    from attendo.recipes.run_state import read_run_state, write_text_checksums
    from attendo.runs.run import Run
    from attendo.text_model import load, pick_device

    folder, own = work.teacher_folder(fold), work.teacher_config(config, fold)
    texts = compute_checksums(list_training_files(own.data))
    state = read_run_state(folder, own, texts)
    if state != "complete":
        print_stderr(
            say(
                "teacher {fold} of {num_folds}: training, in {folder}",
                fold=fold + 1,
                num_folds=work.num_folds,
                folder=folder,
            )
        )
        if state == "new":
            run = Run.begin(own, folder, pick_device(device))
            write_text_checksums(folder, texts)
        else:
            run = Run.resume(folder, pick_device(device))
        outcome = train_with_progress(run)
        if outcome.stopped:
            print_stderr(say("the same command goes on from here"))
            raise typer.Exit(outcome.exit_code)
    return load(folder / "model", device)


def _translate(work: "Distillation", fold: int, teacher: "TextModel") -> None:
    from attendo.cli.stdin import LineCounter

    counter, before = LineCounter(), 0
    for done in work.translate(teacher, fold):
        counter.add(done - before)
        before = done
    counter.clear()
    print_stderr(
        say(
            "fold {fold} of {num_folds}: {before:,} lines translated",
            fold=fold + 1,
            num_folds=work.num_folds,
            before=before,
        )
    )
