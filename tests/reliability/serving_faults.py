"""What goes wrong in a server, on purpose: for requests that are marked by the most tokens of their answers."""

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

import attendo.serve.app
import attendo.serve.connections
import attendo.serve.starting  # noqa: F401
from attendo.decode.crowd import Crowd
from attendo.decode.requests import Answers, Request
from attendo.text import Words

MARK = 13  # max_length
BAD_WORD = "boom"

_RAISED: dict[str, type[BaseException]] = {
    "decoding": RuntimeError,
    "memory": torch.OutOfMemoryError,
    "death": SystemExit,  # nothing in the thread catches it
}


def slow_steps(seconds: float) -> None:
    """Every step takes so much longer."""
    _before_steps(lambda _: time.sleep(seconds))


def serving_fault(kind: str, seconds: float = 0.0) -> None:
    """In decoding, memory, tokenizer; the death of the thread; or a hang of so many seconds."""
    if kind == "tokenizer":
        _fault_in_tokenizer()
        return

    def strike(marked: bool) -> None:
        if marked and kind == "hang":
            time.sleep(seconds)
        elif marked:
            raise _RAISED[kind]("on purpose")

    _before_steps(strike)


def _before_steps(do: Any) -> None:
    original = Crowd.advance

    def advance(self: Crowd, waiting: "deque[Request]") -> Iterator[Answers]:
        do(any(each is not None and each.limit == MARK for each in (*self._serving, *waiting)))
        return original(self, waiting)

    Crowd.advance = advance  # type: ignore[method-assign]


def _fault_in_tokenizer() -> None:
    original = Words.encode

    def encode(self: Words, text: str) -> Any:
        if BAD_WORD in text:
            raise RuntimeError("on purpose")
        return original(self, text)

    Words.encode = encode  # type: ignore[method-assign]
