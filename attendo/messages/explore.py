"""Messages of traces, pictures and the server."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "unnamed_sentence": Message("a sentence", "某个句子"),
    "alignment_weights_not_matrix": Message(
        "alignment needs weights of shape [target, source]: got {shape}",
        "对齐需要形状为 [译文, 源文] 的权重：实际为 {shape}",
    ),
    "alignment_weights_nan": Message(
        "alignment needs weights that are numbers: got nan, so look for a row with nothing to attend",
        "对齐的权重不能是 NaN：请检查是否有一行的所有位置都被屏蔽",
    ),
    "no_aligned_tokens_counted": Message(
        "no head can be named best: 0 aligned tokens were counted, add sentences with gold links",
        "无法选出最好的头：统计到 0 个已对齐的词元；请加入带标准对齐的句子",
    ),
    "gold_link_outside_weights": Message(
        "gold link (source {source}, target {target}) lies outside weights of {sources} source and {targets} target tokens",
        "标准对齐（源文 {source}，译文 {target}）超出了权重的范围：{sources} 个源文词元，{targets} 个译文词元",
    ),
    "attention_map_not_matrix": Message(
        "attention map {title!r} needs weights of shape [rows, columns]: got {shape}",
        "注意力图 {title!r} 需要形状为 [行, 列] 的权重：实际为 {shape}",
    ),
    "attention_map_label_mismatch": Message(
        "attention map {title!r} needs one label a row and a column: weights {shape}, labels {labels}",
        "注意力图 {title!r} 的每一行和每一列都要有一个标签：权重 {shape}，标签 {labels}",
    ),
    "attention_weight_out_of_range": Message(
        "attention map {title!r} needs weights between 0 and 1, taken after the softmax: got {value}",
        "注意力图 {title!r} 的权重须在 0 和 1 之间，即 softmax 之后的值：实际有 {value}",
    ),
    "metrics_file_without_steps": Message(
        "{path} tells of no step (lines: {count}): wait until the run has taken one",
        "{path} 里没有训练步或验证的记录（行数：{count}）：请等训练完成一步",
    ),
    "run_has_only_validations": Message(
        "{run} tells of no step, only of validations: draw it with --x step",
        "{run} 没有训练步的记录，只有验证的记录：请用 --x step 来画",
    ),
    "metrics_file_unreadable": Message(
        "{path} cannot be read: {reason}; give a run folder or its {file}",
        "无法读取 {path}：{reason}；请给出训练目录，或其中的 {file}",
    ),
    "metrics_line_invalid": Message(
        "{path}, line {line} is not what a run writes: give a run folder or its {file}",
        "{path} 第 {line} 行不是训练记录：请给出训练目录，或其中的 {file}",
    ),
    "no_metrics_to_draw": Message(
        "there is nothing to draw: every step of these runs was skipped", "没有可画的内容：这些训练的每一步都被跳过了"
    ),
    "unknown_run_metric": Message(
        "no metric {metric} in these runs{suggestion}: there is {metrics}",
        "这些训练没有指标 {metric}{suggestion}；可用的指标：{metrics}",
        {"metrics": {"none": "无"}},
    ),
    "plot_needs_matplotlib": Message(
        "attendo plot needs matplotlib: pip install 'attendo[plot]'",
        "attendo plot 需要 matplotlib：pip install 'attendo[plot]'",
    ),
    "no_sentences_for_heads": Message(
        "heads are measured on sentences, and there are none: give lines that are not empty",
        "没有可用来测量注意力头的句子：请给出非空的行",
    ),
    "no_alignable_target_token": Message(
        "no head can be named best: no target has a token that could be aligned; give targets",
        "无法选出最好的头：译文里没有可对齐的词元；请给出译文",
    ),
    "unknown_head_order": Message(
        "heads are sorted by {orders}, not by {order}", "注意力头可按 {orders} 排序，不能按 {order} 排序"
    ),
    "sentence_exceeds_model_length": Message(
        "{place} has {tokens} tokens; the model reads at most {limit}: leave the line out",
        "{place}有 {tokens} 个词元，模型最多读 {limit} 个：请去掉这一行",
        {"place": {"a sentence": "某个句子"}},
    ),
    "sentence_unreadable_by_model": Message(
        "{place} has {tokens} tokens; the model reads at most {limit}: shorten it",
        "{place}有 {tokens} 个词元，模型最多读 {limit} 个：请缩短",
        {"place": {"a sentence": "某个句子"}},
    ),
    "token_word_length_mismatch": Message(
        "{place}: the model's tokens have {token_characters} characters and the words of the line {word_characters}, so that links between words cannot be used: give links between its tokens (--links tokens)",
        "{place}：模型的词元共 {token_characters} 个字符，而这一行的词共 {word_characters} 个字符，词与词的对齐无法使用：请给出词元之间的对齐（--links tokens）",
        {"place": {"a sentence": "某个句子"}},
    ),
    "invalid_gold_link": Message(
        "{place}: {text!r} is no link: write source-target counted from 0, such as 0-0 1-2",
        "{place}：“{text}”不是对齐：请写成“源-译”，从 0 数起，例如 0-0 1-2",
    ),
    "gold_link_outside_sentence": Message(
        "{place}: link {source}-{target} lies outside {sources} source and {targets} target {unit}: {fix}",
        "{place}：对齐 {source}-{target} 超出了 {sources} 个源文{unit}和 {targets} 个译文{unit}：{fix}",
        {
            "unit": {"tokens": "词元", "words": "词"},
            "fix": {
                "give links between words (--links words)": "请给出词与词之间的对齐（--links words）",
                "count from 0, or say --links tokens where the links are between the model's tokens": "请从 0 数起；如果对齐的是模型的词元，请加 --links tokens",
            },
            "place": {"a sentence": "某个句子"},
        },
    ),
    "gold_without_target_sentence": Message(
        "{place} has gold links and no target that they could lead to: give the target too",
        "{place}有标准对齐，却没有译文：请同时给出译文",
        {"place": {"a sentence": "某个句子"}},
    ),
    "gold_without_target_file": Message(
        "--gold {path} needs the targets that its links lead to: give --target FILE too",
        "--gold {path} 需要它所对齐的译文：请同时给出 --target 文件",
    ),
    "no_sure_gold_link": Message(
        "{path} has no link that is sure: write source-target counted from 0, such as 0-0 1-2",
        "{path} 里没有确定的对齐：请写成“源-译”，从 0 数起，例如 0-0 1-2",
    ),
    "no_usable_source_line": Message(
        "{path} has no line that could be looked at: each is empty, or its target is",
        "{path} 里没有可看的行：每一行或它的译文都是空的",
    ),
    "site_needs_encoder": Message(
        "--site {site}: a decoder-only model reads no source; take decoder, or leave it out",
        "--site {site}：只有解码器的模型不读源文；请选 decoder，或不写",
    ),
    "layer_out_of_range": Message(
        "--layer {layer}: the {stack} has {count} layers, counted from 0",
        "--layer {layer}：{stack}有 {count} 层，从 0 数起",
        {"stack": {"encoder": "编码器", "decoder": "解码器"}},
    ),
    "invalid_head_list": Message(
        "--head {heads}: write {mean}, or heads from 0 to {last} such as 0,1",
        "--head {heads}：请写 {mean}，或 0 到 {last} 之间的头，例如 0,1",
    ),
    "attention_maps_not_comparable": Message(
        "a picture is of one or several maps over the same tokens: got {count} maps",
        "一张图片需要一张或多张基于相同词元的注意力图：实际有 {count} 张",
    ),
    "no_attention_maps": Message(
        "a page of heat maps needs at least one attention map: got 0", "热图页面至少需要一张注意力图：实际有 0 张"
    ),
    "matplotlib_missing": Message(
        "{command} needs matplotlib: pip install 'attendo[plot]'",
        "{command} 需要 matplotlib：pip install 'attendo[plot]'",
    ),
    "heat_map_too_narrow": Message(
        "a heat map needs a width of at least {min_width} cells: got {width}",
        "热图的宽度至少要有 {min_width} 格：实际为 {width}",
    ),
    "text_exceeds_model_length": Message(
        "the text has {tokens} tokens, and the model reads at most {limit}: shorten it",
        "文本有 {tokens} 个词元，模型最多读 {limit} 个：请缩短文本",
    ),
    "model_without_encoder": Message(
        "the model continues texts and reads no source: take one that has an encoder",
        "这个模型只续写文本，不读源文：请换一个有编码器的模型",
    ),
    "head_out_of_range": Message(
        "--head {head}: the model has {count} heads, counted from 0", "--head {head}：模型有 {count} 个头，从 0 数起"
    ),
    "step_out_of_range": Message(
        "--step {step}: the target has {count} tokens, counted from 0",
        "--step {step}：译文有 {count} 个词元，从 0 数起",
    ),
    "texts_not_a_list": Message(
        "a list of texts is needed: write [text] for a single one", "texts 必须是列表：只有一段文本时请写成 [text]"
    ),
    "no_language_served": Message(
        "no language can be detected: none is served",
        "无法检测语言：本服务器没有提供任何语言；请在启动时加 --languages，例如 en-zh",
    ),
    "languages_share_script": Message(
        "{languages} share their letters and cannot be told apart by them: name the language of the text, or pip install 'attendo[detect]'",
        "{languages} 使用相同的文字，无法凭字母区分：请指明文本的语言，或运行 pip install 'attendo[detect]'",
    ),
    "documents_folder_unusable": Message(
        "--documents-folder {path} cannot be used: {reason}; name a folder that can be written to",
        "--documents-folder {path} 无法使用：{reason}；请给出可写的文件夹",
    ),
    "key_file_without_keys": Message(
        "--key-file {path} holds no key: write one a line, or leave it out",
        "--key-file {path} 里没有密钥：请每行写一个，或去掉 --key-file",
    ),
    "invalid_api_key": Message(
        "{place}: a key is {min_length} or more letters, digits and signs without a space",
        "{place}：密钥至少要有 {min_length} 个可打印的 ASCII 字符，且不能有空格",
    ),
    "key_file_unreadable": Message(
        "--key-file {path} cannot be read: {reason}",
        "无法读取 --key-file {path}：{reason}",
        {"reason": {"not UTF-8": "不是 UTF-8"}},
    ),
    "model_warm_up_failed": Message(
        "the model {model} cannot answer {text!r}: {reason}", "模型 {model} 无法回答 {text!r}：{reason}"
    ),
    "model_folders_missing": Message(
        "models are missing: name at least one model folder", "models 是空的：请至少给出一个模型文件夹"
    ),
    "worker_thread_died": Message("the thread that computes for the model {name} died", "模型 {name} 的计算线程已终止"),
    "ray_package_missing": Message(
        "a deployment needs {package}: pip install 'attendo[ray]'", "部署需要 {package}：pip install 'attendo[ray]'"
    ),
    "serve_package_missing": Message(
        "a server needs {package}: pip install 'attendo[serve]'", "服务器需要 {package}：pip install 'attendo[serve]'"
    ),
    "host_is_wildcard_address": Message(
        "--host {host} stands for every address: name the one that others reach this machine by",
        "--host {host} 表示本机的所有地址：请给出其他机器访问本机所用的地址",
    ),
    "host_not_local": Message(
        "--host {host} is no address of this machine: take 127.0.0.1, or leave it out",
        "--host {host} 不是本机的地址：请用 127.0.0.1，或去掉 --host",
    ),
    "port_in_use": Message(
        "port {port} is taken on {host}: choose another with --port, or any free one with --port 0",
        "{host} 的端口 {port} 已被占用：请用 --port 换一个，或用 --port 0 任选一个空闲端口",
    ),
    "port_permission_denied": Message(
        "port {port} is not for everybody: choose one above 1023 with --port",
        "使用端口 {port} 需要管理员权限：请用 --port 选一个大于 1023 的端口",
    ),
    "connections_exceed_open_files": Message(
        "connections is {connections}, and {limit} is the most where a process may have {files} files open: set fewer, or allow more files (ulimit -n, LimitNOFILE of systemd)",
        "connections 为 {connections}，而一个进程可打开 {files} 个文件时，上限为 {limit}：请调小，或允许打开更多文件（ulimit -n，systemd 的 LimitNOFILE）",
    ),
    "invalid_host_name": Message(
        "no request calls a server {host}: name it as in translate.example.org or 192.0.2.7, without http:// and without a port",
        "主机 {host} 既不是主机名，也不是 IP 地址：请写成 translate.example.org 或 192.0.2.7 这样，不带 http://，也不带端口",
    ),
    "invalid_cors_origin": Message(
        "no browser says that it asks from {origin}: write it as browsers do, such as https://example.org or http://localhost:3000, without a path; * is every page",
        "来源 {origin} 无效：请按浏览器发送的形式书写，例如 https://example.org 或 http://localhost:3000，不带路径；* 表示允许所有页面",
    ),
    "invalid_language_pair": Message(
        "--languages {value}: name two languages by their codes, such as en-zh",
        "--languages {value}：请用代码给出两种语言，例如 en-zh",
    ),
    "option_model_count_mismatch": Message(
        "{option} is given {given} times for {models} models: give it once for each, in order",
        "{option} 给出了 {given} 次，而模型有 {models} 个：请按顺序为每个模型各给一次",
    ),
    "precision_for_exported_model": Message(
        "--precision is for model folders: one exported to {format} has its own",
        "--precision 只用于模型文件夹：导出到 {format} 的模型有自己的精度",
    ),
    "worker_thread_hung": Message(
        "the thread that computes for the model {name} has done nothing for {seconds:g} s",
        "模型 {name} 的计算线程已 {seconds:g} 秒没有进展",
    ),
    "port_unusable": Message(
        "port {port} of {host} cannot be used: {reason}; choose another with --port",
        "{host} 的端口 {port} 无法使用：{reason}；请用 --port 换一个",
    ),
}
