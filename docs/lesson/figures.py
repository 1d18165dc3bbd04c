"""Draws every picture of the lesson from computed values, with labels in one of two languages."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import gallery
import torch
from at_once import (
    MASK,
    A,
    B,
    ctc,
    fit,
    graph,
    independent,
    masked_loss,
    mean_loss,
    start,
    step_by_step,
)
from drawing import Line, Panel, bars, curves, heatmap, picture
from feed_forward import FeedForwardNet
from generate import generate
from masks import generate_square_subsequent_mask
from mistakes import PositionsByRow
from positions import PositionalEncoding, position_table
from torch import Tensor
from translator import Translator, trained

Say = Callable[[str, str], str]
SCORES = torch.tensor([[2.1, 3.5, 1.8, 2.9], [1.2, 4.3, 2.1, 3.7], [0.8, 1.5, 3.2, 2.4], [2.3, 1.9, 2.7, 4.1]])


def all_pictures(language: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the SVG of each picture."""

    def say(english: str, chinese: str) -> str:
        return english if language == "en" else chinese

    for name, draw in {**QUICK, **TRAINED, **MISTAKES}.items():
        yield name, picture(draw(say))


def positions(say: Say) -> list[Panel]:
    table = (position_table(32, 48) + 1) / 2
    title = say(
        "32 positions (down) × 48 components (across); dark = 1, white = -1",
        "32 个位置（向下）× 48 个分量（向右）；深色 = 1，白色 = -1",
    )
    return [heatmap(table.tolist(), title, cell=11)]


def scale(say: Say) -> list[Panel]:
    generator, widths = torch.Generator().manual_seed(0), range(8, 257, 8)
    raw, scaled = [], []
    for d_k in widths:
        q, k = torch.randn(500, d_k, generator=generator), torch.randn(500, 10, d_k, generator=generator)
        scores = (k @ q[:, :, None])[..., 0]
        raw.append(float(scores.softmax(-1).max(-1).values.mean()))
        scaled.append(float((scores / d_k**0.5).softmax(-1).max(-1).values.mean()))
    lines = [Line(say("without √d_k", "不除以 √d_k"), raw), Line(say("with √d_k", "除以 √d_k"), scaled)]
    title = say("largest of ten attention weights, on average", "十个注意力权重中最大的一个（平均）")
    return [curves(lines, title, "d_k", top=1.0, start=8, step=8)]


def masks(say: Say) -> list[Panel]:
    marks = generate_square_subsequent_mask(4)
    weights = (SCORES + marks).softmax(-1).tolist()
    hidden: list[list[float | None]] = [
        [None if column > row else weights[row][column] for column in range(4)] for row in range(4)
    ]
    names = ["y₁", "y₂", "y₃", "y₄"]
    return [
        heatmap(SCORES.softmax(-1).tolist(), say("without a mask", "没有掩码"), names, names, 44),
        heatmap(hidden, say("with the causal mask", "有因果掩码"), names, names, 44),
    ]


def residual(say: Say) -> list[Panel]:
    def gradient(depth: int, around: bool) -> float:
        torch.manual_seed(0)
        x = torch.randn(16, 64, requires_grad=True)
        h: Tensor = x
        for _ in range(depth):
            made = FeedForwardNet(64, 256, p=0.0)(h)
            h = h + made if around else made
        (found,) = torch.autograd.grad(h.sum(), x)
        return float(found.norm())

    depths = range(1, 17)
    lines = [
        Line(say("with residual", "有残差连接"), [gradient(n, True) for n in depths]),
        Line(say("without", "没有残差连接"), [gradient(n, False) for n in depths]),
    ]
    title = say("size of the gradient at the input", "传回输入处的梯度大小")
    return [curves(lines, title, say("layers", "层数"), start=1)]


@cache
def translator() -> Translator:
    return trained()


@torch.no_grad()
def cross_maps(sentence: str) -> tuple[Tensor, list[str], list[str]]:
    """Return the cross-attention [h, T, S] of the last layer, the predicted tokens and the source tokens."""
    made = translator()
    source = made.source(sentence)
    said = made.words(generate(made.network, source, 10)[0])
    _, _, _, cross = made.network(source, made.target(said))
    return cross[-1][0], [*said.split(), "<eos>"], [*sentence.split(), "<eos>"]


def heads(say: Say) -> list[Panel]:
    maps, down, across = cross_maps("I love natural language processing")
    return [
        heatmap(weights.tolist(), say(f"head {n}", f"第 {n} 个头"), down if n == 1 else (), across, 22)
        for n, weights in enumerate(maps, 1)
    ]


def cross(say: Say) -> list[Panel]:
    maps, down, across = cross_maps("The cat sat")
    title = say("mean of four heads; rows: the token predicted", "四个头的平均；行：正在预测的词元")
    return [heatmap(maps.mean(0).tolist(), title, down, across, 48)]


def training(say: Say) -> list[Panel]:
    losses = translator().losses
    means = [sum(losses[n : n + 5]) / 5 for n in range(0, len(losses), 5)]
    return [curves([Line(say("loss", "损失"), means)], say("cross-entropy", "交叉熵"), say("step", "步"), step=5)]


def compared(right: str, *wrong: tuple[str, str, str], top: float | None = None) -> Callable[[Say], Panel]:
    """Draw the loss curves of a right run and of wrong runs; each wrong run has a name in both languages."""

    def draw(say: Say) -> Panel:
        kept = gallery.kept()
        lines = [Line(say("right", "正确"), kept[right]["losses"])]
        lines += [Line(say(english, chinese), kept[name]["losses"]) for name, english, chinese in wrong]
        return curves(lines, say("training loss", "训练损失"), say("step", "步"), top, step=gallery.EVERY)

    return draw


def no_mask(say: Say) -> list[Panel]:
    kept, letters = gallery.kept(), list("feihc")
    down, across = [*letters, "<eos>"], ["<bos>", *letters]
    wrong: Any = kept["no mask"]["map"]
    return [
        compared("right", ("no mask", "no mask", "没有掩码"))(say),
        heatmap(gallery.causal_map(kept["right"]["map"]), say("right", "正确"), down, across, 36),
        heatmap(wrong, say("no mask", "没有掩码"), down, across, 36),
    ]


def mask_without_heads(say: Say) -> list[Panel]:
    right, wrong = (gallery.visible(each) for each in gallery.masks_by_head())
    down = [say(f"head {n}", f"第 {n} 个头") for n in range(1, 5)]
    across = ["a", "b", "<eos>", "<pad>", "<pad>"]
    return [
        compared("E5 right", ("E5", "mask [B, T, S]", "掩码 [B, T, S]"))(say),
        heatmap(right, say("right", "正确"), down, across, 28),
        heatmap(wrong, say("mask [B, T, S]", "掩码 [B, T, S]"), down, across, 28),
    ]


def swapped_cross_mask(say: Say) -> list[Panel]:
    right, wrong = (gallery.visible(each[:6]) for each in gallery.cross_masks(3))
    across = [*"chief", "<eos>", *["<pad>"] * 3]
    down = [*"feihc", "<eos>"]
    return [
        compared("right", ("E6", "masks swapped", "掩码用反"))(say),
        heatmap(right, say("third step, right", "第三步，正确"), down, across, 24),
        heatmap(wrong, say("third step, swapped", "第三步，用反"), down, across, 24),
    ]


def dead_layers(say: Say) -> list[Panel]:
    names = [say(f"layer {n}", f"第 {n} 层") for n in (1, 2)]
    gradients = gallery.kept()["E8"]["gradients"]
    title = say("gradient of each decoder layer", "解码器各层的梯度")
    return [compared("right", ("E8", "dead layer", "死层"))(say), bars(names, gradients, title)]


def positions_by_row(say: Say) -> list[Panel]:
    added = [kind(32).eval()(torch.zeros(1, 6, 32))[0] for kind in (PositionalEncoding, PositionsByRow)]
    right, wrong = ((vectors @ vectors.T / 16).tolist() for vectors in added)
    places = [str(n) for n in range(6)]
    title = say("likeness of positions 0 to 5", "位置 0 到 5 的相似度")
    return [
        compared("right", ("E10", "by row of the batch", "按批次行号"))(say),
        heatmap(right, f"{title}: {say('right', '正确')}", places, places, 32),
        heatmap(wrong, say("wrong", "错误"), places, places, 32),
    ]


def without_last_norm(say: Say) -> list[Panel]:
    depths = list(range(4, 49, 4))
    lines = [
        Line(name, [loss for loss, _ in gallery.first_losses(depths, mistake)])
        for name, mistake in ((say("right", "正确"), None), (say("no last norm", "没有最后的归一化"), "E13"))
    ]
    title = say("loss before training, by layers", "训练前的损失，按层数")
    return [
        compared("E13 right", ("E13", "no last norm", "没有最后的归一化"))(say),
        curves(lines, title, say("layers of each stack", "每个堆栈的层数"), start=4, step=4),
    ]


def dropout_twice(say: Say) -> list[Panel]:
    names = [say("once", "一次"), say("twice", "两次")]
    shares = [gallery.zeros(0.2, False), gallery.zeros(0.2, True)]
    title = say("zeros in what a sub-layer adds, p = 0.2", "子层输出中零的比例，p = 0.2")
    return [compared("E15 right", ("E15", "twice", "两次"))(say), bars(names, shares, title, "{:.0%}")]


def softmax_twice(say: Say) -> list[Panel]:
    sizes = [13, 1_000, 30_000]
    names = [f"V = {size:,}" for size in sizes]
    title = say("lowest loss that two softmaxes allow", "两次 softmax 时损失的下限")
    return [
        compared("right", ("E24", "softmax twice", "两次 softmax"))(say),
        bars(names, [gallery.softmax_twice(size)[0] for size in sizes], title),
    ]


def blind_row(say: Say) -> list[Panel]:
    rows = gallery.blind_rows()
    shown: list[list[float | None]] = [
        [None if value != value else value for value in row.tolist()] for row in rows.values()
    ]
    title = say("weights if all is hidden", "全部被遮住时的权重")
    names = ["-inf (NaN)", "-1e9", say("safe", "安全")]
    wrong = ("E31 infinity", "-inf", "-inf")
    return [compared("E31 right", wrong)(say), heatmap(shown, title, names, ["k₁", "k₂", "k₃"], 44)]


def at_once(say: Say) -> list[Panel]:
    """Draw how probable each output is for each model of chapter 13."""
    logits, first, second, hidden = start(2, 2, seed=0), start(2, seed=1), start(2, 2, seed=2), start(2, 3, 2, seed=3)
    labels, tokens, links = start(3, 3, seed=0), start(6, 2, seed=0), start(6, 6, seed=100)
    models = [
        (say("one pass", "一遍"), [logits], independent(logits)),
        (say("CTC, 3 positions", "CTC，3 个位置"), [labels], ctc(labels)),
        (say("graph, 6 vertices", "图，6 个顶点"), [tokens, links], graph(tokens, links)),
        (say("step by step", "逐步"), [first, second], step_by_step(first, second)),
    ]
    pairs, rows = [(A, A), (A, B), (B, A), (B, B)], {}
    for name, parameters, probability in models:
        fit(parameters, mean_loss(probability))
        rows[name] = [probability(pair).item() for pair in pairs]
    fit([hidden], masked_loss(hidden))
    known = hidden.softmax(-1)  # the first token of pass 0, the second one of pass 1
    rows[say("mask-predict, 2 passes", "mask-predict，2 遍")] = [
        (known[0, MASK, one] * known[1, one, other]).item() for one, other in pairs
    ]
    title = say("probability of each output; the answers are A B and B A", "每种输出的概率；正确答案是 A B 和 B A")
    return [heatmap(list(rows.values()), title, list(rows), ["A A", "A B", "B A", "B B"], 44)]


QUICK: dict[str, Callable[[Say], list[Panel]]] = {
    "at-once": at_once,
    "positions": positions,
    "scale": scale,
    "masks": masks,
    "residual": residual,
}
TRAINED: dict[str, Callable[[Say], list[Panel]]] = {"heads": heads, "cross": cross, "training": training}
MISTAKES: dict[str, Callable[[Say], list[Panel]]] = {
    "mistake-no-mask": no_mask,
    "mistake-e5": mask_without_heads,
    "mistake-e6": swapped_cross_mask,
    "mistake-e8": dead_layers,
    "mistake-e10": positions_by_row,
    "mistake-e13": without_last_norm,
    "mistake-e15": dropout_twice,
    "mistake-e24": softmax_twice,
    "mistake-e31": blind_row,
}
