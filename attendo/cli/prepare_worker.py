"""Processes of `attendo prepare --workers`: each is `python -m attendo.cli.prepare_worker`."""

import json
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attendo.cli.corpus_worker import Settings, run_worker
from attendo.cli.language import current_language

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

        shared = {"data": work.settings.model_dump(mode="json"), "seed": work.seed, "pass": name}
        program = [sys.executable, "-P", "-m", "attendo.cli.prepare_worker"]
        with atomic_files.temporary_folder(work.parts.path / "logs") as logs:
            settings = {**shared, "parts": str(work.parts.path), "language": current_language()}
            pool = WorkerPool(program, settings, self.num_workers, logs)
            with closing(pool.run(asdict(window) for window, _ in windows)) as answers:
                for answer in answers:
                    yield Window(**answer)


def _answer(settings: Settings) -> Iterator[dict[str, Any]]:
    from attendo.data.config import DataConfig
    from attendo.data.corpus_windows import Window
    from attendo.data.preparation import Preparation, WindowComputer
    from attendo.data.preparation_parts import PartFolder
    from attendo.runs.corpora import make_corpora

    data, seed = DataConfig(**settings["data"]), settings["seed"]
    training, valid = make_corpora(data, seed)
    corpora = (*training, *(() if valid is None else (valid,)))
    parts = PartFolder(Path(settings["parts"]), durable=True)
    computer = WindowComputer(Preparation(corpora, len(training), data, seed, parts), settings["pass"])
    for line in sys.stdin:
        window = Window(**json.loads(line))
        parts.write(settings["pass"], window, computer.compute(window))
        yield asdict(window)


if __name__ == "__main__":
    run_worker(_answer)
