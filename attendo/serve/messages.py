"""Every message of the server, in English and in Chinese, with the status it goes with."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Message:
    """Both languages have the same gaps to fill."""

    status: int
    english: str
    chinese: str

    def filled(self, values: dict[str, Any]) -> tuple[str, str]:
        return self.english.format(**values), self.chinese.format(**values)


MESSAGES: dict[str, Message] = {
    # what a request is made of
    "bad_json": Message(400, "the body is not JSON: {detail}", "请求体不是有效的 JSON：{detail}"),
    "bad_request": Message(400, "{detail}", "{detail_zh}"),
    "bad_host": Message(
        400,
        "this server is not called {host!r}: use the address that it printed, or start it with --host",
        "本服务器不叫 {host!r}：请用启动时显示的地址，或用 --host 启动",
    ),
    "bad_encoding": Message(
        415,
        "a body with Content-Encoding {encoding} is not read: send it as it is",
        "不接受 Content-Encoding 为 {encoding} 的请求体：请直接发送原文",
    ),
    "headers_too_large": Message(
        431, "the headers have more than {most} bytes: send fewer", "请求头超过 {most} 字节：请减少"
    ),
    "body_too_large": Message(
        413, "the body has more than {most} bytes: send a shorter text", "请求体超过 {most} 字节：请缩短文本"
    ),
    "body_too_slow": Message(
        408, "the body did not arrive in {seconds:g} s: send it again", "请求体在 {seconds:g} 秒内没有到齐：请重新发送"
    ),
    "not_found": Message(404, "there is nothing at {path}", "{path} 处没有内容"),
    "bad_method": Message(405, "{path} does not take {method}", "{path} 不支持 {method} 方法"),
    "busy": Message(
        429,
        "{waiting} requests are waiting for this model already: try again in a moment",
        "已有 {waiting} 个请求在等待这个模型：请稍后再试",
    ),
    "too_late": Message(
        504,
        "the answer was not ready in time: send a shorter text, or try again when there is less to do",
        "未能在规定时间内得出回答：请缩短文本，或等服务器空闲些再试",
    ),
    "draining": Message(
        503,
        "this server is being shut down and takes nothing new: ask another one",
        "服务器正在关闭，不再接受新请求：请换一台服务器",
    ),
    "stopped": Message(
        503,
        "the part of this server that computes has stopped: it must be started again; its log says why",
        "服务器的计算部分已停止：需要重新启动；原因见日志",
    ),
    "failed": Message(
        500, "something went wrong in the server: its terminal says what", "服务器内部出错：详情见运行它的终端"
    ),
    # what is asked of a model
    "empty_text": Message(400, "the text is empty: write something to look at", "文本是空的：请输入要观察的内容"),
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
    "bad_checkpoint": Message(
        409, "the checkpoint cannot be read: {detail}", "无法读取检查点：{detail}"
    ),
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
    "no_page": Message(
        404, "the page has no file {path!r}", "页面没有文件 {path!r}"
    ),
}  # fmt: skip

SIDES = {"source": "源文", "target": "译文"}
STACKS = {"encoder": "编码器", "decoder": "解码器"}

# What the library says of settings that do not go together, in Chinese.
SETTINGS: dict[str, str] = {
    r"groups must divide the beam evenly: (\d+) and (\d+)": "束宽必须能被组数整除：组数 {0}，束宽 {1}",
    r"min_length (\d+) is more than max_length (\d+)": "最小长度 {0} 大于最大长度 {1}",
    r"min_length (\d+) is more than the model can say: (\d+) tokens": "最小长度 {0} 超过了模型最多能说的 {1} 个词元",
    r"groups \((\d+)\) and the stop rule (\w+) .*": "分成 {0} 组的束搜索不能用停止规则 {1}：请改用 first 或 settled",
    r"coverage_penalty and scaled heads .*": "这个模型使用覆盖惩罚，不能同时缩放注意力头",
}

# What is wrong with a value, by the kind that pydantic has for it; gaps are those of its context.
FAULTS: dict[str, tuple[str, str]] = {
    "missing": ("is missing", "缺失"),
    "extra_forbidden": ("is unknown{near}", "无法识别{near_zh}"),
    "string_type": ("must be a text", "必须是文本"),
    "bool_type": ("must be true or false", "必须是 true 或 false"),
    "int_type": ("must be a whole number", "必须是整数"),
    "int_from_float": ("must be a whole number", "必须是整数"),
    "float_type": ("must be a number", "必须是数"),
    "finite_number": ("must be a finite number", "必须是有限的数"),
    "list_type": ("must be a list", "必须是列表"),
    "dict_type": ("must be an object", "必须是对象"),
    "model_type": ("must be an object", "必须是对象"),
    "model_attributes_type": ("must be an object", "必须是对象"),
    "literal_error": ("must be one of {expected}", "必须是以下之一：{expected}"),
    "greater_than": ("must be above {gt}", "必须大于 {gt}"),
    "greater_than_equal": ("must be at least {ge}", "不能小于 {ge}"),
    "less_than": ("must be below {lt}", "必须小于 {lt}"),
    "less_than_equal": ("must be at most {le}", "不能大于 {le}"),
    "too_long": ("must have at most {max_length} entries", "最多只能有 {max_length} 项"),
    "string_too_long": ("must have at most {max_length} characters", "最多只能有 {max_length} 个字符"),
}
OTHER_FAULT = ("cannot be used", "无法使用")
