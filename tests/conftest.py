"""Fixtures and settings of every test: shape checks, one thread per worker, small networks, seeded randomness."""

import functools
import gc
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import shape_checks
import torch
import typer
from hypothesis import settings
from short_form import mark_further_cases, mark_spare_combinations

shape_checks.install()

from tiny import Command, Outcome  # noqa: E402

from attendo.cli.main import main  # noqa: E402
from attendo.model.config import ModelConfig  # noqa: E402
from attendo.model.factory import make_network  # noqa: E402
from attendo.model.transformer import Transformer  # noqa: E402

# A shell makes background processes ignore SIGINT, and commands that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Users do not set it, so attendo must flush its output itself.
os.environ.pop("PYTHONUNBUFFERED", None)

# Tests and the commands that they start are English in any locale.
os.environ["ATTENDO_LANG"] = "en"

# One thread in every worker and in every command that tests start: the last bits of a sum depend on the number.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"

# A full garbage collection is slow with torch, transformers and thousands of tests loaded, so it runs rarely.
gc.set_threshold(10_000, 20, 20)

TESTS = Path(__file__).parent
UNIT_TESTS = TESTS / "unit"
GRIDS = ("unit", "parity")  # folders whose grids of parameters have a short form

settings.register_profile("short", max_examples=8, deadline=None, derandomize=True)
settings.register_profile("full", max_examples=25, deadline=None, derandomize=True)

SMALL: dict[str, Any] = {
    "vocab_size": 17,
    "d_model": 16,
    "num_heads": 4,
    "d_ff": 24,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "dropout": 0.0,
}

# Building the commands takes longer than most tests. Hundreds of tests share a process, so build them once.
get_command = functools.cache(typer.main.get_command)

fsync = os.fsync


def pytest_configure(config: pytest.Config) -> None:
    """`make test` skips slow tests and draws fewer examples."""
    settings.load_profile("short" if "not slow" in config.option.markexpr else "full")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_spare_combinations(item for item in items if item.path.relative_to(TESTS).parts[0] in GRIDS)
    mark_further_cases(items)


def pytest_collection_finish() -> None:
    gc.freeze()  # imported modules stay until the end, so the garbage collector need not scan them


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Runs before the fixtures. Unit tests skip fsync: a run syncs 50 times, for milliseconds each."""
    shape_checks.switch(item.path)
    torch.default_generator.manual_seed(0)  # random numbers do not depend on earlier tests
    os.fsync = _no_sync if item.path.is_relative_to(UNIT_TESTS) else fsync


def _no_sync(handle: int) -> None:
    os.fstat(handle)  # a closed file is still an error


@pytest.fixture(scope="module")
def small_config() -> Callable[..., ModelConfig]:
    """Makes the config of a network that runs in 1 ms, with any setting changed."""
    return lambda **changes: ModelConfig(**{**SMALL, **changes})


@pytest.fixture(scope="module")
def small_network(small_config: Callable[..., ModelConfig]) -> Callable[..., Transformer]:
    """Makes a network of that size in evaluation mode. Its weights follow from `seed`.

    Biases and gains are random too: at their initial values 0 and 1, a swap of two of them would go unnoticed.
    """

    def make(seed: int = 0, **changes: Any) -> Transformer:
        generator = torch.Generator().manual_seed(seed)
        network = make_network(small_config(**changes), generator)
        with torch.no_grad():
            for parameter in network.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
                elif parameter.dim() == 3:  # relative positions, whose first biases are small
                    parameter.mul_(4)
        return network.eval()

    return make


@pytest.fixture(autouse=True)
def same_products() -> Iterator[None]:
    """Undo `configure_cpu_bf16`, which changes the last bits of products on some processors."""
    enabled = torch.backends.mkldnn.enabled
    yield
    torch.backends.mkldnn.set_flags(enabled, _fp32_precision=None)


@pytest.fixture
def attendo(monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Calls `attendo` with the given arguments and the given bytes on standard input."""

    def call(*arguments: str | Path, given: bytes = b"") -> Outcome:
        monkeypatch.setattr(typer.main, "get_command", get_command)
        monkeypatch.setattr(
            logging, "_handlerList", []
        )  # a server closes all handlers, and absl's would close pytest's stream
        monkeypatch.setattr(sys, "argv", ["attendo", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), "utf-8"))
        capsysbinary.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main()
        captured = capsysbinary.readouterr()
        assert isinstance(exit_info.value.code, int)
        return Outcome(exit_info.value.code, captured.out.decode(), captured.err.decode())

    return call


@pytest.fixture
def generator() -> torch.Generator:
    """A random number generator with a fixed seed."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def shared() -> Path:
    """The folder `shared` next to the project, with data and study texts."""
    path = Path(__file__).resolve().parents[2] / "shared"
    if not path.is_dir():
        pytest.skip("no folder named shared beside the project")
    return path
