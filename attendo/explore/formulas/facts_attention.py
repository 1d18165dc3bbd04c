"""Facts about attention, cross-attention and heads, with the numbers of a trace."""

import math

import torch

from attendo.explore.formulas.formula import (
    entropies,
    format_first,
    format_shape,
    get_keys,
    get_queries,
    get_values,
    join_first,
    last_attention_site,
    value_width,
)
from attendo.model.head_scaling import sites
from attendo.text_model import Trace


def fused_projection(trace: Trace) -> str:
    config = trace.config
    keys = config.num_kv_heads or config.num_heads
    width = config.num_heads * config.head_width + keys * (config.head_width + value_width(trace))
    return f"[{len(trace.read_pieces)}, {config.d_model}]·[{config.d_model}, {width}]"


def variance(trace: Trace) -> str:
    site = last_attention_site(trace)
    scores = trace.get(f"{site}.scaled", trace[f"{site}.scores"])  # without the biases of relative positions
    before, after = (float(each.var(correction=0)) for each in (trace[f"{site}.products"], scores))
    return f"{site}: var(Q·Kᵀ) = {before:.3g} → var(S) = {after:.3g}"


def jacobian(trace: Trace) -> str:
    weights = trace[f"{last_attention_site(trace)}.weights"].flatten()
    middle, largest = float(weights[(weights - 0.5).abs().argmin()]), float(weights.max())
    return ", ".join(f"y = {each:.4f}: y(1 − y) = {each * (1 - each):.4f}" for each in (middle, largest))


def low_rank(trace: Trace) -> str:
    d_model, width = trace.config.d_model, trace.config.head_width
    return f"rank ≤ {width}: 2·{d_model}·{width} = {2 * d_model * width:,}, {d_model}² = {d_model**2:,}"


def cosine(trace: Trace) -> str:
    site = last_attention_site(trace)
    query, key = get_queries(trace, site)[0, 0], get_keys(trace, site)[0, 0]
    product, (first, second) = float(query @ key), (float(query.norm()), float(key.norm()))
    return f"{product:.3g} = {first:.3g} · {second:.3g} · {product / max(first * second, 1e-12):.3f}"


def one_head(trace: Trace) -> str:
    site = last_attention_site(trace)
    queries, keys = get_queries(trace, site)[0], get_keys(trace, site)[0]
    return f"{format_shape(queries.shape)}·{format_shape(keys.mT.shape)} = [{queries.size(0)}, {keys.size(0)}]"


def memory(trace: Trace) -> str:
    if trace.config.decoder_only:
        return ""
    return f"Z : {format_shape(trace['encoder.output'].shape)} → {trace.config.num_decoder_layers} × (K, V)"


def rectangular(trace: Trace) -> str:
    return "" if trace.config.decoder_only else f"[{len(trace.target_pieces)}, {len(trace.source_pieces)}]"


def own_matrices(trace: Trace) -> str:
    layers = trace.config.num_decoder_layers
    return f"{layers} × (W_Q, W_K, W_V) = {3 * layers}" if trace.config.has_cross else ""


def memory_cached(trace: Trace) -> str:
    config, source = trace.config, len(trace.source_pieces)
    if config.decoder_only:
        return ""
    heads = config.num_kv_heads or config.num_heads
    sizes = config.num_decoder_layers, source, heads, config.head_width + value_width(trace)
    return f"{'·'.join(map(str, sizes))} = {math.prod(sizes):,}"


def alignment(trace: Trace) -> str:
    """Argmax alignment by the mean of the heads of the last traced layer."""
    if not trace.cross.size(0):
        return ""
    best = trace.cross[-1].mean(dim=0).argmax(dim=-1).tolist()
    pairs = [f"{piece} ← {trace.source_pieces[at]}" for piece, at in zip(trace.target_pieces, best, strict=True)]
    return join_first(pairs, 8)


def walk(trace: Trace) -> str:
    """Scores and weights of one row of one head."""
    if not (trace.cross.size(0) and trace.config.has_cross):
        return ""
    site = f"decoder.{trace.decoder_layers[-1]}.cross"
    scores, weights = (trace[f"{site}.{name}"][0, 0].tolist()[:4] for name in ("scores", "weights"))
    return f"{trace.target_pieces[0]}: softmax({format_first(scores)} …) = ({format_first(weights)} …)"


def no_cross(trace: Trace) -> str:
    return "SA → FFN" if trace.config.decoder_only else ""


def head_width(trace: Trace) -> str:
    config = trace.config
    if config.d_key or config.d_value:
        return f"d_k = {config.head_width}, d_v = {value_width(trace)}"
    return f"{config.d_model} / {config.num_heads} = {config.head_width}"


def head_matrices(trace: Trace) -> str:
    config, width = trace.config, value_width(trace)
    keys = f"W_Q, W_K : [{config.d_model}, {config.head_width}]"
    values = f"W_V : [{config.d_model}, {width}]"
    return f"{config.num_heads} × ({keys}; {values}); W_O : [{config.num_heads * width}, {config.d_model}]"


def shape_path(trace: Trace) -> str:
    config, length = trace.config, len(trace.read_pieces)
    heads, width = config.num_heads, config.head_width
    full, split, transposed = (1, length, config.d_model), (1, length, heads, width), (1, heads, length, width)
    return " → ".join(format_shape(each) for each in (full, split, transposed, full))


def batched_product(trace: Trace) -> str:
    site = last_attention_site(trace)
    queries, keys = get_queries(trace, site), get_keys(trace, site).mT
    heads = queries.size(0)
    return (
        f"{format_shape(queries.shape)}·{format_shape(keys.shape)} = {heads} × "
        f"({format_shape(queries.shape[1:])}·{format_shape(keys.shape[1:])})"
    )


def strides(trace: Trace) -> str:
    config = trace.config
    tensor = torch.empty(len(trace.target_pieces), config.num_heads, config.head_width)
    return f"strides {format_shape(tensor.stride())} → {format_shape(tensor.transpose(0, 1).stride())}"


def loop(trace: Trace) -> str:
    site = last_attention_site(trace)
    weights, values, mixed = trace[f"{site}.weights"], get_values(trace, site), trace[f"{site}.mixed"]
    if trace.heads.get(site):
        return ""
    one_by_one = torch.stack([weights[head] @ values[head] for head in range(weights.size(0))])
    return f"max |loop − batch| = {float((one_by_one - mixed).abs().max()):.1e}"


def roles(trace: Trace) -> str:
    site = last_attention_site(trace)
    return f"{site}: {format_first(entropies(trace[f'{site}.weights']).tolist()[:8], 8)}"


def one_class(trace: Trace) -> str:
    return f"{len(sites(trace.config))} × (W_Q, W_K, W_V, W_O)"
