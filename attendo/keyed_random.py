"""Stateless random numbers: each is a hash of its key, the same on every machine and in any order.

A key names the purpose of a number: a seed, an epoch, a sentence. No state has to be saved to repeat it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

# SplitMix64 (Steele, Lea and Flood 2014): its increment and two multipliers.
SPLITMIX64 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_SPLITMIX_INCREMENT, _SPLITMIX_MULTIPLIER_1, _SPLITMIX_MULTIPLIER_2 = map(np.uint64, SPLITMIX64)


def make_keys(*parts: int | str | Keys) -> Keys:
    """Return one key per row. Integers, texts and integer arrays broadcast against each other."""
    mixed = np.zeros(1, np.uint64)
    for part in parts:
        mixed = _mix(mixed ^ _to_uint64(part))
    return mixed


def uniform(keys: Keys) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each key."""
    return (_mix(keys) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permutation(count: int, *parts: int | str) -> NDArray[np.int64]:
    """Return the integers below `count`, shuffled."""
    return np.argsort(make_keys(*parts, np.arange(count, dtype=np.uint64)), kind="stable")


def choose(items: Sequence[int], *parts: int | str) -> int:
    """Return one of the items."""
    return items[int(uniform(make_keys(*parts))[0] * len(items))]


def _to_uint64(part: int | str | Keys) -> Keys:
    if isinstance(part, str):
        part = int.from_bytes(part.encode(), "little") if len(part.encode()) <= 8 else _hash_text(part)
    return np.asarray(part, np.uint64) if isinstance(part, int) else part.astype(np.uint64)


def _hash_text(text: str) -> int:
    mixed = np.zeros(1, np.uint64)
    for byte in text.encode():
        mixed = _mix(mixed ^ np.uint64(byte))
    return int(mixed[0])


def _mix(number: Keys) -> Keys:
    """SplitMix64 (Steele, Lea and Flood 2014): every output bit depends on every input bit."""
    with np.errstate(over="ignore"):
        number = number + _SPLITMIX_INCREMENT
        number = (number ^ (number >> np.uint64(30))) * _SPLITMIX_MULTIPLIER_1
        number = (number ^ (number >> np.uint64(27))) * _SPLITMIX_MULTIPLIER_2
        return number ^ (number >> np.uint64(31))
