"""The requests of a page without a server, with their answers.

Each body has the fields in the order of page/requests.js, because an answer is found by the text of its request.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attendo.explore.calculation import WINDOW, Calculation
from attendo.explore.forward_summary import summarize_forward
from attendo.explore.parallel_answer import describe_parallel_answer
from attendo.text import EOS
from attendo.text_model import ParallelTrace
from attendo.text_model.parallel_trace import trace_last_pass
from attendo.text_model.trace import Trace

Answer = tuple[str, Any, Any]  # path, body, answer
_MAX_OPEN_LAYERS = 4  # a stack with more layers is folded at first: its first and its last layer are open
_ONE_HEAD = ("queries", "keys", "values", "turned_queries", "turned_keys", "bias")  # saved for head 0 first
_FROM_WEIGHTS = ("products", "scores", "masked")  # the page derives them from the answer about the weights


@dataclass(frozen=True)
class PageSubject:
    """What a page shows of one model and one text."""

    name: str
    text: str
    target: str | None  # None if the model generated it
    network_pass: Trace  # of the whole network: the last one of a model that predicts all tokens at once
    trace_again: Callable[[Collection[str]], Trace] = field(repr=False)  # so that these tensors keep their operands
    hypothesis: dict[str, Any] = field(repr=False)  # the data of the last event of /answer
    cut: bool = False
    details: ParallelTrace | None = None

    @staticmethod
    def of(trace: Trace | ParallelTrace, name: str, text: str | None = None) -> "PageSubject":
        """Return the subject. `text` is the source; default: its tokens as text."""
        if isinstance(trace, Trace):
            source, target = _source_text(trace) if text is None else text, trace.text if trace.given else None
            return PageSubject(
                name, source, target, trace, trace.with_operands, _describe_answer(trace), _is_cut(trace)
            )
        assert trace.origin is not None
        return PageSubject(
            name,
            trace.origin.text if text is None else text,
            trace.text if trace.given else None,
            trace_last_pass(trace),
            lambda operations: trace_last_pass(trace, inputs_of=operations),
            describe_parallel_answer(trace),
            trace.cut,
            trace,
        )

    @property
    def basics(self) -> dict[str, Any]:
        return {"model": self.name, "checkpoint": None, "text": self.text, "decoder": {"kind": "greedy"}}

    @cached_property
    def summary(self) -> dict[str, Any]:
        return summarize_forward(self.network_pass)

    @property
    def heads(self) -> dict[str, Any]:
        scaled = {
            site: {str(head): _plain(each) for head, each in scales.items()}
            for site, scales in self.network_pass.heads.items()
        }
        return {"heads": {site: scales for site, scales in sorted(scaled.items()) if scales}}

    def state(self) -> dict[str, str]:
        """Return the fields of the page's address."""
        scales = (
            f"{site}.{head}={scale:g}"
            for site, scales in self.network_pass.heads.items()
            for head, scale in scales.items()
        )
        state = {"text": self.text, "target": self.target or "", "heads": ",".join(sorted(scales))}
        return state | {name: str(value) for name, value in self._search().items() if value is not None}

    def main_answers(self) -> Iterator[Answer]:
        """Yield what the page needs at first."""
        events = [{"name": "done", "data": self.hypothesis}]
        yield "/answer", {**self.basics, **self.heads, "prefix": None, "stream": True}, events
        unknown = {"source": list(self.network_pass.unknown), "target": []}
        forward = {**self.summary, "cut": self.cut, "unknown": unknown}
        yield "/forward", {**self.basics, "target": self.target, **self.heads}, forward
        if self.details is not None:
            yield "/parallel", {**self.basics, "target": self.target, **self._search()}, self.details.as_json()

    def answer_beside(self) -> Answer:
        """Return the decoding steps, for the page of a model that predicts all tokens at once."""
        trace = self.network_pass
        steps = [
            {
                "chosen": each.piece,
                "probability": each.probability,
                "top": [{"piece": one.piece, "probability": one.probability} for one in each.top],
            }
            for each in trace.steps()
        ]
        body = {**self.basics, "heads": {}, "prefix": []}
        return "/steps", body, {"steps": steps, "text": trace.text, "ended": trace.target_ids[-1] == EOS}

    def describe_model(self) -> dict[str, Any]:
        """Return the entry of /models."""
        config = self.network_pass.config
        return {
            "name": self.name,
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

    def _search(self) -> dict[str, Any]:
        """Return the decoding options that /parallel has. Without a search there are none."""
        if self.details is None:
            return {}
        return {name: self.details.options.get(name) for name in ("passes", "graph_search")}


class BoxAnswers:
    """The answers that the boxes of a network need: windows of each operation, by layer, head and first row."""

    def __init__(self, subject: PageSubject) -> None:
        self._pass, self._operations = subject.network_pass, list(subject.network_pass.entries)
        self._with_operands = subject.trace_again(self._operations)
        target = subject.target or subject.summary["target_text"] or None
        self._body = {**subject.basics, "target": target, **subject.heads}

    def first_answers(self) -> Iterator[Answer]:
        """Yield the first rows of all operations outside the layers, and of the layers that are open at first."""
        for operation in self._operations:
            layer = _layer_of(operation)
            if layer is None or self._is_open(*layer):
                yield from self._describe(operation, 0)

    def parts(self) -> Iterator[tuple[str, Iterator[Answer]]]:
        """Yield what a page has if it does not become too large: folded layers, other rows, all of the other heads.

        Each part has the name by which the page says that it is missing.
        """
        layers = {layer for each in self._operations if (layer := _layer_of(each))}
        for stack, number in sorted(layers, key=lambda layer: (layer[1], layer[0])):
            if not self._is_open(stack, number):
                own = [each for each in self._operations if _layer_of(each) == (stack, number)]
                yield f"{stack}.{number}", (each for one in own for each in self._describe(one, 0))
        rows = [(each, first) for each in self._operations for first in range(0, self._count_rows(each), WINDOW)]
        yield "rows", (each for place in rows if place[1] for each in self._describe(*place))
        yield "heads", (each for place in rows for each in self._describe_other_heads(*place))

    def _describe(self, operation: str, first: int) -> Iterator[Answer]:
        end, value = operation.rpartition(".")[2], self._pass[operation]
        if value.dim() < 3 or end in _ONE_HEAD:
            yield self._answer(operation, 0, first)
        elif end not in _FROM_WEIGHTS:
            for head in range(self._pass.config.num_heads):
                yield self._answer(operation, head, first)

    def _describe_other_heads(self, operation: str, first: int) -> Iterator[Answer]:
        if self._pass[operation].dim() == 3 and operation.rpartition(".")[2] in _ONE_HEAD:
            for head in range(1, self._pass.config.num_heads):
                yield self._answer(operation, head, first)

    def _answer(self, operation: str, head: int, row: int) -> Answer:
        place = {"operation": operation, "head": head, "row": row, "column": 0}
        answer = Calculation(self._with_operands, operation, head, (row, 0)).describe()
        return "/calculation", {**self._body, **place}, answer

    def _count_rows(self, operation: str) -> int:
        value = self._pass[operation]
        if value.dim() < 2:
            return 1 if operation.endswith(".frequencies") else len(value)
        return value.size(-2)

    def _is_open(self, stack: str, number: int) -> bool:
        layers = self._pass.encoder_layers if stack == "encoder" else self._pass.decoder_layers
        return len(layers) <= _MAX_OPEN_LAYERS or number in (layers[0], layers[-1])


def _layer_of(operation: str) -> tuple[str, int] | None:
    """Return stack and number of the layer that an operation belongs to."""
    stack, number, *_ = operation.split(".")
    return (stack, int(number)) if stack in ("encoder", "decoder") and number.isdecimal() else None


def _describe_answer(trace: Trace) -> dict[str, Any]:
    """Return the target as the only hypothesis."""
    scores = trace.log_probabilities.tolist()
    tokens = [
        {"piece": piece, "id": token, "log_probability": score}
        for piece, token, score in zip(trace.target_pieces, trace.target_ids, scores, strict=True)
    ]
    hypothesis = {
        "text": _output_text(trace),
        "pieces": list(trace.target_pieces),
        "tokens": tokens,
        "log_probability": sum(scores),
        "score": sum(scores) / len(tokens),
        "cut": _is_cut(trace),
    }
    source = {"pieces": list(trace.source_pieces)}
    return {"source": source, "unknown": list(trace.unknown), "hypotheses": [hypothesis], "alternatives": []}


def _output_text(trace: Trace) -> str:
    """Return the output as the server sends it: a continuation begins with its space."""
    if not trace.config.continues_text:
        return trace.text
    prompt, target = list(trace.source_ids), list(trace.target_ids)
    return trace.tokenizer.decode(prompt + target).removeprefix(trace.tokenizer.decode(prompt))


def _is_cut(trace: Trace) -> bool:
    """Return whether the model reached its length limit before the end."""
    return not trace.given and trace.target_ids[-1] != EOS


def _source_text(trace: Trace) -> str:
    assert trace.origin is not None
    assert trace.origin.pair is not None
    if not trace.config.continues_text:
        assert trace.origin.pair.source_tokenizer is not None
        return trace.origin.pair.source_tokenizer.decode(list(trace.source_ids[:-1]))
    return trace.tokenizer.decode(list(trace.source_ids)) if trace.source_ids else trace.text


def _plain(value: float) -> float | int:
    """Write whole numbers without a point, as JavaScript does."""
    return int(value) if value == int(value) else value
