"""A tiny model folder, and the command line called in this process."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tiny import tiny_model

from attendo.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """What a command answered."""

    code: int
    output: str
    errors: str

    @property
    def error(self) -> str:
        """The one line of a command that failed."""
        assert self.errors.count("\n") == 1, self.errors
        assert self.errors.startswith("attendo: ")
        assert self.output == ""
        return self.errors.removeprefix("attendo: ").rstrip("\n")


Command = Callable[..., Outcome]


@pytest.fixture
def attendo(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Calls `attendo` with these arguments and these bytes on standard input."""

    def call(*arguments: str | Path, given: bytes = b"") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        written = capsysbinary.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(left.value.code, written.out.decode(), written.err.decode())

    return call


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    """A tiny untrained model, saved."""
    folder = tmp_path / "model"
    tiny_model().save(folder)
    return folder
