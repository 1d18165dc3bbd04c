"""Messages of runs, recipes, doctor and benchmarks."""

from attendo.messages.data import BAD_LINES
from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "setting_renamed": Message(
        "{old} is now called {new}; the old name will be removed in the next version",
        "{old} 现在叫 {new}；旧名字将在下一个版本中删除",
    ),
    "setting_value_renamed": Message(
        "the value {old} of {name} is now called {new}; the old one will be removed in the next version",
        "{name} 的值 {old} 现在叫 {new}；旧值将在下一个版本中删除",
    ),
    "setting_given_by_both_names": Message(
        "{old} is the old name of {new}, and both are given: remove {old}",
        "{old} 是 {new} 的旧名字，两者都给出了：请删除 {old}",
    ),
    "disk_full_checkpoint_kept": Message(
        "{error}; the checkpoint of step {step} is kept: free disk space, then run attendo train --resume {folder}",
        "{error}；第 {step} 步的检查点已保留：请腾出磁盘空间，再运行 attendo train --resume {folder}",
    ),
    "disk_full_no_checkpoint": Message(
        "{error}; there is no checkpoint: free disk space, then run attendo train --resume {folder}",
        "{error}；没有检查点：请腾出磁盘空间，再运行 attendo train --resume {folder}",
    ),
    "doctor_fault": Message("{line}", "{line}"),
    "vocabulary_only_control_tokens": Message(
        "a vocabulary of {size} tokens has only control tokens: give a larger one",
        "{size} 个词元的词表只有控制词元：请给出更大的词表",
    ),
    "sequences_exceed_positions": Message(
        "the network has {limit} positions, but {length} are needed: use shorter sequences",
        "网络只有 {limit} 个位置，而需要 {length} 个：请用更短的序列",
    ),
    "file_has_no_text": Message(
        "{path} has no line with text: give another file", "{path} 里没有含文本的行：请换一个文件"
    ),
    "line_exceeds_positions": Message(
        "{path}: a line has {length} tokens, but the network has {limit} positions: split the line",
        "{path}：一行有 {length} 个词元，而网络有 {limit} 个位置：请拆分这一行",
    ),
    "unknown_rival": Message(
        "unknown rival {name}{suggestion}: use {known}", "未知的对比系统 {name}{suggestion}：可用 {known}"
    ),
    "unknown_rival_precision": Message(
        "rival {rival}: unknown precision {precision}: use {known}",
        "对比系统 {rival}：未知精度 {precision}：可用 {known}",
    ),
    "rival_not_installed": Message(
        "{package} is not installed: pip install 'attendo[{extra}]'", "未安装 {package}：pip install 'attendo[{extra}]'"
    ),
    "rival_load_failed": Message("{reason}", "{reason}"),
    "transformers_precision_unsupported": Message(
        "transformers does not support precision {precision} here: use fp32, fp16 or bf16",
        "transformers 在这里不支持精度 {precision}：请用 fp32、fp16 或 bf16",
    ),
    "onnx_precision_or_device_unsupported": Message(
        "ONNX Runtime supports only fp32 and int8 on a CPU here, not {precision} on {device}",
        "ONNX Runtime 在这里只支持 CPU 上的 fp32 和 int8，不支持 {device} 上的 {precision}",
    ),
    "server_not_ready": Message(
        "{url} is not ready: {reason}", "{url} 尚未就绪：{reason}", {"reason": {"it does not answer": "没有应答"}}
    ),
    "rate_clients_conflict": Message(
        "the load needs a rate or a number of clients: give one of --rate and --clients",
        "负载只能由请求速率或客户端数之一决定：请给出 --rate 和 --clients 中的一个",
    ),
    "leave_share_out_of_range": Message(
        "the share of clients that leave (--leave) must be from 0 to 1, not {share}",
        "中途离开的客户端比例（--leave）应在 0 到 1 之间，而不是 {share}",
    ),
    "load_setting_out_of_range": Message(
        "{name} must be above 0 and below 1,000,000, not {value}", "{name} 必须大于 0 且小于 1,000,000，而不是 {value}"
    ),
    "server_start_failed": Message("the server did not start: {reason}", "服务器未能启动：{reason}"),
    "server_api_status": Message(
        "{path} returned status {status}: this server does not support that API; choose another --api",
        "{path} 返回状态 {status}：服务器不支持这种 API，请换一个 --api",
    ),
    "server_request_failed": Message("{reason}", "{reason}"),
    "server_api_not_json": Message(
        "{path} did not return JSON: this server does not support that API; choose another --api",
        "{path} 返回的不是 JSON：服务器不支持这种 API，请换一个 --api",
    ),
    "server_lists_no_model": Message(
        "{path} lists no model or language: choose another --api, or name it with --body",
        "{path} 没有列出模型或语言：请换一个 --api，或用 --body 指定",
    ),
    "load_client_package_missing": Message(
        "a load client needs {package}: pip install 'attendo[serve]'",
        "负载客户端需要 {package}：pip install 'attendo[serve]'",
    ),
    "server_address_invalid": Message(
        "{url} is not an HTTP address: write it as http://127.0.0.1:8000",
        "{url} 不是 HTTP 地址：请写成 http://127.0.0.1:8000",
    ),
    "heldout_count_negative": Message(
        "the number of held-out pairs must be 0 or more, not {count}", "留出的句对数应至少为 0，而不是 {count}"
    ),
    "start_from_tokenizer_mismatch": Message(
        "{folder} was prepared with tokenizers other than those of {model}: prepare it again with start_from set to {model}",
        "{folder} 预处理所用的分词器与 {model} 的不同：请把 start_from 设为 {model} 重新预处理",
    ),
    "pairs_for_decoder_only": Message(
        "{folder} contains pairs, but a decoder-only network (model.num_encoder_layers 0) learns from running text: set data.text",
        "{folder} 里是句对，而只有解码器的网络（model.num_encoder_layers 0）从连续文本学习：请设置 data.text",
    ),
    "running_text_for_encoder": Message(
        "{folder} contains running text, which has no source for an encoder: set model.num_encoder_layers to 0, or start from a decoder-only model",
        "{folder} 里是连续文本，没有供编码器读的源文：请把 model.num_encoder_layers 设为 0，或从只有解码器的模型继续训练",
    ),
    "tokenizer_dropout_for_windows": Message(
        "tokenizer.dropout would make the windows of {folder} longer than {window} tokens: leave it out",
        "tokenizer.dropout 会使 {folder} 的窗口超过 {window} 个词元：请去掉",
    ),
    "training_text_exceeds_positions": Message(
        "{corpus} has {what} of {length} tokens, more than model.max_length {limit}: raise it, use other positions, or lower data.{setting}",
        "{corpus} 中{what}有 {length} 个词元，超过 model.max_length {limit}：请增大它，换用其他 positions，或减小 data.{setting}",
        {"what": {"a sentence": "一个句子", "windows": "的窗口"}},
    ),
    "checkpoint_outside_run": Message(
        "{folder} is a checkpoint outside its run folder, which contains the tokenizer: use it where attendo train wrote it, such as runs/x/checkpoints/step-00001000",
        "{folder} 是离开了训练目录的检查点，而分词器在训练目录里：请使用 attendo train 写入的位置，例如 runs/x/checkpoints/step-00001000",
    ),
    "checkpoint_model_mismatch": Message(
        "{folder} does not match the model of {run}: {faults} ({count} mismatches in total)",
        "{folder} 与 {run} 的模型不符：{faults}（共 {count} 处）",
    ),
    "run_data_unreadable": Message(
        "the run {run} has no model folder yet, and its data cannot be read: {error}",
        "训练 {run} 还没有模型文件夹，而它的数据无法读取：{error}",
    ),
    "variant_without_effect": Message(
        "variant {variant} has no effect: no file name in the run file contains {placeholder}",
        "variant {variant} 不起作用：运行设置文件里没有含 {placeholder} 的文件名",
    ),
    "unknown_variant": Message(
        "unknown variant {name}{suggestion}: use {known}", "未知变体 {name}{suggestion}：可用 {known}"
    ),
    "variants_not_tables": Message(
        "{name} must contain tables, such as [variants.NAME.train]", "{name} 里必须是表，例如 [variants.NAME.train]"
    ),
    "variants_not_list": Message(
        'reproduce.variants must be a list of names, such as ["one", "two"], not {value!r}',
        'reproduce.variants 必须是名称列表，例如 ["one", "two"]，不能是 {value!r}',
    ),
    "test_metric_unknown": Message(
        "{test}: unknown metric {metric}{suggestion}", "{test}：未知指标 {metric}{suggestion}"
    ),
    "test_files_incomplete": Message(
        "{test}: give both source and target, or file, or none of them",
        "{test}：请同时给出 source 和 target，或给出 file，或都不给",
    ),
    "test_parts_without_placeholder": Message(
        "{test}: parts need one file each: set parts, and write {placeholder} in the file names",
        "{test}：parts 的每一部分各需一个文件：请设置 parts，并在文件名里写 {placeholder}",
    ),
    "test_loss_with_files": Message(
        "{test}: loss is the validation loss of the run: leave the files out, or use perplexity",
        "{test}：loss 是训练的验证损失：请不要给出文件，或改用 perplexity",
    ),
    "test_spread_without_expected": Message(
        "{test}: spread is measured around expected: set expected too",
        "{test}：spread 以 expected 为准：请同时设置 expected",
    ),
    "test_reference_missing": Message(
        "{test}: reference_source needs reference: set reference too",
        "{test}：reference_source 需要 reference：请同时设置 reference",
    ),
    "ensemble_of_one_seed": Message(
        "reproduce.ensemble needs more than one seed: add seeds to reproduce.seeds, or leave it out",
        "reproduce.ensemble 需要不止一个种子：请在 reproduce.seeds 里增加，或去掉它",
    ),
    "generate_without_decoded_tests": Message(
        "reproduce.generate is only for tests that are decoded, and there are none: leave it out",
        "reproduce.generate 只用于需要解码的测试，而这里没有：请去掉",
    ),
    "test_metric_duplicate": Message(
        "reproduce.test: {test} has the same metric twice: remove one of them",
        "reproduce.test：{test} 有重复的指标：请去掉一个",
    ),
    "variant_missing": Message(
        "variant is missing: choose one, such as --set variant={example}{known}",
        "缺少 variant：请选一个，例如 --set variant={example}{known}",
    ),
    "variant_table_unknown": Message("variants.{variant}: {error}", "variants.{variant}：{error}"),
    "reproduce_list_duplicate": Message(
        "reproduce.{setting} has the same value twice: list each value once",
        "reproduce.{setting} 里有重复的值：每个值只能列一次",
    ),
    "reproduce_list_empty": Message(
        "reproduce.{setting} is empty: give at least one value", "reproduce.{setting} 是空的：请至少给出一个值"
    ),
    "test_name_ambiguous": Message(
        "reproduce.test: two different texts are named {test}: give each its own name",
        "reproduce.test：有两份不同的文本都叫 {test}：请各取一个名称",
    ),
    "ensemble_test_without_files": Message(
        "reproduce.test: an ensemble is scored on files, but {test} has none: give its files",
        "reproduce.test：集成模型在文件上评分，而 {test} 没有文件：请给出文件",
    ),
    "variant_table_not_allowed": Message(
        "variants.{variant}.{table}: a variant may have only the tables {allowed}",
        "variants.{variant}.{table}：变体只能有以下的表：{allowed}",
    ),
    "training_job_failed": Message(
        "{job} failed: {reason} (full log: {log})",
        "{job} 失败：{reason}（完整日志：{log}）",
    ),
    "reproduce_file_not_writable": Message(
        "{path} cannot be written: {reason}; fix that, or choose another folder (--out)",
        "无法写入 {path}：{reason}；请排除故障，或换一个文件夹（--out）",
    ),
    "unknown_recipe": Message(
        "unknown recipe {name}{suggestion}: give the path of a run file, or one of {known}",
        "未知配方 {name}{suggestion}：请给出运行设置文件的路径，或以下之一：{known}",
        {"known": {"none (there are no recipes)": "（这里没有配方）"}},
    ),
    "reproduce_table_missing": Message(
        "{path} has no table [reproduce]: add one, or train it with attendo train {path}",
        "{path} 没有 [reproduce] 表：请加上，或用 attendo train {path} 训练",
    ),
    "ensemble_without_validation_files": Message(
        "reproduce.ensemble needs one vocabulary for all seeds, but without validation files each seed holds out different pairs: set validation files in [data]",
        "reproduce.ensemble 要求所有种子共用一个词表，而没有验证文件时每个种子留出的句对不同：请在 [data] 里给出验证文件",
    ),
    "test_parts_with_variants": Message(
        "{test}: parts of a test and variants of a recipe cannot be used together",
        "{test}：测试的 parts 不能与配方的 variants 同时使用",
    ),
    "averaged_metric_unavailable": Message(
        "{test}: {metric} is not measured for averaged checkpoints: set train.final to best or last",
        "{test}：平均后的检查点没有 {metric}：请把 train.final 设为 best 或 last",
    ),
    "recipe_files_missing": Message(
        "{recipe} needs files that do not exist: {files}{more}; docs/data.md says where to get them, and --data sets their folder",
        "{recipe} 需要的文件不存在：{files}{more}；获取方法见 docs/data.md，所在文件夹用 --data 指定",
    ),
    "variants_without_placeholder": Message(
        "reproduce.variants need their own files, but no file name in [data] contains {placeholder}",
        "reproduce.variants 的每个变体需要各自的文件，而 [data] 里没有含 {placeholder} 的文件名",
    ),
    "model_validation_missing": Message(
        "{path} has no validation at the step of the saved model, so {test} has no {metric}",
        "{path} 里没有所存模型那一步的验证结果，{test} 因此没有 {metric}",
    ),
    "run_settings_differ": Message(
        "{folder} contains a run with settings other than {settings}: choose another folder (--out), or remove it",
        "{folder} 里的训练与以下设置不同：{settings}：请换一个文件夹（--out），或删除它",
    ),
    "run_record_damaged": Message(
        "{path} is missing or damaged: restore it, or remove {folder} and train again",
        "{path} 缺失或已损坏：请恢复它，或删除 {folder} 后重新训练",
    ),
    "training_text_changed": Message(
        "{folder} was trained on {old_path} with SHA-256 {old_sha256!s:.12}..., but {new_path} has SHA-256 {new_sha256:.12}...: restore that text, choose another folder (--out), or remove the run",
        "{folder} 训练时 {old_path} 的 SHA-256 为 {old_sha256!s:.12}...，而 {new_path} 的为 {new_sha256:.12}...：请恢复原来的文本，换一个文件夹（--out），或删除这次训练",
    ),
    "test_row_invalid": Message(
        "{corpus}, row {row}: {fault}; every row of a test must be valid: fix the file",
        "{corpus} 第 {row} 行：{fault}；测试的每一行都必须有效：请修正文件",
        {"fault": BAD_LINES},
    ),
    "run_not_found": Message(
        "{folder} contains no run: give a run folder written by attendo train (--out)",
        "{folder} 里没有训练运行：请给出 attendo train 写出的运行文件夹（--out）",
    ),
    "no_validation_pairs": Message(
        "there are no validation pairs: give validation files, or more text",
        "没有验证句对：请给出验证文件，或提供更多文本",
    ),
    "prepared_settings_differ": Message(
        "{folder} was prepared with a different [data], [tokenizer] or seed, which a run cannot change: start a new run",
        "{folder} 预处理时的 [data]、[tokenizer] 或 seed 不同，训练中途不能更改：请开始新的训练",
    ),
    "checkpoint_settings_mismatch": Message(
        "{path} differs from the settings of the checkpoints: restore it, or use --override",
        "{path} 与检查点训练时的设置不同：请恢复它，或使用 --override",
    ),
    "checkpoint_data_mismatch": Message(
        "{folder} is not the data that the checkpoints were trained on: restore that data",
        "{folder} 不是检查点训练时所用的数据：请恢复原来的数据",
    ),
    "run_data_damaged": Message(
        "{error}; remove it (rm -r {data_folder}) and resume: attendo train --resume {folder}",
        "{error}；请删除它（rm -r {data_folder}）再继续训练：attendo train --resume {folder}",
    ),
    "base_not_file_name": Message(
        "run file {path}: base must be the name of another run file, not {value}",
        "运行设置文件 {path}：base 必须是另一个运行设置文件的名称，不能是 {value}",
    ),
    "base_circular": Message(
        "run file {path}: its base {base} refers back to it: leave base out of one of the files",
        "运行设置文件 {path}：base {base} 循环引用：请去掉其中一个文件的 base",
    ),
    "tie_all_without_joint_vocabulary": Message(
        "model.tie all{origin} needs a joint vocabulary: set tokenizer.joint to true, or model.tie to output",
        "model.tie all{origin} 需要共用的词表：请把 tokenizer.joint 设为 true，或把 model.tie 设为 output",
    ),
    "decoder_only_without_text": Message(
        "model.num_encoder_layers 0 makes a decoder-only network, which needs running text: set data.text, or leave num_encoder_layers out",
        "model.num_encoder_layers 0 表示只有解码器，需要连续文本：请设置 data.text，或去掉 num_encoder_layers",
    ),
    "running_text_with_encoder": Message(
        "data.text has no source for an encoder: set model.num_encoder_layers to 0",
        "data.text 没有供编码器读的源文：请把 model.num_encoder_layers 设为 0",
    ),
    "running_text_metric_unscorable": Message(
        "train.metrics: running text has no references for {metric}: use loss only",
        "train.metrics：连续文本没有参考译文，不能用 {metric} 评分：请只用 loss",
    ),
    "prepared_tokenizer_fixed": Message(
        "data.prepared contains its own tokenizer: leave tokenizer.{setting} out, or prepare the data with it",
        "data.prepared 自带分词器：请去掉 tokenizer.{setting}，或用它重新预处理数据",
    ),
    "start_from_tokenizer_fixed": Message(
        "start_from keeps the model's tokenizer: leave [tokenizer] out",
        "start_from 沿用原模型的分词器：请去掉 [tokenizer]",
    ),
    "start_from_preset_fixed": Message(
        "start_from keeps the model's network: leave preset out", "start_from 沿用原模型的网络：请去掉 preset"
    ),
    "start_from_network_fixed": Message(
        "start_from keeps the model's network: model.{setting} cannot be changed, only dropout can",
        "start_from 沿用原模型的网络：不能更改 model.{setting}，只能更改 dropout",
    ),
    "vocabulary_size_in_model": Message(
        "model.{setting} is set by the tokenizer: set tokenizer.size instead",
        "model.{setting} 由分词器决定：请改为设置 tokenizer.size",
    ),
    "run_file_not_readable": Message(
        "run file {path}{origin} cannot be read: {reason}", "无法读取运行设置文件 {path}{origin}：{reason}"
    ),
    "run_file_not_toml": Message(
        "run file {path}{origin} is not TOML: {reason}", "运行设置文件 {path}{origin} 不是 TOML：{reason}"
    ),
    "set_option_without_value": Message(
        "--set {change}: write key=value, such as train.steps=1000",
        "--set {change}：请写成 key=value，例如 train.steps=1000",
    ),
    "run_generation_settings_invalid": Message("generation: {error}", "generation：{error}"),
    "generation_option_needs_source": Message(
        "generation.{option} needs a source, and running text has none: leave it out",
        "generation.{option} 需要源文，而连续文本没有源文：请去掉",
    ),
    "running_text_test_unscorable": Message(
        "{test}: running text has no references for {metric}: use loss or perplexity",
        "{test}：连续文本没有参考译文，不能用 {metric} 评分：请用 loss 或 perplexity",
    ),
    "model_settings_invalid": Message("[model] {error}", "[model] {error}"),
    "set_option_not_section": Message(
        "--set {change}: {name} is a value, not a table", "--set {change}：{name} 是一个值，不是表"
    ),
    "run_folder_in_use": Message(
        "{folder} already contains a run: continue it (--resume {folder}), choose another folder, or replace it (--overwrite)",
        "{folder} 里已有训练：请继续它（--resume {folder}），换一个文件夹，或覆盖它（--overwrite）",
    ),
    "run_folder_path_is_file": Message(
        "the run folder {folder} cannot be created: {file} is a file", "无法创建训练目录 {folder}：{file} 是一个文件"
    ),
    "run_folder_not_creatable": Message(
        "the run folder {folder} cannot be created: {reason}", "无法创建训练目录 {folder}：{reason}"
    ),
    "run_folder_not_writable": Message(
        "the run folder {folder} cannot be written: {reason}", "无法写入训练目录 {folder}：{reason}"
    ),
    "metrics_file_not_writable": Message(
        "{path} cannot be written: {reason}; fix that, or choose another folder",
        "无法写入 {path}：{reason}；请排除故障，或换一个文件夹",
    ),
    "tensorboard_not_installed": Message(
        "TensorBoard logging needs a package: pip install 'attendo[tensorboard]'",
        "TensorBoard 记录需要安装：pip install 'attendo[tensorboard]'",
    ),
    "run_folder_missing": Message(
        'out is missing: give the run folder, such as out="runs/NAME"', '缺少 out：请给出训练目录，例如 out="runs/NAME"'
    ),
    "resume_with_other_arguments": Message(
        "resume takes all settings from the run folder: give only device and metrics with it",
        "resume 的全部设置来自训练目录：除 device 和 metrics 外请不要给出其他参数",
    ),
    "setting_name_too_deep": Message(
        "unknown setting {table}.{name}: a setting has one table and one name, such as train.steps",
        "未知设置 {table}.{name}：设置由一个表和一个名称组成，例如 train.steps",
    ),
    "training_setting_duplicate": Message("{name} is given twice: give it once", "{name} 给出了两次：请只给一次"),
    "training_item_wrong_type": Message(
        "{name}[{number}] must be {what}, not {value!r}",
        "{name}[{number}] 必须是{what}，不能是 {value!r}",
        {"what": {"a source and a target": "一对源文和译文", "a text": "文本"}},
    ),
    "no_sentence_to_verify": Message(
        "there is no sentence to verify with: give a file with sentences", "没有可用来验证的句子：请给出含有句子的文件"
    ),
    "attendo_command_failed": Message("attendo {command} failed: {reason}", "attendo {command} 失败：{reason}"),
    "resume_check_too_short": Message(
        "verify-resume needs a run of at least 2 steps, not {steps}",
        "verify-resume 需要至少 2 步的训练，而不是 {steps} 步",
    ),
    "run_file_invalid": Message("{path}: {error}", "{path}：{error}"),
    "run_file_with_changes_invalid": Message("{path} with --set: {error}", "{path} 加上 --set：{error}"),
    "no_variants": Message("unknown variant {name}: {owner} has no variants", "未知变体 {name}：{owner} 没有变体"),
}
