"""Messages of the server: requests that are refused, each with its HTTP status."""

from attendo.messages.message import Message

_SIDES = {"side": {"source": "源文", "target": "译文"}}
_STACKS = {"stack": {"encoder": "编码器", "decoder": "解码器"}}

MESSAGES: dict[str, Message] = {
    "bad_json": Message("the body is not JSON: {detail}", "请求体不是有效的 JSON：{detail}", status=400),
    "bad_request": Message("{detail}", "{detail}", status=400),
    "bad_host": Message(
        "this server does not accept the host {host!r}: use the address that it printed, or start it with --allow-host",
        "本服务器不接受主机 {host!r}：请用启动时显示的地址，或在启动时加 --allow-host",
        status=400,
    ),
    "bad_encoding": Message(
        "Content-Encoding {encoding} is not supported: send the body uncompressed",
        "不支持 Content-Encoding {encoding}：请发送未压缩的请求体",
        status=415,
    ),
    "headers_too_large": Message(
        "the headers have more than {most} bytes: send fewer headers",
        "请求头超过 {most} 字节：请减少请求头",
        status=431,
    ),
    "body_too_large": Message(
        "the body has more than {most} bytes: send a shorter text", "请求体超过 {most} 字节：请缩短文本", status=413
    ),
    "body_too_slow": Message(
        "the body did not arrive in {seconds:g} s: send it again",
        "请求体在 {seconds:g} 秒内没有到齐：请重新发送",
        status=408,
    ),
    "not_found": Message("{path} does not exist", "{path} 不存在", status=404),
    "bad_method": Message("{path} does not support the method {method}", "{path} 不支持 {method} 方法", status=405),
    "busy": Message(
        "{waiting} requests are already waiting for this model: try again later",
        "已有 {waiting} 个请求在等待这个模型：请稍后再试",
        status=429,
    ),
    "too_late": Message(
        "the answer was not ready in time: send a shorter text, or try again later",
        "未能在规定时间内得出回答：请缩短文本，或稍后再试",
        status=504,
    ),
    "draining": Message(
        "this server is shutting down and accepts no new requests: use another server",
        "服务器正在关闭，不再接受新请求：请换一台服务器",
        status=503,
    ),
    "stopped": Message(
        "the worker thread of this server has stopped: restart the server; its log has the reason",
        "服务器的计算线程已停止：请重启服务器；原因见日志",
        status=503,
    ),
    "failed": Message(
        "internal server error: see the log of the server", "服务器内部错误：详情见服务器日志", status=500
    ),
    "model_error": Message("model error: {detail}", "模型错误：{detail}", status=500),
    "no_key": Message(
        "this server needs an API key: send it as Authorization: Bearer KEY, or in X-API-Key",
        "本服务器需要 API 密钥：请用 Authorization: Bearer KEY 或 X-API-Key 发送",
        status=401,
    ),
    "bad_key": Message(
        "the API key is invalid: get a valid key from the administrator of the server",
        "API 密钥无效：请向服务器管理员索取",
        status=401,
    ),
    "bad_http": Message("malformed HTTP request", "HTTP 请求格式错误", status=400),
    "too_many_connections": Message(
        "this server has reached its limit of {most} connections: try again later",
        "服务器已达到 {most} 个连接的上限：请稍后再试",
        status=503,
    ),
    "bad_form": Message("the form cannot be read: {detail}", "无法读取表单：{detail}", status=400),
    "two_lengths": Message(
        "the request has both Content-Length and Transfer-Encoding: send only one of them",
        "请求同时带有 Content-Length 和 Transfer-Encoding：请只发送其中之一",
        status=400,
    ),
    "metrics_closed": Message(
        "metrics are available only from this machine or with a key: send a key, or start the server with metrics_open",
        "指标只对本机或持有密钥的请求开放：请发送密钥，或在启动时打开 metrics_open",
        status=403,
    ),
    "unknown_language": Message(
        "the language {language} is not available on this server", "本服务器没有语言 {language}", status=400
    ),
    "no_such_pair": Message(
        "no model translates from {source} to {target}", "没有从 {source} 到 {target} 的翻译模型", status=400
    ),
    "too_many_texts": Message(
        "the request has {count} texts, and the limit is {most}: send several requests",
        "请求有 {count} 段文本，上限为 {most} 段：请分几次发送",
        status=413,
    ),
    "text_too_long": Message(
        "a text has {characters} characters, and the limit is {most}: send it in parts",
        "一段文本有 {characters} 个字符，上限为 {most} 个：请分段发送",
        status=413,
    ),
    "alignments_too_large": Message(
        "the alignments may have {count:,} weights, and the limit is {most:,}: send fewer texts, or use a smaller n_best or max_length",
        "对齐可能含 {count:,} 个权重，上限为 {most:,}：请减少文本，或减小 n_best 或 max_length",
        status=413,
    ),
    "source_too_long": Message(
        "a text has {tokens} tokens, and the limit is {most}: send it in parts",
        "一段文本有 {tokens} 个词元，上限为 {most} 个：请分段发送",
        status=413,
    ),
    "above_limit": Message(
        "{name} is {value}, and the limit of this server is {most}",
        "{name} 为 {value}，超过了本服务器的上限 {most}",
        status=400,
    ),
    "of_the_server": Message(
        "{name} cannot be set in a request, because the server configures it: leave it out",
        "{name} 由服务器配置，不能在请求中设置：请去掉",
        status=400,
    ),
    "one_text_a_stream": Message(
        "a stream takes one text, not {count}: send one request for each text",
        "一个流只对应一段文本，而这里有 {count} 段：请逐段请求",
        status=400,
    ),
    "empty_text": Message("the text is empty: enter a text", "文本是空的：请输入文本", status=400),
    "no_source": Message(
        "model {model} is decoder-only and reads no source: choose a model that has an encoder",
        "模型 {model} 只有解码器，不读源文：请选择有编码器的模型",
        status=400,
    ),
    "too_long": Message(
        "the {side} has {tokens} tokens, and at most {most} can be shown: choose a part of it",
        "{side}有 {tokens} 个词元，最多能显示 {most} 个：请选取其中一部分",
        _SIDES,
        status=413,
    ),
    "block_too_large": Message(
        "the attention maps need {size:.0f} MB, and the limit is {most:.0f} MB: choose fewer layers",
        "注意力图共需 {size:.0f} MB，上限为 {most:.0f} MB：请减少层数",
        status=413,
    ),
    "trace_too_large": Message(
        "the trace of {source} source and {target} target tokens is too large for this model: shorten the text",
        "源文 {source} 个词元、译文 {target} 个词元，对这个模型来说追踪结果太大：请缩短文本",
        status=413,
    ),
    "tree_too_large": Message(
        "the search considered {nodes} hypotheses, and at most {most} can be shown: use a smaller beam or a shorter text",
        "搜索考虑了 {nodes} 个候选，最多能显示 {most} 个：请减小束宽或缩短文本",
        status=413,
    ),
    "unknown_model": Message("unknown model {name!r}: use {known}", "未知模型 {name!r}：可用 {known}", status=404),
    "unknown_checkpoint": Message(
        "model {model} has no checkpoint {name!r}: use {known}",
        "模型 {model} 没有检查点 {name!r}：可用 {known}",
        status=404,
    ),
    "bad_checkpoint": Message("the checkpoint cannot be read: {detail}", "无法读取检查点：{detail}", status=409),
    "unknown_layer": Message(
        "layer {layer} does not exist: the {stack} has {count} layers, counted from 0",
        "层 {layer} 不存在：{stack}有 {count} 层，从 0 数起",
        _STACKS,
        status=400,
    ),
    "unknown_site": Message(
        "attention site {site!r} does not exist: use {known}", "注意力位置 {site!r} 不存在：可用 {known}", status=400
    ),
    "unknown_head": Message(
        "head {head!r} does not exist: a layer has {count} heads, counted from 0",
        "头 {head!r} 不存在：每层有 {count} 个头，从 0 数起",
        status=400,
    ),
    "unknown_step": Message(
        "step {step} does not exist: the answer has {count} steps, counted from 0",
        "步 {step} 不存在：这个回答有 {count} 步，从 0 数起",
        status=400,
    ),
    "unknown_piece": Message(
        "{piece!r} is not in the target vocabulary: choose one of the offered pieces",
        "目标词表里没有 {piece!r}：请从给出的词元中选取",
        status=400,
    ),
    "forced_control": Message(
        "{piece!r} is not allowed in an answer: only {end} is, as the last piece",
        "{piece!r} 不能出现在回答里：只有 {end} 可以，而且必须在最后",
        status=400,
    ),
    "bad_setting": Message("{detail}", "{detail}", status=400),
    "no_training": Message(
        "model {model} has no metrics.jsonl: keep its run folder to see the training curves",
        "模型 {model} 没有 metrics.jsonl：保留训练目录才能看到训练曲线",
        status=404,
    ),
    "bad_training": Message("the metrics cannot be read: {detail}", "无法读取训练记录：{detail}", status=409),
    "no_page": Message("the page has no file {path!r}", "页面没有文件 {path!r}", status=404),
    "too_many_sentences": Message(
        "the texts have {count} sentences, and the limit is {most}: send several requests",
        "文本共有 {count} 个句子，上限为 {most} 个：请分几次发送",
        status=413,
    ),
    "libre_missing": Message("Invalid request: missing {name} parameter", "请求无效：缺少参数 {name}", status=400),
    "libre_no_text": Message(
        "Invalid request: {name} parameter is not a text", "请求无效：参数 {name} 不是文本", status=400
    ),
    "libre_no_number": Message(
        "Invalid request: {name} parameter is not a number", "请求无效：参数 {name} 不是数", status=400
    ),
    "libre_above": Message(
        "Invalid request: {name} parameter must be <= {most}", "请求无效：参数 {name} 不能大于 {most}", status=400
    ),
    "libre_too_much": Message(
        "Invalid request: request ({size}) exceeds text limit ({most})",
        "请求无效：{size} 超过文本上限 {most}",
        status=400,
    ),
    "libre_format": Message("{format} format is not supported", "不支持格式 {format}", status=400),
    "libre_unsupported": Message("{language} is not supported", "不支持语言 {language}", status=400),
    "libre_no_pair": Message(
        "{target_name} ({target}) is not available as a target language from {source_name} ({source})",
        "不能从 {source_name}（{source}）译成 {target_name}（{target}）",
        status=400,
    ),
    "libre_no_suggestions": Message("Suggestions are disabled on this server.", "本服务器不接受译文建议", status=403),
    "libre_no_files": Message("Files translation are disabled on this server.", "本服务器不翻译文件", status=403),
    "hf_task": Message(
        "this server has no model for {task}; it has {served}",
        "本服务器没有用于 {task} 的模型；现有：{served}",
        status=400,
    ),
    "hf_inputs": Message("inputs must be a string or a list of strings", "inputs 必须是字符串或字符串列表", status=400),
    "hf_object": Message("{name} must be an object", "{name} 必须是对象", status=400),
    "hf_value": Message("{name} cannot be {value}", "{name} 不能是 {value}", status=400),
    "hf_unused": Message(
        "The following `model_kwargs` are not used by the model: [{names}]", "以下参数无法使用：[{names}]", status=400
    ),
    "hf_languages": Message(
        "model {model} translates from {source} to {target}: leave out src_lang and tgt_lang, or use another model",
        "模型 {model} 从 {source} 译成 {target}：请去掉 src_lang 和 tgt_lang，或换一个模型",
        status=400,
    ),
    "hf_stream": Message(
        "answers to inputs cannot be streamed: leave out stream, or use chat completion",
        "inputs 的回答不能流式发送：请去掉 stream，或改用对话接口",
        status=400,
    ),
    "no_language": Message(
        "the text is in none of the available languages ({languages}): if it is, give its language",
        "文本不属于可用的语言（{languages}）：如果属于，请注明源语言",
        status=400,
    ),
    "unmet_parameter": Message(
        "{name} is not supported by this server: leave it out", "本服务器不支持 {name}：请去掉", status=400
    ),
    "unknown_parameter": Message(
        "unknown parameter {name}{suggestion}: leave it out",
        "未知参数 {name}{suggestion}：请去掉",
        status=400,
    ),
    "one_stream": Message(
        "a stream returns one answer, but n is {count}: set n to 1, or leave out stream",
        "流式回答只有一个，而 n 为 {count}：请把 n 设为 1，或去掉 stream",
        status=400,
    ),
    "no_user_turn": Message(
        "messages must end with a user message: there is nothing to answer",
        "messages 必须以用户的消息结尾：没有可回答的内容",
        status=400,
    ),
    "bad_type": Message(
        "type must be source or target, not {kind!r}", "type 只能是 source 或 target，不能是 {kind!r}", status=400
    ),
    "pair_too_long": Message(
        "the {side} of a pair has {tokens} tokens, and the limit is {most}: shorten it",
        "一对文本的{side}有 {tokens} 个词元，上限为 {most} 个：请缩短",
        _SIDES,
        status=413,
    ),
    "no_file": Message(
        "the form has no file: send it as the part named file",
        "表单里没有文件：请放在名为 file 的部分",
        status=400,
    ),
    "unknown_format": Message(
        "documents of type {ending} cannot be translated: send one of {known}",
        "无法翻译 {ending} 文件：请发送以下之一：{known}",
        status=400,
    ),
    "other_format": Message(
        "a document keeps its type and cannot be converted to {ending}: leave out output_format",
        "文件不能转换成 {ending}：请去掉 output_format",
        status=400,
    ),
    "unknown_encoding": Message(
        "the document declares the encoding {encoding}, which is not supported: save it as UTF-8",
        "文件声明的编码 {encoding} 不受支持：请另存为 UTF-8",
        status=400,
    ),
    "not_encoded_so": Message(
        "the document is not valid {encoding} text: save it as UTF-8",
        "文件不是有效的 {encoding} 文本：请另存为 UTF-8",
        status=400,
    ),
    "document_too_large": Message(
        "the document has more than {most} bytes: send it in parts", "文件超过 {most} 字节：请分成几份", status=413
    ),
    "too_many_documents": Message(
        "{most} documents are already stored: try again after some have been downloaded",
        "已存有 {most} 份文件：请等一些文件被下载后再试",
        status=429,
    ),
    "no_room": Message(
        "the document cannot be stored: {detail}; the administrator of the server must free disk space",
        "无法保存文件：{detail}；请服务器管理员腾出磁盘空间",
        status=507,
    ),
    "unknown_document": Message(
        "no document has this id and key: it may have been downloaded already, or has expired",
        "没有对应此编号和密钥的文件：可能已被下载，或已过期",
        status=404,
    ),
    "document_not_ready": Message(
        "the document is still being translated: try again later", "文件仍在翻译：请稍后再试", status=503
    ),
    "document_failed": Message("the document could not be translated: {detail}", "文件翻译失败：{detail}", status=404),
    # What is wrong with a field, by the kind of error that pydantic has for it.
    "field_missing": Message("{name} is missing", "缺少 {name}"),
    "field_extra_forbidden": Message("{name} is unknown{suggestion}", "未知参数 {name}{suggestion}"),
    "field_string_type": Message("{name} must be a string", "{name} 必须是字符串"),
    "field_bool_type": Message("{name} must be true or false", "{name} 必须是 true 或 false"),
    "field_int_type": Message("{name} must be an integer", "{name} 必须是整数"),
    "field_int_from_float": Message("{name} must be an integer", "{name} 必须是整数"),
    "field_float_type": Message("{name} must be a number", "{name} 必须是数"),
    "field_finite_number": Message("{name} must be a finite number", "{name} 必须是有限的数"),
    "field_list_type": Message("{name} must be a list", "{name} 必须是列表"),
    "field_dict_type": Message("{name} must be an object", "{name} 必须是对象"),
    "field_model_type": Message("{name} must be an object", "{name} 必须是对象"),
    "field_model_attributes_type": Message("{name} must be an object", "{name} 必须是对象"),
    "field_literal_error": Message("{name} must be one of {expected}", "{name} 必须是以下之一：{expected}"),
    "field_greater_than": Message("{name} must be above {gt}", "{name} 必须大于 {gt}"),
    "field_greater_than_equal": Message("{name} must be at least {ge}", "{name} 不能小于 {ge}"),
    "field_less_than": Message("{name} must be below {lt}", "{name} 必须小于 {lt}"),
    "field_less_than_equal": Message("{name} must be at most {le}", "{name} 不能大于 {le}"),
    "field_too_long": Message("{name} must have at most {max_length} entries", "{name} 最多只能有 {max_length} 项"),
    "field_too_short": Message("{name} must have at least {min_length} entries", "{name} 至少要有 {min_length} 项"),
    "field_string_too_long": Message(
        "{name} must have at most {max_length} characters", "{name} 最多只能有 {max_length} 个字符"
    ),
    "field_unusable": Message("{name} cannot be used", "{name} 无法使用"),
    "body_not_an_object": Message(
        "the body must be a JSON object, sent as application/json", "请求体必须是 JSON 对象，并以 application/json 发送"
    ),
}
