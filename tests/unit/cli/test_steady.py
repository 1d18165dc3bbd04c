"""Standard error that may go away."""

import errno
import io
import sys

import pytest

from attendo.cli.output import BestEffortStderr, make_stderr_console
from attendo.cli.progress import TrainingProgress
from attendo.train.loop import Validation


class Breaking(io.StringIO):
    """Takes some writes, then fails as a pipe or a disk does."""

    def __init__(self, number: int, after: int = 0) -> None:
        super().__init__()
        self._number, self._left = number, after

    def write(self, text: str) -> int:
        if self._left == 0:
            raise OSError(self._number, "no")
        self._left -= 1
        return super().write(text)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_what_cannot_be_said_any_more_is_not_said(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    broken = Breaking(number, after=1)
    monkeypatch.setattr(sys, "stderr", broken)
    steady = BestEffortStderr()
    assert [steady.write(text) for text in ("one", "two", "three")] == [3, 3, 5]
    steady.flush()
    assert broken.getvalue() == "one"


def test_the_display_of_a_training_goes_on_without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Breaking(errno.EPIPE))
    with TrainingProgress(10) as progress:
        progress.show(Validation(step=5, loss=1.0, scores={}, signatures={}, samples=(), old={}))
        progress.print_line("still here")


def test_a_console_says_what_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    make_stderr_console().print("here")
    make_stderr_console(quiet=True).print("not here")
    assert capsys.readouterr().err == "here\n"
