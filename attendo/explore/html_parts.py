"""Parts of HTML pages that open from disk, in both languages."""

import base64
import hashlib
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from string import Template

from attendo.explore.attention_map import make_visible
from attendo.explore.i18n import trace_string
from attendo.messages import LANGUAGES, Language
from attendo.text_model import Trace


def fill_page(language: Language, title: str, style: str, body: str) -> str:
    """Return a page that loads nothing and runs only its own script, which switches the language."""
    script = read_standalone("language.js")
    digest = base64.b64encode(hashlib.sha256(f"\n{script}".encode()).digest()).decode()
    return Template(read_standalone("page.html")).substitute(
        language=language,
        policy=f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'",
        title=title,
        style=style,
        body=body,
        script=script,
    )


def read_standalone(name: str) -> str:
    """Return a file of the pages that open from disk."""
    return files("attendo.explore").joinpath("standalone", name).read_text("utf-8")


def render_section(title: str, content: str, is_open: bool = False) -> str:
    """Return a part of the page that can be folded."""
    return f"<details{' open' if is_open else ''}>\n<summary><h2>{title}</h2></summary>\n{content}\n</details>"


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


def _table(keys: Iterable[str], rows: str) -> str:
    columns = "".join(f'<th scope="col">{render_string(key)}</th>' for key in keys)
    head = f"<thead><tr>{columns}</tr></thead>"
    return f'<div class="scroll"><table class="values">{head}<tbody>{rows}</tbody></table></div>'


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
