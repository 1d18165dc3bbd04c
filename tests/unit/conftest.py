"""A tiny model folder."""

import shutil
from pathlib import Path

import pytest
from tiny import tiny_model


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
