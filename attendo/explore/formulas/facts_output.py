"""Facts about the output, the loss and decoding, with the numbers of a run."""

import math

from attendo.explore.formulas.formula import Formula
from attendo.text_model import Trace

_TEMPERATURES = (0.5, 1.0, 2.0)


def _factorisation(trace: Trace) -> str:
    each = trace.log_probabilities
    total = float(each.sum())
    told = " · ".join(f"{math.exp(value):.3f}" for value in each.tolist()[:8])
    return f"{told}{' · …' if len(each) > 8 else ''} = {math.exp(total):.3g}, log p = {total:.3f}"


def _cross_entropy(trace: Trace) -> str:
    return f"L = {trace.loss:.4f}, e^L = {math.exp(min(trace.loss, 700.0)):.3f}"


def _parallel_cost(trace: Trace) -> str:
    length, width = len(trace.target_pieces), trace.config.d_model
    return f"[{length}, {width}]·[{width}, {width}] = {length * width * width:,}"


def _exposure_bias(trace: Trace) -> str:
    others = [step.piece for step in trace.steps(1) if step.rank > 1]
    return f"{len(others)} / {len(trace.target_pieces)} ŷ ≠ y" + (f": {', '.join(others[:5])}" if others else "")


def _decoder_steps(trace: Trace) -> str:
    return f"{'' if trace.config.decoder_only else '1 × Enc, '}{len(trace.target_pieces)} × Dec"


def _eos_probabilities(trace: Trace) -> str:
    return f"p(</s>) = {', '.join(f'{each:.2f}' for each in trace.eos_probability.tolist()[-4:])}"


def _greedy(trace: Trace) -> str:
    steps = trace.steps(1)
    chosen = [f"{step.top[0].piece} {step.top[0].probability:.2f}" for step in steps[:6]]
    return ", ".join(chosen) + (" …" if len(steps) > 6 else "")


def _beam(trace: Trace) -> str:
    """Top candidates for the first token with their log-probabilities, which beam search sums."""
    first = trace.steps(3)[0].top
    return ", ".join(f"{each.piece} {math.log(max(each.probability, 1e-30)):.2f}" for each in first)


def _sampling(trace: Trace) -> str:
    logits = trace.logits[0]
    best = int(logits.argmax())
    heated = [float((logits / each).softmax(-1)[best]) for each in _TEMPERATURES]
    told = ", ".join(f"τ = {t:g}: {p:.3f}" for t, p in zip(_TEMPERATURES, heated, strict=True))
    ordered = trace.probabilities[0].sort(descending=True).values.cumsum(dim=0)
    return f"{told}; top-p 0.9: {int((ordered < 0.9).sum()) + 1}"


def _kv_cache_size(trace: Trace) -> str:
    config = trace.config
    width = config.num_heads * (config.head_width + (config.d_value or config.d_model // config.num_heads))
    total = config.num_decoder_layers * width
    tokens = len(trace.target_pieces)
    return f"{config.num_decoder_layers}·{width} = {total:,}; × {tokens} = {tokens * total:,}"


def _serial_steps(trace: Trace) -> str:
    return f"m = {len(trace.target_pieces)}"


def _distribution(trace: Trace) -> str:
    last = trace.steps(4)[-1].top
    return ", ".join(f"{each.piece} {each.probability:.3f}" for each in last)


OUTPUT_FACTS: tuple[Formula, ...] = (
    Formula(
        "factorisation",
        ("J3",),
        "p(y | x) = ∏ p(y_t | y_<t, x)",
        "The probability of a whole answer is the product of those of its tokens.",
        "整句的概率是各词元条件概率的乘积。",
        "p x y",
        numbers=_factorisation,
    ),
    Formula(
        "cross_entropy",
        ("J5",),
        "L = −1/m ∑ log P[t, y_t]",
        "The loss is the mean surprise at the right tokens, from logits and without padding.",
        "损失是正确词元的平均负对数概率；由 logits 计算，不计填充。",
        "L m",
        numbers=_cross_entropy,
    ),
    Formula(
        "adam",
        ("J6",),
        "g ← β₁g + (1−β₁)∇, v ← β₂v + (1−β₂)∇², w ← w − η·ĝ / (√v̂ + ε)",
        "In training Adam moves each weight by its mean gradient over its usual size; a trace changes no weight.",
        "训练时 Adam 用梯度的均值除以其常见大小来更新权重；追踪不改变权重。",
        "η ∇ ε",
    ),
    Formula(
        "parallel",
        ("J8",),
        "Y·W = (y₁·W … y_m·W)",
        "A whole target is a few products of matrices, which hardware does at once, on a CPU or a GPU.",
        "整个目标句只需几次矩阵乘法，CPU 或 GPU 都能并行完成。",
        numbers=_parallel_cost,
    ),
    Formula(
        "exposure",
        ("J9",),
        "p(· | y_<t) ↔ p(· | ŷ_<t)",
        "So many tokens are not what the model would have said there; while generating it has to go on from its own.",
        "有这么多词元不是模型自己会选的；而生成时它只能接着自己的输出往下写（曝光偏差）。",
        "y",
        numbers=_exposure_bias,
    ),
    Formula(
        "turns",
        ("K1",),
        "Z = Enc(x); ŷ_t = Dec(ŷ_<t, Z), t = 1, 2 …",
        "The source is read once, and every token takes one more turn of the decoder.",
        "源句只编码一次；之后每生成一个词元，解码器就多走一步。",
        numbers=_decoder_steps,
    ),
    Formula(
        "stop",
        ("K2",),
        "ŷ_t = </s> ∨ t = t_max",
        "The probability of the end, at the last steps.",
        "最后几步里“结束”的概率。",
        numbers=_eos_probabilities,
    ),
    Formula(
        "greedy",
        ("K3",),
        "ŷ_t = argmax_v P[t, v]",
        "Greedy decoding takes the most probable token of every row.",
        "贪心解码每步取概率最大的词元。",
        "y",
        numbers=_greedy,
    ),
    Formula(
        "beam",
        ("K4",),
        "score(y) = ∑ log p(y_t | y_<t, x), top k",
        "A beam adds logarithms and keeps several answers at once; these are the first step's best.",
        "束搜索累加对数概率，同时保留多个候选；这里是第一步的前几名。",
        "y x p",
        numbers=_beam,
    ),
    Formula(
        "sampling",
        ("K5",),
        "p ∝ e^(logits / τ); top-k; top-p",
        "A temperature makes the best token more or less probable; top-p keeps the fewest tokens that have so much.",
        "温度让最可能的词元更突出或更平缓；top-p 只保留累计概率达到阈值的最少几个词元。",
        "p τ",
        numbers=_sampling,
    ),
    Formula(
        "kv_cache",
        ("K6",),
        "K ← [K; k_t], V ← [V; v_t]",
        "Keys and values of tokens already said are kept, so that a step calculates one row only.",
        "已生成词元的键和值都存起来，每一步只需算一行（KV 缓存）。",
        "K V",
        numbers=_kv_cache_size,
    ),
    Formula(
        "serial",
        ("K7",),
        "t = 1 → 2 → … → m",
        "Answers are as long as they happen to be, and each token waits for the one before it.",
        "回答长度不定，而且每个词元都要等前一个生成完。",
        "m",
        numbers=_serial_steps,
    ),
    Formula(
        "distribution",
        ("K8",),
        "P[t, ·] ∈ ℝ^|V|",
        "At each step there is a probability for every token; these are the last step's best.",
        "每一步都有整个词表上的概率分布；这里是最后一步的前几名。",
        "|V|",
        numbers=_distribution,
    ),
)
