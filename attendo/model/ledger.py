"""The tensors of one run in the order in which they came to be, each by its name."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

Shape = tuple[int, ...]

_LAYER = re.compile(r"(?:encoder|decoder)\.(\d+)\.")


@dataclass(frozen=True, eq=False)
class Traced:
    """One tensor: the formula that gave it, and the shapes of what the formula was applied to."""

    name: str  # such as decoder.0.cross.scores
    formula: str  # its name in the catalogue of formulas
    value: Tensor
    operands: tuple[Shape, ...] = ()
    letter: str = "X"  # what the formula calls the vectors that it reads: X of the encoder, Y of the decoder, Z between

    @property
    def shape(self) -> Shape:
        return tuple(self.value.shape)

    @property
    def place(self) -> str:
        """All of the name but its end: `decoder.0.cross`."""
        return self.name.rpartition(".")[0]


class Ledger:
    """Keeps every tensor that is written down, or of all layers only one."""

    def __init__(self, layer: int | None = None) -> None:
        self.entries: dict[str, Traced] = {}
        self._layer = layer

    def write(
        self, name: str, formula: str, value: Tensor, operands: Sequence[Tensor | Shape] = (), letter: str = "X"
    ) -> Tensor:
        """The same value, so that a calculation can go on with it."""
        found = _LAYER.match(name)
        if self._layer is None or found is None or int(found[1]) == self._layer:
            shapes = tuple(tuple(each.shape) if isinstance(each, Tensor) else each for each in operands)
            self.entries[name] = Traced(name, formula, value, shapes, letter)
        return value
