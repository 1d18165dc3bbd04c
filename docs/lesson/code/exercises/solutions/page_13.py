"""Solutions of page 13."""

import itertools


def merge(row: list[int], blank: int) -> list[int]:
    """What a row of a CTC model says."""
    return [token for token, _ in itertools.groupby(row) if token != blank]


def mask_again(confidences: list[float], n: int) -> list[int]:
    """The n positions that the next pass of mask-predict hides, in order."""
    return sorted(sorted(range(len(confidences)), key=confidences.__getitem__)[:n])
