"""A worker of `attendo generate --workers`: `python -m attendo.cli.corpus_worker` (see `recipes/corpus_workers.py`)."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from attendo.cli.language import current_language, use_language
from attendo.errors import AttendoError

Settings = dict[str, Any]


def main() -> None:
    run_worker(_answer)


def run_worker(answer_tasks: Callable[[Settings], Iterator[dict[str, Any]]]) -> None:
    """Answer tasks until the input ends. Standard output is kept for the answers: libraries print to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    settings = json.loads(sys.stdin.readline() or "{}")
    use_language(settings.get("language", "en"))
    try:
        for answer in answer_tasks(settings) if settings else ():
            _send(answers, answer)
    except AttendoError as error:
        _send(answers, {"error": error.text(current_language()), "exit_code": error.exit_code})


def _answer(settings: Settings) -> Iterator[dict[str, Any]]:
    from attendo.cli.generate_corpus import CorpusCommand, WindowGenerator
    from attendo.recipes.corpus_generation import Window

    command = CorpusCommand.from_json(settings["command"])
    work = command.plan(list(map(Path, settings["shards"])), Path(settings["folder"]), {})
    generator = WindowGenerator(command, work, settings["worker"])
    for line in sys.stdin:
        task = json.loads(line)
        yield {"window": task, "counts": asdict(generator.generate(Window(**task)))}


def _send(answers: TextIO, answer: dict[str, Any]) -> None:
    print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
