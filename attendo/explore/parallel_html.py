"""A parallel trace as one self-contained HTML page in both languages."""

from collections.abc import Iterator
from html import escape
from itertools import chain

from attendo.explore.attention_map import DARK, DARK_INKS, LIGHT, LIGHT_INKS, STRONG_LEVEL, colour_level, make_visible
from attendo.explore.graph_svg import render_graph_svg
from attendo.explore.html_parts import (
    fill_page,
    join_tokens,
    read_standalone,
    render_languages,
    render_section,
    render_steps,
    render_string,
    render_token,
)
from attendo.explore.parallel_text import (
    describe_trace,
    format_share,
    label_token,
    label_vertex,
    list_runs,
    parallel_string,
    select_links,
    select_vertices,
    tile_weight,
)
from attendo.explore.trace_text import format_number
from attendo.messages import LANGUAGES, Language
from attendo.text_model import ParallelTrace, Trace
from attendo.text_model.parallel_trace import CtcPosition, CtcTrace, GraphTrace, MaskPredictTrace


def render_parallel_html(
    trace: ParallelTrace, language: Language = "en", beside: tuple[str, Trace] | None = None
) -> str:
    """Return the page, initially in `language`. It makes no network requests.

    `beside` is the name and the trace of an autoregressive model for the same text.
    """
    match trace.details:
        case MaskPredictTrace():
            parts = _render_passes(trace.details)
        case GraphTrace():
            parts = _render_graph(trace.details)
        case CtcTrace():
            parts = _render_alignment(trace.details)
    steps = () if beside is None else (_render_beside(*beside, trace.text),)
    body = "\n".join(chain((_render_header(trace),), parts, steps))
    style = f"{read_standalone('page.css')}\n{read_standalone('parallel.css')}\n{_colour_rules()}"
    return fill_page(language, parallel_string("title", language), style, body)


def _render_header(trace: ParallelTrace) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{render_string(key)}</th><td class="tokens">{join_tokens(pieces)}</td></tr>'
        for key, pieces in (("source", trace.source_pieces), ("predicted", trace.target_pieces))
    )
    notes = [render_languages(describe_trace(trace, language) for language in LANGUAGES)]
    if trace.unknown:
        notes.append(f"{render_string('unknown')}: {join_tokens(trace.unknown)}")
    if trace.cut:
        notes.append(_string("cut"))
    return f"""<header>
<h1>{_string("title")}</h1>
<button type="button" id="language" hidden>{render_string("language")}</button>
</header>
<table class="pairs">
{rows}
</table>
<p class="muted">{"; ".join(notes)}</p>"""


def _render_passes(details: MaskPredictTrace) -> Iterator[str]:
    rows = []
    for number, tokens in enumerate(details.passes):
        cells = "".join(
            f'<td class="q{colour_level(tile_weight(each.probability))}{" again" if each.predicted else ""}">'
            f"{render_token(each.piece)}<small>{escape(format_share(each.probability))}</small></td>"
            for each in tokens
        )
        rows.append(f'<tr><th scope="row">{_string("pass", number)}</th>{cells}</tr>')
    positions = "".join(f'<th scope="col">{n}</th>' for n in range(len(details.passes[0])))
    legend = (
        f'<p class="muted">{_string("confidence_note")}</p><p class="muted"><span class="key again"></span> '
        f'{_string("again")} <span class="key"></span> {_string("kept")}</p>'
    )
    head = f'<thead><tr><th scope="col">{_string("position")}</th>{positions}</tr></thead>'
    table = f'<div class="scroll"><table class="passes">{head}<tbody>{"".join(rows)}</tbody></table></div>'
    yield render_section(_string("passes"), legend + table, is_open=True)
    lengths = "".join(
        f'<tr class="{"chosen" if each.chosen else ""}"><th scope="row">{each.length}</th>'
        f"<td>{each.probability:.3f}</td><td>{format_number(each.mean_log_probability)}</td>"
        f'<td class="token"><bdi>{escape(make_visible(each.text))}</bdi></td></tr>'
        for each in details.lengths
    )
    keys = ("length", "length_probability", "mean", "text")
    yield render_section(_string("lengths"), _table(keys, lengths), is_open=True)


def _render_graph(details: GraphTrace) -> Iterator[str]:
    legend = "".join(
        f'<span class="key {name}"></span> {_string(f"legend_{name}")} ' for name in ("path", "links", "dots")
    )
    pictures = "".join(
        f'<div class="scroll" lang="{language}" tabindex="0">{render_graph_svg(details, language)}</div>'
        for language in LANGUAGES
    )
    note = f'<p class="muted">{_string("picture_note")}</p>'
    yield render_section(_string("graph"), f'<p class="muted">{legend}</p>{pictures}{note}', is_open=True)
    links, rows, last = select_links(details), [], len(details.vertices) - 1
    shown = select_vertices(details)
    for each in shown:
        top = " ".join(f"<span>{render_token(one.piece)} {one.probability:.3f}</span>" for one in each.top)
        labels = render_languages(label_vertex(each, last, language) for language in LANGUAGES)
        hops = " ".join(
            f"<span>{'<b>' if one.link.chosen else ''}{one.link.end} {one.link.probability:.3f}"
            f"{'</b>' if one.link.chosen else ''}</span>"
            for one in links
            if one.link.start == each.position
        )
        rows.append(
            f'<tr class="{"chosen" if each.chosen else ""}"><th scope="row">{each.position}</th>'
            f"<td>{each.pass_probability:.3f}</td><td class='top'>{top or labels}</td><td class='top'>{hops}</td></tr>"
        )
    more = len(details.vertices) - len(shown)
    hidden = f"<p class='muted'>{_string('hidden_vertices', more)}</p>" if more else ""
    table = _table(("position", "visited", "tokens", "next"), "\n".join(rows))
    yield render_section(_string("vertices"), table + hidden)


def _render_alignment(details: CtcTrace) -> Iterator[str]:
    runs = "".join(_render_run(run) for run in list_runs(details.positions))
    note = f'<p class="muted">{_string("alignment_note")}</p>'
    yield render_section(_string("alignment"), f'{note}<ol class="runs">{runs}</ol>', is_open=True)


def _render_run(run: tuple[CtcPosition, ...]) -> str:
    tiles = "".join(
        f'<span class="tile {"none" if each.blank else f"q{colour_level(tile_weight(each.probability))}"}" '
        f'title="{escape(_describe_position(each))}">{render_token(label_token(each))}'
        f"<small>{'&nbsp;' if each.blank else escape(format_share(each.probability))}</small></span>"
        for each in run
    )
    merged = "" if run[0].blank else render_token(run[0].piece)
    first, last = run[0].position, run[-1].position
    span = str(first) if first == last else f"{first}–{last}"
    kind = "blank" if run[0].blank else ""
    return f'<li class="{kind}"><span class="tiles">{tiles}</span><b>{merged}</b><small>{span}</small></li>'


def _describe_position(each: CtcPosition) -> str:
    top = ", ".join(f"{make_visible(label_token(one))} {one.probability:.3f}" for one in each.top)
    return f"{each.position}: {top}"


def _render_beside(name: str, trace: Trace, text: str) -> str:
    said = _string("same_text") if trace.text == text else _string("other_text", make_visible(trace.text))
    note = f'<p class="muted">{said} {_string("steps_count", len(trace.target_pieces))}</p>'
    return render_section(_string("beside", make_visible(name)), note + render_steps(trace), is_open=True)


def _table(keys: tuple[str, ...], rows: str) -> str:
    columns = "".join(f'<th scope="col">{_string(key)}</th>' for key in keys)
    head = f"<thead><tr>{columns}</tr></thead>"
    return f'<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>'


def _string(key: str, *values: object) -> str:
    return render_languages(parallel_string(key, language, *values) for language in LANGUAGES)


def _colour_rules() -> str:
    """Return a background and an ink for each colour level, in light and dark."""

    def make_rules(scale: tuple[str, ...], inks: tuple[str, str]) -> str:
        return "\n".join(
            f".q{level} {{ background: {colour}; color: {inks[level >= STRONG_LEVEL]} }}"
            for level, colour in enumerate(scale)
        )

    dark = make_rules(DARK, DARK_INKS)
    return f"{make_rules(LIGHT, LIGHT_INKS)}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"
