"""Facts about tokens, embeddings, positions and masks, with the numbers of a trace."""

import math

import torch

from attendo.explore.formulas.formula import Formula
from attendo.model.trace_layers import softmax
from attendo.text import BOS, EOS, PAD, UNK
from attendo.text_model import Trace

_MAX_SHOWN_PIECES = 6  # per sentence


def _special_tokens(trace: Trace) -> str:
    return f"<pad> = {PAD}, <unk> = {UNK}, <s> = {BOS}, </s> = {EOS}"


def _batch(trace: Trace) -> str:
    source = "" if trace.config.decoder_only else f"[1, {len(trace.source_pieces)}] → "
    return f"B = 1: {source}[1, {len(trace.target_pieces)}]"


def _shift(trace: Trace) -> str:
    return f"{_join_pieces(trace.read_pieces)}  →  {_join_pieces(trace.target_pieces)}"


def _join_pieces(pieces: tuple[str, ...]) -> str:
    return " ".join(pieces[:_MAX_SHOWN_PIECES]) + (" …" if len(pieces) > _MAX_SHOWN_PIECES else "")


def _dropout(trace: Trace) -> str:
    config = trace.config
    rates = {
        "p": config.dropout,
        "p_attention": config.dropout if config.attention_dropout is None else config.attention_dropout,
        "p_activation": config.dropout if config.activation_dropout is None else config.activation_dropout,
    }
    return ", ".join(f"{name} = {rate:g} → 0" for name, rate in rates.items())


def _shared_embedding(trace: Trace) -> str:
    config = trace.config
    if config.tie != "all" or config.decoder_only:
        return ""
    return f"{config.source_vocab_size:,} × {config.d_model} = {config.source_vocab_size * config.d_model:,}"  # type: ignore[operator]


def _tied_output(trace: Trace) -> str:
    config = trace.config
    if config.tie == "none":
        return ""
    return f"{config.d_model} × {config.target_vocab_size:,} = {config.d_model * config.target_vocab_size:,}"  # type: ignore[operator]


def _position_table(trace: Trace) -> str:
    table = trace.entries.get("target.positions")
    if trace.config.positions == "learned" and table is not None:
        return f"{table.operands[0][0]:,} × {trace.config.d_model}"
    return "" if trace.config.positions == "none" else f"{len(trace.target_pieces)} × {trace['target.angles'].size(1)}"


def _linear_shift(trace: Trace) -> str:
    """By the addition theorems, the next position's vector is a rotation of each (sine, cosine) pair."""
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


def _position_range(trace: Trace) -> str:
    first = trace.config.position_offset
    return f"pos = {first} … {first + len(trace.source_pieces or trace.read_pieces) - 1}"


def _embedding_scale(trace: Trace) -> str:
    rows = trace["target.embedding"]
    mean = float(rows.norm(dim=-1).mean())
    factor = math.sqrt(trace.config.d_model) if trace.config.scale_embedding else 1.0
    return f"√{trace.config.d_model} = {math.sqrt(trace.config.d_model):.2f}; ‖E[x]‖ = {mean:.2f} → {mean * factor:.2f}"


def _min_position_distance(trace: Trace) -> str:
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
        numbers=_embedding_scale,
    ),
    Formula(
        "shared_embedding",
        ("A6",),
        "E_source = E_target",
        "With one joint vocabulary, source and target can share a table.",
        "源语言和目标语言共用一个词表时，可以共享词嵌入矩阵。",
        "E",
        numbers=_shared_embedding,
    ),
    Formula(
        "tied_output",
        ("A7",),
        "W_out = Eᵀ",
        "The output layer can use the embedding table, turned around: so many weights fewer.",
        "输出层可以直接使用转置的词嵌入矩阵，省下这么多参数。",
        "W_out E",
        numbers=_tied_output,
    ),
    Formula(
        "no_table",
        ("B4",),
        "P = f(pos), T : [L, d_model]",
        "Sinusoids are calculated for as many positions as there are; learned positions are a table of fixed length.",
        "正弦位置编码按需计算，要多长有多长；学习式位置编码是一张定长的表。",
        "P",
        numbers=_position_table,
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
        numbers=_min_position_distance,
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
        numbers=_position_range,
    ),
)


def _boolean_mask(trace: Trace) -> str:
    length = len(trace.target_pieces)
    hidden = length * (length - 1) // 2 if trace.masked else 0
    return f"{hidden} / {length * length}"


def _large_negative(trace: Trace) -> str:
    lowest = torch.finfo(torch.float32).min, torch.finfo(torch.float16).min
    return f"float32 {lowest[0]:.1e}, float16 {lowest[1]:.0f} > −10⁹"


def _source_padding(trace: Trace) -> str:
    return "" if trace.config.decoder_only else f"0 / {len(trace.source_pieces)}"


def _target_padding(trace: Trace) -> str:
    return f"0 / {len(trace.target_pieces)}"


def _combined_masks(trace: Trace) -> str:
    length = len(trace.target_pieces)
    visible = length * (length + 1) // 2 if trace.masked else length * length
    return f"{visible} / {length * length}"


def _leak(trace: Trace) -> str:
    """Attention weight on future tokens without the causal mask."""
    told = []
    for n in trace.decoder_layers[:8]:
        future = softmax(trace[f"decoder.{n}.self.scores"]).triu(diagonal=1).sum(dim=-1).mean()
        told.append(f"decoder.{n}.self {float(future):.0%}")
    return ", ".join(told)


def _mask_effect(trace: Trace) -> str:
    if not trace.decoder_layers:
        return ""
    site = f"decoder.{trace.decoder_layers[0]}.self"
    bare, masked = softmax(trace[f"{site}.scores"])[0, 0], trace[f"{site}.weights"][0, 0]
    return f"({_format_row(bare.tolist())}) → ({_format_row(masked.tolist())})"


def _row_sums(trace: Trace) -> str:
    sums = torch.cat([trace[name].sum(dim=-1).flatten() for name in trace if name.endswith(".weights")])
    return f"∑ A[i, ·] = {float(sums.min()):.6f} … {float(sums.max()):.6f}"


def _last_row(trace: Trace) -> str:
    length = len(trace.target_pieces)
    return f"{length} / {length}"


def _format_row(numbers: list[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in numbers[:4]) + (" …" if len(numbers) > 4 else "")


MASK_FACTS: tuple[Formula, ...] = (
    Formula(
        "boolean_mask",
        ("E-2",),
        "M[i, j] = (j > i) = triu(1, diagonal=1)",
        "The same mask as a table of yes and no: hidden is what lies strictly above the diagonal.",
        "同一个掩码的布尔形式：对角线以上（不含对角线）的位置被屏蔽。",
        numbers=_boolean_mask,
    ),
    Formula(
        "large_negative",
        ("E-3",),
        "−10⁹ ≈ −∞",
        "A large negative number works too, but half precision has none that large.",
        "也可以用很大的负数代替 −∞，但半精度装不下 −10⁹。",
        numbers=_large_negative,
    ),
    Formula(
        "source_padding",
        ("E-4", "E-5"),
        "M[i, j] = (x_j = <pad>)",
        "Padding of the source is hidden from the encoder and from the decoder's look at it; cross-attention needs no "
        "causal mask, but it needs this one.",
        "源句的填充在编码器和交叉注意力里都要屏蔽；交叉注意力不需要因果掩码，但需要这个填充掩码。",
        "x",
        numbers=_source_padding,
    ),
    Formula(
        "target_padding",
        ("E-6",),
        "M[i, j] = (y_j = <pad>)",
        "Padding of the target lies behind its tokens, in the future of all of them.",
        "目标句的填充在句尾，对所有真实词元来说都是“未来”。",
        "y",
        numbers=_target_padding,
    ),
    Formula(
        "masks_together",
        ("E-7",),
        "M = M_pad ∨ M_future",
        "What either mask hides is hidden.",
        "两个掩码只要有一个要求屏蔽，就屏蔽。",
        "M",
        numbers=_combined_masks,
    ),
    Formula(
        "leak",
        ("E-8",),
        "∑_j>i softmax(S)[i, j]",
        "So much attention would go to tokens that are yet to be predicted, were there no mask: training would be "
        "copying, and generation, which has no future, would fail.",
        "没有掩码的话，这么多注意力会落到还没预测的词元上：训练成了抄答案，而生成时没有答案可抄。",
        "S",
        numbers=_leak,
    ),
    Formula(
        "side_by_side",
        ("E-9",),
        "softmax(S) → softmax(S + M)",
        "The first row of the first head without the mask and with it.",
        "第一个头的第一行：不加掩码与加掩码的对比。",
        "S M",
        numbers=_mask_effect,
    ),
    Formula(
        "row_sums",
        ("E-10",),
        "e^−∞ = 0, ∑_j A[i, j] = 1",
        "Because the mask comes before the softmax, what is left of each row still sums to 1.",
        "掩码加在 softmax 之前，所以每行剩下的权重之和仍为 1。",
        "A",
        numbers=_row_sums,
    ),
    Formula(
        "last_row",
        ("E-11",),
        "M[m, j] = 0, j = 1 … m",
        "The newest token sees all before it: while generating, the mask hides nothing from it.",
        "最新的词元能看到之前所有词元：逐个生成时，掩码对它没有影响。",
        "m",
        numbers=_last_row,
    ),
)
