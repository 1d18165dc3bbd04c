"""Values of a trace as formatted tables, and the bilingual strings of its views."""

import math
from dataclasses import dataclass

from torch import Tensor

from attendo.explore.i18n import Language, localise
from attendo.text_model import Trace

ELLIPSIS = "…"
TRACE_STRINGS: dict[str, tuple[str, str]] = {
    "source": ("source", "源句"),
    "read": ("read", "读入"),
    "predicted": ("predicted", "预测"),
    "given": ("target given", "目标句由用户给定"),
    "answered": ("the model's own answer, greedy", "模型自己的回答（贪心解码）"),
    "continued": ("the text, and the model's own continuation, greedy", "原文及模型自己的续写（贪心解码）"),
    "given_whole": ("text given", "文本由用户给定"),
    "unknown": ("not in the vocabulary, read as <unk>", "词表中没有，按 <unk> 读入"),
    "no_mask": ("the decoder's mask is off", "解码器的掩码已关闭"),
    "scaled": ("heads scaled", "被缩放的头"),
    "loss": ("loss a token", "每词元损失"),
    "from_source": ("From text to vectors: the source", "从文本到向量：源句"),
    "from_target": ("From text to vectors: the target, one token behind", "从文本到向量：右移一位的目标句"),
    "encoder_layer": ("Encoder layer {0}", "编码器第 {0} 层"),
    "decoder_layer": ("Decoder layer {0}", "解码器第 {0} 层"),
    "titled": ("{0}: {1}", "{0}：{1}"),
    "self": ("self-attention", "自注意力"),
    "masked_self": ("masked self-attention", "掩码自注意力"),
    "cross": ("attention to the source", "交叉注意力"),
    "feed_forward": ("feed-forward network", "前馈网络"),
    "same": (
        "Layers {0} have the same formulas; --layer N shows one with all its values.",
        "第 {0} 层的公式相同；用 --layer N 查看某一层的全部数值。",
    ),
    "stack_output": ("The end of the stack", "堆叠的输出"),
    "head": ("head {0}", "头 {0}"),
    "maps": (
        "rows: the token being predicted; columns: where it looks",
        "行：正在预测的词元；列：它看向哪里",
    ),
    "maps_source": ("rows: a source token; columns: where it looks", "行：源句词元；列：它看向哪里"),
    "sizes": ("Sizes along the way: mean lengths of vectors", "沿途的大小：向量长度的平均值"),
    "place": ("sub-layer", "子层"),
    "entering": ("comes in ‖x‖", "输入 ‖x‖"),
    "adding": ("adds ‖Sub(x)‖", "子层 ‖Sub(x)‖"),
    "leaving": ("sum ‖x+Sub(x)‖", "相加 ‖x+Sub(x)‖"),
    "share": ("share of the sub-layer", "子层占比"),
    "gain": ("norm, out / in", "归一化前后之比"),
    "output": ("From vectors to text", "从向量到文本"),
    "step": ("step", "步"),
    "token": ("token", "词元"),
    "probability": ("p", "概率"),
    "entropy": ("entropy", "熵"),
    "eos": ("p(</s>)", "p(</s>)"),
    "top": ("most probable", "最可能的词元"),
    "facts": ("What else this run shows", "这次运行还说明了什么"),
    "not_here": ("not in this model, or in training only", "本模型没有，或仅在训练时出现"),
    "more_rows": ("… {0} more rows", "… 另有 {0} 行"),
    "more_columns": ("… {0} more columns", "… 另有 {0} 列"),
    "more_heads": ("… {0} more heads: --head N", "… 另有 {0} 个头：--head N"),
    "written": ("written to {0}", "已写入 {0}"),
    "language": ("中文", "English"),
    "title": ("One run from inside", "一次运行的内部"),
    "point": ("point at a cell to read it", "指向格子可读数值"),
}


@dataclass(frozen=True)
class ValueTable:
    """Part of a matrix as text: row and column labels, cells, and the number of omitted rows and columns."""

    rows: tuple[str, ...]
    columns: tuple[str, ...] | None
    cells: tuple[tuple[str, ...], ...]
    more_rows: int
    more_columns: int


def make_value_table(
    trace: Trace, name: str, head: int = 0, rows: range | None = None, max_size: tuple[int, int] = (8, 8)
) -> ValueTable:
    """Return a traced tensor as text, with at most `max_size` rows and columns. `head` indexes an [H, T, S] tensor."""
    matrix = select_matrix(trace[name], head)
    labels, columns = token_labels(trace, name)
    wanted = list(range(matrix.size(0)) if rows is None else rows)
    shown, width = wanted[: max_size[0]], min(max_size[1], matrix.size(1))
    return ValueTable(
        rows=tuple(labels[n] if labels else "" for n in shown),
        columns=None if columns is None else columns[:width],
        cells=tuple(tuple(format_number(each) for each in matrix[n, :width].tolist()) for n in shown),
        more_rows=len(wanted) - len(shown),
        more_columns=matrix.size(1) - width,
    )


def select_matrix(tensor: Tensor, head: int) -> Tensor:
    """Return a matrix: one head of a 3-d tensor, or a vector as one row."""
    chosen = tensor[head] if tensor.dim() == 3 else tensor
    return chosen[None] if chosen.dim() == 1 else chosen


def format_number(value: float | int) -> str:
    """Format a number in at most eight characters."""
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return "−∞" if value < 0 else str(value)
    told = f"{value:.3f}" if abs(value) < 1000 else f"{value:.2e}"
    return told.replace("-", "−")


def token_labels(trace: Trace, name: str) -> tuple[tuple[str, ...] | None, tuple[str, ...] | None]:
    """Return the tokens that label the rows and the columns of a tensor.

    The label of a decoder row is the predicted token. Keys, values and attention columns have the input tokens as
    labels.
    """
    place, _, kind = name.rpartition(".")
    if kind in ("frequencies", "ids"):
        columns = {"source.ids": trace.source_pieces, "target.ids": trace.read_pieces}.get(name)
        return None, columns
    stack = name.partition(".")[0]
    rows = {"source": trace.source_pieces, "encoder": trace.source_pieces, "target": trace.read_pieces}.get(
        stack, trace.target_pieces
    )
    seen = trace.read_pieces if place.endswith(".self") and stack == "decoder" else trace.source_pieces
    if kind in ("keys", "values", "turned_keys"):
        return seen, None
    return rows, seen if kind in ("products", "scores", "masked", "weights") else None


def origin(trace: Trace) -> str:
    """Return the string key for the origin of the target. A decoder-only target includes the prompt."""
    if trace.config.decoder_only:
        return "given_whole" if trace.given else "continued"
    return "given" if trace.given else "answered"


def heading(trace: Trace) -> list[tuple[str, tuple[str, ...]]]:
    """Return the token rows of the run, each with its string key."""
    rows = [("source", trace.source_pieces), ("read", trace.read_pieces), ("predicted", trace.target_pieces)]
    return rows[1:] if trace.config.decoder_only else rows


def trace_string(key: str, language: Language, *values: object) -> str:
    return localise(TRACE_STRINGS, key, language, *values)
