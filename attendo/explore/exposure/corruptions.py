"""Keyed random choices of the measures: the corrupted token, its replacement, and the distractor of each line.

Every choice is a hash of the seed and the line number. It does not depend on the model, the batch or other lines.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from attendo import keyed_random
from attendo.text import EOS

Ids = tuple[int, ...]
Corruption = Literal["random", "wrong", "dropped", "doubled"]
CORRUPTIONS: tuple[Corruption, ...] = ("random", "wrong", "dropped", "doubled")


def draw_positions(targets: Sequence[Ids], seed: int) -> list[int | None]:
    """Return the index of the token to corrupt, uniform over all tokens but EOS. None: the target is EOS alone.

    Targets end with EOS.
    """
    return [
        keyed_random.choose(range(len(ids) - 1), seed, "corrupt", line) if len(ids) > 1 else None
        for line, ids in enumerate(targets, start=1)
    ]


def draw_replacements(targets: Sequence[Ids], positions: Sequence[int | None], seed: int) -> list[int | None]:
    """Return another token for each position, drawn by its frequency in all targets. EOS is not drawn.

    None: there is no position, or the targets have no other token.
    """
    counts = np.bincount([token for ids in targets for token in ids if token != EOS], minlength=EOS + 1)
    numbers = keyed_random.uniform(
        keyed_random.make_keys(seed, "unigram", np.arange(1, len(targets) + 1, dtype=np.uint64))
    )
    found: list[int | None] = []
    for ids, position, number in zip(targets, positions, numbers.tolist(), strict=True):
        others = counts.copy()
        if position is not None:
            others[ids[position]] = 0
        limits = np.cumsum(others)
        if position is None or limits[-1] == 0:
            found.append(None)
        else:
            found.append(int(np.searchsorted(limits, int(number * limits[-1]), side="right")))
    return found


def corrupt(ids: Ids, position: int, corruption: Corruption, replacement: int) -> tuple[Ids, int]:
    """Return the target with one corrupted token, and how far the tokens after it have moved to the right.

    `replacement` takes the place of the token. It is ignored if the token is dropped or doubled.
    """
    before, token, after = ids[:position], ids[position], ids[position + 1 :]
    if corruption == "dropped":
        return (*before, *after), -1
    if corruption == "doubled":
        return (*before, token, token, *after), 1
    return (*before, replacement, *after), 0


def draw_distractors(targets: Sequence[Ids], seed: int) -> list[int | None]:
    """Return the line of another target for each line: of the same length, or of the nearest length that there is.

    None: all targets are equal.
    """
    lines_by_length: dict[int, list[int]] = {}
    for line, ids in enumerate(targets):
        lines_by_length.setdefault(len(ids), []).append(line)
    found: list[int | None] = []
    for line, ids in enumerate(targets, start=1):
        distances = sorted({abs(length - len(ids)) for length in lines_by_length})
        found.append(None)
        for distance in distances:
            lengths = dict.fromkeys((len(ids) - distance, len(ids) + distance))
            near = [other for length in lengths for other in lines_by_length.get(length, ())]
            if candidates := [other for other in near if targets[other] != ids]:
                found[-1] = keyed_random.choose(candidates, seed, "distract", line)
                break
    return found
