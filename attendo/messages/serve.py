"""Messages of the server: requests that are refused, each with its HTTP status."""

from attendo.messages.message import Message

_SIDES = {"side": {"source": "源文", "target": "译文"}}
_STACKS = {"stack": {"encoder": "编码器", "decoder": "解码器"}}

MESSAGES: dict[str, Message] = {
    "bad_json": Message("the body is not JSON: {detail}", "请求体不是有效的 JSON：{detail}", status=400),
    "bad_request": Message("{detail}", "{detail}", status=400),
    "bad_host": Message(
        "this server is not called {host!r}: use the address that it printed, or name it with --allow-host",
        "本服务器不叫 {host!r}：请用启动时显示的地址，或在启动时用 --allow-host 指定",
        status=400,
    ),
    "bad_encoding": Message(
        "a body with Content-Encoding {encoding} is not read: send it as it is",
        "不接受 Content-Encoding 为 {encoding} 的请求体：请直接发送原文",
        status=415,
    ),
    "headers_too_large": Message(
        "the headers have more than {most} bytes: send fewer", "请求头超过 {most} 字节：请减少", status=431
    ),
    "body_too_large": Message(
        "the body has more than {most} bytes: send a shorter text", "请求体超过 {most} 字节：请缩短文本", status=413
    ),
    "body_too_slow": Message(
        "the body did not arrive in {seconds:g} s: send it again",
        "请求体在 {seconds:g} 秒内没有到齐：请重新发送",
        status=408,
    ),
    "not_found": Message("there is nothing at {path}", "{path} 处没有内容", status=404),
    "bad_method": Message("{path} does not take {method}", "{path} 不支持 {method} 方法", status=405),
    "busy": Message(
        "{waiting} requests are waiting for this model already: try again in a moment",
        "已有 {waiting} 个请求在等待这个模型：请稍后再试",
        status=429,
    ),
    "too_late": Message(
        "the answer was not ready in time: send a shorter text, or try again when there is less to do",
        "未能在规定时间内得出回答：请缩短文本，或等服务器空闲些再试",
        status=504,
    ),
    "draining": Message(
        "this server is being shut down and takes nothing new: ask another one",
        "服务器正在关闭，不再接受新请求：请换一台服务器",
        status=503,
    ),
    "stopped": Message(
        "the part of this server that computes has stopped: it must be started again; its log says why",
        "服务器的计算部分已停止：需要重新启动；原因见日志",
        status=503,
    ),
    "failed": Message(
        "something went wrong in the server: its terminal says what", "服务器内部出错：详情见运行它的终端", status=500
    ),
    "model_error": Message(
        "the model is at fault, not what was asked of it: {detail}", "问题出在模型，而不在请求：{detail}", status=500
    ),
    "no_key": Message(
        "this server answers only with a key: send it as Authorization: Bearer KEY, or in X-API-Key",
        "本服务器需要密钥：请用 Authorization: Bearer KEY 或 X-API-Key 发送",
        status=401,
    ),
    "bad_key": Message(
        "this is no key of this server: ask whoever runs it for one", "密钥无效：请向服务器的管理者索取", status=401
    ),
    "bad_http": Message("this is no request that HTTP knows", "这不是有效的 HTTP 请求", status=400),
    "too_many_connections": Message(
        "this server has {most} connections, and all are being answered: try again in a moment",
        "服务器已有 {most} 个连接，且都在应答：请稍后再试",
        status=503,
    ),
    "bad_form": Message("the form cannot be read: {detail}", "无法读取表单：{detail}", status=400),
    "two_lengths": Message(
        "the request has both Content-Length and Transfer-Encoding: send one of them",
        "请求同时带有 Content-Length 和 Transfer-Encoding：只能有其中之一",
        status=400,
    ),
    "metrics_closed": Message(
        "metrics are told to this machine, or with a key: ask from there, or start the server with metrics_open",
        "指标只告诉本机或持有密钥者：请在本机查询，或在启动时打开 metrics_open",
        status=403,
    ),
    "unknown_language": Message(
        "{language} is not among the languages that are served", "不支持语言 {language}", status=400
    ),
    "no_such_pair": Message(
        "no model translates from {source} to {target}", "没有从 {source} 到 {target} 的翻译模型", status=400
    ),
    "too_many_texts": Message(
        "{count} texts in one request, and {most} is the most: send them in several",
        "一次请求有 {count} 段文本，最多 {most} 段：请分几次发送",
        status=413,
    ),
    "text_too_long": Message(
        "a text has {characters} characters, and {most} is the most: send it in parts",
        "一段文本有 {characters} 个字符，最多 {most} 个：请分段发送",
        status=413,
    ),
    "alignments_too_large": Message(
        "the alignments may have {count:,} weights, more than the {most:,} of an answer: ask for fewer texts, a smaller n_best or a smaller max_length",
        "对齐可能含 {count:,} 个权重，超过一次回答的上限 {most:,}：请减少文本，或减小 n_best 或 max_length",
        status=413,
    ),
    "source_too_long": Message(
        "a text has {tokens} tokens, and {most} is the most: send it in parts",
        "一段文本有 {tokens} 个词元，最多 {most} 个：请分段发送",
        status=413,
    ),
    "above_limit": Message(
        "{name} is {value}, and {most} is the most that this server allows",
        "{name} 为 {value}，超过了本服务器的上限 {most}",
        status=400,
    ),
    "of_the_server": Message(
        "{name} is for whoever runs this server to choose: leave it out",
        "{name} 由运行服务器的人决定：请去掉",
        status=400,
    ),
    "one_text_a_stream": Message(
        "a stream is of one text, and there are {count}: ask for each in a request of its own",
        "一个流只对应一段文本，而这里有 {count} 段：请逐段请求",
        status=400,
    ),
    "empty_text": Message(
        "the text is empty: write something to look at", "文本是空的：请输入要观察的内容", status=400
    ),
    "no_source": Message(
        "model {model} continues texts and reads no source: the page looks into models that have an encoder",
        "模型 {model} 只续写文本，不读源文：本页面只能观察有编码器的模型",
        status=400,
    ),
    "too_long": Message(
        "the {side} has {tokens} tokens; at most {most} can be shown: choose a part of it",
        "{side}有 {tokens} 个词元，最多能显示 {most} 个：请选取其中一部分",
        _SIDES,
        status=413,
    ),
    "block_too_large": Message(
        "the maps would take {size:.0f} MB, and {most:.0f} MB is the most: choose fewer layers",
        "注意力图共需 {size:.0f} MB，上限为 {most:.0f} MB：请减少层数",
        status=413,
    ),
    "trace_too_large": Message(
        "a ledger of {source} source and {target} target tokens is too much for this model: shorten the text",
        "源文 {source} 个词元、译文 {target} 个词元，对这个模型来说账本太大：请缩短文本",
        status=413,
    ),
    "tree_too_large": Message(
        "the search considered {nodes} hypotheses, and {most} can be shown: take a smaller beam or a shorter text",
        "搜索考虑了 {nodes} 个候选，最多能显示 {most} 个：请减小束宽或缩短文本",
        status=413,
    ),
    "unknown_model": Message(
        "there is no model named {name!r}: {known}", "没有名为 {name!r} 的模型，现有：{known}", status=404
    ),
    "unknown_checkpoint": Message(
        "model {model} has no checkpoint {name!r}: {known}",
        "模型 {model} 没有检查点 {name!r}，现有：{known}",
        status=404,
    ),
    "bad_checkpoint": Message("the checkpoint cannot be read: {detail}", "无法读取检查点：{detail}", status=409),
    "unknown_layer": Message(
        "there is no layer {layer}: the {stack} has {count}, counted from 0",
        "没有第 {layer} 层：{stack}共有 {count} 层，从 0 数起",
        _STACKS,
        status=400,
    ),
    "unknown_site": Message(
        "there is no attention at {site!r}: places are {known}", "{site!r} 处没有注意力，可选：{known}", status=400
    ),
    "unknown_head": Message(
        "there is no head {head!r}: a layer has {count} heads, counted from 0",
        "没有第 {head!r} 个头：每层有 {count} 个头，从 0 数起",
        status=400,
    ),
    "unknown_step": Message(
        "there is no step {step}: the answer has {count}, counted from 0",
        "没有第 {step} 步：这个回答共有 {count} 步，从 0 数起",
        status=400,
    ),
    "unknown_piece": Message(
        "{piece!r} is no piece of the target vocabulary: take one that was offered",
        "目标词表里没有 {piece!r}：请从给出的词元中选取",
        status=400,
    ),
    "forced_control": Message(
        "{piece!r} cannot stand in an answer: only {end} may, as the last one",
        "{piece!r} 不能出现在回答里：只有 {end} 可以，而且必须在最后",
        status=400,
    ),
    "bad_setting": Message("{detail}", "这样的设置不成立：{detail}", status=400),
    "no_training": Message(
        "model {model} has no metrics.jsonl beside it: there is one where its run folder is kept",
        "模型 {model} 旁边没有 metrics.jsonl：保留训练目录才能看到训练曲线",
        status=404,
    ),
    "bad_training": Message("the metrics cannot be read: {detail}", "无法读取训练记录：{detail}", status=409),
    "no_page": Message("the page has no file {path!r}", "页面没有文件 {path!r}", status=404),
    "too_many_sentences": Message(
        "the texts have {count} sentences, and {most} is the most: send them in several requests",
        "文本共有 {count} 个句子，最多 {most} 个：请分几次发送",
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
        "no model here is for {task}; served are {served}", "这里没有用于 {task} 的模型；现有：{served}", status=400
    ),
    "hf_inputs": Message("inputs must be a text or a list of texts", "inputs 必须是文本或文本列表", status=400),
    "hf_object": Message("{name} must be an object", "{name} 必须是对象", status=400),
    "hf_value": Message("{name} cannot be {value}", "{name} 不能是 {value}", status=400),
    "hf_unused": Message(
        "The following `model_kwargs` are not used by the model: [{names}]", "以下参数无法使用：[{names}]", status=400
    ),
    "hf_languages": Message(
        "model {model} translates from {source} to {target}: leave out src_lang and tgt_lang, or ask another model",
        "模型 {model} 从 {source} 译成 {target}：请去掉 src_lang 和 tgt_lang，或换一个模型",
        status=400,
    ),
    "hf_stream": Message(
        "an answer to inputs comes whole: leave out stream, or ask by chat completion",
        "inputs 的回答不能流式发送：请去掉 stream，或改用对话接口",
        status=400,
    ),
    "no_language": Message(
        "the text is in none of the languages that are served ({languages}): name its language if it is in one of them",
        "文本不属于所支持的语言（{languages}）：如果属于，请注明源语言",
        status=400,
    ),
    "unmet_parameter": Message(
        "{name} cannot be met by this server: leave it out", "本服务器不支持参数 {name}：请去掉", status=400
    ),
    "unknown_parameter": Message(
        "{name} means nothing to this server{suggestion}: leave it out",
        "本服务器不认识参数 {name}{suggestion}：请去掉",
        status=400,
    ),
    "one_stream": Message(
        "a stream is one answer, and n is {count}: ask for n = 1, or without stream",
        "流式回答只有一个，而 n 为 {count}：请把 n 设为 1，或不用流式",
        status=400,
    ),
    "no_user_turn": Message(
        "messages must end with one of the user: there is nothing to answer",
        "messages 必须以用户的消息结尾：没有可回答的内容",
        status=400,
    ),
    "bad_type": Message(
        "type is source or target, not {kind!r}", "type 只能是 source 或 target，不能是 {kind!r}", status=400
    ),
    "pair_too_long": Message(
        "the {side} of a pair has {tokens} tokens, and {most} is the most that is scored: shorten it",
        "一对文本的{side}有 {tokens} 个词元，最多只能给 {most} 个打分：请缩短",
        _SIDES,
        status=413,
    ),
    "no_file": Message(
        "there is no file in the form: send it as the part named file",
        "表单里没有文件：请放在名为 file 的部分",
        status=400,
    ),
    "unknown_format": Message(
        "documents of kind {ending} cannot be translated: send one of {known}",
        "无法翻译 {ending} 文件：请发送以下之一：{known}",
        status=400,
    ),
    "other_format": Message(
        "a document keeps its kind and cannot become {ending}: leave out output_format",
        "文件不能转换成 {ending}：请去掉 output_format",
        status=400,
    ),
    "unknown_encoding": Message(
        "the document says that it is encoded as {encoding}, which is not read: save it as UTF-8",
        "文件自称编码为 {encoding}，无法读取：请另存为 UTF-8",
        status=400,
    ),
    "not_encoded_so": Message(
        "the document is no text in {encoding}: save it as UTF-8",
        "文件不是 {encoding} 文本：请另存为 UTF-8",
        status=400,
    ),
    "document_too_large": Message(
        "the document has more than {most} bytes: send it in parts", "文件超过 {most} 字节：请分成几份", status=413
    ),
    "too_many_documents": Message(
        "{most} documents are kept already: try again when some have been fetched",
        "已存有 {most} 份文件：请等有人取走后再试",
        status=429,
    ),
    "no_room": Message(
        "the document cannot be kept: {detail}; whoever runs this server must make room",
        "无法保存文件：{detail}；请服务器的管理者腾出空间",
        status=507,
    ),
    "unknown_document": Message(
        "there is no document with this id and key: it may have been fetched, or its time is over",
        "没有对应此编号和密钥的文件：可能已被取走，或已过期",
        status=404,
    ),
    "document_not_ready": Message(
        "the document is still being translated: ask again", "文件仍在翻译：请稍后再取", status=503
    ),
    "document_failed": Message("the document could not be translated: {detail}", "文件翻译失败：{detail}", status=404),
    # What is wrong with a field, by the kind of error that pydantic has for it.
    "field_missing": Message("{name} is missing", "{name} 缺失"),
    "field_extra_forbidden": Message("{name} is unknown{suggestion}", "{name} 无法识别{suggestion}"),
    "field_string_type": Message("{name} must be a text", "{name} 必须是文本"),
    "field_bool_type": Message("{name} must be true or false", "{name} 必须是 true 或 false"),
    "field_int_type": Message("{name} must be a whole number", "{name} 必须是整数"),
    "field_int_from_float": Message("{name} must be a whole number", "{name} 必须是整数"),
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
