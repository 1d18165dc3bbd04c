"""Writing to a standard error that fails."""

import errno
import io
import sys

import pytest

from attendo.cli.output import BestEffortStderr, make_stderr_console
from attendo.cli.progress import TrainingProgress
from attendo.train.loop import Validation


class FailingStream(io.StringIO):
    """Accepts some writes, then fails like a closed pipe or a full disk."""

    def __init__(self, number: int, after: int = 0) -> None:
        super().__init__()
        self._number, self._left = number, after
        self.failures = 0

    def write(self, text: str) -> int:
        if self._left == 0:
            self.failures += 1
            raise OSError(self._number, "no")
        self._left -= 1
        return super().write(text)


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_write_errors_are_ignored(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    broken = FailingStream(number, after=1)
    monkeypatch.setattr(sys, "stderr", broken)
    stderr = BestEffortStderr()
    assert [stderr.write(text) for text in ("one", "two", "three")] == [3, 3, 5]
    stderr.flush()
    assert broken.getvalue() == "one"


def test_training_progress_continues_after_a_closed_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = FailingStream(errno.EPIPE)
    monkeypatch.setattr(sys, "stderr", broken)
    with TrainingProgress(10) as progress:
        progress.show(Validation(step=5, loss=1.0, scores={}, signatures={}, samples=(), old={}))
        progress.print_line("still here")
    assert broken.failures == 1  # the first write; the later ones are dropped


def test_a_quiet_console_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    make_stderr_console().print("here")
    make_stderr_console(quiet=True).print("not here")
    assert capsys.readouterr().err == "here\n"
