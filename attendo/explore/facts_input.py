"""Facts about tokens, embeddings and positions, with the numbers of a run."""

import math

import torch

from attendo.explore.formula import Formula
from attendo.text import BOS, EOS, PAD, UNK
from attendo.text_model import Trace

_SHOWN = 6  # tokens of a sentence in one line


def _special_tokens(trace: Trace) -> str:
    return f"<pad> = {PAD}, <unk> = {UNK}, <s> = {BOS}, </s> = {EOS}"


def _batch(trace: Trace) -> str:
    source = "" if trace.config.decoder_only else f"[1, {len(trace.source_pieces)}] → "
    return f"B = 1: {source}[1, {len(trace.target_pieces)}]"


def _shift(trace: Trace) -> str:
    return f"{_told(trace.read_pieces)}  →  {_told(trace.target_pieces)}"


def _told(pieces: tuple[str, ...]) -> str:
    return " ".join(pieces[:_SHOWN]) + (" …" if len(pieces) > _SHOWN else "")


def _dropout(trace: Trace) -> str:
    config = trace.config
    rates = {
        "p": config.dropout,
        "p_attention": config.dropout if config.attention_dropout is None else config.attention_dropout,
        "p_activation": config.dropout if config.activation_dropout is None else config.activation_dropout,
    }
    return ", ".join(f"{name} = {rate:g} → 0" for name, rate in rates.items())


def _shared(trace: Trace) -> str:
    config = trace.config
    if config.tie != "all" or config.decoder_only:
        return ""
    return f"{config.source_vocab_size:,} × {config.d_model} = {config.source_vocab_size * config.d_model:,}"  # type: ignore[operator]


def _tied(trace: Trace) -> str:
    config = trace.config
    if config.tie == "none":
        return ""
    return f"{config.d_model} × {config.target_vocab_size:,} = {config.d_model * config.target_vocab_size:,}"  # type: ignore[operator]


def _no_table(trace: Trace) -> str:
    table = trace.entries.get("target.positions")
    if trace.config.positions == "learned" and table is not None:
        return f"{table.operands[0][0]:,} × {trace.config.d_model}"
    return "" if trace.config.positions == "none" else f"{len(trace.target_pieces)} × {trace['target.angles'].size(1)}"


def _linear_shift(trace: Trace) -> str:
    """Sine and cosine of a sum: the vector one place on is a rotation of each pair."""
    if trace.config.positions not in ("sinusoidal", "rotary") or len(trace.target_pieces) < 2:
        return ""
    frequencies, angles = trace["target.frequencies"], trace["target.angles"]
    sine, cosine = angles.sin(), angles.cos()
    turned = sine[:-1] * frequencies.cos() + cosine[:-1] * frequencies.sin()
    return f"max |P[pos+1] − R·P[pos]| = {float((turned - sine[1:]).abs().max()):.1e}"


def _order(trace: Trace) -> str:
    if "target.positions" not in trace:
        return "" if trace.config.positions == "none" else f"R(1) = {float(trace['target.frequencies'][0]):g} rad"
    vectors = trace.get("target.scaled", trace["target.embedding"])
    shares = trace["target.positions"].norm(dim=-1) / vectors.norm(dim=-1).clamp(min=1e-12)
    return f"‖P‖ / ‖E[x]‖ = {float(shares.mean()):.3f}"


def _from_zero(trace: Trace) -> str:
    first = trace.config.position_offset
    return f"pos = {first} … {first + len(trace.source_pieces or trace.read_pieces) - 1}"


def _sequence_scale(trace: Trace) -> str:
    rows = trace["target.embedding"]
    mean = float(rows.norm(dim=-1).mean())
    factor = math.sqrt(trace.config.d_model) if trace.config.scale_embedding else 1.0
    return f"√{trace.config.d_model} = {math.sqrt(trace.config.d_model):.2f}; ‖E[x]‖ = {mean:.2f} → {mean * factor:.2f}"


def _unique(trace: Trace) -> str:
    if "source.positions" not in trace or len(trace.source_pieces) < 2:
        return ""
    return f"min ‖P[a] − P[b]‖ = {float(torch.pdist(trace['source.positions']).min()):.2f}"


INPUT_FACTS: tuple[Formula, ...] = (
    Formula(
        "special_tokens",
        ("A8",),
        "<pad>, <unk>, <s>, </s>",
        "Four numbers of the vocabulary are no words: padding, unknown, begin and end.",
        "词表里有四个编号不是词：填充、未知、开始和结束。",
        numbers=_special_tokens,
    ),
    Formula(
        "batch",
        ("A9",),
        "ids : [B, L]",
        "A batch is as wide as its longest sentence, and shorter ones are padded; here one sentence stands alone.",
        "一批句子补齐到最长一句的长度；这里只有一句，不需要填充。",
        "B",
        numbers=_batch,
    ),
    Formula(
        "shift",
        ("A10", "J4", "J7"),
        "(y₀ … y_m−1) → (y₁ … y_m)",
        "The decoder reads the target one token behind and predicts it as it is, all positions at once (teacher "
        "forcing).",
        "解码器读入右移一位的目标句，预测未移位的目标句，所有位置并行（teacher forcing）。",
        "y m",
        numbers=_shift,
    ),
    Formula(
        "dropout",
        ("A5", "C9", "D9", "G4", "H6"),
        "x ⊙ mask / (1 − p)",
        "In training numbers are dropped behind the embedding, on attention weights, inside the feed-forward network "
        "behind its activation, and once on each sub-layer's output; here none is.",
        "训练时在四处随机丢弃：嵌入之后、注意力权重、前馈网络激活之后、每个子层输出（各一次）；推理时都不丢。",
        "p",
        numbers=_dropout,
    ),
    Formula(
        "embedding_scale",
        ("A3",),
        "√d_model · ‖E[x]‖",
        "Rows of a tied table are short; the scale brings them to the size of the position vectors.",
        "共享的嵌入行向量较短，缩放后与位置编码大小相当。",
        "d_model E",
        numbers=_sequence_scale,
    ),
    Formula(
        "shared_embedding",
        ("A6",),
        "E_source = E_target",
        "With one joint vocabulary, source and target can share a table.",
        "源语言和目标语言共用一个词表时，可以共享词嵌入矩阵。",
        "E",
        numbers=_shared,
    ),
    Formula(
        "tied_output",
        ("A7",),
        "W_out = Eᵀ",
        "The output layer can use the embedding table, turned around: so many weights fewer.",
        "输出层可以直接使用转置的词嵌入矩阵，省下这么多参数。",
        "W_out E",
        numbers=_tied,
    ),
    Formula(
        "no_table",
        ("B4",),
        "P = f(pos), T : [L, d_model]",
        "Sinusoids are calculated for as many positions as there are; learned positions are a table of fixed length.",
        "正弦位置编码按需计算，要多长有多长；学习式位置编码是一张定长的表。",
        "P",
        numbers=_no_table,
    ),
    Formula(
        "linear_shift",
        ("B5",),
        "P[pos + k] = R(k)·P[pos]",
        "Going on by k places is the same rotation wherever one stands.",
        "向后移动 k 位，在任何位置都是同一个线性变换（旋转）。",
        "P R pos",
        numbers=_linear_shift,
    ),
    Formula(
        "unique_positions",
        ("B5",),
        "a ≠ b ⇒ P[a] ≠ P[b]",
        "No two positions have the same vector.",
        "任意两个位置的编码都不相同。",
        "P",
        numbers=_unique,
    ),
    Formula(
        "order",
        ("B7",),
        "Attention(ΠX) = Π·Attention(X)",
        "Without positions, reordering the input merely reorders the output: order enters through them alone.",
        "没有位置信息时，打乱输入只会同样打乱输出；词序只能靠位置编码引入。",
        "X",
        numbers=_order,
    ),
    Formula(
        "from_zero",
        ("B8",),
        "pos = 0, 1, 2 …",
        "Positions are counted from 0, unless the model says otherwise.",
        "位置从 0 开始编号（除非模型另有设定）。",
        "pos",
        numbers=_from_zero,
    ),
)
