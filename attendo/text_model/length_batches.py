"""Runs sequences in batches of similar length. A batch that runs out of memory is halved."""

from collections.abc import Callable, Sequence
from functools import partial

from attendo.decode.requests import length_batches
from attendo.nn.devices import halve_on_out_of_memory


def run_in_length_batches(
    lengths: Sequence[int], max_positions: int, run_batch: Callable[[Sequence[int]], None]
) -> None:
    """Call `run_batch` with the numbers of sequences of similar length, until all have been run."""

    def run(group: Sequence[int], size: int) -> Sequence[int]:
        run_batch(group[:size])
        return group[size:]

    for group in length_batches(range(len(lengths)), lengths.__getitem__, max_positions):
        left: Sequence[int] = group
        while left:
            left = halve_on_out_of_memory(len(left), partial(run, left))
