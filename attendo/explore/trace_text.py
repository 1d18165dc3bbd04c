"""Values of a trace as formatted tables."""

import math
from dataclasses import dataclass

from torch import Tensor

from attendo.text_model import Trace

ELLIPSIS = "…"


@dataclass(frozen=True)
class ValueTable:
    """Part of a matrix as text: row and column labels, cells, and the number of omitted rows and columns."""

    rows: tuple[str, ...]
    columns: tuple[str, ...] | None
    cells: tuple[tuple[str, ...], ...]
    more_rows: int
    more_columns: int


def make_value_table(
    trace: Trace, name: str, head: int = 0, rows: range | None = None, max_size: tuple[int, int] = (8, 8)
) -> ValueTable:
    """Return a traced tensor as text, with at most `max_size` rows and columns. `head` indexes an [H, T, S] tensor."""
    matrix = select_matrix(trace[name], head)
    labels, columns = token_labels(trace, name)
    indices = list(range(matrix.size(0)) if rows is None else rows)
    shown, width = indices[: max_size[0]], min(max_size[1], matrix.size(1))
    return ValueTable(
        rows=tuple(labels[n] if labels else "" for n in shown),
        columns=None if columns is None else columns[:width],
        cells=tuple(tuple(format_number(each) for each in matrix[n, :width].tolist()) for n in shown),
        more_rows=len(indices) - len(shown),
        more_columns=matrix.size(1) - width,
    )


def select_matrix(tensor: Tensor, head: int) -> Tensor:
    """Return a matrix: one head of a 3-d tensor, or a vector as one row."""
    chosen = tensor[head] if tensor.dim() == 3 else tensor
    return chosen[None] if chosen.dim() == 1 else chosen


def format_number(value: float | int) -> str:
    """Format a number in at most eight characters."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "−∞" if value < 0 else str(value)
    text = f"{value:.3f}" if abs(value) < 1000 else f"{value:.2e}"
    return text.replace("-", "−")


def token_labels(trace: Trace, name: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the tokens that label the rows and the columns of a tensor.

    The label of a decoder row is the predicted token. Keys, values and attention columns have the input tokens as
    labels.
    """
    site, _, kind = name.rpartition(".")
    if kind in ("frequencies", "ids"):
        columns = {"source.ids": trace.source_pieces, "target.ids": trace.read_pieces}.get(name)
        return None, columns
    stack = name.partition(".")[0]
    rows = {"source": trace.source_pieces, "encoder": trace.source_pieces, "target": trace.read_pieces}.get(
        stack, trace.target_pieces
    )
    pieces = trace.read_pieces if site.endswith(".self") and stack == "decoder" else trace.source_pieces
    if kind in ("keys", "values", "turned_keys"):
        return pieces, None
    return rows, pieces if kind in ("products", "scores", "masked", "weights") else None


def origin(trace: Trace) -> str:
    """Return the string key for the origin of the target. A decoder-only target includes the prompt."""
    if trace.config.decoder_only:
        return "given_whole" if trace.given else "continued"
    return "given" if trace.given else "answered"


def heading(trace: Trace) -> list[tuple[str, tuple[str, ...]]]:
    """Return the token rows of the run, each with its string key."""
    rows = [("source", trace.source_pieces), ("read", trace.read_pieces), ("predicted", trace.target_pieces)]
    return rows[1:] if trace.config.decoder_only else rows
