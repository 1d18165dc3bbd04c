"""The `attendo prepare` command: converts text into memory-mapped token ids for training."""

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attendo.cli import options as shared
from attendo.cli.language import current_language, say
from attendo.cli.output import print_stderr

if TYPE_CHECKING:
    from attendo.data.corpus_windows import Window, WindowLines
    from attendo.data.preparation import Preparation
    from attendo.data.preparation_parts import Pass


@dataclass(frozen=True)
class WorkerProcesses:
    """Computes windows in processes of this machine."""

    num_workers: int

    def run(
        self, work: "Preparation", name: "Pass", windows: "Iterator[tuple[Window, WindowLines | None]]"
    ) -> "Iterator[Window]":
        from attendo import atomic_files
        from attendo.data.corpus_windows import Window
        from attendo.recipes.corpus_workers import WorkerPool

        settings = {"data": work.settings.model_dump(mode="json"), "seed": work.seed, "pass": name}
        settings |= {"parts": str(work.parts.path), "language": current_language()}
        program = [sys.executable, "-P", "-m", "attendo.cli.corpus_worker"]
        with atomic_files.temporary_folder(work.parts.path / "logs") as logs:
            pool = WorkerPool(program, settings, self.num_workers, logs)
            with closing(pool.run(asdict(window) for window, _ in windows)) as answers:
                for answer in answers:
                    yield Window(**answer)


@shared.expand_options
def prepare(
    *,
    run_file: shared.RunFile = None,
    files: shared.TextOptions,
    out: Annotated[Path | None, typer.Option(help="Folder for the prepared data.")] = None,
    data: shared.Data = None,
    max_bad_ratio: shared.MaxBadRatio = None,
    workers: Annotated[int, typer.Option(min=1, max=1000, help="Processes of this machine.")] = 1,
    change: shared.Changes = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Verify every byte of prepared data, then exit.")
    ] = None,
) -> None:
    """Convert text into memory-mapped shards of token ids, for any number of runs.

    attendo train does this itself when it is given text. Bad lines are counted by reason and listed. The same command
    continues an interrupted one.
    """
    from attendo.errors import UsageError

    if verify is not None:
        from attendo.cli.progress import describe_size
        from attendo.data.prepared import open_prepared

        print(say("{folder} is whole: {size}", folder=verify, size=describe_size(open_prepared(verify, verify=True))))
        return
    if out is None:
        raise UsageError("prepared_folder_missing")

    from attendo import atomic_files
    from attendo.cli.progress import describe_size, describe_skipped_lines, show_preparation
    from attendo.cli.train import make_config, merge_changes
    from attendo.data.preparation import LocalWorker
    from attendo.data.prepared import open_prepared
    from attendo.runs.corpora import prepare_corpora

    changes = merge_changes(change, {"--max-bad-ratio": ("data.max_bad_ratio", max_bad_ratio)})
    config = make_config(run_file, {**asdict(files), "folder": data}, changes, shown_prefix="tokenizer.")
    if config.data.prepared is not None:
        raise UsageError("data_already_prepared", folder=config.data.prepared)
    if config.data.text is not None and workers > 1:
        raise UsageError("workers_with_text", workers=workers)
    with atomic_files.exclusive_target(out.absolute()):
        show_preparation(prepare_corpora(config, out, WorkerProcesses(workers) if workers > 1 else LocalWorker()))
    prepared = open_prepared(out)
    print(say("{size}, written to {out}", size=describe_size(prepared), out=out))
    for line in describe_skipped_lines(prepared):
        print(line)
    print_stderr(say("next: attendo train --set data.prepared={out} --out runs/NAME", out=out))
