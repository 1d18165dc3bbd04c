"""Every message of the server, in English and in Chinese, with the status it goes with."""

from attendo.serve.message import Message
from attendo.serve.messages_of_apis import OF_APIS
from attendo.serve.messages_of_the_page import OF_THE_PAGE

MESSAGES: dict[str, Message] = {
    # what a request is made of
    "bad_json": Message(400, "the body is not JSON: {detail}", "请求体不是有效的 JSON：{detail}"),
    "bad_request": Message(400, "{detail}", "{detail_zh}"),
    "bad_host": Message(
        400,
        "this server is not called {host!r}: use the address that it printed, or name it with --allow-host",
        "本服务器不叫 {host!r}：请用启动时显示的地址，或在启动时用 --allow-host 指定",
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
    "model_error": Message(
        500, "the model is at fault, not what was asked of it: {detail}", "问题出在模型，而不在请求：{detail_zh}"
    ),
    # The gate
    "no_key": Message(
        401,
        "this server answers only with a key: send it as Authorization: Bearer KEY, or in X-API-Key",
        "本服务器需要密钥：请用 Authorization: Bearer KEY 或 X-API-Key 发送",
    ),
    "bad_key": Message(
        401, "this is no key of this server: ask whoever runs it for one", "密钥无效：请向服务器的管理者索取"
    ),
    "bad_http": Message(400, "this is no request that HTTP knows", "这不是有效的 HTTP 请求"),
    "too_many_connections": Message(
        503,
        "this server has {most} connections, and all are being answered: try again in a moment",
        "服务器已有 {most} 个连接，且都在应答：请稍后再试",
    ),
    "bad_form": Message(400, "the form cannot be read: {detail}", "无法读取表单：{detail}"),
    "two_lengths": Message(
        400,
        "the request has both Content-Length and Transfer-Encoding: send one of them",
        "请求同时带有 Content-Length 和 Transfer-Encoding：只能有其中之一",
    ),
    "metrics_closed": Message(
        403,
        "metrics are told to this machine, or with a key: ask from there, or start the server with metrics_open",
        "指标只告诉本机或持有密钥者：请在本机查询，或在启动时打开 metrics_open",
    ),
    # Office: which model, and how much may be asked of it
    "unknown_language": Message(400, "{language} is not among the languages that are served", "不支持语言 {language}"),
    "no_such_pair": Message(
        400, "no model translates from {source} to {target}", "没有从 {source} 到 {target} 的翻译模型"
    ),
    "too_many_texts": Message(
        413,
        "{count} texts in one request, and {most} is the most: send them in several",
        "一次请求有 {count} 段文本，最多 {most} 段：请分几次发送",
    ),
    "text_too_long": Message(
        413,
        "a text has {characters} characters, and {most} is the most: send it in parts",
        "一段文本有 {characters} 个字符，最多 {most} 个：请分段发送",
    ),
    "alignments_too_large": Message(
        413,
        "the alignments may have {count:,} weights, more than the {most:,} of an answer: ask for fewer texts, a "
        "smaller n_best or a smaller max_length",
        "对齐可能含 {count:,} 个权重，超过一次回答的上限 {most:,}：请减少文本，或减小 n_best 或 max_length",
    ),
    "source_too_long": Message(
        413,
        "a text has {tokens} tokens, and {most} is the most: send it in parts",
        "一段文本有 {tokens} 个词元，最多 {most} 个：请分段发送",
    ),
    "above_limit": Message(
        400,
        "{name} is {value}, and {most} is the most that this server allows",
        "{name} 为 {value}，超过了本服务器的上限 {most}",
    ),
    "of_the_server": Message(
        400, "{name} is for whoever runs this server to choose: leave it out", "{name} 由运行服务器的人决定：请去掉"
    ),
    # Our own API
    "one_text_a_stream": Message(
        400,
        "a stream is of one text, and there are {count}: ask for each in a request of its own",
        "一个流只对应一段文本，而这里有 {count} 段：请逐段请求",
    ),
    **OF_THE_PAGE,
    **OF_APIS,
}

SIDES = {"source": "源文", "target": "译文"}
STACKS = {"encoder": "编码器", "decoder": "解码器"}

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
    "literal_error": ("must be one of {expected}", "必须是以下之一：{expected_zh}"),
    "greater_than": ("must be above {gt}", "必须大于 {gt}"),
    "greater_than_equal": ("must be at least {ge}", "不能小于 {ge}"),
    "less_than": ("must be below {lt}", "必须小于 {lt}"),
    "less_than_equal": ("must be at most {le}", "不能大于 {le}"),
    "too_long": ("must have at most {max_length} entries", "最多只能有 {max_length} 项"),
    "too_short": ("must have at least {min_length} entries", "至少要有 {min_length} 项"),
    "string_too_long": ("must have at most {max_length} characters", "最多只能有 {max_length} 个字符"),
}
OTHER_FAULT = ("cannot be used", "无法使用")
