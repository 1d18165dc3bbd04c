"""Facts about masks, with the numbers of a run."""

import torch

from attendo.explore.formula import Formula
from attendo.model.trace_layers import softmax
from attendo.text_model import Trace


def _boolean(trace: Trace) -> str:
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


def _together(trace: Trace) -> str:
    length = len(trace.target_pieces)
    visible = length * (length + 1) // 2 if trace.masked else length * length
    return f"{visible} / {length * length}"


def _leak(trace: Trace) -> str:
    """What would fall on the future, were the scores not masked."""
    told = []
    for n in trace.decoder_layers[:8]:
        future = softmax(trace[f"decoder.{n}.self.scores"]).triu(diagonal=1).sum(dim=-1).mean()
        told.append(f"decoder.{n}.self {float(future):.0%}")
    return ", ".join(told)


def _side_by_side(trace: Trace) -> str:
    if not trace.decoder_layers:
        return ""
    site = f"decoder.{trace.decoder_layers[0]}.self"
    bare, masked = softmax(trace[f"{site}.scores"])[0, 0], trace[f"{site}.weights"][0, 0]
    return f"({_row(bare.tolist())}) → ({_row(masked.tolist())})"


def _row_sums(trace: Trace) -> str:
    sums = torch.cat([trace[name].sum(dim=-1).flatten() for name in trace if name.endswith(".weights")])
    return f"∑ A[i, ·] = {float(sums.min()):.6f} … {float(sums.max()):.6f}"


def _last_row(trace: Trace) -> str:
    length = len(trace.target_pieces)
    return f"{length} / {length}"


def _row(numbers: list[float]) -> str:
    return ", ".join(f"{each:.2f}" for each in numbers[:4]) + (" …" if len(numbers) > 4 else "")


MASK_FACTS: tuple[Formula, ...] = (
    Formula(
        "boolean_mask",
        ("E-2",),
        "M[i, j] = (j > i) = triu(1, diagonal=1)",
        "The same mask as a table of yes and no: hidden is what lies strictly above the diagonal.",
        "同一个掩码的布尔形式：对角线以上（不含对角线）的位置被屏蔽。",
        numbers=_boolean,
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
        numbers=_together,
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
        numbers=_side_by_side,
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
