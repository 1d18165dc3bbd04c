"""Batches of sequences with similar length."""

from collections import deque
from collections.abc import Callable, Sequence

from attendo.nn.devices import free_cached_memory, is_out_of_memory


def run_in_length_batches(
    lengths: Sequence[int], max_positions: int, run_batch: Callable[[Sequence[int]], None]
) -> None:
    """Run all sequences in batches of similar length. A batch that runs out of memory is halved."""
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
    """Group sequence indices by similar length.

    A group has at most `max_positions` positions, unless a single sequence is longer.
    """
    groups: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lengths.__getitem__):
        if groups and (len(groups[-1]) + 1) * lengths[number] <= max_positions:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups
