"""Facts about tokens, embeddings, positions and masks, with the numbers of a trace."""

import math

import torch

from attendo.explore.formulas.formula import format_first, join_first
from attendo.model.trace_layers import softmax
from attendo.text import BOS, EOS, PAD, UNK
from attendo.text_model import Trace

_MAX_SHOWN_PIECES = 6  # per sentence


def special_tokens(trace: Trace) -> str:
    return f"<pad> = {PAD}, <unk> = {UNK}, <s> = {BOS}, </s> = {EOS}"


def batch(trace: Trace) -> str:
    if trace.config.continues_text:
        return f"B = 1: [1, {len(trace.read_pieces)}]"
    return f"B = 1: [1, {len(trace.source_pieces)}] → [1, {len(trace.target_pieces)}]"


def shift(trace: Trace) -> str:
    rows = trace.read_pieces[trace.first_row :], trace.target_pieces
    read, predicted = (join_first(pieces, _MAX_SHOWN_PIECES, " ") for pieces in rows)
    return f"{read}  →  {predicted}"


def dropout(trace: Trace) -> str:
    config = trace.config
    rates = {
        "p": config.dropout,
        "p_attention": config.dropout if config.attention_dropout is None else config.attention_dropout,
        "p_activation": config.dropout if config.activation_dropout is None else config.activation_dropout,
    }
    return ", ".join(f"{name} = {rate:g} → 0" for name, rate in rates.items())


def shared_embedding(trace: Trace) -> str:
    config = trace.config
    if not config.ties_inputs or config.decoder_only:
        return ""
    return f"{config.source_vocab_size:,} × {config.d_model} = {config.source_vocab_size * config.d_model:,}"  # type: ignore[operator]


def tied_output(trace: Trace) -> str:
    config = trace.config
    if not config.ties_output:
        return ""
    return f"{config.d_model} × {config.target_vocab_size:,} = {config.d_model * config.target_vocab_size:,}"  # type: ignore[operator]


def no_table(trace: Trace) -> str:
    table = trace.entries.get("target.positions")
    if trace.config.positions == "learned" and table is not None:
        return f"{table.operands[0][0]:,} × {trace.config.d_model}"
    angles = trace.get("target.angles")  # neither relative positions nor none have them
    return "" if angles is None else f"{len(trace.read_pieces)} × {angles.size(1)}"


def linear_shift(trace: Trace) -> str:
    """By the addition theorems, the next position's vector is a rotation of each (sine, cosine) pair."""
    if trace.config.positions not in ("sinusoidal", "rotary") or len(trace.target_pieces) < 2:
        return ""
    frequencies, angles = trace["target.frequencies"], trace["target.angles"][trace.first_row :]
    sine, cosine = angles.sin(), angles.cos()
    rotated = sine[:-1] * frequencies.cos() + cosine[:-1] * frequencies.sin()
    return f"max |P[pos+1] − R·P[pos]| = {float((rotated - sine[1:]).abs().max()):.1e}"


def order(trace: Trace) -> str:
    if "target.positions" not in trace:
        frequencies = trace.get("target.frequencies")
        return "" if frequencies is None else f"R(1) = {float(frequencies[0]):g} rad"
    vectors = trace.get("target.scaled", trace["target.embedding"])
    shares = trace["target.positions"].norm(dim=-1) / vectors.norm(dim=-1).clamp(min=1e-12)
    return f"‖P‖ / ‖E[x]‖ = {float(shares.mean()):.3f}"


def from_zero(trace: Trace) -> str:
    first = trace.config.position_offset
    return (
        f"pos = {first} … {first + len(trace.read_pieces if trace.config.continues_text else trace.source_pieces) - 1}"
    )


def embedding_scale(trace: Trace) -> str:
    rows = trace["target.embedding"]
    mean = float(rows.norm(dim=-1).mean())
    factor = math.sqrt(trace.config.d_model) if trace.config.scale_embedding else 1.0
    return f"√{trace.config.d_model} = {math.sqrt(trace.config.d_model):.2f}; ‖E[x]‖ = {mean:.2f} → {mean * factor:.2f}"


def unique_positions(trace: Trace) -> str:
    if "source.positions" not in trace or len(trace.source_pieces) < 2:
        return ""
    return f"min ‖P[a] − P[b]‖ = {float(torch.pdist(trace['source.positions']).min()):.2f}"


def boolean_mask(trace: Trace) -> str:
    hidden = int((~trace.causal_mask).sum()) if trace.masked else 0
    return f"{hidden} / {len(trace.read_pieces) ** 2}"


def large_negative(trace: Trace) -> str:
    lowest = torch.finfo(torch.float32).min, torch.finfo(torch.float16).min
    return f"float32 {lowest[0]:.1e}, float16 {lowest[1]:.0f} > −10⁹"


def source_padding(trace: Trace) -> str:
    return "" if trace.config.continues_text else f"0 / {len(trace.source_pieces)}"


def target_padding(trace: Trace) -> str:
    return f"0 / {len(trace.target_pieces)}"


def masks_together(trace: Trace) -> str:
    cells = len(trace.read_pieces) ** 2
    return f"{int(trace.causal_mask.sum()) if trace.masked else cells} / {cells}"


def leak(trace: Trace) -> str:
    """Attention weight on future tokens without the causal mask."""
    if trace.is_recurrent:
        return ""
    visible = trace.causal_mask
    shares = {}
    for layer in trace.decoder_layers[:8]:
        site = f"decoder.{layer}.self"
        own = softmax(trace[f"{site}.scores"])[..., -len(visible) :]  # merged attention has the source before
        shares[site] = float(own.masked_fill(visible, 0.0).sum(dim=-1).mean())
    return ", ".join(f"{site} {share:.0%}" for site, share in shares.items())


def side_by_side(trace: Trace) -> str:
    if not trace.decoder_layers or trace.is_recurrent:
        return ""
    site = f"decoder.{trace.decoder_layers[0]}.self"
    bare, masked = softmax(trace[f"{site}.scores"])[0, 0], trace[f"{site}.weights"][0, 0]
    return f"({format_first(bare.tolist())}) → ({format_first(masked.tolist())})"


def row_sums(trace: Trace) -> str:
    names = [name for name in trace if name.endswith(".weights") and f"{name.removesuffix('weights')}masked" in trace]
    sums = torch.cat([trace[name].sum(dim=-1).flatten() for name in names])  # without the shares of a recurrence
    return f"∑ A[i, ·] = {float(sums.min()):.6f} … {float(sums.max()):.6f}"


def last_row(trace: Trace) -> str:
    length = len(trace.read_pieces)
    return f"{length} / {length}"
