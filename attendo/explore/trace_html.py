"""A trace as one self-contained page that opens from disk, in both languages, light and dark."""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

from attendo.explore.attention_map import visible
from attendo.explore.formulas import bound, formula_of, shown_facts, symbols_of
from attendo.explore.heatmap_colours import DARK, LIGHT
from attendo.explore.language import LANGUAGES, Language
from attendo.explore.trace_page import SCRIPT, STYLE
from attendo.explore.trace_values import CUT, labels_of, table
from attendo.explore.trace_words import heading, origin, say
from attendo.model.ledger import Traced
from attendo.text_model import Trace

_ROWS, _COLUMNS = 8, 8


def page(trace: Trace, language: Language = "en") -> str:
    """The page as text, in `language` first. Without JavaScript it has all but the maps; it asks nothing of anyone."""
    parts = [_top(trace), *_walk(trace), _sizes(trace), _output(trace), _facts(trace)]
    body = "\n".join(parts)
    return f"""{_head(language)}
<body>
<main>
{body}
</main>
<script type="application/json" id="data">{_inert(_maps(trace))}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _head(language: Language) -> str:
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    return f"""<!doctype html>
<html lang="{language}" data-language="{language}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>attendo · {say("title", language)}</title>
<style>
{STYLE}
</style>
</head>"""


def _top(trace: Trace) -> str:
    lines = "\n".join(
        f'<tr><th scope="row">{_both(key)}</th><td class="tokens">{_tokens(pieces)}</td></tr>'
        for key, pieces in heading(trace)
    )
    notes = [_both(origin(trace)), f"{_both('loss')} {trace.loss:.4f}"]
    if trace.unknown:
        notes.append(f"{_both('unknown')}: {_tokens(trace.unknown)}")
    if not trace.masked:
        notes.append(_both("no_mask"))
    notes += [f"{_both('scaled')}: {escape(site)} {escape(str(dict(scales)))}" for site, scales in trace.heads.items()]
    return f"""<header>
<h1>{_both("title")}</h1>
<button type="button" id="language" hidden>{_both("language")}</button>
</header>
<table class="pairs">
{lines}
</table>
<p class="muted">{"; ".join(notes)}</p>"""


def _walk(trace: Trace) -> Iterator[str]:
    for side, stack, layers in (
        ("source", "encoder", trace.encoder_layers),
        ("target", "decoder", trace.decoder_layers),
    ):
        if not layers and stack == "encoder":
            continue
        yield _section(_both(f"from_{side}"), _entries(trace, f"{side}."))
        for layer in layers:
            for part in ("self", "cross", "feed_forward"):
                place = f"{stack}.{layer}.{part}"
                if f"{place}.output" in trace:
                    yield _sub_layer(trace, place)
        yield _section(_both("stack_output"), _entry(trace, trace.entries[f"{stack}.output"]))


def _sub_layer(trace: Trace, place: str) -> str:
    stack, layer, part = place.split(".")
    name = "masked_self" if (stack, part) == ("decoder", "self") else part
    title = _each(
        say("titled", language, say(f"{stack}_layer", language, layer), say(name, language)) for language in LANGUAGES
    )
    maps = "" if part == "feed_forward" else f'<div class="maps" data-site="{place}" hidden></div>'
    return _section(title, maps + _entries(trace, f"{place}."), is_open=layer == "0" and part == "self")


def _section(title: str, content: str, is_open: bool = False) -> str:
    return f"<details{' open' if is_open else ''}>\n<summary><h2>{title}</h2></summary>\n{content}\n</details>"


def _entries(trace: Trace, prefix: str) -> str:
    return "\n".join(_entry(trace, each) for name, each in trace.entries.items() if name.startswith(prefix))


def _entry(trace: Trace, entry: Traced) -> str:
    formula = formula_of(entry)
    text, _, shapes = bound(entry).partition(" : ")
    told = _each(formula.explained(language) for language in LANGUAGES)
    symbols = _each(
        "; ".join(f"{symbol}: {meaning}" for symbol, meaning in symbols_of(formula, language).items())
        for language in LANGUAGES
    )
    return f"""<article>
<p class="name"><code>{escape(entry.name)}</code> <span class="rows">{escape(" ".join(formula.rows))}</span></p>
<p class="formula">{escape(text)} <span class="shapes">: {escape(shapes)}</span></p>
<p class="muted">{told} <small>{symbols}</small></p>
{_values(trace, entry)}
</article>"""


def _values(trace: Trace, entry: Traced) -> str:
    shown = table(trace, entry.name, most=(_ROWS, _COLUMNS))
    columns = "".join(f'<th scope="col">{_token(each)}</th>' for each in shown.columns or ())
    head = f"<thead><tr><td></td>{columns}</tr></thead>" if columns else ""
    end = f"<td>{CUT}</td>" if shown.more_columns else ""
    rows = "\n".join(
        f'<tr><th scope="row">{_token(label)}</th>{"".join(f"<td>{each}</td>" for each in cells)}{end}</tr>'
        for label, cells in zip(shown.rows, shown.cells, strict=True)
    )
    more = f"<p class='muted'>{_both('more_rows', shown.more_rows)}</p>" if shown.more_rows else ""
    which = f"<p class='muted'>{_both('head', 0)}</p>" if entry.value.dim() == 3 else ""
    return f'{which}<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>{more}'


def _sizes(trace: Trace) -> str:
    keys = ("place", "entering", "adding", "leaving", "share", "gain")
    rows = "\n".join(
        f'<tr><th scope="row">{each.place}</th><td>{each.entering:.2f}</td><td>{each.adding:.2f}</td>'
        f"<td>{each.leaving:.2f}</td><td>{each.share:.0%}</td><td>{each.gain:.2f}</td></tr>"
        for each in trace.sizes()
    )
    return _section(_both("sizes"), _table(keys, rows))


def _output(trace: Trace) -> str:
    keys = ("step", "token", "probability", "entropy", "eos", "top")
    rows = "\n".join(
        f'<tr><th scope="row">{t}</th><td class="token">{_token(each.piece)}</td><td>{each.probability:.3f}</td>'
        f"<td>{each.entropy:.2f}</td><td>{each.eos_probability:.3f}</td><td class='top'>"
        + " ".join(f"<span>{_token(one.piece)} {one.probability:.3f}</span>" for one in each.top)
        + "</td></tr>"
        for t, each in enumerate(trace.steps(5))
    )
    return _section(_both("output"), _entries(trace, "output.") + _table(keys, rows), is_open=True)


def _facts(trace: Trace) -> str:
    told = "\n".join(
        f'<article><p class="name"><span class="rows">{escape(" ".join(formula.rows))}</span></p>'
        f'<p class="formula">{escape(formula.written())}</p>'
        f'<p class="numbers">{escape(visible(numbers)) if numbers else _both("not_here")}</p>'
        f'<p class="muted">{_each(formula.explained(language) for language in LANGUAGES)}</p></article>'
        for formula, numbers in shown_facts(trace)
    )
    return _section(_both("facts"), told)


def _table(keys: Iterable[str], rows: str) -> str:
    columns = "".join(f'<th scope="col">{_both(key)}</th>' for key in keys)
    head = f"<thead><tr>{columns}</tr></thead>"
    return f'<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>'


def _maps(trace: Trace) -> dict[str, Any]:
    """Weights as bytes: a screen shows no finer steps."""
    sites = {}
    for name, entry in trace.entries.items():
        if name.endswith(".weights"):
            rows, columns = labels_of(trace, name)
            levels = (entry.value.clamp(0, 1) * 255).round().byte().numpy()
            sites[entry.place] = {
                "shape": list(entry.shape),
                "rows": [visible(each) for each in rows or ()],
                "columns": [visible(each) for each in columns or ()],
                "weights": base64.b64encode(levels.tobytes()).decode(),
            }
    keys = ("point", "maps", "maps_source", "head", "more_rows", "more_columns")
    words = {key: {language: say(key, language, "#") for language in LANGUAGES} for key in keys}
    return {"sites": sites, "words": words, "scales": {"light": LIGHT, "dark": DARK}}


def _tokens(pieces: Iterable[str]) -> str:
    return " ".join(f"<span class='token'>{_token(piece)}</span>" for piece in pieces)


def _token(piece: str) -> str:
    return f"<bdi>{escape(visible(piece))}</bdi>" if piece else ""


def _both(key: str, *values: object) -> str:
    return _each(say(key, language, *values) for language in LANGUAGES)


def _each(texts: Iterable[str]) -> str:
    pairs = zip(LANGUAGES, texts, strict=True)
    return "".join(f'<span lang="{language}">{escape(text)}</span>' for language, text in pairs)


def _inert(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
