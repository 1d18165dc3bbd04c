"""Which sentences are read together."""

from collections import deque
from collections.abc import Callable, Sequence

from attendo.nn.devices import let_go, ran_out


def in_groups(lengths: Sequence[int], positions: int, read: Callable[[Sequence[int]], None]) -> None:
    """Has all numbers read, those of like length together; a group that memory does not suffice for, half by half."""
    waiting = deque(of_like_length(lengths, positions))
    while waiting:
        group = waiting.popleft()
        try:
            read(group)
            continue
        except (RuntimeError, MemoryError) as error:
            if len(group) == 1 or not ran_out(error):
                raise
        let_go()
        middle = len(group) // 2
        waiting.extendleft((group[middle:], group[:middle]))


def of_like_length(lengths: Sequence[int], positions: int) -> list[list[int]]:
    """All numbers, those of like length together, with at most so many positions unless one alone has more."""
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[number] <= positions:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
