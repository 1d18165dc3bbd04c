"""A trace as one self-contained HTML page in both languages."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from attendo.explore.attention_map import DARK, LIGHT, make_visible
from attendo.explore.formulas.catalogue import bind_formula, evaluate_facts, explain_symbols, find_formula
from attendo.explore.formulas.formula import ELLIPSIS
from attendo.explore.i18n import trace_string
from attendo.explore.trace_text import (
    SIZE_COLUMNS,
    format_sizes,
    heading,
    list_sub_layers,
    make_value_table,
    origin,
    sub_layer_title,
    token_labels,
)
from attendo.messages import LANGUAGES, Language
from attendo.model.trace_layers import TracedTensor
from attendo.text_model import Trace

_MAX_ROWS, _MAX_COLUMNS = 8, 8


@dataclass(frozen=True)
class OpenMap:
    """The attention map that a page shows first."""

    site: str  # such as decoder.1.cross
    head: int


def render_trace_html(
    trace: Trace, language: Language = "en", facts: Sequence[tuple[str, str]] = (), first: OpenMap | None = None
) -> str:
    """Return the page, initially in `language`. Only the maps need JavaScript. It makes no network requests."""
    parts = [_page_header(trace, facts), *_render_layers(trace, first), _sizes(trace), _output(trace), _facts(trace)]
    title, style = trace_string("title", language), read_standalone("trace.css")
    return fill_page(language, title, style, "\n".join(parts), _maps(trace))


def fill_page(language: Language, title: str, style: str, body: str, data: dict[str, Any]) -> str:
    """Return a page that loads nothing and runs only its own script, which switches the language and draws maps."""
    script = read_standalone("trace.js")
    digest = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    return Template(read_standalone("trace.html")).substitute(
        language=language,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        title=title,
        style=style,
        body=body,
        data=_escape_json(data),
        script=script,
    )


def read_standalone(name: str) -> str:
    """Return a file of the pages that open from disk."""
    return files("attendo.explore").joinpath("standalone", name).read_text("utf-8")


def _page_header(trace: Trace, facts: Sequence[tuple[str, str]]) -> str:
    lines = "\n".join(
        f'<tr><th scope="row">{render_string(key)}</th><td class="tokens">{join_tokens(pieces)}</td></tr>'
        for key, pieces in heading(trace)
    )
    numbers = "".join(
        f'\n<tr><th scope="row">{escape(name)}</th><td>{escape(make_visible(value))}</td></tr>' for name, value in facts
    )
    notes = [render_string(origin(trace)), f"{render_string('loss')} {trace.loss:.4f}"]
    if trace.unknown:
        notes.append(f"{render_string('unknown')}: {join_tokens(trace.unknown)}")
    if not trace.masked:
        notes.append(render_string("no_mask"))
    notes += [
        f"{render_string('scaled')}: {escape(site)} {escape(str(dict(scales)))}" for site, scales in trace.heads.items()
    ]
    return f"""<header>
<h1>{render_string("title")}</h1>
<button type="button" id="language" hidden>{render_string("language")}</button>
</header>
<table class="pairs">
{lines}{numbers}
</table>
<p class="muted">{"; ".join(notes)}</p>"""


def _render_layers(trace: Trace, first: OpenMap | None) -> Iterator[str]:
    for side, stack, layers in (
        ("source", "encoder", trace.encoder_layers),
        ("target", "decoder", trace.decoder_layers),
    ):
        if not layers and stack == "encoder":
            continue
        yield render_section(render_string(f"from_{side}"), _entries(trace, f"{side}."))
        for layer in layers:
            for site in list_sub_layers(trace, stack, layer):
                yield _sub_layer(trace, site, first or OpenMap(f"{stack}.0.self", 0))
        yield render_section(render_string("stack_output"), _entry(trace, trace.entries[f"{stack}.output"]))


def _sub_layer(trace: Trace, sub_layer: str, first: OpenMap) -> str:
    title = render_languages(sub_layer_title(sub_layer, language, trace.is_recurrent) for language in LANGUAGES)
    is_open = sub_layer == first.site
    attributes = f'data-site="{sub_layer}" data-first="{first.head if is_open else 0}"'
    maps = "" if sub_layer.endswith(".feed_forward") else f'<div class="maps" {attributes} hidden></div>'
    return render_section(title, maps + _entries(trace, f"{sub_layer}."), is_open)


def render_section(title: str, content: str, is_open: bool = False) -> str:
    """Return a part of the page that can be folded."""
    return f"<details{' open' if is_open else ''}>\n<summary><h2>{title}</h2></summary>\n{content}\n</details>"


def _entries(trace: Trace, prefix: str) -> str:
    return "\n".join(_entry(trace, each) for name, each in trace.entries.items() if name.startswith(prefix))


def _entry(trace: Trace, entry: TracedTensor) -> str:
    formula = find_formula(entry)
    text, _, shapes = bind_formula(entry).partition(" : ")
    explanation = render_languages(formula.explain(language) for language in LANGUAGES)
    symbols = render_languages(
        "; ".join(f"{symbol}: {meaning}" for symbol, meaning in explain_symbols(formula, language).items())
        for language in LANGUAGES
    )
    return f"""<article>
<p class="name"><code>{escape(entry.name)}</code> <span class="rows">{escape(" ".join(formula.spec_ids))}</span></p>
<p class="formula">{escape(text)} <span class="shapes">: {escape(shapes)}</span></p>
<p class="muted">{explanation} <small>{symbols}</small></p>
{_values(trace, entry)}
</article>"""


def _values(trace: Trace, entry: TracedTensor) -> str:
    table = make_value_table(trace, entry.name, max_size=(_MAX_ROWS, _MAX_COLUMNS))
    columns = "".join(f'<th scope="col">{render_token(each)}</th>' for each in table.columns or ())
    head = f"<thead><tr><td></td>{columns}</tr></thead>" if columns else ""
    end = f"<td>{ELLIPSIS}</td>" if table.more_columns else ""
    rows = "\n".join(
        f'<tr><th scope="row">{render_token(label)}</th>{"".join(f"<td>{each}</td>" for each in cells)}{end}</tr>'
        for label, cells in zip(table.rows, table.cells, strict=True)
    )
    more = f"<p class='muted'>{render_string('more_rows', table.more_rows)}</p>" if table.more_rows else ""
    which = f"<p class='muted'>{render_string('head', 0)}</p>" if entry.value.dim() == 3 else ""
    return f'{which}<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>{more}'


def _sizes(trace: Trace) -> str:
    rows = "\n".join(
        f'<tr><th scope="row">{place}</th>{"".join(f"<td>{number}</td>" for number in numbers)}</tr>'
        for place, *numbers in format_sizes(trace)
    )
    return render_section(render_string("sizes"), _table(SIZE_COLUMNS, rows))


def _output(trace: Trace) -> str:
    return render_section(render_string("output"), _entries(trace, "output.") + render_steps(trace), is_open=True)


def render_steps(trace: Trace) -> str:
    """Return the table of all predictions with their five best tokens."""
    keys = ("step", "token", "probability", "entropy", "eos", "top")
    rows = "\n".join(
        f'<tr><th scope="row">{t}</th><td class="token">{render_token(each.piece)}</td><td>{each.probability:.3f}</td>'
        f"<td>{each.entropy:.2f}</td><td>{each.eos_probability:.3f}</td><td class='top'>"
        + " ".join(f"<span>{render_token(one.piece)} {one.probability:.3f}</span>" for one in each.top)
        + "</td></tr>"
        for t, each in enumerate(trace.steps(5))
    )
    return _table(keys, rows)


def _facts(trace: Trace) -> str:
    articles = "\n".join(
        f'<article><p class="name"><span class="rows">{escape(" ".join(formula.spec_ids))}</span></p>'
        f'<p class="formula">{escape(formula.render())}</p>'
        f'<p class="numbers">{escape(make_visible(numbers)) if numbers else render_string("not_here")}</p>'
        f'<p class="muted">{render_languages(formula.explain(language) for language in LANGUAGES)}</p></article>'
        for formula, numbers in evaluate_facts(trace)
    )
    return render_section(render_string("facts"), articles)


def _table(keys: Iterable[str], rows: str) -> str:
    columns = "".join(f'<th scope="col">{render_string(key)}</th>' for key in keys)
    head = f"<thead><tr>{columns}</tr></thead>"
    return f'<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>'


def _maps(trace: Trace) -> dict[str, Any]:
    """Return the data of the script. Weights have 8 bits, the resolution of a screen colour."""
    sites = {}
    for name, entry in trace.entries.items():
        if name.endswith(".weights"):
            rows, columns = token_labels(trace, name)
            levels = (entry.value.clamp(0, 1) * 255).round().byte().numpy()
            sites[entry.site] = {
                "shape": list(entry.shape),
                "rows": [make_visible(each) for each in rows or ()],
                "columns": [make_visible(each) for each in columns or ()],
                "weights": base64.b64encode(levels.tobytes()).decode(),
            }
    keys = ("point", "maps", "maps_source", "head", "more_rows", "more_columns")
    words = {key: {language: trace_string(key, language, "#") for language in LANGUAGES} for key in keys}
    return {"sites": sites, "words": words, "scales": {"light": LIGHT, "dark": DARK}}


def join_tokens(pieces: Iterable[str]) -> str:
    """Return the tokens in a row."""
    return " ".join(f"<span class='token'>{render_token(piece)}</span>" for piece in pieces)


def render_token(piece: str) -> str:
    """Return a token whose characters can all be seen."""
    return f"<bdi>{escape(make_visible(piece))}</bdi>" if piece else ""


def render_string(key: str, *values: object) -> str:
    """Return a string of traces in both languages."""
    return render_languages(trace_string(key, language, *values) for language in LANGUAGES)


def render_languages(texts: Iterable[str]) -> str:
    """Return the texts of all languages. The page shows one of them."""
    pairs = zip(LANGUAGES, texts, strict=True)
    return "".join(f'<span lang="{language}">{escape(text)}</span>' for language, text in pairs)


def _escape_json(data: dict[str, Any]) -> str:
    """Return JSON that cannot close its enclosing script element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
