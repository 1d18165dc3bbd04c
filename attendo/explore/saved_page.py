"""The page in one HTML file: the whole network with one forward pass, which opens from disk and in a notebook."""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from attendo.errors import UsageError
from attendo.explore.calculation import Calculation
from attendo.explore.forward_summary import summarize_forward
from attendo.messages import Language
from attendo.model.config import ModelConfig
from attendo.text_model.trace import Trace

if TYPE_CHECKING:
    from attendo.text_model import TextModel

PAGE_FOLDER = Path(__file__).parent / "page"
_STYLES = ("style.css", "views.css", "whole-model.css")
_IMPORT = re.compile(r'(from\s*|import\s*\(\s*|import\s*)"(\.{1,2}/[^"]+)"')
# Nothing is loaded. Modules are data addresses, and pictures are made by the page itself.
POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:"
_MAX_OPEN_LAYERS = 4  # a stack with more layers is folded: operations of the first and the last one are saved
_FIRST_HEAD_ONLY = ("queries", "keys", "values", "turned_queries", "turned_keys", "bias")
_FROM_WEIGHTS = ("products", "scores", "masked")  # the page derives them from the answer about the weights


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
    def of(trace: Trace, language: Language = "en") -> "SavedPage":
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

    The target is the given one, or the greedy output of the model.
    """
    from attendo.text_model import load

    found = load(model) if isinstance(model, str | Path) else model
    return found.trace(text, target).show(language)


def require_page(config: ModelConfig) -> None:
    """Raise a `UsageError` for a network with settings that the page does not show."""
    names = [*config.gemma_settings, *(["norm sandwich"] if config.norm == "sandwich" else [])]
    if names:
        raise UsageError("page_lacks_setting", settings=", ".join(names))


def render_saved_page(
    trace: Trace, language: Language = "en", name: str = "model", text: str | None = None, first: OpenBox | None = None
) -> str:
    """Return the page in one file, initially in `language`. `text` is the source; default: its tokens as text."""
    require_page(trace.config)
    request = _PageRequest(trace, name, _source_text(trace) if text is None else text)
    state = {"view": "home", "lang": language, "text": request.text, "target": request.target or ""}
    state["heads"] = ",".join(
        sorted(f"{site}.{head}={scale:g}" for site, scales in trace.heads.items() for head, scale in scales.items())
    )
    if first is not None:
        state |= {"module": first.name, "head": str(first.head)}
    answers = [[f"{path} {_to_json(body)}", answer] for path, body, answer in request.answers()]
    head = "\n".join(
        (
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f'<link rel="icon" href="data:image/svg+xml;base64,{_encode(_read("icon.svg"))}">',
            f"<style>{_styles()}</style>",
            f'<script type="application/json" id="recorded" data-views="home" data-state="{escape(urlencode(state))}">'
            f"{_inline(answers)}</script>",
            f'<script type="importmap">{_inline({"imports": _modules()})}</script>',
            '<script type="module">import "main.js";</script>',
        )
    )
    index = re.sub(r"\s*<link[^>]*>", "", _read("index.html"))
    index = re.sub(r"\s*<script[^>]*></script>", "", index)
    return index.replace("</head>", f"{head}\n</head>")


class _PageRequest:
    """The requests that the page sends for one trace, with their answers.

    Each body has the fields in the order of requests.js, because an answer is found by the text of its request.
    """

    def __init__(self, trace: Trace, name: str, text: str) -> None:
        self._trace, self._name, self.text = trace, name, text
        self.target = trace.text if trace.given else None
        heads = {
            site: {str(head): _plain(each) for head, each in scales.items()} for site, scales in trace.heads.items()
        }
        self._basics = {"model": name, "checkpoint": None, "text": text, "decoder": {"kind": "greedy"}}
        self._heads = {"heads": {site: scales for site, scales in sorted(heads.items()) if scales}}

    def answers(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield (path, body, answer)."""
        yield "/models", None, {"models": [self._describe_model()]}
        yield "/answer", {**self._basics, **self._heads, "prefix": None, "stream": True}, [self._describe_answer()]
        summary = summarize_forward(self._trace)
        forward = {**summary, "cut": False, "unknown": {"source": list(self._trace.unknown), "target": []}}
        yield "/forward", {**self._basics, "target": self.target, **self._heads}, forward
        target = self.target or summary["target_text"] or None
        operations = [each for each in self._trace.entries if self._is_open(each)]
        trace = self._trace.with_operands(operations)
        for operation in operations:
            for head in self._list_heads(operation):
                place = {"operation": operation, "head": head, "row": 0, "column": 0}
                answer = Calculation(trace, operation, head).describe()
                yield "/calculation", {**self._basics, "target": target, **self._heads, **place}, answer

    def _is_open(self, operation: str) -> bool:
        """Whether the operation belongs to a layer that the page draws in full."""
        stack, layer, *_ = operation.split(".")
        if stack not in ("encoder", "decoder") or not layer.isdecimal():
            return True
        layers = self._trace.encoder_layers if stack == "encoder" else self._trace.decoder_layers
        return len(layers) <= _MAX_OPEN_LAYERS or int(layer) in (layers[0], layers[-1])

    def _list_heads(self, operation: str) -> range:
        end = operation.rpartition(".")[2]
        if self._trace[operation].dim() < 3 or end in _FIRST_HEAD_ONLY:
            return range(1)
        return range(0 if end in _FROM_WEIGHTS else self._trace.config.num_heads)

    def _describe_model(self) -> dict[str, Any]:
        config = self._trace.config
        return {
            "name": self._name,
            "direction": None,
            "parameters": None,
            "config": config.model_dump(mode="json"),
            "encoder_layers": config.num_encoder_layers,
            "decoder_layers": config.num_decoder_layers,
            "heads": config.num_heads,
            "checkpoints": [],
            "has_training": False,
            "samples": [],
        }

    def _describe_answer(self) -> dict[str, Any]:
        """Return the last event of /answer: the target as the only hypothesis."""
        trace, scores = self._trace, self._trace.log_probabilities.tolist()
        tokens = [
            {"piece": piece, "id": token, "log_probability": score}
            for piece, token, score in zip(trace.target_pieces, trace.target_ids, scores, strict=True)
        ]
        total = sum(scores)
        hypothesis = {
            "text": trace.text,
            "pieces": list(trace.target_pieces),
            "tokens": tokens,
            "log_probability": total,
            "score": total / len(tokens),
            "cut": False,
        }
        source = {"pieces": list(trace.source_pieces)}
        data = {"source": source, "unknown": list(trace.unknown), "hypotheses": [hypothesis], "alternatives": []}
        return {"name": "done", "data": data}


def _source_text(trace: Trace) -> str:
    assert trace.origin is not None
    assert trace.origin.pair is not None
    tokenizer = trace.origin.pair.source_tokenizer
    return trace.text if tokenizer is None else tokenizer.decode(list(trace.source_ids[:-1]))


def _plain(value: float) -> float | int:
    """Write whole numbers without a point, as JavaScript does."""
    return int(value) if value == int(value) else value


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
