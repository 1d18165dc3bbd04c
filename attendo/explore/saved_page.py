"""The page in one HTML file: the whole network with one forward pass, which opens from disk and in a notebook."""

import base64
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from attendo.errors import UsageError
from attendo.explore.saved_answers import Answer, BoxAnswers, PageSubject
from attendo.messages import Language
from attendo.model.config import ModelConfig
from attendo.text_model import ParallelTrace
from attendo.text_model.trace import Trace

if TYPE_CHECKING:
    from attendo.text_model import TextModel

PAGE_FOLDER = Path(__file__).parent / "page"
_STYLES = ("style.css", "views.css", "whole-model.css")
_IMPORT = re.compile(r'(from\s*|import\s*\(\s*|import\s*)"(\.{1,2}/[^"]+)"')
# Nothing is loaded. Modules are data addresses, and pictures are made by the page itself.
POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:"
MAX_BYTES = 8 * 2**20  # of a file with boxes that are not drawn at first


@dataclass(frozen=True)
class OpenBox:
    """The box that a page shows open at first."""

    name: str  # such as decoder.1.cross
    head: int = 0


@dataclass(frozen=True)
class SavedPage:
    """A page in one file. A notebook displays it in a frame."""

    html: str
    height: int = 900  # pixels of the frame

    @staticmethod
    def of(trace: Trace | ParallelTrace, language: Language = "en") -> "SavedPage":
        return SavedPage(render_saved_page(trace, language))

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.html, "utf-8")

    def __repr__(self) -> str:
        return f"<SavedPage of {len(self.html):,} characters: save(path) writes it>"

    def _repr_html_(self) -> str:
        style = f"width: 100%; height: {self.height}px; border: 0"
        return f'<iframe title="attendo" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def show(model: "TextModel | str | Path", text: str, target: str | None = None, language: Language = "en") -> SavedPage:
    """Return the page of one forward pass through a model or a model folder. A notebook displays it, offline.

    The target is the given one, or the greedy output of the model. The page of a model that predicts all tokens at once
    also has its passes, its graph or its alignment.
    """
    from attendo.text_model import load

    found = load(model) if isinstance(model, str | Path) else model
    if found.kind == "autoregressive":
        return found.trace(text, target).show(language)
    return found.trace_parallel(text, target).show(language)


def require_page(config: ModelConfig) -> None:
    """Raise a `UsageError` for a network with settings that the page does not show."""
    names = [*config.gemma_settings, *(["norm sandwich"] if config.norm == "sandwich" else [])]
    if names:
        raise UsageError("page_lacks_setting", settings=", ".join(names))


def render_saved_page(
    trace: Trace | ParallelTrace,
    language: Language = "en",
    name: str = "model",
    text: str | None = None,
    first: OpenBox | None = None,
    beside: tuple[str, Trace] | None = None,
    max_bytes: int = MAX_BYTES,
) -> str:
    """Return the page in one file, initially in `language`. `text` is the source; default: its tokens as text.

    `beside` is the name and the trace of an autoregressive model, for one that predicts all tokens at once. Layers that
    are folded at first, and further rows and heads, are left out if the file would be larger than `max_bytes`.
    """
    subject = PageSubject.of(trace, name, text)
    subjects = [subject, *(() if beside is None else (PageSubject.of(beside[1], beside[0], subject.text),))]
    for each in subjects:
        require_page(each.network_pass.config)
    before, after = _shell()
    answers = _Answers(max_bytes - len(before.encode()) - len(after.encode()))
    answers.add([("/models", None, {"models": [each.describe_model() for each in subjects]})])
    left_out = answers.collect(subjects)
    state = {"view": "home", "lang": language, **subject.state()}
    if first is not None:
        state |= {"module": first.name, "head": str(first.head)}
    attributes = {
        "views": "home" if subject.details is None else "home,parallel",
        "state": urlencode(state),
        "left-out": _to_json({"limit": max_bytes // 2**20, "parts": left_out}),
    }
    shown = " ".join(f'data-{key}="{escape(value)}"' for key, value in attributes.items())
    return f'{before}<script type="application/json" id="recorded" {shown}>{answers.to_json()}</script>{after}'


class _Answers:
    """Answers by request, as JSON. `room` is the number of bytes that they may have."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._texts: list[str] = []

    def collect(self, subjects: Sequence[PageSubject]) -> dict[str, list[str]]:
        """Add the answers of the models. Return the parts for which there is no room, by model."""
        boxes = {each.name: BoxAnswers(each) for each in subjects}
        for each in subjects:
            self.add(each.main_answers())
            self.add(boxes[each.name].first_answers())
        for each in subjects[1:]:
            self.add([each.answer_beside()])
        return {
            name: [part for part, answers in each.parts() if not self.add(answers, limited=True)]
            for name, each in boxes.items()
        }

    def add(self, answers: Iterable[Answer], limited: bool = False) -> bool:
        """Add all answers. With `limited`, add none if there is no room for all of them."""
        texts, size = [], 0
        for path, body, answer in answers:
            texts.append(_inline([f"{path} {_to_json(body)}", answer]))
            size += len(texts[-1].encode()) + 1
            if limited and size > self._room:
                return False
        self._texts += texts
        self._room -= size
        return True

    def to_json(self) -> str:
        return f"[{','.join(self._texts)}]"


@cache
def _shell() -> tuple[str, str]:
    """Return the page before and after its answers."""
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
        f'<link rel="icon" href="data:image/svg+xml;base64,{_encode(_read("icon.svg"))}">',
        f"<style>{_styles()}</style>",
    )
    modules = (
        f'<script type="importmap">{_inline({"imports": _modules()})}</script>',
        '<script type="module">import "main.js";</script>',
    )
    index = re.sub(r"\s*<link[^>]*>", "", _read("index.html"))
    index = re.sub(r"\s*<script[^>]*></script>", "", index)
    begin, end = index.split("</head>")
    return begin + "\n".join((*head, "")), "\n".join(("", *modules, f"</head>{end}"))


@cache
def _modules() -> dict[str, str]:
    """Return the modules of the page as data addresses by path. A data address has no folder: imports name the path."""
    found: dict[str, str] = {}

    def collect(name: str) -> None:
        if name in found:
            return
        found[name] = ""
        source = _IMPORT.sub(lambda each: f'{each[1]}"{normpath(join(dirname(name), each[2]))}"', _read(name))
        found[name] = f"data:text/javascript;base64,{_encode(source)}"
        for each in _IMPORT.finditer(_read(name)):
            collect(normpath(join(dirname(name), each[2])))

    collect("main.js")
    return found


def _styles() -> str:
    return "\n".join(map(_read, _STYLES)).replace("</", "<\\/")


def _read(name: str) -> str:
    return (PAGE_FOLDER / name).read_text("utf-8")


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _inline(value: Any) -> str:
    """Return JSON that cannot end the element it stands in."""
    return _to_json(value).replace("<", "\\u003c")
