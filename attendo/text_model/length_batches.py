"""Which sentences are read together."""

from collections import deque
from collections.abc import Callable, Sequence

from attendo.nn.devices import free_cached_memory, is_out_of_memory


def run_in_length_batches(
    lengths: Sequence[int], max_positions: int, run_batch: Callable[[Sequence[int]], None]
) -> None:
    """Has all numbers read, those of like length together; a group that memory does not suffice for, half by half."""
    waiting = deque(group_by_length(lengths, max_positions))
    while waiting:
        group = waiting.popleft()
        try:
            run_batch(group)
            continue
        except (RuntimeError, MemoryError) as error:
            if len(group) == 1 or not is_out_of_memory(error):
                raise
        free_cached_memory()
        middle = len(group) // 2
        waiting.extendleft((group[middle:], group[:middle]))


def group_by_length(lengths: Sequence[int], max_positions: int) -> list[list[int]]:
    """All numbers, those of like length together, with at most so many positions unless one alone has more."""
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[number] <= max_positions:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
