"""A parallel trace as terminal output: the passes of mask-predict, the graph, or the CTC alignment."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attendo.explore.attention_map import DARK, DARK_INKS, colour_level, is_strong, make_visible, truncate
from attendo.explore.formulas.formula import join_first
from attendo.explore.heatmap_terminal import join_lines
from attendo.explore.i18n import trace_string
from attendo.explore.parallel_text import (
    BLANK,
    describe_trace,
    format_share,
    label_vertex,
    list_runs,
    parallel_string,
    select_links,
    select_vertices,
    tile_weight,
)
from attendo.explore.trace_terminal import render_predictions, render_title
from attendo.explore.trace_text import format_number
from attendo.messages import Language
from attendo.text_model import ParallelTrace, Trace
from attendo.text_model.parallel_trace import CtcTrace, GraphTrace, MaskPredictTrace

_MAX_TOKENS = 60
_MAX_PIECE = 16  # cells
_SHOWN_TOP = 3  # tokens per vertex


def render_parallel_trace(
    trace: ParallelTrace, width: int, language: Language = "en", beside: tuple[str, Trace] | None = None
) -> Iterator[RenderableType]:
    """Yield the output as paragraphs of at most `width` cells.

    `beside` is the name and the trace of an autoregressive model for the same text.
    """
    for key, pieces in (("source", trace.source_pieces), ("predicted", trace.target_pieces)):
        tokens = join_first([*map(make_visible, pieces)], _MAX_TOKENS, " ")
        yield Text.assemble((f"{trace_string(key, language)}  ", "bold"), tokens, f"  [{len(pieces)}]")
    yield Text(describe_trace(trace, language), "dim")
    if trace.unknown:
        unknown = " ".join(map(make_visible, trace.unknown))
        yield Text(trace_string("titled", language, trace_string("unknown", language), unknown), "yellow")
    if trace.cut:
        yield Text(parallel_string("cut", language), "yellow")
    match trace.details:
        case MaskPredictTrace():
            yield from _render_passes(trace.details, width, language)
        case GraphTrace():
            yield from _render_graph(trace.details, language)
        case CtcTrace():
            yield from _render_alignment(trace.details, width, language)
    if beside is not None:
        yield from _render_beside(*beside, trace.text, language)


def _render_passes(details: MaskPredictTrace, width: int, language: Language) -> Iterator[RenderableType]:
    yield render_title(parallel_string("passes", language))
    yield Text(parallel_string("passes_note", language), "dim")
    rows = []
    for number, tokens in enumerate(details.passes):
        cells = [_tile(each.piece, each.probability, each.predicted) for each in tokens]
        rows.append((parallel_string("pass", language, number), cells))
    yield render_columns(rows, width)
    yield render_title(parallel_string("lengths", language))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in ("length", "length_probability", "mean"):
        table.add_column(parallel_string(key, language), justify="right")
    table.add_column(parallel_string("text", language))
    for each in details.lengths:
        numbers = str(each.length), f"{each.probability:.3f}", format_number(each.mean_log_probability)
        table.add_row(*numbers, Text(make_visible(each.text)), style="bold" if each.chosen else "")
    yield table


def _render_graph(details: GraphTrace, language: Language) -> Iterator[RenderableType]:
    shown, links = select_vertices(details), select_links(details)
    yield render_title(parallel_string("graph", language))
    yield Text(parallel_string("graph_note", language), "dim")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for key in ("position", "visited"):
        table.add_column(parallel_string(key, language), justify="right")
    for key in ("tokens", "next"):
        table.add_column(parallel_string(key, language), overflow="fold")
    last = len(details.vertices) - 1
    for each in shown:
        top = [f"{make_visible(one.piece)} {one.probability:.2f}" for one in each.top[:_SHOWN_TOP]]
        label = make_visible(label_vertex(each, last, language))
        next_vertices = [one.link for one in links if one.link.start == each.position]
        hops = Text("  ").join(
            Text(f"{link.end} {link.probability:.2f}", "bold" if link.chosen else "dim") for link in next_vertices
        )
        mark = "●" if each.chosen else ""
        tokens = Text("  ".join(top) if top else label)
        table.add_row(mark, str(each.position), f"{each.pass_probability:.2f}", tokens, hops)
        table.rows[-1].style = "bold" if each.chosen else "dim"
    yield table
    if hidden := len(details.vertices) - len(shown):
        yield Text(parallel_string("hidden_vertices", language, hidden), "dim")


def _render_alignment(details: CtcTrace, width: int, language: Language) -> Iterator[RenderableType]:
    yield render_title(parallel_string("alignment", language))
    yield Text(parallel_string("alignment_note", language), "dim")
    numbers, tokens, merged = list[Text](), list[Text](), list[Text]()
    for run in list_runs(details.positions):
        for each in run:
            numbers.append(Text(str(each.position), "dim"))
            tokens.append(Text(BLANK, "dim") if each.blank else _tile(each.piece, each.probability))
            merged.append(Text(make_visible(each.piece) if each.chosen else "", "bold"))
    rows = [("position", numbers), ("token", tokens), ("merged", merged)]
    yield render_columns([(parallel_string(key, language), cells) for key, cells in rows], width)


def _render_beside(name: str, trace: Trace, text: str, language: Language) -> Iterator[RenderableType]:
    yield render_title(parallel_string("beside", language, name))
    if trace.text == text:
        same = parallel_string("same_text", language)
    else:
        same = parallel_string("other_text", language, make_visible(trace.text))
    yield Text(f"{same}  {parallel_string('steps_count', language, len(trace.target_pieces))}", "dim")
    yield render_predictions(trace, language)


def render_columns(rows: Sequence[tuple[str, Sequence[Text]]], width: int) -> Text:
    """Render rows of equally many cells in aligned columns. Columns that do not fit continue below."""
    margin = max(cell_len(label) for label, _ in rows) + 2
    columns = list(zip(*(cells for _, cells in rows), strict=True))
    widths = [max(each.cell_len for each in column) for column in columns]
    lines: list[Text] = []
    begin = 0
    while begin < len(columns):
        end, used = begin, margin
        while end < len(columns) and (end == begin or used + widths[end] + 1 <= width):
            used += widths[end] + 1
            end += 1
        if begin:
            lines.append(Text())
        lines += [_join_row(label, cells[begin:end], widths[begin:end], margin) for label, cells in rows]
        begin = end
    return join_lines(lines)


def _join_row(label: str, cells: Sequence[Text], widths: Sequence[int], margin: int) -> Text:
    line = Text(label + " " * (margin - cell_len(label)), "dim", no_wrap=True)
    for cell, width in zip(cells, widths, strict=True):
        line.append_text(cell)
        line.append(" " * (width - cell.cell_len + 1))
    return line


def _tile(piece: str, probability: float, marked: bool = False) -> Text:
    """Return a token with its probability in percent, in square brackets if marked."""
    text = f"{truncate(make_visible(piece), _MAX_PIECE)} {format_share(probability)}"
    weight = tile_weight(probability)
    colour, ink = DARK[colour_level(weight)], DARK_INKS[is_strong(weight)]
    return Text(f"[{text}]" if marked else f" {text} ", Style(color=ink, bgcolor=colour))
