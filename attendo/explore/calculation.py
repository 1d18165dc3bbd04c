"""One operation of a forward pass: a window of its result, and the numbers that the cells are computed from."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attendo.model.trace_layers import TracedTensor
from attendo.model.transformer import Transformer
from attendo.text_model.trace import Trace

WINDOW = 32  # rows and columns of one response; columns that are tokens are complete
_LINEAR = ("queries", "keys", "values", "heads_joined", "expand", "contract", "candidate")
_ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
_GATES = ("swiglu", "geglu", "geglu_tanh", "reglu")
# How the cells of each formula are computed; other formulas have no operands that a cell could be computed from.
KINDS = {
    **dict.fromkeys((*_LINEAR, *(f"{name}_unbiased" for name in _LINEAR)), "linear"),
    **dict.fromkeys(("logits", "logits_bias"), "linear"),
    **dict.fromkeys(("products", "scores", "scores_by_scale", "biased_scores"), "attention"),
    **dict.fromkeys(("padding_mask", "causal_mask", "prefix_mask", "unmasked", "softmax"), "attention"),
    **dict.fromkeys(("mixed", "scaled_mixed"), "mixture"),
    **dict.fromkeys(("input", "input_unscaled", "input_of_side", "residual", "residual_pre"), "sum"),
    **dict.fromkeys(("scaled_embedding", "scaled_output"), "scale"),
    **dict.fromkeys(("input_alone", "last_layer", "positive_cells", *_ACTIVATIONS), "elementwise"),
    **dict.fromkeys(_GATES, "gate"),
    **dict.fromkeys(("turn", "turn_keys"), "rotation"),
    **dict.fromkeys(("sinusoids", "sinusoids_halves"), "sinusoid"),
    "layer_norm": "layer_norm",
    "rms_norm": "rms_norm",
    "embedding": "lookup",
    "angles": "outer",
    "forget": "sigmoid",
    "cells": "recurrence",
    "probabilities": "probabilities",
}


class Calculation:
    """One operation of a trace that has its operands, and the window of its result from a row and a column on."""

    def __init__(self, trace: Trace, operation: str, head: int, first: tuple[int, int] = (0, 0)) -> None:
        assert trace.origin is not None
        self._network, self._trace, self._head = trace.origin.network, trace, head
        self._entry: TracedTensor = trace.entries[operation]
        value = self._of_head(self._entry.value)
        self._value = (
            value[None] if self._entry.formula == "frequencies" else value if value.dim() == 2 else value[:, None]
        )
        self._columns_axis = _columns_axis(self._entry)
        rows, columns = self.shape
        width = columns if self._columns_axis in ("source", "read") else WINDOW
        self._rows = slice(first[0], min(first[0] + WINDOW, rows))
        self._columns = torch.arange(first[1], max(first[1], min(first[1] + width, columns)))
        if self._columns_axis == "vocabulary":
            self._columns = trace.probabilities.amax(dim=0).argsort(descending=True, stable=True)[self._columns]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the whole result."""
        rows, columns = self._value.shape
        return rows, columns

    def describe(self, unknown_in_target: Sequence[str] = ()) -> dict[str, Any]:
        entry, trace, columns = self._entry, self._trace, self._columns
        rows, total = self._rows, self._value.size(1)
        vocabulary = self._columns_axis == "vocabulary"
        axes = {
            "rows": {"axis": _rows_axis(entry, trace), "first": rows.start, "count": rows.stop - rows.start},
            "columns": {
                "axis": self._columns_axis,
                "first": 0 if vocabulary else int(columns[0]),
                "count": len(columns),
            },
        }
        axes["rows"]["total"], axes["columns"]["total"] = self._value.size(0), total
        if vocabulary:
            axes["columns"]["ids"] = columns.tolist()
            axes["columns"]["pieces"] = trace.tokenizer.pieces(columns.tolist())
        return {
            "operation": entry.name,
            "formula": entry.formula,
            "kind": KINDS.get(entry.formula, "value"),
            "head": self._head if entry.value.dim() == 3 else None,
            "heads": self._trace.config.num_heads,
            **axes,
            **_encode({"result": self._value[rows][:, columns], **self._operands()}),
            "numbers": self._numbers(),
            "pieces": {
                "source": list(trace.source_pieces),
                "read": list(trace.read_pieces),
                "predicted": list(trace.target_pieces),
                "rows": list(trace.row_pieces),
            },
            "unknown": {"source": list(trace.unknown), "target": list(unknown_in_target)},
        }

    def _operands(self) -> dict[str, Tensor]:
        """Return the operands of the cells in the window, by name. Rows of vectors are complete."""
        rows, columns, inputs = self._rows, self._columns, self._entry.inputs
        match KINDS.get(self._entry.formula, "value"):
            case "linear" | "sigmoid":
                return self._linear_operands()
            case "attention" | "mixture":
                return self._attention_operands()
            case "sum":
                return {"left": inputs[0][rows][:, columns], "right": inputs[1][rows][:, columns]}
            case "scale" | "elementwise":
                return {"left": inputs[0][rows][:, columns]}
            case "gate":
                return {"left": inputs[0][rows][:, columns], "right": inputs[0][rows][:, columns + self._value.size(1)]}
            case "rotation":
                heads, half = self._of_head(inputs[0])[rows], self._value.size(1) // 2
                pair = columns % half
                return {"left": heads[:, pair], "right": heads[:, pair + half], "angles": inputs[1][rows][:, pair]}
            case "sinusoid":
                half = inputs[0].size(1)
                pair = columns // 2 if self._entry.formula == "sinusoids" else columns % half
                return {"left": inputs[0][rows][:, pair]}
            case "outer":
                return {"left": inputs[0][rows], "right": inputs[1][columns]}
            case "layer_norm":
                return {"left": inputs[0][rows], "gain": inputs[1][columns], "bias": inputs[2][columns]}
            case "rms_norm":
                return {"left": inputs[0][rows], "gain": inputs[1][columns]}
            case "lookup":
                return {"ids": inputs[0][rows]}
            case "recurrence":
                before = torch.cat((torch.zeros_like(self._value[:1]), self._value[:-1]))
                left, right = (each[rows][:, columns] for each in inputs)
                return {"left": left, "right": right, "before": before[rows][:, columns]}
            case "probabilities":
                logits = inputs[0][rows]
                largest = logits.amax(dim=1)
                powers = (logits - largest[:, None]).exp()
                return {"left": logits[:, columns], "largest": largest, "total": powers.double().sum(dim=1)}
        return {}

    def _linear_operands(self) -> dict[str, Tensor]:
        """Return x and the columns of W and b. Those of a head follow the columns of the heads before it."""
        vectors, matrix, *rest = self._entry.inputs
        columns = self._columns + (self._head * self._value.size(1) if self._entry.value.dim() == 3 else 0)
        found = {"left": vectors[self._rows], "right": matrix[:, columns]}
        bias = [each for each in rest if each.dim() == 1]
        return {**found, "bias": bias[0][columns]} if bias else found

    def _attention_operands(self) -> dict[str, Tensor]:
        """Return everything from queries and keys to weights, so that a cell can be followed to its weight."""
        site, trace, rows = self._entry.site, self._trace, self._rows
        queries = trace.get(f"{site}.turned_queries", trace[f"{site}.queries"])
        found = {"masked": self._of_head(trace[f"{site}.masked"])[rows]}
        found["weights"] = self._of_head(trace[f"{site}.weights"])[rows]
        if KINDS[self._entry.formula] == "mixture":
            return {**found, "right": self._of_head(trace[f"{site}.values"])[:, self._columns]}
        found |= {
            "left": self._of_head(queries)[rows],
            "right": self._of_head(trace.get(f"{site}.turned_keys", trace[f"{site}.keys"])),
            "products": self._of_head(trace[f"{site}.products"])[rows],
            "scores": self._of_head(trace[f"{site}.scores"])[rows],
        }
        bias = trace.get(f"{site}.bias")
        return found if bias is None else {**found, "bias": self._of_head(bias)[rows]}

    def _numbers(self) -> dict[str, float]:
        """Return the constants of the formula."""
        network, config, name = self._network, self._trace.config, self._entry.name
        norm = find_norm(network, name)
        if norm is not None and norm.eps is not None:
            return {"epsilon": norm.eps}
        match self._entry.formula:
            case "scaled_embedding" | "input":
                embedding = network.source if name.startswith("source") else network.target
                assert embedding is not None
                return {"factor": embedding.scale, "width": config.d_model}
            case "scaled_output":
                return {"factor": config.output_scale}
        if KINDS.get(self._entry.formula) in ("attention", "mixture"):
            scaled = self._trace.heads.get(self._entry.site, {}).get(self._head, 1.0)
            width = self._trace[f"{self._entry.site}.queries"].size(-1)
            by_setting = config.attention_scale is not None
            scale = config.attention_scale if by_setting else 1 / math.sqrt(width)
            return {"scale": scale, "by_setting": by_setting, "width": width, "head_scale": scaled}  # type: ignore[dict-item]
        return {}

    def _of_head(self, value: Tensor) -> Tensor:
        return value[self._head] if value.dim() == 3 else value


def find_norm(network: Transformer, name: str) -> nn.LayerNorm | nn.RMSNorm | None:
    """Return the module of the norm with this name, or None if the operation is no norm."""
    stack, _, rest = name.partition(".")
    module: Any = None
    if rest == "output" and stack in ("encoder", "decoder"):
        module = network.encoder_norm if stack == "encoder" else network.decoder_norm
    elif rest == "input":
        embedding = network.source if stack == "source" else network.target
        module = None if embedding is None else embedding.norm
    elif rest.endswith(".norm"):
        layer, kind, _ = rest.split(".")
        blocks = network.encoder if stack == "encoder" else network.decoder
        module = getattr(blocks[int(layer)], f"{kind}_residual").normalise
    return module if isinstance(module, nn.LayerNorm | nn.RMSNorm) else None


def _rows_axis(entry: TracedTensor, trace: Trace) -> str:
    """Return what the rows are: source tokens, tokens that the decoder reads, or tokens that it predicts there.

    `rows` are the tokens that a decoder-only model is given, and then those that it predicts.
    """
    stack, _, rest = entry.name.partition(".")
    end = rest.rpartition(".")[2]
    if end == "frequencies":
        return "none"
    if stack in ("source", "encoder"):
        return "source"
    if end in ("keys", "turned_keys", "values"):
        return "source" if ".cross." in entry.name else "read"
    if stack == "target":
        return "read"
    return "rows" if trace.first_row and entry.value.size(-2) == len(trace.read_pieces) else "predicted"


def _columns_axis(entry: TracedTensor) -> str:
    """Return what the columns are: dimensions, tokens, ids of tokens or the vocabulary."""
    end = entry.name.rpartition(".")[2]
    if end == "ids":
        return "ids"
    if entry.name in ("output.logits", "output.probabilities"):
        return "vocabulary"
    if KINDS.get(entry.formula) == "attention" or end in ("weights", "bias", "buckets", "scaled"):
        is_tokens = entry.value.dim() == 3 or end == "buckets"
        if is_tokens:
            return "source" if entry.name.startswith(("source", "encoder")) or ".cross." in entry.name else "read"
    return "dimensions"


def _encode(tensors: dict[str, Tensor]) -> dict[str, Any]:
    """Return the layout of the tensors, and all of them concatenated as float32 in base64. Offsets count numbers."""
    layout, offset = {}, 0
    for name, tensor in tensors.items():
        layout[name] = {"shape": list(tensor.shape), "offset": offset}
        offset += tensor.numel()
    numbers = torch.cat([each.flatten().float() for each in tensors.values()]).numpy().astype("<f4")
    return {"tensors": layout, "dtype": "float32", "block": base64.b64encode(numbers.tobytes()).decode("ascii")}
