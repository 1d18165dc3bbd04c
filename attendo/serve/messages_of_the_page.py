"""What is refused to whoever looks into a model."""

from attendo.serve.message import Message

OF_THE_PAGE: dict[str, Message] = {
    # what is asked of a model
    "empty_text": Message(400, "the text is empty: write something to look at", "文本是空的：请输入要观察的内容"),
    "no_source": Message(
        400,
        "model {model} continues texts and reads no source: the page looks into models that have an encoder",
        "模型 {model} 只续写文本，不读源文：本页面只能观察有编码器的模型",
    ),
    "too_long": Message(
        413,
        "the {side} has {tokens} tokens; at most {most} can be shown: choose a part of it",
        "{side_zh}有 {tokens} 个词元，最多能显示 {most} 个：请选取其中一部分",
    ),
    "block_too_large": Message(
        413,
        "the maps would take {size:.0f} MB, and {most:.0f} MB is the most: choose fewer layers",
        "注意力图共需 {size:.0f} MB，上限为 {most:.0f} MB：请减少层数",
    ),
    "trace_too_large": Message(
        413,
        "a ledger of {source} source and {target} target tokens is too much for this model: shorten the text",
        "源文 {source} 个词元、译文 {target} 个词元，对这个模型来说账本太大：请缩短文本",
    ),
    "tree_too_large": Message(
        413,
        "the search considered {nodes} hypotheses, and {most} can be shown: take a smaller beam or a shorter text",
        "搜索考虑了 {nodes} 个候选，最多能显示 {most} 个：请减小束宽或缩短文本",
    ),
    "unknown_model": Message(
        404, "there is no model named {name!r}: {known}", "没有名为 {name!r} 的模型，现有：{known}"
    ),
    "unknown_checkpoint": Message(
        404, "model {model} has no checkpoint {name!r}: {known}", "模型 {model} 没有检查点 {name!r}，现有：{known}"
    ),
    "bad_checkpoint": Message(409, "the checkpoint cannot be read: {detail}", "无法读取检查点：{detail}"),
    "unknown_layer": Message(
        400,
        "there is no layer {layer}: the {stack} has {count}, counted from 0",
        "没有第 {layer} 层：{stack_zh}共有 {count} 层，从 0 数起",
    ),
    "unknown_site": Message(
        400,
        "there is no attention at {site!r}: places are {known}",
        "{site!r} 处没有注意力，可选：{known}",
    ),
    "unknown_head": Message(
        400,
        "there is no head {head!r}: a layer has {count} heads, counted from 0",
        "没有第 {head!r} 个头：每层有 {count} 个头，从 0 数起",
    ),
    "unknown_step": Message(
        400,
        "there is no step {step}: the answer has {count}, counted from 0",
        "没有第 {step} 步：这个回答共有 {count} 步，从 0 数起",
    ),
    "unknown_piece": Message(
        400,
        "{piece!r} is no piece of the target vocabulary: take one that was offered",
        "目标词表里没有 {piece!r}：请从给出的词元中选取",
    ),
    "forced_control": Message(
        400,
        "{piece!r} cannot stand in an answer: only {end} may, as the last one",
        "{piece!r} 不能出现在回答里：只有 {end} 可以，而且必须在最后",
    ),
    "bad_setting": Message(400, "{detail}", "这样的设置不成立：{detail_zh}"),
    "no_training": Message(
        404,
        "model {model} has no metrics.jsonl beside it: there is one where its run folder is kept",
        "模型 {model} 旁边没有 metrics.jsonl：保留训练目录才能看到训练曲线",
    ),
    "bad_training": Message(409, "the metrics cannot be read: {detail}", "无法读取训练记录：{detail}"),
    "no_page": Message(404, "the page has no file {path!r}", "页面没有文件 {path!r}"),
}
