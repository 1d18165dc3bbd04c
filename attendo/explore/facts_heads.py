"""Facts about heads, with the numbers of a run."""

import torch

from attendo.explore.fact_numbers import entropies, keys_of, queries_of, site_of, value_width
from attendo.explore.formula import Formula, shape
from attendo.model.heads import sites
from attendo.text_model import Trace


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
    return " → ".join(shape(each) for each in (whole, cut, moved, whole))


def _batched(trace: Trace) -> str:
    site = site_of(trace)
    queries, keys = queries_of(trace, site), keys_of(trace, site).mT
    heads = queries.size(0)
    return (
        f"{shape(queries.shape)}·{shape(keys.shape)} = {heads} × ({shape(queries.shape[1:])}·{shape(keys.shape[1:])})"
    )


def _strides(trace: Trace) -> str:
    config = trace.config
    whole = torch.empty(len(trace.target_pieces), config.num_heads, config.head_width)
    return f"strides {shape(whole.stride())} → {shape(whole.transpose(0, 1).stride())}"


def _loop(trace: Trace) -> str:
    site = site_of(trace)
    weights, values, mixed = (trace[f"{site}.{name}"] for name in ("weights", "values", "mixed"))
    if trace.heads.get(site):
        return ""
    one_by_one = torch.stack([weights[head] @ values[head] for head in range(weights.size(0))])
    return f"max |loop − batch| = {float((one_by_one - mixed).abs().max()):.1e}"


def _roles(trace: Trace) -> str:
    site = site_of(trace)
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
        numbers=_batched,
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
        numbers=_roles,
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
