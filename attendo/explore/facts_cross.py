"""Facts about the decoder's look at the source, with the numbers of a run."""

import math

from attendo.explore.fact_numbers import row_of, value_width
from attendo.explore.formula import Formula, shape
from attendo.text_model import Trace


def _memory(trace: Trace) -> str:
    if trace.config.decoder_only:
        return ""
    return f"Z : {shape(trace['encoder.output'].shape)} → {trace.config.num_decoder_layers} × (K, V)"


def _rectangular(trace: Trace) -> str:
    return "" if trace.config.decoder_only else f"[{len(trace.target_pieces)}, {len(trace.source_pieces)}]"


def _own_matrices(trace: Trace) -> str:
    layers = trace.config.num_decoder_layers
    return "" if trace.config.decoder_only else f"{layers} × (W_Q, W_K, W_V) = {3 * layers}"


def _cached(trace: Trace) -> str:
    config, source = trace.config, len(trace.source_pieces)
    if config.decoder_only:
        return ""
    sizes = config.num_decoder_layers, source, config.num_heads, config.head_width + value_width(trace)
    return f"{'·'.join(map(str, sizes))} = {math.prod(sizes):,}"


def _alignment(trace: Trace) -> str:
    """Of the last layer that was kept, the mean of its heads."""
    if not trace.cross.size(0):
        return ""
    best = trace.cross[-1].mean(dim=0).argmax(dim=-1).tolist()
    pairs = [f"{piece} ← {trace.source_pieces[at]}" for piece, at in zip(trace.target_pieces, best, strict=True)]
    return ", ".join(pairs[:8]) + (" …" if len(pairs) > 8 else "")


def _walk(trace: Trace) -> str:
    """One row of one head: scores, weights."""
    if not trace.cross.size(0):
        return ""
    site = f"decoder.{trace.decoder_layers[-1]}.cross"
    scores, weights = (trace[f"{site}.{name}"][0, 0].tolist()[:4] for name in ("scores", "weights"))
    return f"{trace.target_pieces[0]}: softmax({row_of(scores)} …) = ({row_of(weights)} …)"


def _no_cross(trace: Trace) -> str:
    return "SA → FFN" if trace.config.decoder_only else ""


CROSS_FACTS: tuple[Formula, ...] = (
    Formula(
        "memory",
        ("F1",),
        "Q = Y·W_Q, K = Z·W_K, V = Z·W_V",
        "Queries come from the decoder, keys and values from the encoder's last layer, the same for all of its layers.",
        "查询来自解码器，键和值来自编码器最后一层；所有解码层共用同一份记忆。",
        "Y Z",
        numbers=_memory,
    ),
    Formula(
        "rectangular",
        ("F2",),
        "S : [m, n]",
        "Source and target need not be of the same length.",
        "源句和目标句不必等长。",
        "m n",
        numbers=_rectangular,
    ),
    Formula(
        "own_matrices",
        ("F3",),
        "W_Qˡ, W_Kˡ, W_Vˡ, l = 1 … N",
        "Every decoder layer looks at the source through matrices of its own.",
        "每个解码层都用自己的矩阵去看源句。",
        numbers=_own_matrices,
    ),
    Formula(
        "memory_cached",
        ("F4",),
        "Kˡ = Z·W_Kˡ, Vˡ = Z·W_Vˡ",
        "The source does not change while the target grows: its keys and values are made once and kept.",
        "生成过程中源句不变，它的键和值只算一次，存起来反复用。",
        "Z",
        numbers=_cached,
    ),
    Formula(
        "alignment",
        ("F5",),
        "a(t) = argmax_j A[t, j]",
        "Where a row looks most is a soft alignment; the row is that of the token being predicted.",
        "每一行看得最多的位置就是软对齐；行标签是正要预测的词元。",
        "A",
        numbers=_alignment,
    ),
    Formula(
        "walk",
        ("F6",),
        "softmax(q·k₁/√d_k, q·k₂/√d_k …) → ∑ Aⱼ·vⱼ",
        "One query meets all keys of the source, and its weights mix the values.",
        "一个查询与源句所有的键比较，再用得到的权重混合它们的值。",
        "d_k A",
        numbers=_walk,
    ),
    Formula(
        "no_cross",
        ("F7",),
        "Z = ∅",
        "A decoder-only network has no source and leaves this sub-layer out.",
        "仅解码器的模型没有源句，也就没有这个子层。",
        "Z",
        numbers=_no_cross,
    ),
)
