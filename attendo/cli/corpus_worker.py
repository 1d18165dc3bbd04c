"""A worker of `attendo generate --workers` and `attendo prepare --workers` (see `recipes/corpus_workers.py`)."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from attendo.cli.language import current_language, use_language
from attendo.errors import AttendoError


def main() -> None:
    """Answer tasks until the input ends. Standard output is kept for the answers: libraries print to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline() or "{}")
    use_language(settings.get("language", "en"))
    try:
        answer_tasks = _prepare if "parts" in settings else _generate
        for answer in answer_tasks(settings) if settings else ():
            _send(answers, answer)
    except AttendoError as error:
        _send(answers, {"error": error.text(current_language()), "exit_code": error.exit_code})


def _generate(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    from attendo.cli.generate_corpus import CorpusCommand, WindowGenerator
    from attendo.recipes.corpus_generation import Window

    command = CorpusCommand.from_json(settings["command"])
    work = command.plan(list(map(Path, settings["shards"])), Path(settings["folder"]), {})
    generator = WindowGenerator(command, work, settings["worker"])
    for line in sys.stdin:
        task = json.loads(line)
        yield {"window": task, "counts": asdict(generator.generate(Window(**task)))}


def _prepare(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
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


def _send(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
