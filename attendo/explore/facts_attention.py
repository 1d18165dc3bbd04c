"""Facts about attention, with the numbers of a run."""

from attendo.explore.fact_numbers import keys_of, queries_of, site_of, value_width
from attendo.explore.formula import Formula, shape
from attendo.text_model import Trace


def _fused(trace: Trace) -> str:
    config = trace.config
    width = config.num_heads * (2 * config.head_width + value_width(trace))
    return f"[{len(trace.target_pieces)}, {config.d_model}]·[{config.d_model}, {width}]"


def _variance(trace: Trace) -> str:
    site = site_of(trace)
    before, after = (float(trace[f"{site}.{name}"].var(correction=0)) for name in ("products", "scores"))
    return f"{site}: var(Q·Kᵀ) = {before:.3g} → var(S) = {after:.3g}"


def _jacobian(trace: Trace) -> str:
    weights = trace[f"{site_of(trace)}.weights"].flatten()
    unsure, sure = float(weights[(weights - 0.5).abs().argmin()]), float(weights.max())
    return ", ".join(f"y = {each:.4f}: y(1 − y) = {each * (1 - each):.4f}" for each in (unsure, sure))


def _low_rank(trace: Trace) -> str:
    d_model, width = trace.config.d_model, trace.config.head_width
    return f"rank ≤ {width}: 2·{d_model}·{width} = {2 * d_model * width:,}, {d_model}² = {d_model**2:,}"


def _cosine(trace: Trace) -> str:
    site = site_of(trace)
    query, key = queries_of(trace, site)[0, 0], keys_of(trace, site)[0, 0]
    product, (first, second) = float(query @ key), (float(query.norm()), float(key.norm()))
    return f"{product:.3g} = {first:.3g} · {second:.3g} · {product / max(first * second, 1e-12):.3f}"


def _one_head(trace: Trace) -> str:
    site = site_of(trace)
    queries, keys = queries_of(trace, site)[0], keys_of(trace, site)[0]
    return f"{shape(queries.shape)}·{shape(keys.mT.shape)} = [{queries.size(0)}, {keys.size(0)}]"


ATTENTION_FACTS: tuple[Formula, ...] = (
    Formula(
        "fused_projection",
        ("C2",),
        "[Q K V] = X·[W_Q W_K W_V]",
        "The three products of self-attention are one with a wider matrix, cut apart afterwards.",
        "自注意力的三次投影可以合成一次大矩阵乘法，再切成三块。",
        "Q K V",
        numbers=_fused,
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
