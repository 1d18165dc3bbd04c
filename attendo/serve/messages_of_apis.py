"""What is refused to programs, ours and those of other servers: in English as those say it, where clients know it."""

from attendo.serve.message import Message

OF_APIS: dict[str, Message] = {
    # LibreTranslate and Hugging Face: in English as their servers say it, where clients know the words
    "too_many_sentences": Message(
        413,
        "the texts have {count} sentences, and {most} is the most: send them in several requests",
        "文本共有 {count} 个句子，最多 {most} 个：请分几次发送",
    ),
    "libre_missing": Message(400, "Invalid request: missing {name} parameter", "请求无效：缺少参数 {name}"),
    "libre_no_text": Message(400, "Invalid request: {name} parameter is not a text", "请求无效：参数 {name} 不是文本"),
    "libre_no_number": Message(
        400, "Invalid request: {name} parameter is not a number", "请求无效：参数 {name} 不是数"
    ),
    "libre_above": Message(
        400, "Invalid request: {name} parameter must be <= {most}", "请求无效：参数 {name} 不能大于 {most}"
    ),
    "libre_too_much": Message(
        400, "Invalid request: request ({size}) exceeds text limit ({most})", "请求无效：{size} 超过文本上限 {most}"
    ),
    "libre_format": Message(400, "{format} format is not supported", "不支持格式 {format}"),
    "libre_unsupported": Message(400, "{language} is not supported", "不支持语言 {language}"),
    "libre_no_pair": Message(
        400,
        "{target_name} ({target}) is not available as a target language from {source_name} ({source})",
        "不能从 {source_name}（{source}）译成 {target_name}（{target}）",
    ),
    "libre_no_suggestions": Message(403, "Suggestions are disabled on this server.", "本服务器不接受译文建议"),
    "libre_no_files": Message(403, "Files translation are disabled on this server.", "本服务器不翻译文件"),
    "hf_task": Message(
        400, "no model here is for {task}; served are {served}", "这里没有用于 {task} 的模型；现有：{served}"
    ),
    "hf_inputs": Message(400, "inputs must be a text or a list of texts", "inputs 必须是文本或文本列表"),
    "hf_object": Message(400, "{name} must be an object", "{name} 必须是对象"),
    "hf_value": Message(400, "{name} cannot be {value}", "{name} 不能是 {value}"),
    "hf_unused": Message(
        400, "The following `model_kwargs` are not used by the model: [{names}]", "以下参数无法使用：[{names}]"
    ),
    "hf_languages": Message(
        400,
        "model {model} translates from {source} to {target}: leave out src_lang and tgt_lang, or ask another model",
        "模型 {model} 从 {source} 译成 {target}：请去掉 src_lang 和 tgt_lang，或换一个模型",
    ),
    "hf_stream": Message(
        400,
        "an answer to inputs comes whole: leave out stream, or ask by chat completion",
        "inputs 的回答不能流式发送：请去掉 stream，或改用对话接口",
    ),
    "no_language": Message(
        400,
        "the text is in none of the languages that are served ({languages}): name its language if it is in one of them",
        "文本不属于所支持的语言（{languages}）：如果属于，请注明源语言",
    ),
    # DeepL and OpenAI
    "unmet_parameter": Message(
        400, "{name} cannot be met by this server: leave it out", "本服务器不支持参数 {name}：请去掉"
    ),
    "unknown_parameter": Message(
        400, "{name} means nothing to this server{near}: leave it out", "本服务器不认识参数 {name}{near_zh}：请去掉"
    ),
    "one_stream": Message(
        400,
        "a stream is one answer, and n is {count}: ask for n = 1, or without stream",
        "流式回答只有一个，而 n 为 {count}：请把 n 设为 1，或不用流式",
    ),
    "no_user_turn": Message(
        400,
        "messages must end with one of the user: there is nothing to answer",
        "messages 必须以用户的消息结尾：没有可回答的内容",
    ),
    "bad_type": Message(400, "type is source or target, not {kind!r}", "type 只能是 source 或 target，不能是 {kind!r}"),
    "pair_too_long": Message(
        413,
        "the {side} of a pair has {tokens} tokens, and {most} is the most that is scored: shorten it",
        "一对文本的{side_zh}有 {tokens} 个词元，最多只能给 {most} 个打分：请缩短",
    ),
    # Documents
    "no_file": Message(
        400, "there is no file in the form: send it as the part named file", "表单里没有文件：请放在名为 file 的部分"
    ),
    "unknown_format": Message(
        400,
        "documents of kind {ending} cannot be translated: send one of {known}",
        "无法翻译 {ending} 文件：请发送以下之一：{known}",
    ),
    "other_format": Message(
        400,
        "a document keeps its kind and cannot become {ending}: leave out output_format",
        "文件不能转换成 {ending}：请去掉 output_format",
    ),
    "unknown_encoding": Message(
        400,
        "the document says that it is encoded as {encoding}, which is not read: save it as UTF-8",
        "文件自称编码为 {encoding}，无法读取：请另存为 UTF-8",
    ),
    "not_encoded_so": Message(
        400, "the document is no text in {encoding}: save it as UTF-8", "文件不是 {encoding} 文本：请另存为 UTF-8"
    ),
    "document_too_large": Message(
        413, "the document has more than {most} bytes: send it in parts", "文件超过 {most} 字节：请分成几份"
    ),
    "too_many_documents": Message(
        429,
        "{most} documents are kept already: try again when some have been fetched",
        "已存有 {most} 份文件：请等有人取走后再试",
    ),
    "no_room": Message(
        507,
        "the document cannot be kept: {detail}; whoever runs this server must make room",
        "无法保存文件：{detail}；请服务器的管理者腾出空间",
    ),
    "unknown_document": Message(
        404,
        "there is no document with this id and key: it may have been fetched, or its time is over",
        "没有对应此编号和密钥的文件：可能已被取走，或已过期",
    ),
    "document_not_ready": Message(503, "the document is still being translated: ask again", "文件仍在翻译：请稍后再取"),
    "document_failed": Message(404, "the document could not be translated: {detail}", "文件翻译失败：{detail}"),
}
