"""skipped.jsonl: which pairs those steps were to learn from whose loss or gradient was no number."""

import json
from dataclasses import asdict
from pathlib import Path

from attendo import durable
from attendo.train.reports import Report, Skipped

NAME = "skipped.jsonl"


class SkippedFile:
    """A sink. The file is there once a step was skipped; each time it is replaced whole, which is seldom."""

    def __init__(self) -> None:
        self.fault: str | None = None
        self._steps: dict[int, Skipped] = {}

    def open(self, folder: Path, step: int) -> None:
        self._path = folder / NAME
        lines = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        known = [Skipped(each["step"], tuple(each["pairs"])) for each in map(json.loads, lines)]
        self._steps = {each.step: each for each in known if each.step <= step}
        if len(self._steps) < len(known):
            self._write()

    def write(self, report: Report) -> None:
        if isinstance(report, Skipped):
            self._steps[report.step] = report
            self._write()

    def close(self) -> None:
        if self.fault is not None:
            self._write()

    def _write(self) -> None:
        content = "".join(json.dumps(asdict(each)) + "\n" for each in self._steps.values())
        try:
            durable.replace(self._path, content.encode())
        except OSError as error:
            self.fault = f"{self._path}: {error.strerror}"
        else:
            self.fault = None
