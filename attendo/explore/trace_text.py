"""Values of a trace as formatted tables."""

import math
from dataclasses import dataclass

import torch

from attendo.explore.i18n import trace_string
from attendo.messages import Language
from attendo.text_model import Trace


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
    tensor = trace[name]
    matrix = torch.atleast_2d(tensor[head] if tensor.dim() == 3 else tensor)
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


def format_number(value: float | int) -> str:
    """Format a number in at most eight characters."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "−∞" if value < 0 else str(value)
    text = f"{value:.3f}" if abs(value) < 1000 else f"{value:.2e}"
    return text.replace("-", "−")


_KEY_COLUMNS = ("products", "scaled", "bias", "scores", "masked", "weights")  # of an attention: one column per key


_JOINED = (*_KEY_COLUMNS, *(f"{how}_{what}" for how in ("joined", "shared") for what in ("keys", "values")))


def token_labels(trace: Trace, name: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the tokens that label the rows and the columns of a tensor.

    The label of a decoder row is the predicted token, or a source token that a prefix LM reads there. Keys, values and
    attention columns have the input tokens as labels.
    """
    site, _, kind = name.rpartition(".")
    if kind in ("frequencies", "ids"):
        columns = {"source.ids": trace.source_pieces, "target.ids": trace.read_pieces}.get(name)
        return None, columns
    stack = name.partition(".")[0]
    rows = {"source": trace.source_pieces, "encoder": trace.source_pieces, "target": trace.read_pieces}.get(
        stack, trace.row_pieces
    )
    if stack == "output" or name in ("decoder.output", "decoder.target_rows"):
        rows = trace.target_pieces
    pieces = trace.read_pieces if site.endswith(".self") and stack == "decoder" else trace.source_pieces
    if "source_" in kind:
        return trace.source_pieces, None
    if trace.config.merged_attention and stack == "decoder" and kind in _JOINED:
        pieces = (*trace.source_pieces, *pieces)  # one softmax over both
    if kind == "buckets":
        return rows, rows
    if kind.endswith(("keys", "values")):
        return pieces, None
    return rows, pieces if kind in _KEY_COLUMNS and site.endswith((".self", ".cross")) else None


SIZE_COLUMNS = ("place", "entering", "adding", "leaving", "share", "gain")


def format_sizes(trace: Trace) -> list[list[str]]:
    """Return a row of `SIZE_COLUMNS` for each sub-layer."""
    return [
        [
            each.place,
            *(f"{length:.2f}" for length in (each.entering, each.adding, each.leaving)),
            f"{each.share:.0%}",
            f"{each.gain:.2f}",
        ]
        for each in trace.sizes()
    ]


def sub_layer_title(site: str, language: Language, recurrent: bool = False) -> str:
    """Return the title of a sub-layer such as decoder.0.self. `recurrent` means that the decoder is."""
    stack, layer, part = site.split(".")
    name = part
    if (stack, part) == ("decoder", "self"):
        name = "recurrence" if recurrent else "masked_self"
    numbered = trace_string(f"{stack}_layer", language, layer)
    return trace_string("titled", language, numbered, trace_string(name, language))


def list_sub_layers(trace: Trace, stack: str, layer: int) -> list[str]:
    """Return the sub-layers of a layer that the trace contains, such as decoder.0.self."""
    found = (f"{stack}.{layer}.{part}" for part in ("self", "cross", "feed_forward"))
    return [site for site in found if f"{site}.output" in trace]


def origin(trace: Trace) -> str:
    """Return the string key for the origin of the target. The target of a language model continues its prompt."""
    if not trace.config.continues_text:
        return "given" if trace.given else "answered"
    if not trace.source_pieces:
        return "given_whole"
    return "given_continuation" if trace.given else "continued"


def heading(trace: Trace) -> list[tuple[str, tuple[str, ...]]]:
    """Return the token rows of the run, each with its string key."""
    first = "prompt" if trace.config.continues_text else "source"
    rows = [(first, trace.source_pieces), ("read", trace.read_pieces), ("predicted", trace.target_pieces)]
    return rows if trace.source_pieces else rows[1:]
