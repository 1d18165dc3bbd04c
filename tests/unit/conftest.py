"""A tiny model folder, and the command line called in this process."""

import io
import sys
from pathlib import Path

import pytest
from tiny import Command, Outcome, tiny_model

from attendo.cli.main import main


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
