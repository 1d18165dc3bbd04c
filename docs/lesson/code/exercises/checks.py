"""What a right answer to each exercise does. `python check.py` calls the function that has the exercise's name."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Say = Callable[[str, str], str]
Check = Callable[[Any, Say], None]
CHECKS: dict[int, list[Check]] = {}
PAD = 0


class WrongAnswerError(Exception):
    """An answer is not right. The message says what to look at."""


def on_page(page: int) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS.setdefault(page, []).append(check)
        return check

    return add


def equal(got: Any, wanted: Any, say: Say, hint: tuple[str, str]) -> None:
    """Compare numbers, tensors and lists. Floats may differ by rounding."""
    told = say(f"expected {wanted}, got {got}", f"应为 {wanted}，得到 {got}")
    if isinstance(wanted, Tensor):
        if not isinstance(got, Tensor):
            raise WrongAnswerError(
                say(f"expected a tensor, got {type(got).__name__}", f"应为张量，得到 {type(got).__name__}")
            )
        if got.shape != wanted.shape:
            shapes = list(wanted.shape), list(got.shape)
            raise WrongAnswerError(
                say("expected shape {}, got {}", "形状应为 {}，得到 {}").format(*shapes) + f". {say(*hint)}"
            )
        same = torch.allclose(got.double(), wanted.double(), atol=1e-4, equal_nan=True)
        told = "" if wanted.numel() > 12 else told
    elif isinstance(wanted, float):
        same = isinstance(got, float | int | Tensor) and math.isclose(float(got), wanted, abs_tol=1e-5, rel_tol=1e-4)
    else:
        same = got == wanted
    if not same:
        raise WrongAnswerError(f"{say(*hint)} {told}".strip())


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@on_page(1)
def shift(answer: Any, say: Say) -> None:
    hint = "The input leaves out the last token, the labels the first.", "输入去掉最后一个词元，标签去掉第一个。"
    equal(answer([[1, 5, 6, 2]]), ([[1, 5, 6]], [[5, 6, 2]]), say, hint)
    hint = "A padded row is cut in the same way: EOS is read once.", "补齐过的行也这样切：EOS 会被读入一次。"
    equal(answer([[1, 5, 6, 2], [1, 7, 2, 0]]), ([[1, 5, 6], [1, 7, 2]], [[5, 6, 2], [7, 2, 0]]), say, hint)


@on_page(1)
def embed(answer: Any, say: Say) -> None:
    table, ids = random(9, 16), torch.tensor([[3, 7, 8, 0], [3, 4, 5, 6]])
    got = answer(ids, table)
    unscaled = "Multiply by the root of the width of the table.", "要乘以表的宽度的平方根。"
    equal(got, 4 * table[ids], say, unscaled)


@on_page(2)
def position_table(answer: Any, say: Say) -> None:
    got = answer(50, 6)
    hint = (
        "Row 0 is sin 0 and cos 0 in turn: 0, 1, 0, 1, 0, 1.",
        "第 0 行是交替的 sin 0 和 cos 0：0, 1, 0, 1, 0, 1。",
    )
    equal(got[0] if isinstance(got, Tensor) else got, torch.tensor([0.0, 1, 0, 1, 0, 1]), say, hint)
    wanted = [[f(p / 10000 ** (i / 6)) for i in (0, 2, 4) for f in (math.sin, math.cos)] for p in range(50)]
    hint = "Column 2i has the frequency 10000^(-2i/d_model).", "第 2i 列的频率是 10000^(-2i/d_model)。"
    equal(got, torch.tensor(wanted), say, hint)


@on_page(2)
def move(answer: Any, say: Say) -> None:
    frequencies = 10000 ** (-torch.arange(0, 8, 2) / 8)
    angles = torch.arange(40.0)[:, None] * frequencies
    table = torch.stack((angles.sin(), angles.cos()), -1).flatten(1)
    for start, k in ((0, 1), (5, 3), (20, 19)):
        hint = f"Position {start} moved by {k}.", f"位置 {start} 后移 {k} 个。"
        equal(answer(table[start], k), table[start + k], say, hint)


@on_page(3)
def attention(answer: Any, say: Say) -> None:
    queries, keys, values = random(3, 4), random(5, 4, seed=1), random(5, 2, seed=2)
    weights, output = answer(queries, keys, values)
    hint = (
        "Each row of weights sums to 1: take the softmax over the keys.",
        "每行权重之和为 1：softmax 沿着键的方向。",
    )
    equal(weights.sum(-1), torch.ones(3), say, hint)
    wanted = (queries @ keys.T / 2).softmax(-1)
    hint = "Divide the scores by √d_k. Here d_k is 4.", "分数要除以 √d_k，这里 d_k 是 4。"
    equal(weights, wanted, say, hint)
    equal(output, wanted @ values, say, ("The output is weights times values.", "输出是权重乘以值。"))
    batch = [random(2, 3, 4), random(2, 5, 4, seed=1), random(2, 5, 4, seed=2)]
    hint = (
        "Batches have more axes: swap the last two axes of the keys only.",
        "批次有更多的维：只交换键的最后两维。",
    )
    equal(answer(*batch)[1], (batch[0] @ batch[1].mT / 2).softmax(-1) @ batch[2], say, hint)


@on_page(3)
def softmax_gradient(answer: Any, say: Say) -> None:
    x = torch.tensor([0.1, 0.2, 0.3, 2.0])
    wanted = torch.autograd.functional.jacobian(lambda x: x.softmax(0), x)
    hint = "Diagonal y(1 - y), elsewhere -y_i y_j.", "对角线是 y(1 - y)，其余是 -y_i y_j。"
    equal(answer(x.softmax(0)), wanted, say, hint)


@on_page(4)
def split_heads(answer: Any, say: Say) -> None:
    x = torch.arange(24.0).view(1, 3, 8)
    hint = "Head 0 has the first d_k columns of every token.", "第 0 个头是每个词元的前 d_k 列。"
    equal(answer(x, 2), torch.stack((x[..., :4], x[..., 4:]), dim=1), say, hint)


@on_page(4)
def merge_heads(answer: Any, say: Say) -> None:
    x = torch.arange(48.0).view(2, 3, 8)
    heads = torch.stack((x[..., :4], x[..., 4:]), dim=1)
    hint = "Swap heads and tokens back before joining the last two axes.", "先把头和词元换回来，再合并最后两维。"
    equal(answer(heads), x, say, hint)


@on_page(5)
def decoder_mask(answer: Any, say: Say) -> None:
    target = torch.tensor([[1, 5, 7, PAD], [1, 5, 6, 7]])
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    hint = (
        "Hidden if it is in the future or padding. The diagonal is visible.",
        "在后面，或者是填充，就遮住。对角线可见。",
    )
    equal(answer(target), future | (target == PAD)[:, None, :], say, hint)


@on_page(5)
def leaks(answer: Any, say: Say) -> None:
    def honest(ids: Tensor) -> Tensor:
        return ids.float().cumsum(-1)[..., None]

    def cheating(ids: Tensor) -> Tensor:
        return ids.float().sum(-1, keepdim=True).expand(ids.shape)[..., None]

    ids = torch.tensor([[3, 4, 5, 6]])
    hint = "A running sum reads no later token.", "累加和不读后面的词元。"
    equal(answer(honest, ids), False, say, hint)
    hint = "The sum of all tokens reads later ones.", "全部词元之和读了后面的词元。"
    equal(answer(cheating, ids), True, say, hint)


@on_page(6)
def cross_mask(answer: Any, say: Say) -> None:
    target, source = torch.tensor([[1, 5, 6], [1, 5, PAD]]), torch.tensor([[4, 6, PAD, PAD], [4, 6, 7, 8]])
    wanted = (source == PAD)[:, None, :].expand(2, 3, 4)
    hint = (
        "Rows are target positions, columns source positions. Padding of the source is hidden.",
        "行是目标位置，列是源位置。遮住源句的填充。",
    )
    equal(answer(target, source), wanted, say, hint)


@on_page(6)
def alignment(answer: Any, say: Say) -> None:
    maps = torch.tensor([[[0.9, 0.1, 0.0], [0.4, 0.6, 0.0]], [[0.2, 0.8, 0.0], [0.1, 0.1, 0.8]]])
    hint = "First the mean over the heads, then the largest of each row.", "先对各个头取平均，再取每行的最大值。"
    equal(answer(maps), [0, 2], say, hint)


@on_page(7)
def feed_forward(answer: Any, say: Say) -> None:
    x, w1, b1, w2, b2 = (
        random(2, 3, 4),
        random(4, 8, seed=1),
        random(8, seed=2),
        random(8, 4, seed=3),
        random(4, seed=4),
    )
    hint = (
        "max(0, x W1 + b1) W2 + b2: the ReLU stands between the products.",
        "max(0, x W1 + b1) W2 + b2：ReLU 在两次相乘之间。",
    )
    equal(answer(x, w1, b1, w2, b2), (x @ w1 + b1).relu() @ w2 + b2, say, hint)


@on_page(7)
def parameters(answer: Any, say: Say) -> None:
    equal(answer(512, 2048), 2_099_712, say, ("Two matrices and two biases.", "两个矩阵和两个偏置。"))


@on_page(8)
def layer_norm(answer: Any, say: Say) -> None:
    x, gain, bias = 3 * random(2, 3, 8) + 5, random(8, seed=1), random(8, seed=2)
    got = answer(x, gain, bias)
    hint = (
        "Mean and variance of each token, over the last axis. The variance divides by d, not d - 1.",
        "对每个词元，在最后一维上求均值和方差。方差除以 d，不是 d - 1。",
    )
    equal(got, torch.nn.functional.layer_norm(x, (8,), gain, bias), say, hint)


@on_page(8)
def residual(answer: Any, say: Say) -> None:
    x = random(2, 4)

    def norm(x: Tensor) -> Tensor:
        return x / x.abs().amax(-1, keepdim=True)

    def sublayer(x: Tensor) -> Tensor:
        return x + 1

    hint = (
        "Pre-norm: x + Sub(LN(x)). The sum itself has no norm.",
        "前归一化：x + Sub(LN(x))。和本身不归一化。",
    )
    equal(answer(x, sublayer, norm, True), x + sublayer(norm(x)), say, hint)
    hint = "Post-norm: LN(x + Sub(x)).", "后归一化：LN(x + Sub(x))。"
    equal(answer(x, sublayer, norm, False), norm(x + sublayer(x)), say, hint)


@on_page(9)
def layer_parameters(answer: Any, say: Say) -> None:
    hint = (
        "Encoder: attention, feed-forward, two norms. Decoder: one more attention, one more norm. All with biases.",
        "编码器：注意力、前馈网络、两个归一化。解码器：多一个注意力和一个归一化。全部带偏置。",
    )
    equal(answer(512, 2048), (3_152_384, 4_204_032), say, hint)


@on_page(9)
def shapes(answer: Any, say: Say) -> None:
    wanted = {
        "memory": (2, 7, 512), "logits": (2, 5, 1200),
        "encoder": (2, 8, 7, 7), "decoder": (2, 8, 5, 5), "cross": (2, 8, 5, 7),
    }  # fmt: skip
    got = answer(2, 7, 5, 8, 512, 1200)
    for name, shape in wanted.items():
        hint = f"The shape of {name}: maps are [B, h, queries, keys].", f"{name} 的形状：注意力图是 [B, h, 查询, 键]。"
        equal(tuple(got.get(name, ())), shape, say, hint)


@on_page(10)
def smoothed_cross_entropy(answer: Any, say: Say) -> None:
    logits, labels = random(2, 3, 7), torch.tensor([[3, 4, PAD], [5, PAD, PAD]])
    log_p = logits.log_softmax(-1)
    rows, columns = torch.tensor([0, 0, 1]), torch.tensor([0, 1, 0])
    right = -log_p[rows, columns, labels[rows, columns]].mean()
    uniform = -log_p[rows, columns].mean()
    hint = (
        "With epsilon 0: -log p(label), averaged over the tokens that are not padding.",
        "ε 为 0 时：-log p(标签)，对非填充的词元取平均。",
    )
    equal(answer(logits, labels, 0.0), right, say, hint)
    hint = "epsilon of the probability is spread over the whole vocabulary.", "概率中的 ε 平均分给整个词表。"
    equal(answer(logits, labels, 0.1), 0.9 * right + 0.1 * uniform, say, hint)


@on_page(10)
def learning_rate(answer: Any, say: Say) -> None:
    for step in (1, 4000, 16000):
        wanted = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        hint = (
            f"At step {step}: it rises to step 4000, then falls with the root.",
            f"第 {step} 步：到第 4000 步为止上升，之后按平方根下降。",
        )
        equal(answer(step, 512, 4000), wanted, say, hint)


BOS, A, B, EOS = 0, 1, 2, 3


def next_probabilities(prefix: list[int]) -> list[float]:
    """The table of page 11 as a model: A is the better first word, B begins the better sentence."""
    return {1: [0, 0.6, 0.4, 0], 2: [0, 0.3, 0.3, 0.4] if prefix[-1] == A else [0, 0.05, 0.05, 0.9]}.get(
        len(prefix), [0, 0, 0, 1.0]
    )


@on_page(11)
def greedy(answer: Any, say: Say) -> None:
    hint = (
        "Append the most probable token until EOS. BOS and EOS are not part of the result.",
        "不断追加最可能的词元，直到 EOS。结果不含 BOS 和 EOS。",
    )
    equal(answer(next_probabilities, BOS, EOS, 10), [A], say, hint)
    hint = "Stop after max_new tokens.", "最多生成 max_new 个词元。"
    equal(answer(lambda _: [0, 1, 0, 0], BOS, EOS, 3), [A, A, A], say, hint)


@on_page(11)
def beam(answer: Any, say: Say) -> None:
    ids, score = answer(next_probabilities, BOS, EOS, 2, 10)
    hint = "A beam of 2 keeps B, whose sentence is better.", "束宽为 2 时会保留 B，以它开头的句子更好。"
    equal(ids, [B], say, hint)
    hint = "The score is the sum of log-probabilities, with that of EOS.", "得分是对数概率之和，包括 EOS 的。"
    equal(score, math.log(0.36), say, hint)
    hint = "A beam of 1 is greedy search.", "束宽为 1 就是贪心搜索。"
    equal(answer(next_probabilities, BOS, EOS, 1, 10)[0], [A], say, hint)


@on_page(11)
def top_p(answer: Any, say: Say) -> None:
    p = torch.tensor([0.1, 0.5, 0.05, 0.35])
    hint = (
        "Keep 0.5 and 0.35, whose sum reaches 0.8, and divide by 0.85.",
        "保留 0.5 和 0.35，它们的和达到 0.8，再除以 0.85。",
    )
    equal(answer(p, 0.8), torch.tensor([0.0, 0.5, 0.0, 0.35]) / 0.85, say, hint)
    hint = "The most probable token always stays.", "最可能的词元总是保留。"
    equal(answer(p, 0.01), torch.tensor([0.0, 1.0, 0.0, 0.0]), say, hint)


@on_page(12)
def pack(answer: Any, say: Say) -> None:
    layers = [torch.nn.Linear(4, 4) for _ in range(3)]
    x = random(2, 4)
    weight, bias = answer(*layers)
    hint = "One product gives queries, then keys, then values.", "一次相乘依次得到查询、键、值。"
    equal(x @ weight.T + bias, torch.cat([layer(x) for layer in layers], -1), say, hint)


@on_page(12)
def library_mask(answer: Any, say: Say) -> None:
    hidden = torch.tensor([[[False, True], [False, False]]])
    hint = "In the library True means: may be attended to.", "在库里，True 表示可以关注。"
    equal(answer(hidden), ~hidden, say, hint)


@on_page(13)
def merge(answer: Any, say: Say) -> None:
    for row, wanted in (([1, 1, 9, 2], [1, 2]), ([9, 1, 9, 1, 2, 2], [1, 1, 2]), ([9, 9], [])):
        hint = f"The row {row} with blank 9: merge first, then drop.", f"{row}（9 是空白）：先合并，再去掉空白。"
        equal(list(answer(row, 9)), wanted, say, hint)


@on_page(13)
def mask_again(answer: Any, say: Say) -> None:
    hint = "The positions of the n smallest numbers, in order.", "最小的 n 个数的位置，按顺序。"
    equal(list(answer([0.9, 0.2, 0.8, 0.4], 2)), [1, 3], say, hint)


@on_page(14)
def prefix_mask(answer: Any, say: Say) -> None:
    hidden = torch.ones(5, 5, dtype=torch.bool).triu(1)
    hint = "Without a prefix it is the causal mask.", "没有前缀时就是因果掩码。"
    equal(answer(5, 0), hidden, say, hint)
    hidden[:2, :2] = False
    hint = "Inside the prefix every position sees every other.", "前缀内部，每个位置都能看到其他位置。"
    equal(answer(5, 2), hidden, say, hint)


@on_page(14)
def prompt_and_labels(answer: Any, say: Say) -> None:
    hint = (
        "The input leaves out the last token. Labels of the prompt are -100, which the loss ignores.",
        "输入去掉最后一个词元。提示部分的标签是 -100，损失不计。",
    )
    equal(answer([7, 8, 1], [5, 6, 2]), ([7, 8, 1, 5, 6], [-100, -100, 5, 6, 2]), say, hint)


@on_page(15)
def rank(answer: Any, say: Say) -> None:
    scores = [[-0.1, -0.1, -0.1, -0.1], [-0.15, -0.15], [-2.0]]
    hint = (
        "Divide the sum of each sentence by its number of tokens. Best first.",
        "每个句子的和除以词元数，最好的在前。",
    )
    equal(answer(scores), [0, 1, 2], say, hint)


@on_page(15)
def sentence_vector(answer: Any, say: Say) -> None:
    memory, ids = random(2, 3, 4), torch.tensor([[5, 6, 7], [5, PAD, PAD]])
    wanted = torch.stack((memory[0].mean(0), memory[1, 0]))
    hint = "The mean over the tokens that are not padding.", "对非填充的词元取平均。"
    equal(answer(memory, ids), wanted, say, hint)
