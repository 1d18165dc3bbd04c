"""What every score is made of: some numbers of each line, and a formula for their sums."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Statistics = Sequence[Sequence[float]]  # a row a line


@dataclass(frozen=True)
class Measure:
    """A way to score outputs against the references it was made with.

    The score of any choice of lines follows from the sums of their rows; so the texts are looked at once, however many
    such choices are scored.
    """

    name: str
    signature: str
    higher_is_better: bool
    statistics: Callable[[Sequence[str]], Statistics]  # of the outputs
    value: Callable[[Sequence[float]], float]  # of the sums
