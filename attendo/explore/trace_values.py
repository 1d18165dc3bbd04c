"""Numbers of a trace as a person reads them: rounded, cut with a visible mark, rows named by their tokens."""

import math
from dataclasses import dataclass

from torch import Tensor

from attendo.text_model import Trace

CUT = "…"


@dataclass(frozen=True)
class Table:
    """Part of a matrix: what stands before the rows and over the columns, and how much was left out."""

    rows: tuple[str, ...]
    columns: tuple[str, ...] | None
    cells: tuple[tuple[str, ...], ...]
    more_rows: int
    more_columns: int


def table(trace: Trace, name: str, head: int = 0, rows: range | None = None, most: tuple[int, int] = (8, 8)) -> Table:
    """Of a tensor of heads, one head. `rows` are those wanted, `most` how many rows and columns are shown."""
    matrix = matrix_of(trace[name], head)
    labels, columns = labels_of(trace, name)
    wanted = list(range(matrix.size(0)) if rows is None else rows)
    shown, width = wanted[: most[0]], min(most[1], matrix.size(1))
    return Table(
        rows=tuple(labels[n] if labels else "" for n in shown),
        columns=None if columns is None else columns[:width],
        cells=tuple(tuple(number(each) for each in matrix[n, :width].tolist()) for n in shown),
        more_rows=len(wanted) - len(shown),
        more_columns=matrix.size(1) - width,
    )


def matrix_of(tensor: Tensor, head: int) -> Tensor:
    """Two axes, whatever there were."""
    chosen = tensor[head] if tensor.dim() == 3 else tensor
    return chosen[None] if chosen.dim() == 1 else chosen


def number(value: float | int) -> str:
    """At most eight characters."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "−∞" if value < 0 else str(value)
    told = f"{value:.3f}" if abs(value) < 1000 else f"{value:.2e}"
    return told.replace("-", "−")


def labels_of(trace: Trace, name: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """What the rows of a tensor speak of, and its columns.

    A row of the decoder is named by the token predicted there. Its keys and values, and the columns they become, are
    those of the tokens that were read.
    """
    place, _, kind = name.rpartition(".")
    if kind in ("frequencies", "ids"):
        columns = {"source.ids": trace.source_pieces, "target.ids": trace.read_pieces}.get(name)
        return None, columns
    stack = name.partition(".")[0]
    rows = {"source": trace.source_pieces, "encoder": trace.source_pieces, "target": trace.read_pieces}.get(
        stack, trace.target_pieces
    )
    seen = trace.read_pieces if place.endswith(".self") and stack == "decoder" else trace.source_pieces
    if kind in ("keys", "values", "turned_keys"):
        return seen, None
    return rows, seen if kind in ("products", "scores", "masked", "weights") else None
