"""Preparing data as a person sees it: a live line on a terminal, one line a stage elsewhere."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from attendo.cli.steady import steady_console

if TYPE_CHECKING:
    from attendo.data.prepare import Preparing
    from attendo.recipes.run import Run


def show_preparing(run: "Run", verify: bool = False) -> None:
    """Prepare the data of a run, telling how far it is."""
    with told() as tell:
        for report in run.prepare(verify):
            tell(report)


def follow_preparing(reports: Iterable["Preparing"]) -> None:
    with told() as tell:
        for report in reports:
            tell(report)


@contextmanager
def told() -> Iterator["Teller"]:
    console = steady_console()
    if not console.is_terminal:
        yield Teller(console)
        return
    with console.status("preparing ...") as status:
        yield Teller(console, status.update)


class Teller:
    """Says each new stage once, or keeps one line up to date where there is a terminal."""

    def __init__(self, console: Console, update: object = None) -> None:
        self._console, self._update = console, update
        self._stage = ""

    def __call__(self, report: "Preparing") -> None:
        if callable(self._update):
            of = "" if report.of is None else f" of {report.of:,}"
            self._update(f"{report.stage}: {report.lines:,}{of} lines")
        elif report.stage != self._stage:
            self._stage = report.stage
            self._console.print(f"{report.stage} ...", highlight=False, markup=False)
