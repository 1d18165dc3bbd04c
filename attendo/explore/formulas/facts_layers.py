"""Facts about the feed-forward network, residuals, norms and the stacks, with the numbers of a run."""

import torch
from torch import Tensor

from attendo.explore.describe import describe
from attendo.explore.formulas.formula import Formula, format_shape
from attendo.model.config import PRESETS
from attendo.text_model import Trace

_PART_SYMBOLS = {
    "source": "E_x",
    "target": "E_y",
    "encoder layer": "Enc",
    "decoder layer": "Dec",
    "encoder final norm": "LN",
    "decoder final norm": "LN",
    "output": "W_out",
}


def _ratio(trace: Trace) -> str:
    return f"{trace.config.d_ff:,} / {trace.config.d_model} = {trace.config.d_ff / trace.config.d_model:g}"


def _activation_zeros(trace: Trace) -> str:
    bent = torch.cat([trace[name].flatten() for name in trace if name.endswith(".bent")])
    return f"{trace.config.activation}: {float((bent == 0).float().mean()):.0%} = 0"


def _position_wise(trace: Trace) -> str:
    """The feed-forward network maps each row independently."""
    name = next(name for name in trace if name.endswith(".feed_forward.inner"))
    return f"{trace[name].size(0)} × [{trace.config.d_model}] → [{trace[name].size(1)}] → [{trace.config.d_model}]"


def _shares(trace: Trace) -> str:
    sizes = trace.sizes()
    return f"{min(each.share for each in sizes):.0%} … {max(each.share for each in sizes):.0%}"


def _norm_position(trace: Trace) -> str:
    return trace.config.norm


def _norms(trace: Trace) -> str:
    config = trace.config
    decoder = 2 if config.decoder_only else 3
    final = (1 if config.decoder_only else 2) * config.has_final_norm
    total = 2 * config.num_encoder_layers + decoder * config.num_decoder_layers + final
    return f"{config.num_encoder_layers}·2 + {config.num_decoder_layers}·{decoder} + {final} = {total}"


def _width(trace: Trace) -> str:
    shapes = {tuple(trace[name].shape) for name in trace if name.endswith((".residual", ".input"))}
    return ", ".join(format_shape(each) for each in sorted(shapes))


def _sizes(trace: Trace) -> str:
    config, base = trace.config, PRESETS["base"]
    here = {"N": config.num_decoder_layers, "d_model": config.d_model, "h": config.num_heads, "d_ff": config.d_ff}
    paper = (base["num_decoder_layers"], base["d_model"], base["num_heads"], base["d_ff"])
    return ", ".join(f"{name} = {value} ({other})" for (name, value), other in zip(here.items(), paper, strict=True))


def _sub_layers(trace: Trace) -> str:
    config = trace.config
    decoder = 2 if config.decoder_only else 3
    return f"{config.num_encoder_layers} × 2 + {config.num_decoder_layers} × {decoder}"


def _stacks(trace: Trace) -> str:
    rows, columns = len(trace.source_pieces), len(trace.target_pieces)
    encoder = "" if trace.config.decoder_only else f"[{rows}, {rows}] ↔ "
    return f"{encoder}tril [{columns}, {columns}]"


def _parameters(trace: Trace) -> str:
    parts = describe(trace.config).parts
    told = [f"{_PART_SYMBOLS.get(part.name, part.name)} {part.times} × {part.parameters:,}" for part in parts]
    total = sum(part.parameters * part.times for part in parts)
    return f"{' + '.join(told)} = {total:,}"


def _widths(trace: Trace) -> str:
    config, length = trace.config, len(trace.target_pieces)
    width, inner = f"[{length}, {config.d_model}]", f"[{length}, {config.d_ff}]"
    return f"[{length}] → {width} → {width} → {width} → {inner} → {width} → [{length}, {config.target_vocab_size}]"


def _maps(trace: Trace) -> str:
    maps = {"encoder": trace.encoder_self, "decoder": trace.decoder_self, "cross": trace.cross}
    return ", ".join(f"{name} {format_shape(each.shape)}" for name, each in maps.items() if each.size(0))


def _depth(trace: Trace) -> str:
    maps = trace.cross if trace.cross.size(0) else trace.decoder_self
    told = [f"{_entropy(maps[n]):.2f}" for n in range(maps.size(0))]
    return " → ".join(told)


def _entropy(weights: Tensor) -> float:
    return float(-torch.special.xlogy(weights, weights).sum(dim=-1).mean())


def _layout(trace: Trace) -> str:
    return f"[1, {len(trace.target_pieces)}, {trace.config.d_model}]"


LAYER_FACTS: tuple[Formula, ...] = (
    Formula(
        "ratio",
        ("G2",),
        "d_ff = 4·d_model",
        "In the paper the inner width is four times the outer; here it is this.",
        "论文里内层维度是模型维度的 4 倍；这里是这个比例。",
        "d_ff d_model",
        numbers=_ratio,
    ),
    Formula(
        "activation",
        ("G3",),
        "f ∈ {ReLU, GELU, SiLU, SwiGLU}",
        "How the inner numbers are bent is a choice; so many of them end at 0.",
        "激活函数可以选择；经过它之后有这么多数恰好为 0。",
        numbers=_activation_zeros,
    ),
    Formula(
        "position_wise",
        ("G1",),
        "FFN(X)[t] = FFN(X[t])",
        "The same small network serves every position by itself.",
        "同一个小网络分别作用于每个位置，位置之间互不影响。",
        "X",
        numbers=_position_wise,
    ),
    Formula(
        "residual_share",
        ("H1",),
        "‖Sublayer(x)‖ / (‖x‖ + ‖Sublayer(x)‖)",
        "What a sub-layer adds beside what passes it by: the path around it keeps signal and gradient alive.",
        "子层新增的部分与直通部分之比：残差通路让信号和梯度都不致消失。",
        numbers=_shares,
    ),
    Formula(
        "norm_place",
        ("H2", "H3"),
        "post: LN(x + Sub(x)); pre: x + Sub(LN(x))",
        "The norm stands behind the sum as in the paper, or before the sub-layer, which is steadier in deep stacks.",
        "归一化可以像论文那样放在相加之后，也可以放在子层之前；后者在深层时更稳定。",
        numbers=_norm_position,
    ),
    Formula(
        "norms",
        ("H5",),
        "2·N_enc + 3·N_dec (+ 2)",
        "Every sub-layer has a norm of its own; a stack may have one more at its end.",
        "每个子层有自己的归一化：编码层 2 个，解码层 3 个；堆叠末尾可能再加 1 个。",
        numbers=_norms,
    ),
    Formula(
        "clipping",
        ("H7",),
        "∇ ← ∇ · min(1, c / ‖∇‖)",
        "In training a gradient that is too long is shortened; a trace has no gradients.",
        "训练时过长的梯度会被截短；追踪时没有梯度。",
        "∇ c",
    ),
    Formula(
        "constant_width",
        ("H8",),
        "[T, d_model] → [T, d_model]",
        "Every layer gives as many vectors of the same width as it was given.",
        "每一层的输入和输出形状完全相同。",
        "d_model",
        numbers=_width,
    ),
    Formula(
        "sizes",
        ("I1",),
        "N = 6, d_model = 512, h = 8, d_ff = 2048",
        "The sizes of this model; in parentheses those of the paper's base model.",
        "本模型的规模；括号里是论文 base 模型的数值。",
        "N d_model h d_ff",
        numbers=_sizes,
    ),
    Formula(
        "sub_layers",
        ("I2",),
        "Enc: SA → FFN; Dec: SA → CA → FFN",
        "The decoder first looks at what was said, then at the source, then thinks about each position.",
        "解码器先看已经说过的，再看源句，最后逐位置加工。",
        numbers=_sub_layers,
    ),
    Formula(
        "stacks",
        ("I3",),
        "Enc: M = 0; Dec: M = −∞ (j > i)",
        "The encoder reads the source once, in both directions; the decoder goes from left to right, token by token.",
        "编码器双向、一次读完源句；解码器从左到右，逐个词元生成。",
        numbers=_stacks,
    ),
    Formula(
        "parameters",
        ("I4",),
        "MHA: 4·d² + 4·d, FFN: 2·d·d_ff + d_ff + d, LN: 2·d",
        "Where the weights of this model are.",
        "本模型的参数分布。",
        "d_ff",
        numbers=_parameters,
    ),
    Formula(
        "widths",
        ("I5",),
        "y → Y⁽⁰⁾ → SA → CA → FFN → Logits",
        "How the shape changes on the way through the decoder.",
        "数据穿过解码器时形状的变化。",
        numbers=_widths,
    ),
    Formula(
        "maps",
        ("I6", "I7", "I8"),
        "A[l, i, t, j]",
        "Beside the logits a run tells the attention of every layer and every head, never only their mean.",
        "除了 logits，还给出每一层、每一个头的注意力，而不只是平均值。",
        "A",
        numbers=_maps,
    ),
    Formula(
        "depth",
        ("I9",),
        "H(A¹) → … → H(Aᴺ)",
        "Layers differ: how widely they look around, from the first to the last.",
        "各层关注的范围不同：从浅到深的平均熵。",
        "A",
        numbers=_depth,
    ),
    Formula(
        "layout",
        ("I10",),
        "[B, T, d_model]",
        "The sentence comes first, then the position, then the width.",
        "张量布局为批次在前：句子、位置、维度。",
        "B d_model",
        numbers=_layout,
    ),
)
