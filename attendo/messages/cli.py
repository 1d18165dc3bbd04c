"""Messages of the command line."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "input_line": Message("line {line}", "第 {line} 行"),
    "run_not_found": Message(
        "{folder} holds no run: name a folder that attendo train wrote",
        "{folder} 里没有训练运行：请给出 attendo train 写出的运行文件夹",
    ),
    "output_model_exists": Message(
        "{folder} holds a model already: name another folder, or replace it (--overwrite)",
        "{folder} 里已有模型：请换一个文件夹，或用 --overwrite 替换它",
    ),
    "too_few_checkpoints": Message(
        "{folder} keeps {count} checkpoints, fewer than --last {last}: take fewer, or train with a larger train.keep_last",
        "{folder} 有 {count} 个检查点，少于 --last {last}：请减小 --last，或训练时增大 train.keep_last",
    ),
    "random_network_options_with_model": Message(
        "--vocabulary and --preset make a random network; a model folder is taken as it is",
        "--vocabulary 和 --preset 只用于随机网络，不能用于模型文件夹：请去掉",
    ),
    "fixed_lengths_with_natural": Message(
        "--source-length and --steps force lengths; with --natural they come from the file",
        "--source-length 和 --steps 用来固定长度，而使用 --natural 时长度由文件决定：请去掉",
    ),
    "natural_without_model": Message(
        "--natural needs a MODEL: random weights know no words and come to no end",
        "--natural 需要给出 MODEL：随机权重没有分词器，也不会结束回答",
    ),
    "references_without_natural": Message(
        "--references are the answers to the lines of a file: name it with --natural",
        "--references 是 --natural FILE 各行的参考答案：请同时给出 --natural",
    ),
    "option_not_positive_integers": Message(
        "{option} {value}: give whole numbers from 1, with commas between them, such as 1,64",
        "{option} {value}：请给出不小于 1 的整数，用逗号隔开，例如 1,64",
    ),
    "url_or_model_required": Message(
        "give the URL of a server that runs, or --model FOLDER to start one",
        "请给出正在运行的服务器的 URL，或用 --model FOLDER 启动一个，二者选一",
    ),
    "rival_without_model": Message(
        "--rival is served beside --model FOLDER: a server that runs has no rival here",
        "--rival 需要 --model FOLDER：不能与已在运行的服务器比较",
    ),
    "body_not_json_object": Message(
        '--body {body}: give a JSON object, such as {{"beam": 4}}',
        '--body {body}：请给出 JSON 对象，例如 {{"beam": 4}}',
    ),
    "option_not_positive_numbers": Message(
        "{option} {value}: give numbers above 0 with commas between them, such as 1,32",
        "{option} {value}：请给出大于 0 的数，用逗号隔开，例如 1,32",
    ),
    "source_length_without_encoder": Message(
        "--source-length is for a model with an encoder, and this one reads no source: leave it out",
        "--source-length 只用于有编码器的模型，而这个模型只有解码器：请去掉",
    ),
    "preset_options_with_model": Message(
        "--set and --vocab-size change a preset; a model folder is shown as it is",
        "--set 和 --vocab-size 只用于预设，不能用于模型文件夹：请去掉",
    ),
    "model_or_preset_not_found": Message(
        "{model} is neither a model folder nor a preset ({presets})",
        "{model} 既不是模型文件夹，也不是预设（{presets}）",
    ),
    "doctor_input_missing": Message(
        "give a run file, or --source and --target", "请给出运行设置文件，或 --source 和 --target"
    ),
    "test_pair_incomplete": Message(
        "give both --test-source and --test-target, or neither", "--test-source 和 --test-target 须同时给出，或都不给"
    ),
    "quick_with_test_text": Message(
        "--quick does not look at the test text: leave one of them out",
        "--quick 不检查测试文本：请去掉 --quick，或去掉 --test-source 和 --test-target",
    ),
    "metric_list_empty": Message(
        "--metric names no score: give at least one, such as bleu", "--metric 里没有评价指标：请至少给出一个，例如 bleu"
    ),
    "metric_not_for_decoder_only": Message(
        "{metric} scores answers, and a decoder-only model continues its text without end: take one of {metrics}, which score the reference as what follows the source",
        "{metric} 用于给回答评分，而只有解码器的模型会一直续写文本：请改用 {metrics} 之一，它们把参考译文当作源文的续文来评分",
    ),
    "decoding_option_without_translation": Message(
        "--{option} is for translating, and {metrics} asks for none: leave it out",
        "--{option} 用于翻译，而 {metrics} 不需要翻译：请去掉",
    ),
    "by_with_compare": Message(
        "--by and --compare exclude each other: compare all lines, or score them by label",
        "--by 和 --compare 不能同时使用：请比较所有行，或按标签评分",
    ),
    "perplexity_of_translation_file": Message(
        "{metric} is of a model: --compare {path} is a file of translations",
        "{metric} 需要模型，而 --compare {path} 是译文文件：请与模型文件夹比较，或换一个指标",
    ),
    "source_file_empty": Message("{path} is empty: there is nothing to translate", "{path} 是空的：没有可翻译的内容"),
    "source_line_count_mismatch": Message(
        "{source} has {source_lines} lines but {path} has {lines}: they must have equally many",
        "{source} 有 {source_lines} 行，而 {path} 有 {lines} 行：两者的行数必须相同",
    ),
    "comparison_not_found": Message(
        "--compare {path}: neither a model folder nor a file of translations",
        "--compare {path} 不存在：请给出模型文件夹或译文文件",
    ),
    "output_overwrites_input": Message(
        "--output {output} would replace {path}: name another file", "--output {output} 会覆盖 {path}：请换一个文件"
    ),
    "target_without_source": Message(
        "--target has the references of --source: name both, or none",
        "--target 是 --source 的参考译文：请同时给出，或都不给",
    ),
    "argos_languages_missing": Message(
        "an Argos package names its languages: --from-lang en --to-lang de, for example",
        "Argos 包需要注明语言：请给出 --from-lang 和 --to-lang，例如 --from-lang en --to-lang de",
    ),
    "comparison_file_without_sentences": Message(
        "{path} has no sentences to compare with: name another file, or leave it out",
        "{path} 里没有可用来比较的句子：请换一个文件，或去掉它",
    ),
    "language_options_not_argos": Message(
        "--from-lang and --to-lang are for argos, not for {format}: leave them out",
        "--from-lang 和 --to-lang 只用于 argos，不能用于 {format}：请去掉",
    ),
    "running_text_required": Message(
        "{model} continues text, and learns from running text: give --text and neither of the others",
        "{model} 是只有解码器的模型，用连续文本训练：请给出 --text，不要给 --source 和 --target",
    ),
    "sentence_pairs_required": Message(
        "{model} answers a source, and learns from pairs: give --source and --target, not --text",
        "{model} 是编码器-解码器模型，用句对训练：请给出 --source 和 --target，不要给 --text",
    ),
    "unknown_picture_format": Message(
        "{path}: a picture is a .svg, .png or .pdf file, by the end of its name",
        "{path}：图片须是 .svg、.png 或 .pdf 文件，由文件名的结尾决定",
    ),
    "builtin_with_target_or_gold": Message(
        "{task} has targets and gold links of its own: leave out --target and --gold",
        "{task} 自带译文和标准对齐：请去掉 --target 和 --gold",
    ),
    "proof_options_with_no_proof": Message(
        "--no-proof makes no comparison: leave out --proof and --json, or --no-proof",
        "--no-proof 不做比较：请去掉 --proof 和 --json，或去掉 --no-proof",
    ),
    "stdin_closed": Message(
        "standard input is closed, and the lines are read from it: attendo generate MODEL < FILE",
        "标准输入已关闭，而文本行要从中读取：attendo generate MODEL < FILE",
    ),
    "input_line_too_long": Message(
        "{text} has {tokens} tokens; the model reads at most {limit}: shorten the line, or take it out",
        "{text}有 {tokens} 个词元，模型最多读 {limit} 个：请缩短这一行，或去掉它",
    ),
    "output_file_not_writable": Message(
        "{path} cannot be written: {reason}; name another file", "无法写入 {path}：{reason}；请换一个文件"
    ),
    "stdin_line_not_utf8": Message(
        "standard input line {line} is not UTF-8: convert the text, or take --errors replace",
        "标准输入第 {line} 行不是 UTF-8：请转换文本编码，或使用 --errors replace",
    ),
    "run_file_not_found": Message(
        "run file {path} cannot be read: No such file or directory", "无法读取运行设置文件 {path}：没有这个文件或文件夹"
    ),
    "unknown_curves_format": Message(
        "{path}: a picture is a .png, .svg or .pdf file, by the end of its name",
        "{path}：图片须是 .png、.svg 或 .pdf 文件，由文件名的结尾决定",
    ),
    "all_heads_with_head": Message(
        "--all and --head {heads} exclude each other: all heads are drawn, or those that are named",
        "--all 和 --head {heads} 不能同时使用：要么画所有的头，要么画指定的头",
    ),
    "attention_text_empty": Message("TEXT is empty: there is nothing to look at", "TEXT 是空的：没有可看的内容"),
    "prepared_folder_missing": Message(
        "name the folder for the prepared data: --out DIR", "请给出存放准备好的数据的文件夹：--out DIR"
    ),
    "data_already_prepared": Message(
        "data.prepared {folder} is prepared already: name the text instead",
        "data.prepared {folder} 已是准备好的数据：请改为给出文本文件",
    ),
    "recipe_missing": Message("name a recipe, or see them all with --list", "请指定一个配方，或用 --list 列出全部"),
    "seeds_not_integers": Message(
        "--seeds {value}: give whole numbers, such as 1,2", "--seeds {value}：请给出整数，例如 1,2"
    ),
    "option_list_empty": Message(
        "{option} {value!r} names none: give some, such as {example}, or leave it out for all",
        "{option} {value!r} 是空的：请给出例如 {example} 的值，或去掉它以使用全部",
    ),
    "list_with_recipe": Message(
        "--list prints all recipes: give it without {recipe}", "--list 会列出所有配方：请去掉 {recipe}"
    ),
    "run_started_by_another_process": Message(
        "another process has begun {folder} meanwhile: wait for it and give the same command again, or name another folder (--out)",
        "另一个进程已在 {folder} 里开始训练：请等它结束后再运行同一命令，或换一个文件夹（--out）",
    ),
    "words_with_json": Message(
        "--words and --json exclude each other: JSON has every token anyway",
        "--words 和 --json 不能同时使用：JSON 输出已包含每个词元",
    ),
    "parallel_line_not_utf8": Message(
        "{path} line {line} is not UTF-8: convert the file, or take the line out",
        "{path} 第 {line} 行不是 UTF-8：请转换文件编码，或去掉这一行",
    ),
    "allow_host_missing": Message(
        "--host {host} is every address of this machine: say with --allow-host what requests call it by, such as translate.example.org",
        "--host {host} 会监听本机的所有地址：请用 --allow-host 给出请求所用的主机名，例如 translate.example.org",
    ),
    "server_config_not_readable": Message(
        "the configuration {path} cannot be read: {reason}", "无法读取配置文件 {path}：{reason}"
    ),
    "server_config_not_toml": Message(
        "the configuration {path} is not TOML: {reason}", "配置文件 {path} 不是有效的 TOML：{reason}"
    ),
    "unknown_server_option": Message(
        "{path}: {option} is no option of attendo serve{suggestion}",
        "{path}：{option} 不是 attendo serve 的选项{suggestion}",
    ),
    "line_not_token_ids": Message(
        "standard input line {line} has something else than ids: attendo tokenize --ids writes them",
        "标准输入第 {line} 行含有词元编号以外的内容：请用 attendo tokenize --ids 生成编号",
    ),
    "line_token_ids_invalid": Message("standard input line {line}: {error}", "标准输入第 {line} 行：{error}"),
    "trace_output_too_large": Message(
        "{option} would write {count:,} numbers, more than {limit:,}: {remedy}",
        "{option} 要写出 {count:,} 个数，超过上限 {limit:,} 个：{remedy}",
        {
            "remedy": {
                "shorten the text": "请缩短文本",
                "choose one with --layer, or shorten the text": "请用 --layer 选一层，或缩短文本",
            }
        },
    ),
    "trace_text_empty": Message("there is no text to trace: give a sentence", "没有可追踪的文本：请给出一句话"),
    "view_options_with_full_output": Message(
        "--head and --step choose what the terminal shows, and {option} has all: leave them out",
        "--head 和 --step 用来选择终端显示的部分，而 {option} 包含全部：请去掉它们",
    ),
    "field_without_text": Message(
        "--field is a field of a .jsonl file of --text: give --source-field and --target-field to --file",
        "--field 是 --text 的 .jsonl 文件的字段：对 --file 请给出 --source-field 和 --target-field",
    ),
    "training_input_missing": Message(
        "give a run file, or --source, --target and --out, or --text and --out",
        "请给出运行设置文件，或 --source、--target 和 --out，或 --text 和 --out",
    ),
    "options_with_resume": Message(
        "--resume takes all settings from the run's folder: leave {options} out; --set and --steps may be given with it",
        "--resume 的所有设置都取自运行文件夹：请去掉 {options}；--set 和 --steps 可以使用",
    ),
    "resume_run_not_found": Message(
        "{folder} holds no run to resume: name a folder that attendo train wrote (--out)",
        "{folder} 里没有可继续的训练运行：请给出 attendo train 写出的运行文件夹（--out）",
    ),
    "resume_settings_differ": Message(
        "{folder} was begun with other settings than {settings}: say --override to mean it",
        "{folder} 开始时的设置与 {settings} 不同：如确要更改，请加 --override",
    ),
    "setting_given_twice": Message(
        "{option} and --set {setting} are the same setting: give one of them",
        "{option} 和 --set {setting} 是同一个设置：请只给一个",
    ),
    "final_checkpoint_not_saved": Message(
        "stopped at step {step}, which could not be saved: {reason}",
        "训练在第 {step} 步停止，但检查点无法保存：{reason}",
    ),
    "verify_precision_for_exported_model": Message(
        "--precision {precision} is for model folders: {model} was exported in one; leave it out",
        "--precision {precision} 只用于模型文件夹，而 {model} 是以固定精度导出的：请去掉",
    ),
    "verify_without_sentences": Message(
        "{path} has no sentences to verify with: name some with --source",
        "{path} 里没有可用来验证的句子：请用 --source 给出",
    ),
    "verify_resume_under_torchrun": Message(
        "verify-resume starts its processes itself: run it without torchrun",
        "verify-resume 会自行启动进程：请不要用 torchrun 运行",
    ),
}
