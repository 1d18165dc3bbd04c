"""Which sentences are read together."""

from collections.abc import Sequence


def of_like_length(lengths: Sequence[int], positions: int) -> list[list[int]]:
    """All numbers, those of like length together, with at most so many positions unless one alone has more."""
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[number] <= positions:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
