"""A tiny model folder, and the command line called in this process."""

import functools
import io
import logging
import shutil
import sys
from pathlib import Path

import pytest
import typer
from tiny import Command, Outcome, tiny_model

from attendo.cli.main import main

# A process makes all commands once. Here hundreds of tests are one process, and to make them takes longer than most.
get_command = functools.cache(typer.main.get_command)


@pytest.fixture
def attendo(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Calls `attendo` with these arguments and these bytes on standard input."""

    def call(*arguments: str | Path, given: bytes = b"") -> Outcome:
        monkeypatch.setattr(typer.main, "get_command", get_command)
        monkeypatch.setattr(logging, "_handlerList", [])  # a server closes them: absl's would close pytest's stream
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        written = capsysbinary.readouterr()
        assert isinstance(left.value.code, int)
        return Outcome(left.value.code, written.out.decode(), written.err.decode())

    return call


@pytest.fixture(scope="session")
def saved_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny untrained model, saved, for tests that only read it."""
    folder = tmp_path_factory.mktemp("saved") / "model"
    tiny_model().save(folder)
    return folder


@pytest.fixture
def model_folder(saved_model: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may change."""
    return Path(shutil.copytree(saved_model, tmp_path / "model"))
