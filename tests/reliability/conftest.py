"""A server of child processes, and text that was prepared once for all runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Children
from small_run import begin, run_config, write_text
from together import Trained, trainer_of_runs


@pytest.fixture(scope="package")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    started = Children(tmp_path_factory.mktemp("children"))
    yield started
    started.close()


@pytest.fixture(scope="package")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data as words."""
    folder = tmp_path_factory.mktemp("prepared")
    return begin(run_config(write_text(folder)), folder / "run").data_folder


@pytest.fixture(scope="package")
def prepared_pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data as pieces of words, which BPE-dropout can cut otherwise."""
    folder = tmp_path_factory.mktemp("prepared-pieces")
    config = run_config(write_text(folder), tokenizer={"kind": "bpe", "size": 320})
    return begin(config, folder / "run").data_folder


@pytest.fixture(scope="package")
def trained(children: Children, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    workers_share = "PYTEST_XDIST_WORKER" in os.environ
    folder = tmp_path_factory.getbasetemp().parent if workers_share else tmp_path_factory.getbasetemp()
    shared = folder / "runs-of-several-processes"
    shared.mkdir(exist_ok=True)
    return trainer_of_runs(children, prepared, shared)
