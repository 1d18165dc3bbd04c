"""A formula of the catalogue, and helpers that format the numbers of a trace."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from attendo.messages import Language
from attendo.text_model import Trace

ELLIPSIS = "…"


@dataclass(frozen=True)
class Formula:
    """A computation step, or a fact about it with numbers from a run."""

    name: str  # key in the catalogue and in a trace
    spec_ids: Sequence[str]  # ids in the specification, A1 to K8
    text: str  # one line; {x} is the letter of the input
    en: str  # explanation in one sentence
    zh: str
    symbols: str = ""  # keys of the glossary, separated by spaces
    tex: str = ""  # the text of a step in TeX
    shapes: str = ""  # format of the operand shapes: "{0}·{1} + {2}"
    numbers: Callable[[Trace], str] | None = None  # numbers of a run; "" if the model lacks it
    training_only: bool = False  # a trace has no numbers for it

    def render(self, letter: str = "X") -> str:
        return self.text.replace("{x}", letter)

    def explain(self, language: Language) -> str:
        return self.en if language == "en" else self.zh

    def bind_shapes(self, operands: Sequence[Sequence[int]], result: Sequence[int], letter: str = "X") -> str:
        """Return e.g. `Q = Y·W_Q + b_Q : [5, 512]·[512, 512] + [512] → [5, 512] → [8, 5, 64]`."""
        given = self.shapes.format(*(format_shape(each) for each in operands))
        return f"{self.render(letter)} : {f'{given} → ' if given else ''}{format_shape(result)}"


def format_shape(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def last_attention_site(trace: Trace) -> str:
    """Return the last traced attention site: cross-attention if the model has it."""
    return [name.removesuffix(".weights") for name in trace if name.endswith(".weights")][-1]


def get_queries(trace: Trace, site: str) -> Tensor:
    return _find_last(trace, site, ("turned_queries", "normed_queries", "queries"))


def get_keys(trace: Trace, site: str) -> Tensor:
    return _find_last(trace, site, ("shared_keys", "joined_keys", "turned_keys", "normed_keys", "keys"))


def get_values(trace: Trace, site: str) -> Tensor:
    return _find_last(trace, site, ("shared_values", "joined_values", "values"))


def _find_last(trace: Trace, site: str, names: Sequence[str]) -> Tensor:
    """Return the first of these tensors that the trace has: the operand that attention reads."""
    return next(trace[f"{site}.{name}"] for name in names if f"{site}.{name}" in trace)


def value_width(trace: Trace) -> int:
    return trace.config.d_value or trace.config.d_model // trace.config.num_heads


def entropies(weights: Tensor) -> Tensor:
    return -torch.special.xlogy(weights, weights).sum(dim=-1).mean(dim=-1)


def format_first(numbers: list[float], count: int = 4) -> str:
    return join_first([f"{each:.2f}" for each in numbers], count)


def join_first(texts: Sequence[str], count: int, separator: str = ", ") -> str:
    """Join the first texts. An ellipsis marks that there are more."""
    return separator.join(texts[:count]) + (f" {ELLIPSIS}" if len(texts) > count else "")
