"""Table of the operations of a forward pass: formula, shapes, norms, values and time."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attendo.explore.formulas.catalogue import bound, formula_of, symbols_of
from attendo.explore.formulas.formula import Formula, shape
from attendo.explore.i18n import LANGUAGES
from attendo.model.trace_layers import Traced
from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues, MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.masks import Mask
from attendo.nn.positions import Rotation
from attendo.text_model.search_setup import evaluating
from attendo.text_model.trace import SubLayerSizes, Trace

NUMBERS = 64  # of a tensor that are shown
DIGITS = 4
# Sub-layers as the texts write them; the lines that they are made of come with the row.
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
REPEATS = 3  # the quickest counts: anything else on the machine only adds


class LedgerBook:
    """Writes the rows. `step`: of the decoder only the row that predicts this token."""

    def __init__(self, network: Transformer, trace: Trace, step: int | None) -> None:
        self._network, self._trace, self._step = network, trace, step
        self._sizes = {each.place: each for each in trace.sizes()}
        self._seconds = sub_layer_seconds(network, trace)

    def rows(self) -> Iterator[dict[str, Any]]:
        """In the order of the calculation."""
        lines: list[Traced] = []
        for entry in self._trace.entries.values():
            lines.append(entry)
            place, _, end = entry.name.rpartition(".")
            if place in self._sizes and end == "output":
                yield self._sub_layer(place, lines)
            elif end in ("residual", "norm", "input", "output", "logits", "probabilities"):
                yield self._line(entry, lines)
            else:
                continue
            lines = []

    def _sub_layer(self, place: str, lines: Sequence[Traced]) -> dict[str, Any]:
        is_attention = not place.endswith("feed_forward")
        formula, text, english, chinese = ATTENTION if is_attention else FEED_FORWARD
        made, before = self._trace[f"{place}.output"], self._given(place)
        numbers = {
            "formula": formula,
            "text": text,
            "bound": self._bound(place, is_attention),
            "explain": {"en": english, "zh": chinese},
            **self._lengths(place, before, made),
            "share": self._share(self._sizes[place]),
            "gain": None,
            "microseconds": 1e6 * self._seconds[place],
        }
        return self._row(place, lines[-1], lines, numbers)

    def _line(self, entry: Traced, lines: Sequence[Traced]) -> dict[str, Any]:
        """A sum, a norm, an input, the logits: one formula of the catalogue."""
        place, _, end = entry.name.rpartition(".")
        before = self._before(entry.name)
        sizes = self._sizes.get(place) if end == "residual" else None
        formula = formula_of(entry)
        numbers = {
            "formula": row_of(formula),
            "text": formula.written(entry.letter),
            "bound": bound(entry),
            "explain": {"en": formula.en, "zh": formula.zh},
            **self._lengths(entry.name, before, entry.value),
            "share": None if sizes is None else self._share(sizes),
            "gain": self._gain(entry.name),
            "microseconds": 1e6 * self._seconds["output"] if entry.name == "output.logits" else None,
        }
        return self._row(entry.name, entry, lines, numbers)

    def _row(self, name: str, last: Traced, lines: Sequence[Traced], numbers: dict[str, Any]) -> dict[str, Any]:
        stack = name.partition(".")[0]
        part = {"source": "encoder", "target": "decoder"}.get(stack, stack)
        steps = [self._written(each) for each in lines]
        return {"name": name, "part": part, **numbers, "values": self._values(last), "steps": steps}

    def _written(self, entry: Traced) -> dict[str, Any]:
        formula = formula_of(entry)
        symbols = {language: symbols_of(formula, language) for language in LANGUAGES}
        return {
            "name": entry.name,
            "formula": row_of(formula),
            "formula_name": formula.name,
            "text": formula.written(entry.letter),
            "bound": bound(entry),
            "explain": {"en": formula.en, "zh": formula.zh},
            "symbols": symbols,
            "shape": list(entry.shape),
            "values": self._values(entry),
        }

    def _values(self, entry: Traced) -> dict[str, Any]:
        value = self._chosen(entry.name, entry.value)
        first = value.flatten()[:NUMBERS].tolist()
        rounded = [round(each, DIGITS) for each in first]
        return {"shape": list(value.shape), "numbers": rounded, "cut": value.numel() > NUMBERS}

    def _lengths(self, name: str, before: Tensor | None, after: Tensor) -> dict[str, Any]:
        """Euclidean lengths of the vectors, as a mean over the tokens."""
        told: dict[str, Any] = {"shape_in": None, "norm_in": None}
        if before is not None:
            chosen = self._chosen(name, before)
            told = {"shape_in": list(before.shape), "norm_in": float(chosen.float().norm(dim=-1).mean())}
        length = float(self._chosen(name, after).float().norm(dim=-1).mean())
        return {**told, "shape_out": list(after.shape), "norm_out": length}

    def _chosen(self, name: str, value: Tensor) -> Tensor:
        if self._step is None or name.partition(".")[0] in ("encoder", "source") or value.dim() < 2:
            return value
        keys = name.endswith((".keys", ".values", ".turned_keys"))
        return value if keys or value.size(-2) != len(self._trace.target_pieces) else value[..., self._step, :]

    def _given(self, place: str) -> Tensor:
        if self._network.config.norm == "pre":
            return self._trace[f"{place}.norm"]
        return self._trace[f"{place}.residual"] - self._trace[f"{place}.output"]

    def _before(self, name: str) -> Tensor | None:
        """What a sum or a norm was given."""
        trace, (place, _, end) = self._trace, name.rpartition(".")
        match end:
            case "residual":
                return trace[name] - trace[f"{place}.output"]
            case "norm" if self._network.config.norm == "post":
                return trace[f"{place}.residual"]
            case "norm":
                return trace[f"{place}.residual"] - trace[f"{place}.output"]
            case "output":
                layers = len(self._network.encoder if place == "encoder" else self._network.decoder)
                last = f"{place}.{layers - 1}.feed_forward"
                return trace[f"{last}.residual" if self._network.config.norm == "pre" else f"{last}.norm"]
            case "input":
                return trace[f"{place}.embedding"]
            case "logits":
                return trace["decoder.output"]
            case _:
                return trace["output.logits"]

    def _share(self, sizes: SubLayerSizes) -> float:
        """How much of what goes on the sub-layer made: ‖Sublayer(x)‖ / (‖x‖ + ‖Sublayer(x)‖)."""
        if self._step is None or sizes.place.startswith("encoder"):
            return sizes.share
        made = self._trace[f"{sizes.place}.output"][self._step]
        before = self._trace[f"{sizes.place}.residual"][self._step] - made
        return float(made.norm() / (before.norm() + made.norm()).clamp(min=1e-12))

    def _gain(self, name: str) -> float | None:
        """The mean of a norm's gain."""
        module = _norm_of(self._network, name)
        return None if module is None else float(module.weight.detach().float().mean())

    def _bound(self, place: str, is_attention: bool) -> str:
        trace = self._trace
        if is_attention:
            queries, keys, values = (list(trace[f"{place}.{name}"].shape) for name in ("queries", "keys", "values"))
            heads, width = queries[0], queries[2]
            asked, told, given = shape(queries[1:]), shape([width, keys[1]]), shape(values[1:])
            made = shape([queries[1], values[2]])
            return (
                f"softmax({asked}·{told}/√{width})·{given} → {made} × {heads} → {shape(trace[f'{place}.output'].shape)}"
            )
        given, inner, bent, made = (
            shape(each.shape)
            for each in (self._given(place), trace[f"{place}.inner"], trace[f"{place}.bent"], trace[f"{place}.output"])
        )
        return f"{given} → {inner} → {bent} → {made}"


def _norm_of(network: Transformer, name: str) -> nn.LayerNorm | nn.RMSNorm | None:
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


def row_of(formula: Formula) -> str:
    """Its first row in the list of what must be seen; what a person changes, such as a scaled head, has none."""
    return formula.rows[0] if formula.rows else ""


@torch.inference_mode()
def sub_layer_seconds(network: Transformer, trace: Trace) -> dict[str, float]:
    """By the place of each sub-layer; `output` is the product that gives the logits."""
    assert network.source is not None
    found: dict[str, float] = {}

    def given(place: str) -> Tensor:
        """What a sub-layer was given: with pre-norm the normalised vectors."""
        pre_norm = network.config.norm == "pre"
        vectors = trace[f"{place}.norm"] if pre_norm else trace[f"{place}.residual"] - trace[f"{place}.output"]
        return vectors[None].to(network.output.weight)

    def measure(place: str, work: Callable[[], object]) -> None:
        found[place] = min(_seconds(work, network.device) for _ in range(REPEATS))

    with evaluating(network):
        x, y = given("encoder.0.self"), given("decoder.0.self")
        turns = network.source.positions.rotation(x, 0), network.target.positions.rotation(y, 0)
        memory = trace["encoder.output"][None].to(network.output.weight)
        for n, block in enumerate(network.encoder):
            assert isinstance(block, EncoderBlock)
            place = f"encoder.{n}.self"
            measure(place, _look(block.self_attention, given(place), Mask(), turns[0]))
            _feed(measure, f"encoder.{n}.feed_forward", block, given)
        for n, block in enumerate(network.decoder):
            assert isinstance(block, DecoderBlock)
            assert block.cross_attention is not None  # a text model has a source
            place = f"decoder.{n}.self"
            mask = Mask(causal=trace.masked and y.size(1) > 1)
            measure(place, _look(block.self_attention, given(place), mask, turns[1]))
            # The keys and values of the memory are made once a sentence, and counted here.
            measure(f"decoder.{n}.cross", _look_at(block.cross_attention, given(f"decoder.{n}.cross"), memory))
            _feed(measure, f"decoder.{n}.feed_forward", block, given)
        last = trace["decoder.output"][None].to(network.output.weight)
        measure("output", lambda: network.output(last))
    return found


def _look(part: MultiHeadAttention, x: Tensor, mask: Mask, rotation: Rotation | None) -> Callable[[], object]:
    def work() -> object:
        queries, kv = part.queries_keys_values(x, rotation)
        return part(queries, kv, mask)

    return work


def _look_at(part: MultiHeadAttention, x: Tensor, memory: Tensor) -> Callable[[], object]:
    def work() -> object:
        kv: KeysValues = part.keys_values(memory)
        return part(part.queries(x), kv, Mask())

    return work


def _feed(
    measure: Callable[[str, Callable[[], object]], None],
    place: str,
    block: EncoderBlock | DecoderBlock,
    given: Callable[[str], Tensor],
) -> None:
    vectors = given(place)
    measure(place, lambda: block.feed_forward(vectors))


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
