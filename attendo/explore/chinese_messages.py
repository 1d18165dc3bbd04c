"""The messages of the library that looking into a model can end with, and how they read in Chinese.

Keys are patterns of the English messages; what their groups found stands in the gaps.
"""

import errno

# What the system says of a file.
FAULTS: dict[int, str] = {
    errno.ENOENT: "没有这个文件或文件夹",
    errno.EACCES: "没有权限",
    errno.EPERM: "不允许这样操作",
    errno.EISDIR: "这是一个文件夹",
    errno.ENOTDIR: "路径中有一部分不是文件夹",
    errno.EEXIST: "文件已经存在",
    errno.ENOSPC: "磁盘已满",
    errno.EROFS: "文件系统只读",
    errno.ENAMETOOLONG: "名字太长",
    errno.EIO: "读写出错",
}

# Words that stand within several messages.
PARTS: dict[str, str] = {
    "encoder": "编码器",
    "decoder": "解码器",
    "words": "词",
    "tokens": "词元",
    "source": "源文",
    "target": "译文",
    "choose one layer (layer=0, --layer 0), or ": "请只选一层（layer=0，--layer 0），或",
    "choose one with --layer, or shorten the text": "请用 --layer 选一层，或缩短文本",
    "shorten the text": "请缩短文本",
    "give links between words (--links words)": "请给出词与词之间的对齐（--links words）",
    "count from 0, or say --links tokens where the links are between the model's tokens": (
        "请从 0 数起；如果对齐的是模型的词元，请加 --links tokens"
    ),
}

_OF_TRACE: dict[str, str] = {
    r"there is no text to trace: give a sentence": "没有可追踪的文本：请给出一句话",
    r"--head and --step choose what the terminal shows, and (--\w+) has all: leave them out": (
        "--head 和 --step 用来选择终端显示的部分，而 {0} 包含全部：请去掉它们"
    ),
    r"the text has (\d+) tokens, and the model reads at most (\d+): shorten it": (
        "文本有 {0} 个词元，模型最多读 {1} 个：请缩短文本"
    ),
    r"the model continues texts and reads no source: take one that has an encoder": (
        "这个模型只续写文本，不读源文：请换一个有编码器的模型"
    ),
    r"(--\w+) would write ([\d,]+) numbers, more than ([\d,]+): (.*)": "{0} 要写出 {1} 个数，超过上限 {2} 个：{3}",
    r"--head (-?\d+): the model has (\d+) heads, counted from 0": "--head {0}：模型有 {1} 个头，从 0 数起",
    r"--step (-?\d+): the target has (\d+) tokens, counted from 0": "--step {0}：译文有 {1} 个词元，从 0 数起",
    r"there is no layer (-?\d+): the model has (\d+) encoder layers and (\d+) decoder layers, counted from 0": (
        "没有第 {0} 层：模型有 {1} 层编码器和 {2} 层解码器，从 0 数起"
    ),
    r"a trace of (\d+) source and (\d+) target tokens has ([\d,]+) numbers of attention alone, more than ([\d,]+): "
    r"(choose .*, or )?shorten the text": (
        "追踪 {0} 个源文词元和 {1} 个译文词元，仅注意力就有 {2} 个数，超过上限 {3} 个：{4}缩短文本"
    ),
}

_OF_PICTURES: dict[str, str] = {
    r"(.*): a picture is a \.svg, \.png or \.pdf file, by the end of its name": (
        "{0}：图片须是 .svg、.png 或 .pdf 文件，由文件名的结尾决定"
    ),
    r"(.*) needs matplotlib: pip install 'attendo\[plot\]'": "{0} 需要 matplotlib：pip install 'attendo[plot]'",
    r"--all and --head (.*) exclude each other: all heads are drawn, or those that are named": (
        "--all 和 --head {0} 不能同时使用：要么画所有的头，要么画指定的头"
    ),
    r"TEXT is empty: there is nothing to look at": "TEXT 是空的：没有可看的内容",
    r"--site (?:cross|encoder): a decoder-only model reads no source; take decoder, or leave it out": (
        "--site：只有解码器的模型不读源句；请选 decoder，或不写"
    ),
    r"--layer (-?\d+): the (\w+) has (\d+) layers, counted from 0": "--layer {0}：{1}有 {2} 层，从 0 数起",
    r"--head (.*): write mean, or heads from 0 to (\d+) such as 0,1": (
        "--head {0}：请写 mean，或 0 到 {1} 之间的头，例如 0,1"
    ),
    r"scores\.json: alignment_head (.*) is no head of a decoder with (\d+) layers of (\d+) heads, counted from 0: "
    r"attendo heads MODEL FILE --store writes one that is": (
        "scores.json：alignment_head {0} 不是 {1} 层、每层 {2} 个头的解码器的头（从 0 数起）："
        "attendo heads MODEL FILE --store 可写入正确的头"
    ),
}

_OF_HEADS: dict[str, str] = {
    r"builtin has targets and gold links of its own: leave out --target and --gold": (
        "builtin 自带译文和标准对齐：请去掉 --target 和 --gold"
    ),
    r"--gold (.*) needs the targets that its links lead to: give --target FILE too": (
        "--gold {0} 需要它所对齐的译文：请同时给出 --target 文件"
    ),
    r"(.*) has no link that is sure: write source-target counted from 0, such as 0-0 1-2": (
        "{0} 里没有确定的对齐：请写成“源-译”，从 0 数起，例如 0-0 1-2"
    ),
    r"(.*) has no line that could be looked at: each is empty, or its target is": (
        "{0} 里没有可看的行：每一行或它的译文都是空的"
    ),
    r"(.*) ends after (\d+) lines but (.*) has (\d+) or more: they must have equally many": (
        "{0} 只有 {1} 行，而 {2} 至少有 {3} 行：两者的行数必须相同"
    ),
    r"(.*) line (\d+): '(.*)' is no link: write source-target counted from 0, such as 0-0 1-2": (
        "{0} 第 {1} 行：“{2}”不是对齐：请写成“源-译”，从 0 数起，例如 0-0 1-2"
    ),
    r"(.*) line (\d+): link (\d+-\d+) lies outside (\d+) source and (\d+) target (words|tokens): (.*)": (
        "{0} 第 {1} 行：对齐 {2} 超出了 {3} 个源文{5}和 {4} 个译文{5}：{6}"
    ),
    r"(.*) line (\d+): the model's tokens have (\d+) characters and the words of the line (\d+), so that links between "
    r"words cannot be used: give links between its tokens \(--links tokens\)": (
        "{0} 第 {1} 行：模型的词元共 {2} 个字符，而这一行的词共 {3} 个字符，词与词的对齐无法使用："
        "请给出词元之间的对齐（--links tokens）"
    ),
    r"(.*) line (\d+) has (\d+) tokens; the model reads at most (\d+): leave the line out": (
        "{0} 第 {1} 行有 {2} 个词元，模型最多读 {3} 个：请去掉这一行"
    ),
    r"no head can be named best: no target has a token that could be aligned; give targets": (
        "无法选出最好的头：译文里没有可对齐的词元；请给出译文"
    ),
    r"(.*) cannot be opened: (.*)": "无法打开 {0}：{1}",
    r"(.*) line (\d+) is not UTF-8: convert the file, or take the line out": (
        "{0} 第 {1} 行不是 UTF-8：请转换文件编码，或去掉这一行"
    ),
    r"(.*) line (\d+) is not UTF-8: convert the file, or take the line out(?:;) if it is Latin-1: (.*)": (
        "{0} 第 {1} 行不是 UTF-8：请转换文件编码，或去掉这一行；如果是 Latin-1：{2}"
    ),
    r"(.*) is (UTF-16|UTF-32), not UTF-8: convert it: (.*)": "{0} 是 {1}，不是 UTF-8：请转换编码：{2}",
    r"(.*) cannot be written, the disk is full: (.*) needed": "无法写入 {0}，磁盘已满：还需要 {1}",
}

_OF_MODELS: dict[str, str] = {
    r"(.*) is not a folder: give the folder that holds manifest\.json, such as runs/demo/model": (
        "{0} 不是文件夹：请给出含有 manifest.json 的文件夹，例如 runs/demo/model"
    ),
    r"(.*) cannot be read: ([^;]*)": "无法读取 {0}：{1}",
    r"(.*) cannot be read: (.*)(?:; )a model folder needs its tokenizer files": (
        "无法读取 {0}：{1}；模型文件夹需要它的分词器文件"
    ),
    r"(.*) is missing: restore it from a copy": "缺少 {0}：请从备份恢复",
    r"(.*) has (\d+) bytes instead of (\d+): restore it from a copy": "{0} 有 {1} 字节，应为 {2} 字节：请从备份恢复",
    r"(.*) is damaged: its checksum does not match(?: the manifest)?; restore (?:it|the folder) from a copy": (
        "{0} 已损坏：校验和不符；请从备份恢复"
    ),
    r"(.*) is damaged: it is not (?:JSON|a JSON object); restore it from a copy": (
        "{0} 已损坏：不是有效的 JSON；请从备份恢复"
    ),
    r"(.*): expected (.*) version (\d+), found (.*) version (\w+)": "{0}：应为 {1} 版本 {2}，实为 {3} 版本 {4}",
    r"(.*) was exported to (\w+), which computes answers and nothing else: take the model folder that it was made "
    r"from": ("{0} 是导出到 {1} 的模型，只能给出译文：请用导出前的模型文件夹"),
    r"(.*) was exported to (\w+): take the model folder that it was made from": (
        "{0} 是导出到 {1} 的模型：请用导出前的模型文件夹"
    ),
    r"(.*) is a (\w+) model of transformers: attendo import (.*) OUT, then take OUT": (
        "{0} 是 transformers 的 {1} 模型：请先运行 attendo import {2} OUT，再使用 OUT"
    ),
    r"unknown device (.*): use auto, cpu, cuda or cuda:N": "未知设备 {0}：可用 auto、cpu、cuda 或 cuda:N",
    r"device (.*): (\d+) CUDA GPUs are available here; use cpu or auto": (
        "设备 {0}：这里有 {1} 块可用的 CUDA GPU；请用 cpu 或 auto"
    ),
    r"the text (.*) holds half of a surrogate pair: send valid Unicode": (
        "文本 {0} 含有不完整的代理对：请使用有效的 Unicode"
    ),
}

MESSAGES: dict[str, str] = {**_OF_TRACE, **_OF_PICTURES, **_OF_HEADS, **_OF_MODELS}
