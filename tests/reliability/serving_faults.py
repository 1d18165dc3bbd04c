"""Faults in a server. Requests are marked for them by their `max_length`."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import attendo.serve.app
import attendo.serve.http.connections
import attendo.serve.scheduling.registry  # noqa: F401
from attendo.decode.continuous_batch import ContinuousBatch
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.text import Words

MARK = 13  # max_length
BAD_WORD = "boom"

_RAISED: dict[str, type[BaseException]] = {
    "decoding": RuntimeError,
    "memory": torch.OutOfMemoryError,
    "death": SystemExit,  # not caught in the thread
}


def slow_steps(seconds: float, longest: int = 0) -> None:
    """Every step takes `seconds` longer while a request with a `max_length` of at least `longest` is running."""
    _run_before_steps(lambda limits: time.sleep(seconds) if max(limits, default=0) >= longest else None)


def hold_steps(file: str) -> None:
    """No step runs while this file exists."""

    def hold(limits: list[int]) -> None:
        while Path(file).exists():
            time.sleep(0.005)

    _run_before_steps(hold)


def serving_fault(kind: str, seconds: float = 0.0) -> None:
    """A fault in decoding, memory or tokenizer, the death of the thread, or a hang of `seconds`."""
    if kind == "tokenizer":
        _install_tokenizer_fault()
        return

    def raise_fault(limits: list[int]) -> None:
        if MARK in limits and kind == "hang":
            time.sleep(seconds)
        elif MARK in limits:
            raise _RAISED[kind]("on purpose")

    _run_before_steps(raise_fault)


def _run_before_steps(do: Callable[[list[int]], None]) -> None:
    """`do` is called with the `max_length` of every request."""
    original = ContinuousBatch.step

    def step(self: ContinuousBatch, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        do([each.max_length for each in (*self._requests, *waiting) if each is not None])
        return original(self, waiting)

    ContinuousBatch.step = step  # type: ignore[method-assign]


def _install_tokenizer_fault() -> None:
    original = Words.encode

    def encode(self: Words, text: str) -> Any:
        if BAD_WORD in text:
            raise RuntimeError("on purpose")
        return original(self, text)

    Words.encode = encode  # type: ignore[method-assign]
