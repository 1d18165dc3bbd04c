"""Messages of data and metrics."""

from attendo.messages.message import Message

# Why a line of a corpus is bad.
BAD_LINES = {
    "empty": "空行",
    "too long": "太长",
    "length ratio": "长度比例不当",
    "not UTF-8": "不是 UTF-8",
    "source not UTF-8": "源文不是 UTF-8",
    "target not UTF-8": "译文不是 UTF-8",
    "NUL": "含有 NUL 字符",
    "not CSV": "不是 CSV",
    "not JSON": "不是 JSON",
    "no such column": "没有这一列",
    "no such field": "没有这个字段",
    "field is not text": "字段不是文本",
    "feature with a space or a bracket": "特征含有空格或尖括号",
    "no list of turns": "没有对话轮次列表",
    "no answer": "没有回答",
}

MESSAGES: dict[str, Message] = {
    "bad_line_count": Message("{count} {reason}", "{count} 行{reason}", {"reason": BAD_LINES}),
    "bad_line_remedy": Message(
        "fix them, or raise data.max_bad_ratio (now {ratio:g})",
        "请改正它们，或增大 data.max_bad_ratio（现为 {ratio:g}）",
    ),
    "length_ratio_remedy": Message(
        "raise data.max_length_ratio, or cut long sources (data.cut_source), as for summaries; or fix them, or raise data.max_bad_ratio (now {ratio:g})",
        "请增大 data.max_length_ratio，或截断长源文（data.cut_source，例如用于摘要）；或改正它们，或增大 data.max_bad_ratio（现为 {ratio:g}）",
    ),
    "long_lines_remedy": Message(
        "raise data.max_length, or cut long sources (data.cut_source); or fix them, or raise data.max_bad_ratio (now {ratio:g})",
        "请增大 data.max_length，或截断长源文（data.cut_source）；或改正它们，或增大 data.max_bad_ratio（现为 {ratio:g}）",
    ),
    "empty_batch": Message("a batch needs at least one sentence", "一个批次至少要有一个句子"),
    "turn_setting_without_turns": Message(
        "data.{option} applies only to conversations: set turns_field, or leave it out",
        "data.{option} 只用于对话的轮次：请设置 turns_field，或去掉它",
    ),
    "corpus_pair_file_conflict": Message(
        "give either source and target, or file, not both", "请给出 source 和 target，或者给出 file，不能都给"
    ),
    "column_setting_missing": Message(
        "{path}: set both source_field and target_field",
        "{path}：两列都要指定，请设置 source_field 和 target_field",
    ),
    "invalid_column_settings": Message(
        "{path}: source_field, target_field and features_field must all be column numbers (from 1), or all be column names in the first line",
        "{path}：source_field、target_field 和 features_field 必须都是列号（从 1 数起），或都是第一行里的列名",
    ),
    "turns_field_without_jsonl": Message(
        "{path}: turns_field needs a .jsonl file, because it holds a list of texts",
        "{path}：turns_field 是文本列表，只有 .jsonl 文件能存放",
    ),
    "turns_and_fields_conflict": Message(
        "{path}: turns_field sets both source and target: leave out source_field, target_field and features_field",
        "{path}：turns_field 已给出源文和译文：请去掉 source_field、target_field 和 features_field",
    ),
    "unsupported_data_file_suffix": Message(
        "{path}: the file name must end in .tsv, .csv or .jsonl, optionally followed by .gz or .xz",
        "{path}：文件名必须以 .tsv、.csv 或 .jsonl 结尾，后面可再加 .gz 或 .xz",
    ),
    "builtin_task_with_files": Message(
        "data.task builtin generates its own sentences: leave out the data files",
        "data.task 为 builtin 时句子自动生成：请去掉数据文件",
    ),
    "training_files_missing": Message(
        "data.source and data.target are missing: give the two text files",
        "缺少 data.source 和 data.target：请指定这两个文本文件",
    ),
    "multiple_data_sources": Message(
        "data: give only one of source and target, file, corpora, text or prepared",
        "data：source 加 target、file、corpora、text、prepared 之中只能给出一种",
    ),
    "valid_text_without_text": Message(
        "data.valid_text needs data.text: give validation files of the same kind as the training files",
        "data.valid_text 只用于 data.text：验证文件的形式请与训练文件相同",
    ),
    "text_setting_without_text": Message(
        "data.{option} applies only to data.text: leave it out", "data.{option} 只用于 data.text：请去掉"
    ),
    "pairs_without_builtin_task": Message(
        "data.pairs {count} applies only to data.task builtin: leave it out",
        "data.pairs {count} 只用于 data.task builtin：请去掉",
    ),
    "pair_setting_with_text": Message(
        "data.{option} applies to sentence pairs, and data.text has none: leave it out",
        "data.{option} 只用于句对，而 data.text 没有句对：请去掉",
    ),
    "setting_fixed_in_prepared_data": Message(
        "data.{option} was fixed when data.prepared was made: leave it out",
        "data.{option} 在准备 data.prepared 时已确定：请去掉",
    ),
    "stride_exceeds_window": Message(
        "data.stride {stride} is more than data.window {window} and would skip text between windows: lower it",
        "data.stride {stride} 大于 data.window {window}，窗口之间的文本会被跳过：请减小",
    ),
    "text_with_validation_pairs": Message(
        "data.text is validated on running text: give it as data.valid_text",
        "data.text 用连续文本验证：请用 data.valid_text 给出",
    ),
    "prepared_data_with_validation_files": Message(
        "data.prepared contains its own validation pairs: give validation files when you prepare the data",
        "data.prepared 自带验证句对：请在准备数据时指定验证文件",
    ),
    "corpus_setting_without_files": Message(
        "data.{option} applies only to data.source or data.file: with corpora, set it for each of them",
        "data.{option} 只用于 data.source 或 data.file：使用 corpora 时，请在每个语料里设置",
    ),
    "tag_without_corpus_files": Message(
        "data.tag applies only to data.source or data.file: with corpora, set it for each of them",
        "data.tag 只用于 data.source 或 data.file：使用 corpora 时，请在每个语料里设置",
    ),
    "valid_tag_without_files": Message(
        "data.valid_tag applies only to validation files: give them, or leave it out",
        "data.valid_tag 只用于验证文件：请指定验证文件，或去掉它",
    ),
    "validation_sources_conflict": Message(
        "data: give either valid_corpora or other validation files, not both",
        "data：请给出 valid_corpora，或者给出其他验证文件，不能都给",
    ),
    "source_target_same_file": Message(
        "data.source and data.target are the same file, {path}: correct one of them, or set data.allow_copies to true if copying is the task",
        "data.source 和 data.target 是同一个文件 {path}：请改正其中一个；如果任务就是复制，请把 data.allow_copies 设为 true",
    ),
    "validation_side_missing": Message(
        "give both data.valid_source and data.valid_target, or neither",
        "data.valid_source 和 data.valid_target 要么都给，要么都不给",
    ),
    "source_target_file_count_mismatch": Message(
        "data.{prefix}source has {sources} files, but data.{prefix}target has {targets}: give one target file for each source file, in the same order",
        "data.{prefix}source 有 {sources} 个文件，data.{prefix}target 有 {targets} 个：每个源文文件都要有对应的译文文件，顺序相同",
    ),
    "data_pair_file_conflict": Message(
        "data: give either {prefix}source and {prefix}target, or {prefix}file, not both",
        "data：请给出 {prefix}source 和 {prefix}target，或者给出 {prefix}file，不能都给",
    ),
    "corpus_files_missing": Message(
        "the corpus has no files: give source and target, or one .tsv, .csv or .jsonl file as file",
        "语料没有文件：请给出 source 和 target，或用 file 给出一个 .tsv、.csv 或 .jsonl 文件",
    ),
    "fields_without_table_file": Message(
        "source_field, target_field, features_field and turns_field need a .tsv, .csv or .jsonl file: set file",
        "source_field、target_field、features_field 和 turns_field 需要 .tsv、.csv 或 .jsonl 文件：请用 file 给出",
    ),
    "file_is_empty": Message("{path} is empty: there is nothing to read", "{path} 是空的：没有可读的内容"),
    "csv_quote_not_closed": Message(
        '{path} line {line}: a quotation mark is not closed; inside a text, write it twice ("")',
        '{path} 第 {line} 行：引号没有闭合；文本中的引号请写两次（""）',
    ),
    "table_column_not_found": Message(
        "{path} has no column {column!r}: choose one of the columns in its first line: {columns}",
        "{path} 没有列 {column!r}：请从第一行的列名中选择：{columns}",
    ),
    "header_not_csv": Message(
        "{path} line 1 is not CSV: mend the quotation marks of the header",
        "{path} 第 1 行不是 CSV：请更正表头中的引号",
    ),
    "header_not_utf8": Message(
        "{path} line 1 is not UTF-8: convert the file", "{path} 第 1 行不是 UTF-8：请转换文件编码"
    ),
    "jsonl_field_not_found": Message(
        "{path} has no field {field!r}: set data.{option} to one of its fields: {fields}",
        "{path} 没有字段 {field!r}：请把 data.{option} 设为现有字段之一：{fields}",
    ),
    "index_checksum_mismatch": Message("{path} is damaged: its checksum does not match", "{path} 已损坏：校验和不符"),
    "prepared_file_checksum_mismatch": Message(
        "{path} is damaged: its checksum does not match the index", "{path} 已损坏：校验和与索引不符"
    ),
    "index_read_failed": Message(
        "{path} cannot be read: {reason}; give a folder written by attendo prepare",
        "无法读取 {path}：{reason}；请给出 attendo prepare 写出的文件夹",
    ),
    "index_incompatible": Message(
        "{path} cannot be used by this version of attendo: {error}", "这个版本的 attendo 不能使用 {path}：{error}"
    ),
    "index_file_outside_folder": Message(
        "{path}: file name {name!r} points outside the folder; prepare the data again",
        "{path}：文件名 {name!r} 指向文件夹之外；请重新准备数据",
    ),
    "prepared_file_read_failed": Message(
        "{path} is damaged: it cannot be read ({reason})", "{path} 已损坏：无法读取（{reason}）"
    ),
    "spaced_tokenizer_loses_whitespace": Message(
        "tokenizer.kind spaced does not keep the white space of running text: use bpe or characters",
        "tokenizer.kind 为 spaced 时不保留连续文本的空白：请改用 bpe 或 characters",
    ),
    "tokenizer_setting_needs_pairs": Message(
        "tokenizer.{option} needs a source and a target, and running text has only one side: leave it out",
        "tokenizer.{option} 需要源文和译文两边，而连续文本只有一边：请去掉",
    ),
    "dropout_with_running_text": Message(
        "tokenizer.dropout would make windows of running text longer than data.window: leave it out",
        "tokenizer.dropout 会使连续文本的窗口超过 data.window：请去掉",
    ),
    "folder_not_prepared_data": Message(
        "{folder} exists and is not prepared data: choose another folder, or empty it first",
        "{folder} 已存在，但不是准备好的数据：请换一个文件夹，或先清空它",
    ),
    "prepared_data_write_failed": Message(
        "{folder} cannot be written: {reason}; it needs about {bytes} bytes",
        "无法写入 {folder}：{reason}；大约需要 {bytes} 字节",
    ),
    "folder_creation_failed": Message(
        "{folder} cannot be created: {reason}; choose another folder", "无法创建 {folder}：{reason}；请换一个文件夹"
    ),
    "line_not_utf8": Message(
        "{path} line {line} is not UTF-8: convert the file, or remove the line{advice}",
        "{path} 第 {line} 行不是 UTF-8：请转换文件编码，或去掉这一行{advice}",
    ),
    "file_read_failed": Message(
        "{path} cannot be read: {reason}",
        "无法读取 {path}：{reason}",
        {
            "reason": {
                "Compressed file ended before the end-of-stream marker was reached": "压缩文件不完整",
                "Input format not supported by decoder": "不是 .xz 格式",
                "Corrupt input data": "压缩数据已损坏",
                "Incorrect length of data produced": "解压后的长度不符",
            },
            "path": {"standard input": "标准输入"},
        },
    ),
    "file_open_failed": Message("{path} cannot be opened: {reason}", "无法打开 {path}：{reason}"),
    "file_is_utf16_or_utf32": Message(
        "{path} is encoded as {encoding}, not UTF-8: convert it with {command}",
        "{path} 是 {encoding}，不是 UTF-8：请转换编码：{command}",
    ),
    "file_line_counts_differ": Message(
        "{short} has {short_lines} lines, but {long} has at least {long_lines}: both must have the same number of lines",
        "{short} 只有 {short_lines} 行，而 {long} 至少有 {long_lines} 行：两者的行数必须相同",
    ),
    "symbol_not_in_tokenizer": Message(
        "{symbol} is not a symbol of the source tokenizer: use only the tags and features of the tokenizer, or none",
        "{symbol} 不是源文分词器的符号：请只用它已有的标记和特征，或都不用",
    ),
    "no_training_pairs_left": Message(
        "no training pairs are left: every line is bad, or held out for validation",
        "没有剩下可训练的句对：每一行不是坏行，就是留作验证了",
    ),
    "validation_pairs_unreadable": Message(
        "{path} is damaged: its validation pairs cannot be read", "{path} 已损坏：无法读取其中的验证句对"
    ),
    "jsonl_text_field_missing": Message(
        "{location} has no text in field {field!r}, only the fields {fields}: set data.text_field",
        "{location}的字段 {field!r} 里没有文本，现有字段：{fields}；请设置 data.text_field",
        {"fields": {"no fields": "无"}},
    ),
    "jsonl_text_contains_nul": Message(
        "{location} contains a NUL character: remove the line, or check that the file is text",
        "{location}含有 NUL 字符：请去掉这一行，或检查文件是否为文本",
    ),
    "jsonl_line_not_json": Message(
        "{location} is not JSON: correct it, or remove the line", "{location}不是 JSON：请改正，或去掉这一行"
    ),
    "unpaired_surrogate_in_line": Message(
        "{location} contains an unpaired surrogate, which is not valid text: remove the line",
        "{location}含有不完整的代理对，不是有效的文本：请去掉这一行",
    ),
    "text_line_contains_nul": Message(
        "{path} line {line} contains a NUL character: remove the line, or check that the file is text",
        "{path} 第 {line} 行含有 NUL 字符：请去掉这一行，或检查文件是否为文本",
    ),
    "too_many_bad_lines": Message(
        "{corpus}: {bad} of {lines} lines are bad ({share:.1%}): {reasons}; {listing} lists them; {remedy}{separator}{advice}",
        "{corpus}：{lines} 行中有 {bad} 行是坏行（{share:.1%}）：{reasons}；清单见 {listing}；{remedy}{separator}{advice}",
        {
            "separator": {"; ": "；"},
            "corpus": {"built-in task": "内置任务", "built-in task, held out": "内置任务（留出部分）"},
        },
    ),
    "data_file_is_pipe": Message(
        "{path} is a pipe, but the text is read more than once: write it to a file first",
        "{path} 是管道，而文本要读不止一遍：请先写入文件",
    ),
    "batch_position_not_found": Message(
        "the data has no batch at {position}, which belongs to other data or settings: resume with those, or start again",
        "{position} 处没有批次：它属于别的数据或设置；请用原来的数据和设置继续，或重新开始",
    ),
    "dropout_kind_without_merges": Message(
        "tokenizer.dropout skips merges, which kind {kind} does not have: use kind bpe",
        "tokenizer.dropout 随机跳过合并，而 {kind} 类型的分词器没有合并：请用 bpe",
    ),
    "epoch_without_pairs": Message(
        "epoch {epoch} of {folder} has no pairs: raise the corpus weights, or give more text",
        "{folder} 的第 {epoch} 轮没有句对：请增大语料的权重，或提供更多文本",
    ),
    "validation_part_without_line_break": Message(
        "{name} has no line break in the validation part: raise data.valid_share, or set data.valid_text",
        "{name} 要留作验证的部分没有换行：请增大 data.valid_share，或指定 data.valid_text",
    ),
    "training_text_too_short": Message(
        "{name} has {tokens} training tokens, fewer than two windows of {window}: give more text, or lower data.window",
        "{name} 用于训练的部分只有 {tokens} 个词元，少于两个 {window} 词元的窗口：请提供更多文本，或减小 data.window",
    ),
    "validation_text_too_short": Message(
        "{name} has {tokens} validation tokens, fewer than a window of {window}: raise data.valid_share, set data.valid_text, or lower data.window",
        "{name} 用于验证的部分只有 {tokens} 个词元，少于一个 {window} 词元的窗口：请增大 data.valid_share、指定 data.valid_text，或减小 data.window",
    ),
    "text_shrank_while_reading": Message(
        "{name} became shorter while it was read: do not change it during the run",
        "{name} 在读取期间变短了：运行期间请不要改动",
    ),
    "tokenizer_lacks_line_symbol": Message(
        "the tokenizer reads line breaks as spaces: it needs the symbol {symbol} for line breaks",
        "分词器会把换行读作空格：它需要用符号 {symbol} 表示换行",
    ),
    "line_too_long_to_tokenize": Message(
        "{path} line {line} is too long to tokenize: split it",
        "{path} 第 {line} 行太长，无法切成词元：请拆成几行",
    ),
    "corpus_changed_while_reading": Message(
        "{corpus} had {before} lines and now has {after}: do not change it during the run",
        "{corpus} 原有 {before} 行，现有 {after} 行：运行期间请不要改动",
        {"corpus": {"built-in task": "内置任务", "built-in task, held out": "内置任务（留出部分）"}},
    ),
    "models_scored_on_different_references": Message(
        "the two models were scored on different references: use the same references for both",
        "两个模型所用的参考译文不同：请用相同的参考译文比较",
    ),
    "too_few_bootstrap_samples": Message(
        "samples must be at least 1, not {samples}", "samples 不能小于 1，现为 {samples}"
    ),
    "negative_bootstrap_seed": Message("seed must be at least 0, not {seed}", "seed 不能小于 0，现为 {seed}"),
    "label_count_mismatch": Message(
        "each line needs one label: there are {lines} lines and {labels} labels",
        "每一行都要有标签：现有 {lines} 行，{labels} 个标签",
    ),
    "references_without_words": Message(
        "word_error_rate counts errors per word, but the {count} references contain no words",
        "word_error_rate 按词计算错误，而 {count} 条参考译文里没有词",
    ),
    "source_reference_count_mismatch": Message(
        "each source needs one reference: there are {sources} sources and {references} references",
        "每条源文都要有参考译文：现有 {sources} 条源文，{references} 条参考译文",
    ),
    "no_sources_to_score": Message(
        "there is nothing to score: give at least one source and its reference",
        "没有可评分的内容：请至少给出一条源文和它的参考译文",
    ),
    "unknown_perplexity": Message(
        "unknown perplexity {name}{suggestion}: use {known}", "未知的困惑度 {name}{suggestion}：可用 {known}"
    ),
    "perplexity_tokenizers_differ": Message(
        "perplexity is per token, and the tokenizers of the two models differ: compare perplexity_per_word or perplexity_per_character",
        "perplexity 按词元计算，而两个模型的分词器不同：请比较 perplexity_per_word 或 perplexity_per_character",
    ),
    "metric_texts_not_list": Message(
        "texts must be a list of strings: write [text] for a single text",
        "文本必须是字符串列表：只有一段文本时请写 [text]",
    ),
    "line_without_reference": Message(
        "line {line} has no reference: give at least one reference for each line (it may be empty)",
        "第 {line} 行没有参考译文：每行至少要有一条（可以为空）",
    ),
    "unknown_bleu_tokeniser": Message(
        "unknown BLEU tokeniser {name}{suggestion}: use {known}", "未知的分词器 {name}{suggestion}：可用 {known}"
    ),
    "bleu_tokeniser_package_missing": Message(
        "the BLEU tokeniser {tokeniser} needs another package: pip install 'sacrebleu[{extra}]'",
        "分词器 {tokeniser} 需要另一个包：pip install 'sacrebleu[{extra}]'",
    ),
    "metric_needs_model": Message(
        "{metric} scores a model, not texts: use attendo.metrics.perplexity",
        "{metric} 评价的是模型，不是文本：请用 attendo.metrics.perplexity 计算",
    ),
    "unknown_metric": Message(
        "unknown metric {name}{suggestion}: use {known}", "未知的指标 {name}{suggestion}：可用 {known}"
    ),
    "metric_not_resamplable": Message(
        "{metric} of two outputs cannot be compared by bootstrap resampling, because a line drawn twice adds nothing new: score each output, and compare the two numbers",
        "两份输出的 {metric} 不能用自助重采样比较，因为重复抽到的行不增加新内容；请分别评分，再比较两个数",
    ),
    "tokenize_only_for_bleu": Message(
        "tokenize applies only to bleu: {metric} cannot use {tokeniser}",
        "tokenize 只用于 bleu：{metric} 不使用 {tokeniser}",
    ),
    "output_reference_count_mismatch": Message(
        "each output needs one reference: there are {outputs} outputs and {references} references",
        "每条输出都要有参考译文：现有 {outputs} 条输出，{references} 条参考译文",
    ),
    "no_outputs_to_score": Message(
        "there is nothing to score: give at least one output and its reference",
        "没有可评分的内容：请至少给出一条输出和它的参考译文",
    ),
    "prepared_data_damaged": Message("{fault}; prepare the data again", "{fault}；请重新准备数据"),
    "shard_offsets_out_of_order": Message(
        "{path} is damaged: its offsets are not in order", "{path} 已损坏：偏移量的顺序不对"
    ),
    "shard_id_outside_vocabulary": Message(
        "{path} is damaged: its token id {id} is outside the vocabulary", "{path} 已损坏：含有词表之外的编号 {id}"
    ),
    "not_a_shard": Message("{path} is damaged: it is not a shard", "{path} 已损坏：不是数据分片"),
    "shard_version_unsupported": Message(
        "{path} is damaged: it has version {version}, but this attendo reads version {supported}",
        "{path} 已损坏：版本为 {version}，这个 attendo 只读版本 {supported}",
    ),
    "shard_header_mismatch": Message(
        "{path} is damaged: its header does not match the index", "{path} 已损坏：文件头与索引不符"
    ),
    "shard_size_mismatch": Message(
        "{path} is damaged: it has {found} bytes instead of {size}", "{path} 已损坏：有 {found} 字节，应为 {size} 字节"
    ),
}
