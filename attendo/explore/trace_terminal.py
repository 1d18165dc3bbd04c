"""A trace as terminal output: an overview, or all values of one layer, head or step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from attendo.errors import UsageError
from attendo.explore.attention_map import DARK, SHADES, AttentionMap, colour_level, make_visible, truncate
from attendo.explore.formulas.catalogue import bind_formula, evaluate_facts, find_formula
from attendo.explore.formulas.formula import ELLIPSIS, Formula, join_first
from attendo.explore.heatmap_terminal import join_lines, render_map_lines
from attendo.explore.i18n import trace_string
from attendo.explore.trace_text import (
    SIZE_COLUMNS,
    ValueTable,
    format_sizes,
    heading,
    list_sub_layers,
    make_value_table,
    origin,
    sub_layer_title,
    token_labels,
)
from attendo.messages import Language
from attendo.model.trace_layers import TracedTensor
from attendo.text_model import Trace

_CELL = 9  # a number and one leading space
_LABEL = 14
_MAX_ROWS, _BRIEF_ROWS = 12, 3
_MAX_TOKENS = 60  # tokens, or predictions
_ATTENTION = (".self.scaled", ".bias", "scores", "masked", "weights")
_MAX_BLOCK_ROWS, _MAX_BLOCK_COLUMNS = 24, 32  # per head; a line gives the number of omitted ones


@dataclass(frozen=True)
class TraceView:
    """The part of a trace to show: an overview, or the values of a layer, a head or a step."""

    language: Language = "en"
    layer: int | None = None
    head: int | None = None
    step: int | None = None

    @property
    def brief(self) -> bool:
        return self.layer is None and self.head is None and self.step is None

    def check(self, trace: Trace) -> None:
        """Raise a `UsageError` if the head or step does not exist. The trace has already checked the layer."""
        heads, steps = trace.config.num_heads, len(trace.target_pieces)
        if self.head is not None and not 0 <= self.head < heads:
            raise UsageError("head_out_of_range", head=self.head, count=heads)
        if self.step is not None and not 0 <= self.step < steps:
            raise UsageError("step_out_of_range", step=self.step, count=steps)


def render_trace(trace: Trace, view: TraceView, width: int) -> Iterator[RenderableType]:
    """Yield the output as paragraphs of at most `width` cells."""
    view.check(trace)
    yield from _heading(trace, view.language)
    if view.brief:
        yield from _render_overview(trace, view, width)
    else:
        yield from _render_selection(trace, view, width)


def _heading(trace: Trace, language: Language) -> Iterator[RenderableType]:
    for key, pieces in heading(trace):
        yield Text.assemble(
            (f"{trace_string(key, language)}  ", "bold"),
            join_first([*map(make_visible, pieces)], _MAX_TOKENS, " "),
            f"  [{len(pieces)}]",
        )
    total = float(trace.log_probabilities.sum())
    yield Text(
        trace_string(
            "summary",
            language,
            trace_string(origin(trace), language),
            trace_string("loss", language),
            trace.loss,
            total,
        ),
        "dim",
    )
    if trace.unknown:
        yield Text(_titled("unknown", " ".join(map(make_visible, trace.unknown)), language), "yellow")
    if not trace.masked:
        yield Text(trace_string("no_mask", language), "yellow")
    for site, scales in trace.heads.items():
        factors = ", ".join(f"{head} × {scale:g}" for head, scale in scales.items())
        yield Text(_titled("scaled", f"{site}: {factors}", language), "yellow")


def _titled(key: str, text: str, language: Language) -> str:
    return trace_string("titled", language, trace_string(key, language), text)


def _render_overview(trace: Trace, view: TraceView, width: int) -> Iterator[RenderableType]:
    language = view.language
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        layers = trace.encoder_layers if stack == "encoder" else trace.decoder_layers
        if not layers:
            continue
        yield render_title(trace_string(f"from_{side}", language))
        yield from _render_entries(trace, f"{side}.", view, width)
        yield from _layer(trace, stack, layers[0], view, width)
        if len(layers) > 1:
            yield Text(
                trace_string("same", language, f"{layers[1]}–{layers[-1]}" if len(layers) > 2 else layers[1]), "dim"
            )
        yield render_title(trace_string("stack_output", language))
        yield from _render_entry(trace, trace.entries[f"{stack}.output"], view, width)
    yield render_title(trace_string("sizes", language))
    yield _sizes(trace, language)
    yield render_title(trace_string("output", language))
    yield from _render_entries(trace, "output.", view, width)
    yield render_predictions(trace, language)
    yield render_title(trace_string("facts", language))
    for formula, numbers in evaluate_facts(trace):
        yield from _fact(formula, numbers, language)


def _render_selection(trace: Trace, view: TraceView, width: int) -> Iterator[RenderableType]:
    stacks = [("encoder", trace.encoder_layers), ("decoder", trace.decoder_layers)]
    for stack, layers in stacks if view.step is None else stacks[1:]:
        for layer in layers if view.layer is None else [n for n in layers if n == view.layer]:
            yield from _layer(trace, stack, layer, view, width)
    if view.step is not None:
        yield render_title(
            f"{trace_string('step', view.language)} {view.step}: {make_visible(trace.target_pieces[view.step])}"
        )
        yield from _render_entries(trace, "output.", view, width)
        yield render_predictions(trace, view.language, view.step)


def _layer(trace: Trace, stack: str, layer: int, view: TraceView, width: int) -> Iterator[RenderableType]:
    for site in list_sub_layers(trace, stack, layer):
        yield render_title(sub_layer_title(site, view.language, trace.is_recurrent))
        yield from _render_entries(trace, f"{site}.", view, width)
        if not site.endswith(".feed_forward"):
            yield from _maps(trace, site, view, width)


def _render_entries(trace: Trace, prefix: str, view: TraceView, width: int) -> Iterator[RenderableType]:
    for name, entry in trace.entries.items():
        is_shown = view.layer is not None or view.brief or prefix == "output." or name.endswith(_ATTENTION)
        if name.startswith(prefix) and is_shown:
            yield from _render_entry(trace, entry, view, width)


def _render_entry(trace: Trace, entry: TracedTensor, view: TraceView, width: int) -> Iterator[RenderableType]:
    """Yield the name, the formula with its shapes, an explanation and the values."""
    yield Text()
    yield Text.assemble((f"{entry.name}  ", "cyan"), (bind_formula(entry), "bold"))
    yield _indent(Text(find_formula(entry).explain(view.language), "dim"))
    head = view.head or 0
    if entry.value.dim() == 3:
        yield Text(f"  {trace_string('head', view.language, head)}", "dim")
    rows = None if view.step is None else _rows_of_step(trace, entry, view.step)
    few = _BRIEF_ROWS if entry.name.endswith(_ATTENTION) else 1
    columns = max(1, (width - _LABEL - 6) // _CELL)
    yield from _render_values(
        make_value_table(trace, entry.name, head, rows, (few if view.brief else _MAX_ROWS, columns)), view.language
    )


def _render_values(shown: ValueTable, language: Language) -> Iterator[Text]:
    if shown.columns:
        cells = [_fit(make_visible(each), _CELL - 1, right=True) for each in shown.columns]
        yield Text(f"  {'':{_LABEL}} {' '.join(cells)}", "dim", no_wrap=True, overflow="crop")
    for label, row in zip(shown.rows, shown.cells, strict=True):
        numbers = " ".join(each.rjust(_CELL - 1) for each in row) + (f" {ELLIPSIS}" if shown.more_columns else "")
        line = Text.assemble((f"  {_fit(make_visible(label), _LABEL)} ", "dim"), numbers)
        line.no_wrap, line.overflow = True, "crop"
        yield line
    if shown.more_rows:
        yield Text(f"  {trace_string('more_rows', language, shown.more_rows)}", "dim")


def _rows_of_step(trace: Trace, entry: TracedTensor, step: int) -> range | None:
    """Return the row of a step, or None if the rows of the tensor are no predictions."""
    labels, _ = token_labels(trace, entry.name)
    if labels == trace.target_pieces and entry.name.startswith(("decoder.", "output.")):
        return range(step, step + 1)
    if labels == trace.row_pieces and entry.name.startswith("decoder."):
        return range(trace.first_row + step, trace.first_row + step + 1)
    return None


def _maps(trace: Trace, site: str, view: TraceView, width: int) -> Iterator[RenderableType]:
    weights = trace[f"{site}.weights"].double().numpy()
    rows, columns = token_labels(trace, f"{site}.weights")
    assert rows is not None
    assert columns is not None
    yield Text(f"  {trace_string('maps_source' if site.startswith('encoder') else 'maps', view.language)}", "dim")
    if view.head is not None or view.step is not None:
        head = view.head or 0
        title = f"{site}, {trace_string('head', view.language, head)}"
        row = None if view.step is None else view.step + (trace.first_row if rows == trace.row_pieces else 0)
        yield render_head_map(AttentionMap(weights[head], rows, columns, title), row, width, view.language)
    else:
        yield render_head_blocks(weights, width - 2, view.language)


def _sizes(trace: Trace, language: Language) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in SIZE_COLUMNS:
        table.add_column(trace_string(key, language), justify="left" if key == "place" else "right")
    for row in format_sizes(trace):
        table.add_row(*row)
    return table


def render_predictions(trace: Trace, language: Language, only: int | None = None) -> RichTable:
    """Render every prediction with its three best tokens, or the prediction `only` with its ten best ones."""
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for key in ("step", "token", "probability", "entropy", "eos"):
        table.add_column(trace_string(key, language), justify="left" if key == "token" else "right")
    table.add_column(trace_string("top", language))
    steps = list(enumerate(trace.steps(3 if only is None else 10)))
    for t, each in steps[:_MAX_TOKENS] if only is None else steps[only : only + 1]:
        top = "  ".join(f"{make_visible(one.piece)} {one.probability:.3f}" for one in each.top)
        numbers = f"{each.probability:.3f}", f"{each.entropy:.2f}", f"{each.eos_probability:.3f}"
        table.add_row(str(t), Text(make_visible(each.piece)), *numbers, Text(top))
    if only is None and len(steps) > _MAX_TOKENS:
        table.add_row(ELLIPSIS, Text(trace_string("more_rows", language, len(steps) - _MAX_TOKENS)))
    return table


def _fact(formula: Formula, numbers: str, language: Language) -> Iterator[RenderableType]:
    yield Text()
    yield Text.assemble((f"{', '.join(formula.spec_ids)}  ", "cyan"), (formula.render(), "bold"))
    yield _indent(Text(make_visible(numbers), "green") if numbers else Text(trace_string("not_here", language), "dim"))
    yield _indent(Text(formula.explain(language), "dim"))


def render_title(text: str) -> RenderableType:
    """Render the title of a section."""
    return Text(f"\n{text}", "bold underline")


def _indent(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 2), expand=False)


def _fit(text: str, width: int, right: bool = False) -> str:
    short = truncate(text, width)
    return " " * (width - cell_len(short)) + short if right else set_cell_size(short, width)


def render_head_blocks(weights: Float64[np.ndarray, "H T S"], width: int, language: Language) -> Text:
    """Render all heads as blocks. A weight is two cells wide, so it looks square. Blocks wrap at `width`."""
    heads, rows, columns = weights.shape
    shown_rows, shown_columns = min(rows, _MAX_BLOCK_ROWS), min(columns, _MAX_BLOCK_COLUMNS, max(1, (width - 4) // 2))
    block = max(2 * shown_columns, 8)
    per_row = max(1, (width + 2) // (block + 2))
    lines: list[Text] = []
    for begin in range(0, heads, per_row):
        group = range(begin, min(begin + per_row, heads))
        lines.append(Text("  " + "  ".join(trace_string("head", language, head).ljust(block) for head in group), "dim"))
        lines += [_line(weights, group, row, shown_columns, block) for row in range(shown_rows)]
    for key, more in (("more_rows", rows - shown_rows), ("more_columns", columns - shown_columns)):
        if more:
            lines.append(Text(f"  {trace_string(key, language, more)}", "yellow"))
    return join_lines(lines)


def render_head_map(attention: AttentionMap, step: int | None, width: int, language: Language) -> Text:
    """Render one head with at most 24 rows, or only the row of `step`."""
    chosen = slice(0, _MAX_BLOCK_ROWS) if step is None else slice(step, step + 1)
    part = AttentionMap(attention.weights[chosen], attention.rows[chosen], attention.columns, attention.title)
    lines, hidden = render_map_lines(part, max(width, 24))  # the caller prints a caption
    if hidden:
        lines.append(Text(trace_string("more_columns", language, hidden), "yellow"))
    if step is None and len(attention.rows) > _MAX_BLOCK_ROWS:
        lines.append(Text(trace_string("more_rows", language, len(attention.rows) - _MAX_BLOCK_ROWS), "yellow"))
    return join_lines(lines)


def _line(weights: Float64[np.ndarray, "H T S"], heads: range, row: int, columns: int, block: int) -> Text:
    line = Text()
    for head in heads:
        line.append("  ")
        for weight in weights[head, row, :columns].tolist():
            shade = SHADES[min(int(weight * len(SHADES)), len(SHADES) - 1)]
            colour = DARK[colour_level(weight)]
            # The shade has the colour of its background: invisible with colour, visible without.
            line.append(shade * 2, Style(color=colour, bgcolor=colour))
        line.append(" " * (block - 2 * columns))
    return line
