"""Facts about attention, cross-attention and heads, with the numbers of a trace."""

import math

import torch

from attendo.explore.formulas.formula import (
    Formula,
    entropies,
    format_row,
    format_shape,
    get_keys,
    get_queries,
    last_attention_site,
    value_width,
)
from attendo.model.head_scaling import sites
from attendo.text_model import Trace


def _fused_projection(trace: Trace) -> str:
    config = trace.config
    width = config.num_heads * (2 * config.head_width + value_width(trace))
    return f"[{len(trace.target_pieces)}, {config.d_model}]·[{config.d_model}, {width}]"


def _variance(trace: Trace) -> str:
    site = last_attention_site(trace)
    before, after = (float(trace[f"{site}.{name}"].var(correction=0)) for name in ("products", "scores"))
    return f"{site}: var(Q·Kᵀ) = {before:.3g} → var(S) = {after:.3g}"


def _jacobian(trace: Trace) -> str:
    weights = trace[f"{last_attention_site(trace)}.weights"].flatten()
    unsure, sure = float(weights[(weights - 0.5).abs().argmin()]), float(weights.max())
    return ", ".join(f"y = {each:.4f}: y(1 − y) = {each * (1 - each):.4f}" for each in (unsure, sure))


def _low_rank(trace: Trace) -> str:
    d_model, width = trace.config.d_model, trace.config.head_width
    return f"rank ≤ {width}: 2·{d_model}·{width} = {2 * d_model * width:,}, {d_model}² = {d_model**2:,}"


def _cosine(trace: Trace) -> str:
    site = last_attention_site(trace)
    query, key = get_queries(trace, site)[0, 0], get_keys(trace, site)[0, 0]
    product, (first, second) = float(query @ key), (float(query.norm()), float(key.norm()))
    return f"{product:.3g} = {first:.3g} · {second:.3g} · {product / max(first * second, 1e-12):.3f}"


def _one_head(trace: Trace) -> str:
    site = last_attention_site(trace)
    queries, keys = get_queries(trace, site)[0], get_keys(trace, site)[0]
    return f"{format_shape(queries.shape)}·{format_shape(keys.mT.shape)} = [{queries.size(0)}, {keys.size(0)}]"


ATTENTION_FACTS: tuple[Formula, ...] = (
    Formula(
        "fused_projection",
        ("C2",),
        "[Q K V] = X·[W_Q W_K W_V]",
        "The three products of self-attention are one with a wider matrix, cut apart afterwards.",
        "自注意力的三次投影可以合成一次大矩阵乘法，再切成三块。",
        "Q K V",
        numbers=_fused_projection,
    ),
    Formula(
        "variance",
        ("C4",),
        "var(q·k) ≈ d_k · var(S)",
        "Products of long vectors spread widely; divided by √d_k their variance is d_k times smaller.",
        "向量越长点积越分散；除以 √d_k 后方差缩小到 1/d_k。",
        "d_k",
        numbers=_variance,
    ),
    Formula(
        "jacobian",
        ("C5",),
        "∂yᵢ/∂xᵢ = yᵢ(1 − yᵢ), ∂yᵢ/∂xⱼ = −yᵢyⱼ",
        "Where a softmax is sure, its gradient is next to nothing.",
        "softmax 越接近独热，梯度越接近 0（饱和）。",
        numbers=_jacobian,
    ),
    Formula(
        "low_rank",
        ("C6",),
        "q·k = x·(W_Q·W_Kᵀ)·xᵀ, rank ≤ d_k",
        "A head compares two vectors by a matrix of low rank, kept as two thin ones.",
        "每个头用一个低秩矩阵比较两个向量，并拆成两个瘦矩阵存放。",
        "W_Q W_K d_k",
        numbers=_low_rank,
    ),
    Formula(
        "cosine",
        ("C7",),
        "q·k = ‖q‖ · ‖k‖ · cos",
        "Unlike the cosine, a product also grows with the lengths, so that a token can be loud.",
        "与余弦不同，点积还随向量长度变化，所以某个词元可以“更响亮”。",
        numbers=_cosine,
    ),
    Formula(
        "one_head",
        ("C8",),
        "[L, d_k]·[d_k, L] = [L, L]",
        "One head alone gives a square of scores: each position against each.",
        "单独一个头给出一张分数方阵：每个位置对每个位置。",
        "d_k",
        numbers=_one_head,
    ),
)


def _memory(trace: Trace) -> str:
    if trace.config.decoder_only:
        return ""
    return f"Z : {format_shape(trace['encoder.output'].shape)} → {trace.config.num_decoder_layers} × (K, V)"


def _cross_attention_shape(trace: Trace) -> str:
    return "" if trace.config.decoder_only else f"[{len(trace.target_pieces)}, {len(trace.source_pieces)}]"


def _layer_matrices(trace: Trace) -> str:
    layers = trace.config.num_decoder_layers
    return "" if trace.config.decoder_only else f"{layers} × (W_Q, W_K, W_V) = {3 * layers}"


def _memory_cache_size(trace: Trace) -> str:
    config, source = trace.config, len(trace.source_pieces)
    if config.decoder_only:
        return ""
    sizes = config.num_decoder_layers, source, config.num_heads, config.head_width + value_width(trace)
    return f"{'·'.join(map(str, sizes))} = {math.prod(sizes):,}"


def _alignment(trace: Trace) -> str:
    """Argmax alignment by the mean of the heads of the last traced layer."""
    if not trace.cross.size(0):
        return ""
    best = trace.cross[-1].mean(dim=0).argmax(dim=-1).tolist()
    pairs = [f"{piece} ← {trace.source_pieces[at]}" for piece, at in zip(trace.target_pieces, best, strict=True)]
    return ", ".join(pairs[:8]) + (" …" if len(pairs) > 8 else "")


def _attention_row(trace: Trace) -> str:
    """Scores and weights of one row of one head."""
    if not trace.cross.size(0):
        return ""
    site = f"decoder.{trace.decoder_layers[-1]}.cross"
    scores, weights = (trace[f"{site}.{name}"][0, 0].tolist()[:4] for name in ("scores", "weights"))
    return f"{trace.target_pieces[0]}: softmax({format_row(scores)} …) = ({format_row(weights)} …)"


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
        numbers=_cross_attention_shape,
    ),
    Formula(
        "own_matrices",
        ("F3",),
        "W_Qˡ, W_Kˡ, W_Vˡ, l = 1 … N",
        "Every decoder layer looks at the source through matrices of its own.",
        "每个解码层都用自己的矩阵去看源句。",
        numbers=_layer_matrices,
    ),
    Formula(
        "memory_cached",
        ("F4",),
        "Kˡ = Z·W_Kˡ, Vˡ = Z·W_Vˡ",
        "The source does not change while the target grows: its keys and values are made once and kept.",
        "生成过程中源句不变，它的键和值只算一次，存起来反复用。",
        "Z",
        numbers=_memory_cache_size,
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
        numbers=_attention_row,
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


def _head_width(trace: Trace) -> str:
    config = trace.config
    if config.d_key or config.d_value:
        return f"d_k = {config.head_width}, d_v = {value_width(trace)}"
    return f"{config.d_model} / {config.num_heads} = {config.head_width}"


def _head_matrices(trace: Trace) -> str:
    config, width = trace.config, value_width(trace)
    keys = f"W_Q, W_K : [{config.d_model}, {config.head_width}]"
    values = f"W_V : [{config.d_model}, {width}]"
    return f"{config.num_heads} × ({keys}; {values}); W_O : [{config.num_heads * width}, {config.d_model}]"


def _shape_path(trace: Trace) -> str:
    config, length = trace.config, len(trace.target_pieces)
    heads, width = config.num_heads, config.head_width
    whole, cut, moved = (1, length, config.d_model), (1, length, heads, width), (1, heads, length, width)
    return " → ".join(format_shape(each) for each in (whole, cut, moved, whole))


def _batched_product(trace: Trace) -> str:
    site = last_attention_site(trace)
    queries, keys = get_queries(trace, site), get_keys(trace, site).mT
    heads = queries.size(0)
    return (
        f"{format_shape(queries.shape)}·{format_shape(keys.shape)} = {heads} × "
        f"({format_shape(queries.shape[1:])}·{format_shape(keys.shape[1:])})"
    )


def _strides(trace: Trace) -> str:
    config = trace.config
    whole = torch.empty(len(trace.target_pieces), config.num_heads, config.head_width)
    return f"strides {format_shape(whole.stride())} → {format_shape(whole.transpose(0, 1).stride())}"


def _loop(trace: Trace) -> str:
    site = last_attention_site(trace)
    weights, values, mixed = (trace[f"{site}.{name}"] for name in ("weights", "values", "mixed"))
    if trace.heads.get(site):
        return ""
    one_by_one = torch.stack([weights[head] @ values[head] for head in range(weights.size(0))])
    return f"max |loop − batch| = {float((one_by_one - mixed).abs().max()):.1e}"


def _head_entropies(trace: Trace) -> str:
    site = last_attention_site(trace)
    told = ", ".join(f"{each:.2f}" for each in entropies(trace[f"{site}.weights"]).tolist()[:8])
    return f"{site}: {told}"


def _one_class(trace: Trace) -> str:
    return f"{len(sites(trace.config))} × (W_Q, W_K, W_V, W_O)"


HEAD_FACTS: tuple[Formula, ...] = (
    Formula(
        "head_width",
        ("D1",),
        "d_k = d_v = d_model / h",
        "The heads share the width of the model between them.",
        "各头平分模型维度。",
        "d_k d_v d_model h",
        numbers=_head_width,
    ),
    Formula(
        "head_matrices",
        ("D2",),
        "headᵢ = Attention(X·W_Qⁱ, X·W_Kⁱ, X·W_Vⁱ)",
        "Every head has matrices of its own.",
        "每个头都有自己的投影矩阵。",
        "head",
        numbers=_head_matrices,
    ),
    Formula(
        "shape_path",
        ("D4",),
        "[B, L, d] → [B, L, h, d_k] → [B, h, L, d_k] → [B, L, d]",
        "The width is cut into heads, the heads go before the positions, and at the end all is joined again.",
        "先把维度切成多头，再把头放到位置之前，最后拼回原状。",
        "B h d_k",
        numbers=_shape_path,
    ),
    Formula(
        "batched_product",
        ("D5",),
        "[h, L, d_k]·[h, d_k, L] = h × ([L, d_k]·[d_k, L])",
        "A product of tensors with more axes is many products of matrices side by side.",
        "高维张量的矩阵乘法，就是并排做很多次二维乘法。",
        numbers=_batched_product,
    ),
    Formula(
        "strides",
        ("D6",),
        "view / reshape",
        "Swapping axes only changes strides; before the heads can be viewed as one width they are copied.",
        "交换维度只改变步长，内存不再连续；合并各头之前必须复制一次（reshape）。",
        numbers=_strides,
    ),
    Formula(
        "loop",
        ("D7",),
        "headᵢ = Aᵢ·Vᵢ, i = 1 … h",
        "Head after head in a loop comes to the same.",
        "用循环逐头计算，结果一样。",
        "head h",
        numbers=_loop,
    ),
    Formula(
        "roles",
        ("D8",),
        "H(A) = −∑ A log A",
        "Heads differ: a low entropy is a look at one place, a high one a look around.",
        "各头分工不同：熵低表示盯着一处，熵高表示环顾四周。",
        "A",
        numbers=_head_entropies,
    ),
    Formula(
        "one_class",
        ("D10",),
        "Attention(Q, K, V)",
        "Self-attention and attention to the source are the same operation on other inputs.",
        "自注意力和交叉注意力是同一个运算，只是输入不同。",
        "Q K V",
        numbers=_one_class,
    ),
)
