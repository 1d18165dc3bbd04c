"""Randomness without state: numbers that follow from a key alone, the same on every machine, asked in any order.

A key is what names the thing drawn for: a seed, an epoch, a sentence. Nothing has to be saved to draw it again.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_STEP, _FIRST, _SECOND = (np.uint64(each) for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def keys(*parts: int | str | Keys) -> Keys:
    """One key a row from what names it; integers, texts and arrays of integers broadcast against each other."""
    mixed = np.zeros(1, np.uint64)
    for part in parts:
        mixed = _mix(mixed ^ _number(part))
    return mixed


def uniform(of: Keys) -> NDArray[np.float64]:
    """A number in [0, 1) for each key."""
    return (_mix(of) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(count: int, *parts: int | str) -> NDArray[np.int64]:
    """The numbers below `count`, shuffled."""
    return np.argsort(keys(*parts, np.arange(count, dtype=np.uint64)), kind="stable")


def chosen(items: Sequence[int], *parts: int | str) -> int:
    """One of the items."""
    return items[int(uniform(keys(*parts))[0] * len(items))]


def _number(part: int | str | Keys) -> Keys:
    if isinstance(part, str):
        part = int.from_bytes(part.encode(), "little") if len(part.encode()) <= 8 else _long(part)
    return np.asarray(part, np.uint64) if isinstance(part, int) else part.astype(np.uint64)


def _long(text: str) -> int:
    mixed = np.zeros(1, np.uint64)
    for byte in text.encode():
        mixed = _mix(mixed ^ np.uint64(byte))
    return int(mixed[0])


def _mix(number: Keys) -> Keys:
    """SplitMix64 (Steele, Lea and Flood 2014): every bit of the result depends on every bit of the number."""
    with np.errstate(over="ignore"):
        number = number + _STEP
        number = (number ^ (number >> np.uint64(30))) * _FIRST
        number = (number ^ (number >> np.uint64(27))) * _SECOND
        return number ^ (number >> np.uint64(31))
