"""Draws every picture of the lesson from computed values, with labels in one of two languages."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import diagrams
import frame
import gallery
import torch
from applications import sentence_vector
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
from drawing import Line, Panel, bars, curves, heatmap, picture, row_of, stack, text
from feed_forward import FeedForwardNet
from generate import generate
from loss import padded
from masks import generate_square_subsequent_mask
from mistakes import PositionsByRow
from positions import PositionalEncoding, position_table
from torch import Tensor
from torch.nn import functional as F
from translator import Translator, trained

Say = Callable[[str, str], str]
SCORES = torch.tensor([[2.1, 3.5, 1.8, 2.9], [1.2, 4.3, 2.1, 3.7], [0.8, 1.5, 3.2, 2.4], [2.3, 1.9, 2.7, 4.1]])


def all_pictures(language: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the SVG of each picture."""

    def say(english: str, chinese: str) -> str:
        return english if language == "en" else chinese

    for name, draw in {**QUICK, **TRAINED, **MISTAKES, **diagrams.DRAWN, **maps()}.items():
        yield name, picture(draw(say))


def maps() -> dict[str, Callable[[Say], list[Panel]]]:
    """The map of the model for each page, with the parts of the page lit."""
    lit = {f"map-{name[:2]}": frame.frame_of(name)["lit"] for name in frame.names()}
    return {name: partial(diagrams.architecture, lit=parts) for name, parts in lit.items()}


def positions(say: Say) -> list[Panel]:
    table = (position_table(32, 48) + 1) / 2
    title = say(
        "sines and cosines: deep = 1, light = -1; the first columns turn fastest",
        "正弦与余弦：深色 = 1，浅色 = -1；最左边的列变化最快",
    )
    down = [str(n) if n % 4 == 0 else "" for n in range(32)]
    across = [str(n) if n % 8 == 0 else "" for n in range(48)]
    return [heatmap(table.tolist(), title, down, across, 13, (say("position", "位置"), say("component", "分量")))]


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
    title = say("size of the gradient at the input, powers of ten", "传回输入处的梯度大小，对数刻度")
    return [curves(lines, title, say("layers", "层数"), start=1, log=True)]


@cache
def translator() -> Translator:
    return trained()


@torch.no_grad()
def maps_of(sentence: str) -> tuple[dict[str, list[Tensor]], list[str], list[str]]:
    """Return the maps [h, T, S] of each layer by site, the target tokens from BOS to EOS, and the source tokens."""
    made = translator()
    source = made.source(sentence)
    said = made.words(generate(made.network, source, 10)[0])
    _, *found = made.network(source, made.target(said))
    maps = {
        site: [each[0] for each in layers] for site, layers in zip(("encoder", "decoder", "cross"), found, strict=True)
    }
    return maps, ["<bos>", *said.split(), "<eos>"], [*sentence.split(), "<eos>"]


def heads(say: Say) -> list[Panel]:
    """Draw the heads that are the clearest examples of four kinds, found by the weights of four kinds of places."""
    maps, target, source = maps_of("He gave them the book")
    before = clearest(maps["decoder"], lambda w: w.diagonal(-1).mean())
    shared = clearest(maps["encoder"], lambda w: w.mean(0).max())
    aligned = clearest(maps["cross"], lambda w: w.max(-1).values.mean())
    spread = clearest(maps["encoder"], lambda w: -w.max(-1).values.mean())
    read, said = target[:-1], target[1:]
    shown = [
        (before, say("the token before", "前一个词元"), say("decoder", "解码器"), read, read),
        (shared, say("mostly one word", "主要看一个词"), say("encoder", "编码器"), source, source),
        (aligned, say("the translated word", "对应的源词"), say("cross", "交叉"), said, source),
        (spread, say("the whole sentence", "整个句子"), say("encoder", "编码器"), source, source),
    ]
    panels = []
    for (layer, head, weights), name, site, down, across in shown:
        rows: list[list[float | None]] = weights.tolist()
        if site == say("decoder", "解码器"):
            rows = [[None if n > m else value for n, value in enumerate(row)] for m, row in enumerate(rows)]
        where = say(f"{site}, layer {layer + 1}, head {head + 1}", f"{site}，第 {layer + 1} 层，第 {head + 1} 个头")
        panels.append(stack([heatmap(rows, name, down, across, 22), Panel(0, 14, text(0, 12, where, colour="muted"))]))
    return [stack([row_of(panels[:2]), row_of(panels[2:])], 26)]


def clearest(layers: list[Tensor], measure: Callable[[Tensor], Tensor]) -> tuple[int, int, Tensor]:
    """Return the head with the largest measure: its layer, its number, and its map."""
    found = [(float(measure(head)), m, n) for m, layer in enumerate(layers) for n, head in enumerate(layer)]
    _, layer, head = max(found)
    return layer, head, layers[layer][head]


def cross(say: Say) -> list[Panel]:
    maps, target, source = maps_of("The cat sat")
    axes = say("token predicted", "正在预测的词元"), say("source token", "源词元")
    title = say("cross-attention, mean of four heads", "交叉注意力，四个头的平均")
    return [heatmap(maps["cross"][-1].mean(0).tolist(), title, target[1:], source, 48, axes)]


def training(say: Say) -> list[Panel]:
    losses = translator().losses
    means = [sum(losses[n : n + 5]) / 5 for n in range(0, len(losses), 5)]
    title = say("cross-entropy, powers of ten", "交叉熵，对数刻度")
    return [curves([Line(say("loss", "损失"), means)], title, say("step", "步"), step=5, log=True)]


def compared(right: str, *wrong: tuple[str, str, str], top: float | None = None) -> Callable[[Say], Panel]:
    """Draw the loss curves of a right run and of wrong runs; each wrong run has a name in both languages."""

    def draw(say: Say) -> Panel:
        kept = gallery.kept()
        lines = [Line(say("right", "正确"), kept[right]["losses"])]
        lines += [Line(say(english, chinese), kept[name]["losses"]) for name, english, chinese in wrong]
        title = say("training loss, powers of ten", "训练损失，对数刻度")
        return curves(lines, title, say("step", "步"), top, step=gallery.EVERY, log=True)

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
        curves(lines, title, say("layers of each stack", "编码器、解码器各自的层数"), start=4, step=4),
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


@torch.no_grad()
def similarity(say: Say) -> list[Panel]:
    """Draw the cosines of the sentence vectors of the translator's encoder."""
    made = translator()
    sentences = ["The cat sat", "The dog sat", "You trust her", "We respect her", "I have six balls"]
    ids = padded([made.source(each)[0].tolist() for each in sentences])
    vectors = F.normalize(sentence_vector(made.network.encoder(ids)[0], ids))
    title = say("cosine of sentence vectors", "句子向量的余弦")
    return [heatmap((vectors @ vectors.T).tolist(), title, sentences, [str(n) for n in range(1, 6)], 44)]


QUICK: dict[str, Callable[[Say], list[Panel]]] = {
    "at-once": at_once,
    "positions": positions,
    "scale": scale,
    "masks": masks,
    "residual": residual,
}
TRAINED: dict[str, Callable[[Say], list[Panel]]] = {
    "heads": heads,
    "cross": cross,
    "training": training,
    "similarity": similarity,
}
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
