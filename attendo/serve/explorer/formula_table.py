"""Table of the operations of a forward pass: formula, shapes, norms, values and time."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from attendo.explore.formulas.catalogue import bind_formula, explain_symbols, find_formula
from attendo.explore.formulas.formula import Formula, format_shape
from attendo.messages import LANGUAGES
from attendo.model.trace_layers import TracedTensor
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.masks import Mask, layer_masks
from attendo.nn.positions import Rotation
from attendo.text_model.backends import eval_mode
from attendo.text_model.trace import SubLayerSizes, Trace

MAX_SHOWN_NUMBERS = 64  # of a tensor
DIGITS = 4
# Id, formula, English and Chinese explanation of a sub-layer. Its single operations are the steps of the row.
ATTENTION = (
    "C3",
    "Attention(Q, K, V) = softmax(QKᵀ/√d_k)·V",
    "Each position takes of the values as much as its query agrees with their keys.",
    "每个位置按自己的查询与各个键的匹配程度，取走相应份量的值。",
)
FEED_FORWARD = (
    "G1",
    "FFN(x) = σ(x·W₁ + b₁)·W₂ + b₂",
    "Each position is widened, bent and narrowed again, by itself and in the same way as all others.",
    "每个位置独立地先升维、过激活函数、再降维，所有位置共用同一组参数。",
)
RECURRENCE = (
    "",
    "SSRU(x) = max(0, c), c_t = f_t ⊙ c_{t−1} + (1 − f_t) ⊙ u_t",
    "A cell keeps a part of what it was before each token and takes the rest from the token. It replaces attention.",
    "状态在每个词元处保留自己的一部分，其余取自该词元，由此代替注意力。",
)
REPEATS = 3  # the minimum is used, because other load only adds time


class OperationTable:
    """Builds the rows of the table. With `step`, decoder values are those of the position that predicts this token."""

    def __init__(self, network: Transformer, trace: Trace, step: int | None) -> None:
        self._network, self._trace, self._step = network, trace, step
        self._sizes = {each.place: each for each in trace.sizes()}
        self._seconds = time_sub_layers(network, trace)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows in the order of computation."""
        lines: list[TracedTensor] = []
        for entry in self._trace.entries.values():
            lines.append(entry)
            site, _, end = entry.name.rpartition(".")
            if site in self._sizes and end == "output":
                yield self._sub_layer_row(site, lines)
            elif end in ("residual", "norm", "input", "output", "logits", "probabilities"):
                yield self._operation_row(entry, lines)
            else:
                continue
            lines = []

    def _sub_layer_row(self, site: str, lines: Sequence[TracedTensor]) -> dict[str, Any]:
        is_attention = f"{site}.queries" in self._trace
        formula, text, english, chinese = ATTENTION if is_attention else FEED_FORWARD
        if f"{site}.cells" in self._trace:
            formula, text, english, chinese = RECURRENCE
        if is_attention:
            text = text.replace("QKᵀ/√d_k", self._score_formula(site, "QKᵀ", "√d_k"))
        made, before = self._trace[f"{site}.output"], _sub_layer_input(self._network, self._trace, site)
        numbers = {
            "formula": formula,
            "text": text,
            "bound": self._bind_sub_layer(site, is_attention),
            "explain": {"en": english, "zh": chinese},
            **self._shapes_and_norms(site, before, made),
            "share": self._share(self._sizes[site]),
            "gain": None,
            "microseconds": 1e6 * self._seconds[site],
        }
        return self._make_row(site, lines[-1], lines, numbers)

    def _score_formula(self, site: str, products: str, root: str) -> str:
        """Return the formula of the scores: their scale, and the biases of relative positions."""
        scale = self._network.config.attention_scale
        scaled = f"{products}/{root}" if scale is None else f"{scale:g}·{products}"
        return f"{scaled} + U" if f"{site}.bias" in self._trace else scaled

    def _operation_row(self, entry: TracedTensor, lines: Sequence[TracedTensor]) -> dict[str, Any]:
        """Build the row of a single formula: a residual sum, a norm, an input, the logits or the probabilities."""
        site, _, end = entry.name.rpartition(".")
        before = self._operation_input(entry.name)
        sizes = self._sizes.get(site) if end == "residual" else None
        formula = find_formula(entry)
        numbers = {
            "formula": formula_id(formula),
            "text": formula.render(entry.letter),
            "bound": bind_formula(entry),
            "explain": {"en": formula.en, "zh": formula.zh},
            **self._shapes_and_norms(entry.name, before, entry.value),
            "share": None if sizes is None else self._share(sizes),
            "gain": self._gain(entry.name),
            "microseconds": 1e6 * self._seconds["output"] if entry.name == "output.logits" else None,
        }
        return self._make_row(entry.name, entry, lines, numbers)

    def _make_row(
        self, name: str, last: TracedTensor, lines: Sequence[TracedTensor], numbers: dict[str, Any]
    ) -> dict[str, Any]:
        stack = name.partition(".")[0]
        part = {"source": "encoder", "target": "decoder"}.get(stack, stack)
        steps = [self._formula_step(each) for each in lines]
        return {"name": name, "part": part, **numbers, "values": self._preview(last), "steps": steps}

    def _formula_step(self, entry: TracedTensor) -> dict[str, Any]:
        formula = find_formula(entry)
        symbols = {language: explain_symbols(formula, language) for language in LANGUAGES}
        return {
            "name": entry.name,
            "formula": formula_id(formula),
            "formula_name": formula.name,
            "text": formula.render(entry.letter),
            "bound": bind_formula(entry),
            "explain": {"en": formula.en, "zh": formula.zh},
            "symbols": symbols,
            "shape": list(entry.shape),
            "values": self._preview(entry),
        }

    def _preview(self, entry: TracedTensor) -> dict[str, Any]:
        value = self._select_step(entry.name, entry.value)
        first = value.flatten()[:MAX_SHOWN_NUMBERS].tolist()
        rounded = [round(each, DIGITS) for each in first]
        return {"shape": list(value.shape), "numbers": rounded, "cut": value.numel() > MAX_SHOWN_NUMBERS}

    def _shapes_and_norms(self, name: str, before: Tensor | None, after: Tensor) -> dict[str, Any]:
        """Return the shapes and the mean Euclidean norm of the token vectors."""
        input_fields: dict[str, Any] = {"shape_in": None, "norm_in": None}
        if before is not None:
            chosen = self._select_step(name, before)
            input_fields = {"shape_in": list(before.shape), "norm_in": float(chosen.float().norm(dim=-1).mean())}
        length = float(self._select_step(name, after).float().norm(dim=-1).mean())
        return {**input_fields, "shape_out": list(after.shape), "norm_out": length}

    def _select_step(self, name: str, value: Tensor) -> Tensor:
        if self._step is None or name.partition(".")[0] in ("encoder", "source") or value.dim() < 2:
            return value
        keys = name.endswith((".keys", ".values", ".turned_keys"))
        return value if keys or value.size(-2) != len(self._trace.target_pieces) else value[..., self._step, :]

    def _operation_input(self, name: str) -> Tensor | None:
        """Return the input of the operation with this name."""
        trace, (site, _, end) = self._trace, name.rpartition(".")
        match end:
            case "residual":
                return trace[name] - trace[f"{site}.output"]
            case "norm" if self._network.config.norm == "post":
                return trace[f"{site}.residual"]
            case "norm":
                return trace[f"{site}.residual"] - trace[f"{site}.output"]
            case "output":
                layers = len(self._network.encoder if site == "encoder" else self._network.decoder)
                last = f"{site}.{layers - 1}.feed_forward"
                return trace[f"{last}.residual" if self._network.config.norm == "pre" else f"{last}.norm"]
            case "input":
                return trace[f"{site}.embedding"]
            case "logits":
                return trace.get("output.scaled", trace["decoder.output"])
            case _:
                return trace["output.logits"]

    def _share(self, sizes: SubLayerSizes) -> float:
        """Return the sub-layer's share of the residual sum: ‖Sublayer(x)‖ / (‖x‖ + ‖Sublayer(x)‖)."""
        if self._step is None or sizes.place.startswith("encoder"):
            return sizes.share
        made = self._trace[f"{sizes.place}.output"][self._step]
        before = self._trace[f"{sizes.place}.residual"][self._step] - made
        return float(made.norm() / (before.norm() + made.norm()).clamp(min=1e-12))

    def _gain(self, name: str) -> float | None:
        """Return the mean gain of a norm, or None if the operation has no norm."""
        module = _find_norm(self._network, name)
        return None if module is None else float(module.weight.detach().float().mean())

    def _bind_sub_layer(self, site: str, is_attention: bool) -> str:
        trace = self._trace
        if is_attention:
            queries, keys, values = (list(trace[f"{site}.{name}"].shape) for name in ("queries", "keys", "values"))
            heads, width = queries[0], queries[2]
            query_shape, key_shape, value_shape = (
                format_shape(queries[1:]),
                format_shape([width, keys[1]]),
                format_shape(values[1:]),
            )
            head_shape = format_shape([queries[1], values[2]])
            scores = self._score_formula(site, f"{query_shape}·{key_shape}", f"√{width}")
            return (
                f"softmax({scores})·{value_shape} → {head_shape} × {heads} → "
                f"{format_shape(trace[f'{site}.output'].shape)}"
            )
        inner = ("cells",) if f"{site}.cells" in trace else ("inner", "bent")
        made = [trace[f"{site}.{each}"] for each in (*inner, "output")]
        shapes = [each.shape for each in (_sub_layer_input(self._network, trace, site), *made)]
        return " → ".join(map(format_shape, shapes))


def _find_norm(network: Transformer, name: str) -> nn.LayerNorm | nn.RMSNorm | None:
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


def formula_id(formula: Formula) -> str:
    """Return the formula's first specification id. User changes, such as a scaled head, have an empty id."""
    return formula.spec_ids[0] if formula.spec_ids else ""


def _sub_layer_input(network: Transformer, trace: Trace, site: str) -> Tensor:
    """Return the input of a sub-layer: the normalised vectors with pre-norm."""
    if network.config.norm == "pre":
        return trace[f"{site}.norm"]
    return trace[f"{site}.residual"] - trace[f"{site}.output"]


@torch.inference_mode()
def time_sub_layers(network: Transformer, trace: Trace) -> dict[str, float]:
    """Measure seconds per sub-layer, by name. `output` is the output projection to the logits."""
    assert network.source is not None
    seconds: dict[str, float] = {}

    def measure(name: str, work: Callable[[Tensor], object], vectors: Tensor) -> None:
        x = vectors[None].to(network.output.weight)
        seconds[name] = min(_measure_seconds(lambda: work(x), network.device) for _ in range(REPEATS))

    memory = trace["encoder.output"][None].to(network.output.weight)
    causal = Mask(causal=trace.masked and len(trace.target_pieces) > 1)
    with eval_mode(network):
        for stack, blocks, embedding, mask in (
            ("encoder", network.encoder, network.source, Mask()),
            ("decoder", network.decoder, network.target, causal),
        ):
            first = _sub_layer_input(network, trace, f"{stack}.0.self")
            x, positions = first[None].to(network.output.weight), embedding.positions
            rotation, masks = (
                positions.rotation(x, 0),
                layer_masks(mask, positions.biases(x, 0, x.size(1)), len(blocks)),
            )
            for n, block in enumerate(blocks):
                assert isinstance(block, EncoderBlock | DecoderBlock)
                work: dict[str, Callable[[Tensor], object]] = {"feed_forward": block.feed_forward}
                if isinstance(block, DecoderBlock) and block.recurrence is not None:
                    work["self"] = partial(block.recurrence, past=None, mask=masks[n])
                else:
                    work["self"] = partial(_attend_to_self, block.self_attention, masks[n], rotation)
                if isinstance(block, DecoderBlock):
                    assert block.cross_attention is not None  # not decoder-only
                    work["cross"] = partial(_attend_to_memory, block.cross_attention, memory)
                for kind, call in work.items():
                    site = f"{stack}.{n}.{kind}"
                    measure(site, call, _sub_layer_input(network, trace, site))
        measure("output", network.output, trace.get("output.scaled", trace["decoder.output"]))
    return seconds


def _attend_to_self(attention: MultiHeadAttention, mask: Mask, rotation: Rotation | None, x: Tensor) -> Tensor:
    queries, kv = attention.queries_keys_values(x, rotation)
    return attention(queries, kv, mask)


def _attend_to_memory(attention: MultiHeadAttention, memory: Tensor, x: Tensor) -> Tensor:
    """Attend to the encoder's output. Its keys and values are included, which are computed once per sentence."""
    return attention(attention.queries(x), attention.keys_values(memory), Mask())


def _measure_seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
