"""Draws how the parts work together: the map of the model, Q·K·V, the shift, a beam, the KV cache, and masks."""

from collections.abc import Callable, Collection

import torch
from attention import attention_scores, safe_softmax
from drawing import Panel, Point, arrow, box, heatmap, length, row_of, stack, stroke, text
from masks import future_mask

Say = Callable[[str, str], str]


def architecture(say: Say, lit: Collection[str]) -> list[Panel]:
    """Draw the encoder above the decoder, with the parts in `lit` filled. `-encoder` leaves the encoder out."""
    if "-encoder" in lit:
        return [Panel(736, 130, f"<g transform='translate(0 -138)'>{''.join(decoder_row(say, lit))}</g>")]
    return [Panel(870, 268, "".join([*encoder_row(say, lit), *decoder_row(say, lit)]))]


def encoder_row(say: Say, lit: Collection[str]) -> list[str]:
    y, drawn = 44.0, []
    drawn += begin_row(say, lit, y, say("source", "源句"), "source")
    blocks = [
        (86, say("self-\nattention", "自注意力"), "encoder-self"),
        (66, say("feed-\nforward", "前馈网络"), "feed-forward"),
    ]
    x = sublayers(say, lit, 226, y, blocks, drawn, say("encoder × N", "编码器 × N"))
    drawn.append(arrow([(x, y + 23), (x + 26, y + 23)]))
    drawn.append(part(lit, "memory", x + 26, y, 78, say("memory", "编码器\n输出")))
    down = x + 26 + 39
    drawn.append(arrow([(down, y + 46), (down, 122), (421, 122), (421, 181)], "c0" if "cross" in lit else "muted"))
    return drawn


def decoder_row(say: Say, lit: Collection[str]) -> list[str]:
    y, drawn = 182.0, []
    alone = "-encoder" in lit
    words = say("source +\ntarget", "源句 +\n目标句") if alone else say("target,\nshifted", "目标句\n右移")
    drawn += begin_row(say, lit, y, words, "target")
    blocks = [
        (86, say("masked self-\nattention", "带掩码的\n自注意力"), "decoder-self"),
        *([] if alone else [(78, say("cross-\nattention", "交叉注意力"), "cross")]),
        (66, say("feed-\nforward", "前馈网络"), "feed-forward"),
    ]
    x = sublayers(say, lit, 226, y, blocks, drawn, say("decoder × N", "解码器 × N"))
    last = [
        (78, say("projection", "投影"), "projection"),
        (64, "softmax", "softmax"),
        (54, say("next\ntoken", "下一个\n词元"), "next"),
    ]
    for width, words, name in last:
        drawn += [arrow([(x, y + 23), (x + 12, y + 23)]), part(lit, name, x + 12, y, width, words)]
        x += 12 + width
    colour = "c0" if "loop" in lit else "faint"
    drawn.append(
        arrow([(x - 27, y + 46), (x - 27, y + 74), (36, y + 74), (36, y + 47)], colour, 2 if "loop" in lit else 1.5)
    )
    label = say("generating: the next token is appended", "生成时：把新词元接到末尾")
    drawn.append(text(440, y + 70, label, "middle", colour="c0" if "loop" in lit else "muted", size=11))
    return drawn


def begin_row(say: Say, lit: Collection[str], y: float, words: str, name: str) -> list[str]:
    """Draw the tokens, the embedding and the positions of one side."""
    lit_positions = "positions" in lit
    plus = f"<circle class='{'c0' if lit_positions else 'paper'} s-muted' cx='190' cy='{y + 23:g}' r='11'/>"
    label = say("positions", "位置编码")
    return [
        part(lit, name, 4, y, 64, words),
        arrow([(68, y + 23), (80, y + 23)]),
        part(lit, "embedding", 80, y, 84, say("embedding", "词嵌入")),
        arrow([(164, y + 23), (179, y + 23)]),
        plus,
        text(190, y + 28, "+", "middle", colour="over" if lit_positions else "ink", size=15),
        text(190, y - 8, label, "middle", colour="c0" if lit_positions else "muted", size=11),
        stroke([(190, y - 4), (190, y + 12)], "c0" if lit_positions else "muted", 1.5),
        arrow([(201, y + 23), (225, y + 23)]),
    ]


def sublayers(
    say: Say, lit: Collection[str], x: float, y: float, blocks: list[tuple[int, str, str]], drawn: list[str], name: str
) -> float:
    """Draw sub-layers with their residual connections in a frame, and return where the frame ends."""
    start, norm = x, "norm" in lit
    x += 10
    for n, (width, words, each) in enumerate(blocks):
        # The residual connection: from before the sub-layer, over it, to the sum.
        drawn.append(
            arrow(
                [(x - 5, y + 23), (x - 5, y - 9), (x + width + 27, y - 9), (x + width + 27, y - 1)],
                "c0" if norm else "muted",
                2 if norm else 1,
            )
        )
        drawn.append(part(lit, each, x, y, width, words))
        drawn.append(arrow([(x + width, y + 23), (x + width + 7, y + 23)]))
        drawn.append(part(lit, "norm", x + width + 7, y, 42, say("add\nnorm", "相加\n归一")))
        x += width + 49
        if n < len(blocks) - 1:
            drawn.append(arrow([(x, y + 23), (x + 12, y + 23)]))
            x += 12
    end = x + 8
    frame = (
        f"x='{start:g}' y='{y - 18:g}' width='{end - start:g}' height='74' rx='8' fill='none' stroke-dasharray='5 4'"
    )
    drawn += [f"<rect class='s-muted' {frame}/>", text(start + 4, y - 24, name, colour="muted", size=11)]
    return end


def part(lit: Collection[str], name: str, x: float, y: float, width: float, words: str) -> str:
    on = name in lit
    return box(x, y, width, 46, words, "c0" if on else "panel", "over" if on else "ink", 11, "c0" if on else "faint")


QUERIES = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]])
KEYS = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
VALUES = torch.tensor([[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]])


def queries_keys_values(say: Say) -> list[Panel]:
    """Draw the three tokens of page 3 from queries to outputs, with the path of the first token framed."""
    scores = attention_scores(QUERIES, KEYS)
    weights = safe_softmax(scores)
    q, k, v = (["q₁", "q₂", "q₃"], ["k₁", "k₂", "k₃"], ["v₁", "v₂", "v₃"])
    first = [(0, 0, 1, 4)]
    top = row_of(
        [
            heatmap(QUERIES.tolist(), say("Q: queries", "Q：查询"), q, (), 34, most=2.5, marked=first),
            sign("×"),
            heatmap(
                KEYS.T.tolist(), say("Kᵀ: keys, as columns", "Kᵀ：键，按列"), (), k, 34, most=2.5, marked=[(0, 2, 4, 1)]
            ),
            sign("÷ √4 ="),
            heatmap(scores.tolist(), say("scores", "分数"), q, k, 34, most=2.5, marked=[(0, 2, 1, 1)]),
        ],
        14,
    )
    bottom = row_of(
        [
            sign("softmax →"),
            heatmap(
                weights.tolist(), say("weights: rows sum to 1", "权重：每行之和为 1"), q, k, 34, marked=[(0, 0, 1, 3)]
            ),
            sign("×"),
            heatmap(VALUES.tolist(), say("V: values", "V：值"), v, (), 34, most=12, marked=[(0, 0, 3, 2)]),
            sign("="),
            heatmap(
                (weights @ VALUES).tolist(),
                say("output", "输出"),
                ["o₁", "o₂", "o₃"],
                (),
                34,
                most=12,
                marked=[(0, 0, 1, 2)],
            ),
        ],
        14,
    )
    return [stack([top, bottom], 22)]


def sign(words: str) -> Panel:
    return Panel(length(words) * 1.3, 120, text(0, 92, words, size=15, colour="muted"))


def shift(say: Say) -> list[Panel]:
    """Draw what the decoder reads and says, in training and while generating."""
    words = ["<bos>", "这只", "猫", "坐下", "了", "<eos>"]
    titles = (
        say("training: the whole target is known", "训练：整个目标句已知"),
        say("generating: each prediction is the next input", "生成：每个预测就是下一个输入"),
    )
    return [shift_panel(say, words, titles[0], False), shift_panel(say, words, titles[1], True)]


def shift_panel(say: Say, words: list[str], title: str, generating: bool) -> Panel:
    left, wide, gap = length(say("predicts", "预测")) + 14, 48, 10
    parts = [text(0, 12, title, weight=600), text(0, 53, say("reads", "读入")), text(0, 153, say("predicts", "预测"))]
    parts.append(box(left, 82, 5 * (wide + gap) - gap, 26, say("decoder", "解码器"), size=11))
    for n in range(5):
        x = left + n * (wide + gap)
        own = generating and n > 0
        parts += [
            box(x, 34, wide, 30, words[n], "paper" if own else "panel", edge="c1" if own else "faint"),
            arrow([(x + wide / 2, 64), (x + wide / 2, 81)]),
            arrow([(x + wide / 2, 108), (x + wide / 2, 133)]),
            box(x, 134, wide, 30, words[n + 1], "paper", edge="c0"),
        ]
        if generating and n < 4:
            bend = x + wide + gap / 2
            parts.append(arrow([(x + wide, 149), (bend, 149), (bend, 49), (bend + gap / 2 + 1, 49)], "c1"))
    return Panel(left + 5 * (wide + gap), 170, "".join(parts))


def beam(say: Say) -> list[Panel]:
    """Draw a beam of width 2 over the table of page 11."""
    first = {"A": 0.6, "B": 0.4}
    second = {"A": {"x": 0.4, "y": 0.3, "z": 0.3}, "B": {"x": 0.9, "y": 0.05, "z": 0.05}}
    title = say("beam of width 2: probability of each prefix", "束宽为 2：每个前缀的概率")
    parts = [text(0, 12, title, weight=600), box(0, 114, 64, 30, "<bos>")]
    ends = {f"{a} {b}": first[a] * p for a in first for b, p in second[a].items()}
    kept = sorted(ends, key=lambda name: -ends[name])[:2]
    y = 36.0
    for a, p in first.items():
        middle = y + 36
        parts += [branch((64, 129), (130, middle + 15), True), box(130, middle, 92, 30, f"{a}   {p:.2f}", edge="c0")]
        for b in second[a]:
            name = f"{a} {b}"
            on = name in kept
            parts += [
                branch((222, middle + 15), (300, y + 15), on),
                box(300, y, 108, 30, f"{name}   {ends[name]:.2f}", "panel" if on else "paper", "ink" if on else "muted",
                    edge="c0" if on else "faint"),
            ]  # fmt: skip
            word = say("kept", "保留") if on else say("cut", "舍弃")
            if name == "B x":
                word = say("best", "最好")
            elif name == "A x":
                word = say("kept; greedy ends here", "保留；贪心停在这里")
            parts.append(text(418, y + 19, word, colour="c0" if on else "muted"))
            y += 36
        y += 10
    return [Panel(420 + length(say("kept; greedy ends here", "保留；贪心停在这里")), y - 10, "".join(parts))]


def branch(start: Point, end: Point, on: bool) -> str:
    return stroke([start, end], "c0" if on else "hatch", 2 if on else 1, dashed=not on)


def cache(say: Say) -> list[Panel]:
    """Draw which positions each step computes, without and with a KV cache."""
    return [
        cache_panel(say, say("without a cache", "没有缓存"), False),
        cache_panel(say, say("with a KV cache", "有 KV 缓存"), True),
    ]


def cache_panel(say: Say, title: str, stored: bool) -> Panel:
    words, cell, wide = ["<bos>", "这只", "猫", "坐下", "了"], 36, 56
    left = length(say("step 5", "第 5 步")) + 12
    total = 0
    parts = []
    for n, word in enumerate(words):
        parts.append(text(left + (n + 0.5) * wide, 42, word, "middle", colour="muted"))
        y = 50 + n * cell
        parts.append(text(0, y + 22, say(f"step {n + 1}", f"第 {n + 1} 步")))
        for m in range(n + 1):
            new = m == n or not stored
            total += new
            name = say("compute", "计算") if new else say("stored", "已存")
            parts.append(
                box(
                    left + m * wide + 2,
                    y + 2,
                    wide - 4,
                    cell - 4,
                    name,
                    "c0" if new else "panel",
                    "over" if new else "muted",
                    10,
                )
            )
    count = say(f"{title}: {total} positions computed", f"{title}：计算 {total} 个位置")
    return Panel(left + 5 * wide, 50 + 5 * cell, text(0, 12, count, weight=600) + "".join(parts))


def kinds_of_masks(say: Say) -> list[Panel]:
    """Draw what each position may attend to: encoder-decoder, causal language model, prefix language model."""
    source, target = ["The", "cat", "sat"], ["<bos>", "这只", "猫", "坐下"]
    row = [*source, *target]
    causal = (~future_mask(7)).float()
    prefix = causal.clone()
    prefix[:3, :3] = 1
    both = prefix.clone()
    panels = [
        (both, say("encoder–decoder", "编码器–解码器"), [(0, 0, 3, 3), (3, 0, 4, 3), (3, 3, 4, 4)]),
        (causal, say("decoder-only, causal", "只有解码器，因果"), []),
        (prefix, say("decoder-only, prefix LM", "只有解码器，前缀"), []),
    ]
    axes = say("position", "位置"), say("may attend to", "可以关注")
    return [
        heatmap([[value or None for value in line] for line in each.tolist()], title, row if n == 0 else (), row, 25,
                (axes[0] if n == 0 else "", axes[1]), most=1.6, marked=marked)
        for n, (each, title, marked) in enumerate(panels)
    ]  # fmt: skip


DRAWN: dict[str, Callable[[Say], list[Panel]]] = {
    "queries-keys-values": queries_keys_values,
    "shift": shift,
    "beam": beam,
    "cache": cache,
    "kinds-of-masks": kinds_of_masks,
}
