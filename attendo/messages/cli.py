"""Messages of the command line."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "option_value_unknown": Message("{value!r} is not one of {choices}", "{value!r} 不是 {choices} 之一"),
    "option_value_not_integer": Message("{value!r} is not an integer", "{value!r} 不是整数"),
    "option_value_not_number": Message("{value!r} is not a number", "{value!r} 不是数"),
    "option_value_too_small": Message("{value} is too small: give {least} or more", "{value} 太小：应至少为 {least}"),
    "option_value_too_large": Message("{value} is too large: give {most} or less", "{value} 太大：不能大于 {most}"),
    "output_model_exists": Message(
        "{folder} already contains a model: choose another folder, or replace it (--overwrite)",
        "{folder} 里已有模型：请换一个文件夹，或用 --overwrite 替换它",
    ),
    "too_few_checkpoints": Message(
        "{folder} has {count} checkpoints, fewer than --last {last}: use a smaller --last, or train with a larger train.keep_last",
        "{folder} 有 {count} 个检查点，少于 --last {last}：请减小 --last，或训练时增大 train.keep_last",
    ),
    "random_network_options_with_model": Message(
        "--vocabulary and --preset are for a random network, not for a model folder: leave them out",
        "--vocabulary 和 --preset 只用于随机网络，不能用于模型文件夹：请去掉",
    ),
    "fixed_lengths_with_natural": Message(
        "--source-length and --steps set fixed lengths, but with --natural the lengths come from the file: leave them out",
        "--source-length 和 --steps 用来固定长度，而使用 --natural 时长度由文件决定：请去掉",
    ),
    "natural_without_model": Message(
        "--natural needs a MODEL: random weights have no tokenizer and never end an answer",
        "--natural 需要给出 MODEL：随机权重没有分词器，也不会结束回答",
    ),
    "references_without_natural": Message(
        "--references are the reference answers for the lines of --natural FILE: give --natural too",
        "--references 是 --natural FILE 各行的参考答案：请同时给出 --natural",
    ),
    "option_not_positive_integers": Message(
        "{option} {value}: give integers from 1, separated by commas, such as 1,64",
        "{option} {value}：请给出不小于 1 的整数，用逗号隔开，例如 1,64",
    ),
    "url_or_model_required": Message(
        "the server is missing: give the URL of a running server, or --model FOLDER to start one",
        "缺少服务器：请给出正在运行的服务器的 URL，或用 --model FOLDER 启动一个",
    ),
    "rival_without_model": Message(
        "--rival needs --model FOLDER: it cannot be compared with a server that is already running",
        "--rival 需要 --model FOLDER：不能与已在运行的服务器比较",
    ),
    "body_not_json_object": Message(
        '--body {body}: give a JSON object, such as {{"beam": 4}}',
        '--body {body}：请给出 JSON 对象，例如 {{"beam": 4}}',
    ),
    "option_not_numbers": Message(
        "{option} {value}: give numbers above 0, separated by commas, such as 1,32",
        "{option} {value}：请给出大于 0 的数，用逗号隔开，例如 1,32",
    ),
    "source_length_without_encoder": Message(
        "--source-length is for a model with an encoder, but this model is decoder-only: leave it out",
        "--source-length 只用于有编码器的模型，而这个模型只有解码器：请去掉",
    ),
    "preset_options_with_model": Message(
        "--set and --vocab-size are for a preset, not for a model folder: leave them out",
        "--set 和 --vocab-size 只用于预设，不能用于模型文件夹：请去掉",
    ),
    "model_or_preset_not_found": Message(
        "{model} is neither a model folder nor a preset ({presets})",
        "{model} 既不是模型文件夹，也不是预设（{presets}）",
    ),
    "doctor_input_missing": Message(
        "the input is missing: give a run file, or --source and --target",
        "缺少输入：请给出运行设置文件，或 --source 和 --target",
    ),
    "test_pair_incomplete": Message(
        "give both --test-source and --test-target, or neither", "--test-source 和 --test-target 须同时给出，或都不给"
    ),
    "quick_with_test_text": Message(
        "--quick does not check the test text: leave out --quick, or --test-source and --test-target",
        "--quick 不检查测试文本：请去掉 --quick，或去掉 --test-source 和 --test-target",
    ),
    "metric_list_empty": Message(
        "--metric is empty: give at least one metric, such as bleu", "--metric 是空的：请至少给出一个指标，例如 bleu"
    ),
    "metric_not_for_decoder_only": Message(
        "{metric} scores answers, but a decoder-only model continues text without end: use one of {metrics}, which score the reference as the continuation of the source",
        "{metric} 用于给回答评分，而只有解码器的模型会一直续写文本：请改用 {metrics} 之一，它们把参考译文当作源文的续文来评分",
    ),
    "decoding_option_without_translation": Message(
        "--{option} is for translating, but {metrics} needs no translation: leave it out",
        "--{option} 用于翻译，而 {metrics} 不需要翻译：请去掉",
    ),
    "by_with_compare": Message(
        "--by and --compare cannot be used together: compare all lines, or score them by label",
        "--by 和 --compare 不能同时使用：请比较所有行，或按标签评分",
    ),
    "perplexity_of_translation_file": Message(
        "{metric} needs a model, but --compare {path} is a file of translations: compare with a model folder, or use another metric",
        "{metric} 需要模型，而 --compare {path} 是译文文件：请与模型文件夹比较，或换一个指标",
    ),
    "source_file_empty": Message("{path} is empty: there is nothing to translate", "{path} 是空的：没有可翻译的内容"),
    "comparison_not_found": Message(
        "--compare {path} does not exist: give a model folder or a file of translations",
        "--compare {path} 不存在：请给出模型文件夹或译文文件",
    ),
    "output_overwrites_input": Message(
        "--output {output} would overwrite {path}: choose another file", "--output {output} 会覆盖 {path}：请换一个文件"
    ),
    "target_without_source": Message(
        "--target contains the references of --source: give both, or neither",
        "--target 是 --source 的参考译文：请同时给出，或都不给",
    ),
    "argos_languages_missing": Message(
        "an Argos package needs its languages: give --from-lang and --to-lang, such as --from-lang en --to-lang de",
        "Argos 包需要注明语言：请给出 --from-lang 和 --to-lang，例如 --from-lang en --to-lang de",
    ),
    "comparison_file_without_sentences": Message(
        "{path} has no sentences to compare with: give another file, or leave it out",
        "{path} 里没有可用来比较的句子：请换一个文件，或去掉它",
    ),
    "language_options_not_argos": Message(
        "--from-lang and --to-lang are for argos, not for {format}: leave them out",
        "--from-lang 和 --to-lang 只用于 argos，不能用于 {format}：请去掉",
    ),
    "running_text_required": Message(
        "{model} is a decoder-only model and learns from running text: give --text, not --source and --target",
        "{model} 是只有解码器的模型，用连续文本训练：请给出 --text，不要给 --source 和 --target",
    ),
    "sentence_pairs_required": Message(
        "{model} is an encoder–decoder model and learns from sentence pairs: give --source and --target, not --text",
        "{model} 是编码器–解码器模型，用句对训练：请给出 --source 和 --target，不要给 --text",
    ),
    "unknown_picture_format": Message(
        "{path}: the file name must end in .svg, .png or .pdf",
        "{path}：文件名必须以 .svg、.png 或 .pdf 结尾",
    ),
    "builtin_with_target_or_gold": Message(
        "{task} has its own targets and gold links: leave out --target and --gold",
        "{task} 自带译文和标准对齐：请去掉 --target 和 --gold",
    ),
    "proof_options_with_no_proof": Message(
        "--no-proof skips the comparison: leave out --proof and --json, or --no-proof",
        "--no-proof 不做比较：请去掉 --proof 和 --json，或去掉 --no-proof",
    ),
    "stdin_closed": Message(
        "standard input is closed, but the lines are read from it: use attendo generate MODEL < FILE",
        "标准输入已关闭，而文本行要从中读取：请用 attendo generate MODEL < FILE",
    ),
    "output_file_not_writable": Message(
        "{path} cannot be written: {reason}; choose another file", "无法写入 {path}：{reason}；请换一个文件"
    ),
    "stdin_line_not_utf8": Message(
        "standard input line {line} is not UTF-8: convert the text, or use --errors replace",
        "标准输入第 {line} 行不是 UTF-8：请转换文本编码，或使用 --errors replace",
    ),
    "run_file_not_found": Message(
        "run file {path} cannot be read: No such file or directory", "无法读取运行设置文件 {path}：没有这个文件或文件夹"
    ),
    "all_heads_with_head": Message(
        "--all and --head {heads} cannot be used together: draw all heads, or the heads of --head",
        "--all 和 --head {heads} 不能同时使用：请画所有的头，或 --head 指定的头",
    ),
    "attention_text_empty": Message("TEXT is empty: give a sentence", "TEXT 是空的：请给出一句话"),
    "prepared_folder_missing": Message(
        "the folder for the prepared data is missing: give --out DIR", "缺少存放准备好的数据的文件夹：请给出 --out DIR"
    ),
    "data_already_prepared": Message(
        "data.prepared {folder} is already prepared: give the text files instead",
        "data.prepared {folder} 已是准备好的数据：请改为给出文本文件",
    ),
    "recipe_missing": Message(
        "the recipe is missing: give one, or list them all with --list", "缺少配方：请给出一个，或用 --list 列出全部"
    ),
    "seeds_not_integers": Message(
        "--seeds {value}: give integers, separated by commas, such as 1,2",
        "--seeds {value}：请给出整数，用逗号隔开，例如 1,2",
    ),
    "option_list_empty": Message(
        "{option} {value!r} is an empty list: give values such as {example}, or leave it out to use all",
        "{option} {value!r} 是空的：请给出例如 {example} 的值，或去掉它以使用全部",
    ),
    "list_with_recipe": Message(
        "--list prints all recipes: leave out {recipe}", "--list 会列出所有配方：请去掉 {recipe}"
    ),
    "run_started_by_another_process": Message(
        "another process has started a run in {folder}: wait for it and run the command again, or choose another folder (--out)",
        "另一个进程已在 {folder} 里开始训练：请等它结束后再运行同一命令，或换一个文件夹（--out）",
    ),
    "words_with_json": Message(
        "--words and --json cannot be used together: the JSON output already contains every token",
        "--words 和 --json 不能同时使用：JSON 输出已包含每个词元",
    ),
    "allow_host_missing": Message(
        "--host {host} listens on every address of this machine: use --allow-host to give the host name in requests, such as translate.example.org",
        "--host {host} 会监听本机的所有地址：请用 --allow-host 给出请求所用的主机名，例如 translate.example.org",
    ),
    "server_config_not_readable": Message(
        "the configuration {path} cannot be read: {reason}", "无法读取配置文件 {path}：{reason}"
    ),
    "server_config_not_toml": Message(
        "the configuration {path} is not TOML: {reason}", "配置文件 {path} 不是有效的 TOML：{reason}"
    ),
    "unknown_server_option": Message(
        "{path}: {option} is not an option of attendo serve{suggestion}",
        "{path}：{option} 不是 attendo serve 的选项{suggestion}",
    ),
    "line_not_token_ids": Message(
        "standard input line {line} contains something other than token ids: write them with attendo tokenize --ids",
        "标准输入第 {line} 行含有词元编号以外的内容：请用 attendo tokenize --ids 生成编号",
    ),
    "line_token_ids_invalid": Message("standard input line {line}: {error}", "标准输入第 {line} 行：{error}"),
    "trace_output_too_large": Message(
        "{option} would write {count:,} numbers, more than the limit of {limit:,}: {remedy}",
        "{option} 要写出 {count:,} 个数，超过上限 {limit:,} 个：{remedy}",
        {
            "remedy": {
                "shorten the text": "请缩短文本",
                "choose one with --layer, or shorten the text": "请用 --layer 选一层，或缩短文本",
            }
        },
    ),
    "trace_text_empty": Message("the text is empty: give a sentence to trace", "文本是空的：请给出要追踪的句子"),
    "view_options_with_full_output": Message(
        "--head and --step apply only to the terminal output, but {option} writes everything: leave them out",
        "--head 和 --step 用来选择终端显示的部分，而 {option} 包含全部：请去掉它们",
    ),
    "field_without_text": Message(
        "--field names a field of a .jsonl file of --text: for --file, give --source-field and --target-field",
        "--field 是 --text 的 .jsonl 文件的字段：对 --file 请给出 --source-field 和 --target-field",
    ),
    "training_input_missing": Message(
        "the input is missing: give a run file, or --source, --target and --out, or --text and --out",
        "缺少输入：请给出运行设置文件，或 --source、--target 和 --out，或 --text 和 --out",
    ),
    "options_with_resume": Message(
        "--resume takes all settings from the run folder: leave out {options}; --set and --steps are allowed",
        "--resume 的所有设置都取自运行文件夹：请去掉 {options}；--set 和 --steps 可以使用",
    ),
    "resume_settings_differ": Message(
        "{folder} was started with settings other than {settings}: pass --override to change them",
        "{folder} 开始时的设置与 {settings} 不同：如确要更改，请加 --override",
    ),
    "setting_given_twice": Message(
        "{option} and --set {setting} are the same setting: give only one of them",
        "{option} 和 --set {setting} 是同一个设置：请只给一个",
    ),
    "final_checkpoint_not_saved": Message(
        "training stopped at step {step}, but its checkpoint could not be saved: {reason}",
        "训练在第 {step} 步停止，但检查点无法保存：{reason}",
    ),
    "verify_precision_for_exported_model": Message(
        "--precision {precision} is for model folders, but {model} was exported in a fixed precision: leave it out",
        "--precision {precision} 只用于模型文件夹，而 {model} 是以固定精度导出的：请去掉",
    ),
    "verify_without_sentences": Message(
        "{path} has no sentences to verify with: give some with --source",
        "{path} 里没有可用来验证的句子：请用 --source 给出",
    ),
    "verify_resume_under_torchrun": Message(
        "verify-resume starts its processes itself: run it without torchrun",
        "verify-resume 会自行启动进程：请不要用 torchrun 运行",
    ),
}
