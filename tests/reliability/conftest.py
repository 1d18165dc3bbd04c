"""A server of child processes, and data that is prepared once for all runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import Children
from distributed_runs import Trained, make_trainer
from small_run import begin, run_config, write_text


@pytest.fixture(scope="package")
def children(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Children]:
    started = Children(tmp_path_factory.mktemp("children"))
    yield started
    started.close()


@pytest.fixture(scope="package")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared data with words as tokens."""
    folder = tmp_path_factory.mktemp("prepared")
    return begin(run_config(write_text(folder)), folder / "run").data_folder


@pytest.fixture(scope="package")
def prepared_pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same data with BPE tokens, which BPE-dropout can split in other ways."""
    folder = tmp_path_factory.mktemp("prepared-pieces")
    config = run_config(write_text(folder), tokenizer={"kind": "bpe", "size": 320})
    return begin(config, folder / "run").data_folder


@pytest.fixture(scope="package")
def trained(children: Children, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    workers_share = "PYTEST_XDIST_WORKER" in os.environ
    folder = tmp_path_factory.getbasetemp().parent if workers_share else tmp_path_factory.getbasetemp()
    shared = folder / "runs-of-several-processes"
    shared.mkdir(exist_ok=True)
    return make_trainer(children, prepared, shared)
