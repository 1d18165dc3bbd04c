"""Messages of import, export and external engines."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "argos_file_name_invalid": Message(
        "the file name of an Argos package must end in {suffix}, not {name}",
        "Argos 包的文件名必须以 {suffix} 结尾，不能是 {name}",
    ),
    "argos_prefix_unsupported": Message(
        "an Argos package cannot store source_prefix and target_prefix, which this model uses",
        "Argos 包无法保存这个模型使用的 source_prefix 和 target_prefix",
    ),
    "argos_tokenizer_not_sentencepiece": Message(
        "an Argos package needs SentencePiece tokenizers: the {side} tokenizer is of kind {kind}",
        "Argos 包需要 SentencePiece 分词器：{side}的分词器是 {kind}",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "language_code_invalid": Message(
        "a language must be an ISO 639 code such as en, not {language_code!r}",
        "语言必须是 ISO 639 代码，例如 en，而不是 {language_code!r}",
    ),
    "vocab_size_missing": Message("{path} has no vocab_size", "{path} 里没有 vocab_size"),
    "config_values_invalid": Message("{path} has invalid values: {faults}", "{path} 里的值无效：{faults}"),
    "weights_quantized": Message(
        "{path} has quantised weights (quantization_config): import the model they were made from",
        "{path} 的权重是量化过的（quantization_config）：请导入量化前的模型",
    ),
    "imported_model_incompatible": Message(
        "{path}: attendo does not support this {kind} model: {reason}",
        "{path}：attendo 不支持这个 {kind} 模型：{reason}",
    ),
    "vocab_size_exceeds_weights": Message(
        "{path} has {setting} {value}, but the largest table in the weights has {rows} rows: the config and the weights belong to different models",
        "{path} 的 {setting} 为 {value}，而权重中最大的表只有 {rows} 行：配置和权重不属于同一个模型",
    ),
    "certificate_sentences_missing": Message(
        "a certificate needs at least one sentence: give some", "生成证书需要句子：请至少给出一句"
    ),
    "ctranslate2_network_unsupported": Message(
        "CTranslate2 does not support this network: {reasons}",
        "CTranslate2 不支持这个网络：{reasons}",
    ),
    "output_folder_not_empty": Message(
        "{folder} already exists: choose another path, or empty it first", "{folder} 已经存在：请换一个路径，或先清空它"
    ),
    "export_sequence_too_long": Message(
        "{side} of {tokens} tokens is too long for the exported model: the limit is {limit}",
        "{side}有 {tokens} 个词元，超过导出模型的上限 {limit} 个",
        {"side": {"a source": "源文", "an answer": "译文"}},
    ),
    "ctranslate2_inference_failed": Message(
        "CTranslate2 cannot run this folder: {reason}; export the model again",
        "CTranslate2 无法运行这个文件夹：{reason}；请重新导出模型",
    ),
    "manifest_longest_invalid": Message(
        "{path}: longest must be from 1 to {limit}, not {value}", "{path}：longest 为 {value}，应在 1 到 {limit} 之间"
    ),
    "export_format_mismatch": Message(
        "{folder} was exported to {found}, not to {engine}: export the model again",
        "{folder} 是导出到 {found} 的模型，不是 {engine}：请重新导出模型",
    ),
    "export_precision_unknown": Message(
        "{path}: precision {value} is not one of {precisions}: export the model again",
        "{path}：precision 为 {value}，应为 {precisions} 之一：请重新导出模型",
    ),
    "layer_norm_epsilon_invalid": Message(
        "{path}: layer_norm_epsilon must be between 0 and 1, not {value}: {fix}",
        "{path}：layer_norm_epsilon 为 {value}，应在 0 和 1 之间：{fix}",
        {"fix": {"export the model again": "请重新导出模型"}},
    ),
    "ctranslate2_gpu_missing": Message(
        "device {device}: CTranslate2 finds {count} CUDA GPUs on this machine; use cpu or auto",
        "设备 {device}：CTranslate2 在这里找到 {count} 块 CUDA GPU；请用 cpu 或 auto",
    ),
    "ctranslate2_load_failed": Message(
        "CTranslate2 cannot load {folder}: {reason}", "CTranslate2 无法加载 {folder}：{reason}"
    ),
    "ctranslate2_config_mismatch": Message(
        "{path}: {setting} must be {expected!r}, not {value}: {fix}",
        "{path}：{setting} 为 {value}，应为 {expected!r}：{fix}",
        {"fix": {"export the model again": "请重新导出模型"}},
    ),
    "vocabulary_tokenizer_mismatch": Message(
        "{path} does not match the tokenizer of the folder: {fix}",
        "{path} 与文件夹里的分词器不符：{fix}",
        {"fix": {"export the model again": "请重新导出模型"}},
    ),
    "ensemble_export_unsupported": Message(
        "an ensemble of {count} models cannot be exported: export its members one by one",
        "{count} 个模型的集成无法导出：请逐个导出其中的模型",
    ),
    "weights_not_finite": Message(
        "the model has NaN or infinite values in {parameters}; export an earlier checkpoint",
        "模型的 {parameters} 含有 NaN 或无穷大：请导出更早的检查点",
    ),
    "export_languages_mismatch": Message(
        "languages are required for argos and not allowed for other formats: give them as in en and de, or leave them out",
        "语言只用于 argos，且导出到 argos 时必须给出：请给出语言，例如 en 和 de，或去掉",
    ),
    "max_loss_not_applicable": Message(
        "max_loss does not apply to precision {precision}, which loses no BLEU: leave max_loss out",
        "max_loss 不适用于精度 {precision}，它不损失 BLEU：请去掉 max_loss",
    ),
    "max_loss_references_missing": Message(
        "max_loss limits the BLEU that may be lost: give sentences with references",
        "max_loss 限制可以损失的 BLEU：请给出带参考译文的句子",
    ),
    "onnx_float16_unsupported": Message(
        "onnx does not support precision float16: use float32 or int8", "onnx 不支持精度 float16：请用 float32 或 int8"
    ),
    "converted_model_differs": Message(
        "{path} was not written, because the exported model differs from the original: {reasons}",
        "没有写入 {path}，因为导出的模型与原模型不一致：{reasons}",
    ),
    "decoding_defaults_invalid": Message(
        "{path}: its decoding defaults are not valid in attendo: {error}",
        "{path}：其默认解码设置在 attendo 中无效：{error}",
    ),
    "json_field_invalid": Message(
        "{path}: {field} must be {needed}, not {value}",
        "{path}：{field} 为 {value}，应为：{needed}",
        {
            "field": {"a key of added_tokens_decoder": "added_tokens_decoder 的键"},
        },
    ),
    "vocabulary_ids_invalid": Message(
        "{path} is not a valid vocabulary: each piece needs its own id of 0 or more",
        "{path} 不是有效的词表：每个词元必须有唯一的、不小于 0 的编号",
    ),
    "vocabulary_exceeds_network": Message(
        "{path} does not match the network: {piece} has the id {token_id}, but config.json has vocab_size {size}",
        "{path} 与网络不符：{piece} 的编号是 {token_id}，而 config.json 的 vocab_size 为 {size}",
    ),
    "sentencepiece_vocabulary_mismatch": Message(
        "{path} does not match the vocabulary, which has {known} of its {count} pieces: they belong to different models",
        "{path} 与词表不符：它的 {count} 个词元中只有 {known} 个在词表里；两者不属于同一个模型",
    ),
    "sentencepiece_model_invalid": Message(
        "{path} is not a SentencePiece model: copy the folder again", "{path} 不是 SentencePiece 模型：请重新复制文件夹"
    ),
    "weights_config_mismatch": Message(
        "{path}: its weights do not match its config.json: {faults}", "{path}：权重与 config.json 不符：{faults}"
    ),
    "merges_vocabulary_mismatch": Message(
        "{path}: {count} of {total} pieces that its merges make are not in its vocabulary, such as {examples}: the two files are not from the same tokenizer; copy both from the same model",
        "{path}：合并得到的 {total} 个词元中有 {count} 个不在词表里，例如 {examples}：两个文件不属于同一个分词器，请从同一个模型复制这两个文件",
    ),
    "add_prefix_space_unsupported": Message(
        "{path}: attendo does not support add_prefix_space, which puts a space before every text: load the model in Python without its tokenizer (from_folder(path, with_tokenizers=False))",
        "{path}：attendo 不支持 add_prefix_space（在每段文本前加空格）：请在 Python 中不带分词器读取这样的模型（from_folder(path, with_tokenizers=False)）",
    ),
    "model_without_languages": Message(
        "{path}: a {kind} model has no languages to choose from: leave the languages out",
        "{path}：{kind} 模型没有可选的语言：请去掉语言选项",
    ),
    "import_model_type_unsupported": Message(
        "{path} is a {kind} model ({architectures}); attendo imports {known}",
        "{path} 是 {kind} 模型（{architectures}）；可导入的有：{known}",
        {
            "known": {
                "marian (Marian and OPUS-MT), bart (BART), m2m_100 (M2M100 and NLLB), mbart (mBART), pegasus (with a MarianTokenizer, as attendo exports it)": "marian（Marian 和 OPUS-MT）、bart（BART）、m2m_100（M2M100 和 NLLB）、mbart（mBART）、pegasus（带 MarianTokenizer，即 attendo 导出的格式）"
            },
            "architectures": {"nothing": "未注明"},
        },
    ),
    "language_not_in_model": Message(
        "the model has no language {name}: use {known}", "模型没有语言 {name}：可用 {known}"
    ),
    "language_after_source_unsupported": Message(
        "{path} puts the language after the source ({reason}), but attendo puts it before: load the model in Python without its tokenizers (from_folder(path, with_tokenizers=False))",
        "{path} 把语言放在源文之后（{reason}），而 attendo 放在源文之前：请在 Python 中不带分词器读取这样的模型（from_folder(path, with_tokenizers=False)）",
    ),
    "shared_embedding_two_vocabularies": Message(
        "{path} has two vocabularies, but one embedding table for both (share_encoder_decoder_embeddings)",
        "{path} 有两个词表，却共用一个嵌入表（share_encoder_decoder_embeddings）",
    ),
    "torch_network_unsupported": Message(
        "attendo does not support this network: {reasons}",
        "attendo 不支持这个网络：{reasons}",
    ),
    "position_arguments_invalid": Message(
        "positions must be a sinusoidal layout, or one table for the source and one for the target of the same shape",
        "positions 必须是一种正弦布局，或源文和译文各一个形状相同的表",
    ),
    "position_table_shape_invalid": Message(
        "a position table must have shape [positions, {width}], with more rows than its offset {offset}, not {shape}",
        "位置表的形状必须是 [positions, {width}]，行数必须大于偏移 {offset}，而不是 {shape}",
    ),
    "weights_file_missing": Message(
        "{path} contains neither {weights} nor {index}; its files: {files}",
        "{path} 里既没有 {weights} 也没有 {index}；现有文件：{files}",
        {"files": {"nothing": "无"}},
    ),
    "import_path_not_folder": Message(
        "{path} is not a folder: give a folder that contains config.json and {weights}",
        "{path} 不是文件夹：请给出含有 config.json 和 {weights} 的文件夹",
    ),
    "transformers_config_missing": Message(
        "{path} is not a transformers model: it has no config.json; its files: {files}",
        "{path} 不是 transformers 模型：没有 config.json；现有文件：{files}",
        {"files": {"nothing": "无"}},
    ),
    "model_type_missing": Message(
        "{path} does not name its model type: model_type is {value}", "{path} 没有注明模型类型：model_type 为 {value}"
    ),
    "import_of_attendo_model": Message(
        "{path} is already an attendo model folder: use it directly, without importing it",
        "{path} 已经是 attendo 的模型文件夹：无需导入，请直接使用",
    ),
    "import_of_exported_model": Message(
        "{path} was exported by attendo to another system: use the model folder that it was exported from",
        "{path} 是 attendo 导出到其他系统的模型：请用导出前的模型文件夹",
    ),
    "weights_format_unsafe": Message(
        "{path} has its weights in {files}, which can run code when loaded: {fix}",
        "{path} 的权重在 {files} 里，读取时可能运行代码：{fix}",
    ),
    "required_file_missing": Message(
        "{path} has no {file}, which a {kind} model needs; its files: {files}",
        "{path} 里没有 {kind} 模型需要的 {file}；现有文件：{files}",
        {"files": {"nothing": "无"}},
    ),
    "weights_not_floating_point": Message(
        "{path} has a weight that is not floating-point, {weight}: import the original model",
        "{path} 里有非浮点的权重 {weight}：请导入原来的模型",
    ),
    "file_is_lfs_pointer": Message(
        "{path} is a Git LFS pointer, not the file itself: run git lfs pull",
        "{path} 是 Git LFS 指针，不是文件本身：请运行 git lfs pull",
    ),
    "weight_index_damaged": Message(
        "{path} is damaged: its weight_map must name files of this folder",
        "{path} 已损坏：weight_map 里不是这个文件夹里的文件",
    ),
    "weight_files_missing": Message(
        "{path} lacks {files}, listed in {index}: copy the folder again",
        "{path} 缺少 {index} 里列出的 {files}：请重新复制文件夹",
    ),
    "tokenizers_not_loaded": Message(
        "{path} was loaded without its tokenizers: it has only a network", "{path} 读取时没有带分词器：只有网络"
    ),
    "output_path_exists": Message(
        "{path} already exists: choose another path, or remove it first", "{path} 已经存在：请换一个路径，或先删除它"
    ),
    "onnx_int8_overflow": Message(
        "{folder} was exported to int8 by an earlier version, and its products overflow on this processor, which has no VNNI: export the model again",
        "{folder} 是旧版本导出的 int8 模型，其乘积在这个没有 VNNI 的处理器上会溢出：请重新导出模型",
    ),
    "onnx_encoder_missing": Message(
        "{path}: num_encoder_layers is 0, but step.onnx needs an encoder",
        "{path}：num_encoder_layers 为 0，而 step.onnx 需要编码器",
    ),
    "onnx_network_unsupported": Message(
        "the ONNX export does not support this network: {reasons}",
        "ONNX 导出不支持这个网络：{reasons}",
    ),
    "onnx_fixed_size_unsupported": Message(
        "an ONNX network has no fixed-size cache: use the engine onnx",
        "ONNX 网络没有固定大小的缓存：请用引擎 onnx",
    ),
    "onnx_inference_failed": Message(
        "ONNX Runtime cannot run {name}: {reason}; export the model again",
        "ONNX Runtime 无法运行 {name}：{reason}；请重新导出模型",
    ),
    "onnx_load_failed": Message(
        "ONNX Runtime cannot load {name}: {reason}",
        "ONNX Runtime 无法加载 {name}：{reason}",
        {"name": {"a graph": "内存中的计算图"}},
    ),
    "export_format_not_runnable": Message(
        "{folder} was exported to {engine}, which attendo cannot run: use the model folder that it was exported from, or export that to {formats}",
        "{folder} 是导出到 {engine} 的模型，attendo 不能运行：请用导出前的模型文件夹，或把它导出到 {formats}",
        {"formats": {"onnx or ctranslate2": "onnx 或 ctranslate2"}},
    ),
    "folder_is_exported_model": Message(
        "{folder} was exported to {engine}: use the model folder that it was exported from",
        "{folder} 是导出到 {engine} 的模型：请用导出前的模型文件夹",
    ),
    "onnx_device_not_cpu": Message(
        "the engine onnx runs on the CPU, not on {device}: use cpu or auto",
        "引擎 onnx 只在 CPU 上运行，不能用 {device}：请用 cpu 或 auto",
    ),
    "ctranslate2_folder_not_attendo": Message(
        "{folder} looks like a CTranslate2 model that attendo did not write: attendo runs only folders written by attendo export MODEL OUT --to ctranslate2",
        "{folder} 看来是 CTranslate2 模型，但不是 attendo 写的：attendo 只运行 attendo export MODEL OUT --to ctranslate2 写出的模型",
    ),
    "model_type_unsupported": Message(
        "{folder} is a {kind} model of transformers, which attendo does not support; it imports {supported}",
        "{folder} 是 transformers 的 {kind} 模型，attendo 不支持；可导入的有 {supported}",
    ),
    "transformers_model_not_imported": Message(
        "{folder} is a {kind} model of transformers: run attendo import {folder} OUT, then use OUT",
        "{folder} 是 transformers 的 {kind} 模型：请先运行 attendo import {folder} OUT，再使用 OUT",
    ),
    "export_pair_too_long": Message(
        "a pair of {source} source and {target} target tokens is too long for the exported model: the limit is {limit} each",
        "一对文本有 {source} 个源文词元和 {target} 个译文词元，超过导出模型的上限：各最多 {limit} 个",
    ),
    "output_not_exported_package": Message(
        "{path} exists and is not an exported package: choose another path, or remove it first",
        "{path} 已经存在，且不是导出的包：请换一个路径，或先删除它",
    ),
    "output_not_exported_model": Message(
        "{path} exists and is not an exported model: choose another path, or empty it first",
        "{path} 已经存在，且不是导出的模型：请换一个路径，或先清空它",
    ),
    "control_token_outside_vocabulary": Message(
        "{tokens}, but the network has {size} tokens: config.json belongs to another model",
        "{tokens}，而网络只有 {size} 个词元：config.json 属于另一个模型",
    ),
    "comparison_reference_count_mismatch": Message(
        "each source needs one reference: there are {sources} sources and {references} references",
        "每个源句都需要参考译文：现有 {sources} 个源句，{references} 个参考译文",
    ),
    "sentences_not_comparable": Message(
        "none of the {count} given sentences can be compared: {empty} are empty and {long} have more than {max_length} tokens; give other sentences, or none",
        "给出的 {count} 个句子都无法比较：{empty} 个为空，{long} 个超过 {max_length} 个词元；请换一些句子，或不给句子",
    ),
    "max_length_too_short": Message(
        "max_length {max_length} is too short for the comparison with the converted model, which needs positions for {needed} tokens",
        "max_length {max_length} 太短，无法与转换后的模型作比较：需要 {needed} 个词元的位置",
    ),
    "stored_settings_unsupported": Message(
        "the exported model cannot use the decoding settings stored in this model: {error}; or export with other settings (--set NAME=VALUE)",
        "导出的模型无法使用这个模型保存的解码设置：{error}；或用其他设置导出（--set NAME=VALUE）",
    ),
    "tokenizer_json_damaged": Message(
        "{path} is damaged: its vocabulary cannot be read; copy the folder again",
        "{path} 已损坏：无法读取其中的词表；请重新复制文件夹",
    ),
    "tokenizer_not_byte_level": Message(
        "{path} is not a byte-level BPE tokenizer like BART's: add the files vocab.json and merges.txt",
        "{path} 不是 BART 那样的字节级 BPE 分词器：请添加文件 vocab.json 和 merges.txt",
    ),
    "tokenizer_json_type_unsupported": Message(
        "{path} has a tokenizer of type {found}, but attendo supports {supported}: add the file sentencepiece.bpe.model",
        "{path} 的分词器类型是 {found}；支持 {supported}：请添加文件 sentencepiece.bpe.model",
        {"found": {"None": "未注明"}, "supported": {"Unigram and BPE": "Unigram 和 BPE"}},
    ),
    "hf_int8_unsupported": Message(
        "hf does not support precision int8: use float32 or float16", "hf 不支持精度 int8：请用 float32 或 float16"
    ),
    "transformers_network_unsupported": Message(
        "{model} cannot represent this network: {reasons}",
        "{model}无法表示这个网络：{reasons}",
        {
            "model": {
                "a MarianMTModel": "MarianMTModel ",
                "a Pegasus model": "Pegasus 模型",
                "a BART model": "BART 模型",
                "an mBART model": "mBART 模型",
                "an M2M100 model": "M2M100 模型",
            },
        },
    ),
    "tokenizer_class_unsupported": Message(
        "tokenizer_class {name!r} is not supported: use {known}", "不支持 tokenizer_class {name!r}：可用 {known}"
    ),
    "import_proof_needs_transformers": Message(
        "the check of an import needs transformers: pip install 'attendo[hf]', or skip it with --no-proof",
        "导入的检查需要 transformers：pip install 'attendo[hf]'，或用 --no-proof 跳过",
    ),
    "transformers_load_failed": Message(
        "transformers cannot open {path} for the check: {error_type}: {reason}; fix that, or skip the check with --no-proof",
        "transformers 无法打开 {path} 进行检查：{error_type}：{reason}；请先解决，或用 --no-proof 跳过检查",
    ),
    "quantized_model_differs": Message(
        "{path} was not written, because the exported model differs from the original: {reasons}; to allow a larger loss, raise max_loss (--max-loss)",
        "没有写入 {path}，因为导出的模型与原模型不一致：{reasons}；增大 max_loss（--max-loss）可允许更大的损失",
    ),
    "logit_difference_too_large": Message(
        "the {kind} logit difference is {value}, more than {bound}",
        "logits 的{kind}差为 {value}，超过 {bound}",
        {"kind": {"mean": "平均", "largest": "最大"}},
    ),
    "lost_bleu_too_large": Message("{value} BLEU are lost, more than {bound}", "损失了 {value} BLEU，超过 {bound}"),
    "agreement_too_small": Message(
        "its outputs have {value} BLEU with attendo's as references, less than {bound}",
        "以 attendo 的输出为参考，其输出的 BLEU 为 {value}，低于 {bound}",
    ),
    "same_tokens_too_few": Message(
        "{value} of the tokens of {search} search are the same, less than {bound}",
        "{search} 搜索中有 {value} 的词元相同，低于 {bound}",
    ),
    "tokenizer_differs": Message("the tokenizer gives other ids: {comparison}", "分词器给出的编号不同：{comparison}"),
    "tokenizer_not_compared": Message(
        "the tokenizer was not compared, because transformers cannot load its own: {reason}",
        "没有比较分词器，因为 transformers 无法加载它自己的分词器：{reason}",
    ),
    "tokenizer_not_compared_without_text": Message(
        "the tokenizer was not compared, because there is no text", "没有比较分词器，因为没有文本"
    ),
    "texts_have_same_ids": Message(
        "{same} of {count} texts have the same ids as with {name}", "{count} 段文本中有 {same} 段的编号与 {name} 相同"
    ),
    "texts_have_other_ids": Message(
        "{same} of {count} texts have the same ids as with {name}, but not {text!r}",
        "{count} 段文本中有 {same} 段的编号与 {name} 相同，例外如 {text!r}",
    ),
    "mbart_tokenizer_unknown": Message(
        "no file names the tokenizer class of this mBART model, and {name} is a different one",
        "没有文件注明这个 mBART 模型的分词器类，而 {name} 与它不同",
    ),
    "given_sentences_few": Message(
        "{count} sentences are given; the other {random} sources are random ids and count in no BLEU",
        "给出了 {count} 个句子；另外 {random} 个源句是随机编号，不计入 BLEU",
    ),
    "sample_sentences_few": Message(
        "the model's sample has {count} sentences; the other {random} sources are random ids and count in no BLEU",
        "模型的样本有 {count} 个句子；另外 {random} 个源句是随机编号，不计入 BLEU",
    ),
    "sentences_skipped": Message(
        "of {count} given sentences, {empty} are empty and {long} have more than {max_length} tokens: they are skipped",
        "给出的 {count} 个句子中，{empty} 个为空，{long} 个超过 {max_length} 个词元：已跳过",
    ),
    "compared_on_random_sources": Message(
        "compared on random sources only, which shows little about quantisation: give your own sentences (--source)",
        "只在随机源句上作了比较，难以反映量化的影响：请给出自己的句子（--source）",
    ),
    "references_ignored": Message(
        "the model itself has only {bleu} BLEU on the references, too little to measure a loss: {criterion} decided instead",
        "模型本身在参考译文上只有 {bleu} BLEU，无法衡量损失：改由 {criterion} 决定",
    ),
    "all_int8_failed": Message("with all products in int8: {reasons}", "所有乘积都用 int8 时：{reasons}"),
    "products_kept_in_float32": Message(
        "{count} products stay in float32: those with the largest int8 error",
        "{count} 个乘积保留 float32：它们的 int8 误差最大",
    ),
    "ctranslate2_int8_overflow": Message(
        "CTranslate2's int8 products overflow on this processor, which has no VNNI: compare on the machine that will run the model",
        "这个处理器没有 VNNI，CTranslate2 的 int8 乘积会溢出：请在将来运行模型的机器上比较",
    ),
    "tokenizer_for_attendo_only": Message(
        "the {side} tokenizer is of kind {kind}, which only attendo can read",
        "{side}的分词器是 {kind}，只有 attendo 能读取",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "other_programs_add_source_prefix": Message(
        "other programs must start every source with {pieces}", "其他程序必须在每个源句前加上 {pieces}"
    ),
    "other_programs_add_target_prefix": Message(
        "other programs must start every output with {pieces} (target_prefix)",
        "其他程序必须让每个输出以 {pieces} 开头（target_prefix）",
    ),
    "ctranslate2_changes_settings": Message(
        "CTranslate2 does not support all decoding settings of the model: {changes}",
        "CTranslate2 不支持模型的全部解码设置：{changes}",
    ),
    "setting_differs": Message("{name} is {value}, not {expected}", "{name} 为 {value}，而不是 {expected}"),
    "argos_shows_byte_pieces": Message(
        "Argos Translate joins pieces unchanged: a letter that the tokenizer writes as bytes appears as <0xE4>",
        "Argos Translate 原样拼接词元：分词器用字节表示的字母会显示为 <0xE4>",
    ),
    "argos_ignores_settings": Message(
        "Argos Translate uses its own decoding settings and ignores those of the model: {settings}",
        "Argos Translate 使用自己的解码设置，忽略模型的设置：{settings}",
    ),
    "loaded_by_class": Message(
        "load it with {name} or AutoModelForSeq2SeqLM", "请用 {name} 或 AutoModelForSeq2SeqLM 加载"
    ),
    "loaded_by_pegasus_class": Message(
        "load it with {name} or AutoModelForSeq2SeqLM; a MarianMTModel has its norms elsewhere and gives other outputs",
        "请用 {name} 或 AutoModelForSeq2SeqLM 加载；MarianMTModel 的归一化位置不同，输出也不同",
    ),
    "tokenizers_not_exported": Message("the tokenizers are not exported: {reason}", "没有导出分词器：{reason}"),
    "tokenizer_kind_differs": Message(
        "{name} is of kind {needed}, but the {side} tokenizer is of kind {kind}",
        "{name} 的类型是 {needed}，而{side}的分词器是 {kind}",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "bart_source_prefix_missing": Message(
        "BartTokenizer puts {prefix} before every source, but this model does not",
        "BartTokenizer 在每个源句前加 {prefix}，而这个模型不加",
    ),
    "tokens_have_other_ids": Message(
        "with {name}, {count} of {total} tokens have another id, for example {piece!r}",
        "用 {name} 时，{total} 个词元中有 {count} 个的编号不同，例如 {piece!r}",
    ),
    "sources_need_prefix_ids": Message("every source must begin with the ids {ids}", "每个源句必须以编号 {ids} 开头"),
    "source_prefix_unsupported": Message("the model puts {prefix} before every source", "模型在每个源句前加 {prefix}"),
    "target_prefix_too_long": Message(
        "its outputs begin with {prefix}, which is more than one token", "它的输出以 {prefix} 开头，超过一个词元"
    ),
    "setting_not_imported": Message("not imported: {name} {value}", "没有导入：{name} {value}"),
    "forced_eos_has_log_probability": Message(
        "{name}: EOS at the limit has log-probability 0 in transformers, and the model's log-probability in attendo",
        "{name}：到达上限时，EOS 的对数概率在 transformers 中为 0，在 attendo 中为模型给出的值",
    ),
    "setting_not_exported": Message(
        "transformers has no counterpart for {name} {value}: {instead}",
        "transformers 没有与 {name} {value} 对应的设置：{instead}",
    ),
    "hf_ignores_min_length_factor": Message("it uses only min_length_extra", "它只用 min_length_extra"),
    "hf_reads_any_length": Message("it reads a source of any length", "它读取任意长度的源句"),
    "hf_returns_best_of_one_search": Message("its output is the best of one search", "它的输出是一次搜索的最佳结果"),
    "hf_runs_one_beam": Message("it runs one plain beam", "它只运行一个普通的束"),
    "hf_has_no_penalty": Message("it has none", "它没有这个惩罚"),
    "hf_counts_eos": Message("it counts EOS as a token", "它把 EOS 计为一个词元"),
    "hf_finishes_beam_width": Message(
        "it stops after as many finished hypotheses as the beam is wide", "完成的假设数等于束宽时停止"
    ),
    "hf_has_fixed_max_length": Message(
        "an output has at most {limit} tokens for every source (max_length)",
        "无论源句多长，输出最多 {limit} 个词元（max_length）",
    ),
    "hf_samples_with_torch": Message("its samples depend on torch.manual_seed", "它的采样取决于 torch.manual_seed"),
    "hf_penalises": Message("its penalty applies to {values}", "它的惩罚作用于 {values}"),
    "hf_ranks_by_average": Message(
        "it ranks by log p / |y| ** length_penalty, with a length_penalty of 1",
        "它按 log p / |y| ** length_penalty 排序，length_penalty 为 1",
    ),
    "hf_stops_as_settled": Message(
        "it stops as settled does (early_stopping=False)", "它按 settled 的规则停止（early_stopping=False）"
    ),
    "hf_ranks_truncated_outputs": Message(
        "it ranks an output at the limit together with finished ones", "它把到达上限的输出与已结束的输出一起排序"
    ),
    "hf_forces_eos_at_no_cost": Message("its forced EOS has log-probability 0", "它强制的 EOS 的对数概率为 0"),
    "language_unknown": Message(
        "the model has several languages, and the {side} language is unknown: set it with --{side}-language, or {side}_prefix in every call",
        "模型有多种语言，而 {side} 语言未知：请用 --{side}-language 设置，或在每次调用时设置 {side}_prefix",
    ),
    "merged_pieces_unknown": Message(
        "{count} of {total} pieces that its merges make are not in its vocabulary and are read as unknown, such as {examples}",
        "合并得到的 {total} 个词元中有 {count} 个不在词表里，按未知词元读取，例如 {examples}",
    ),
    "sentencepiece_pieces_unknown": Message(
        "{file}: {count} of its pieces are not in the vocabulary and are read as unknown ({pieces})",
        "{file}：有 {count} 个词元不在词表里，按未知词元读取（{pieces}）",
    ),
    "needs_text": Message("a text", "文本"),
    "needs_flag": Message("true or false", "true 或 false"),
    "needs_count": Message("an integer of 0 or more", "不小于 0 的整数"),
    "needs_number": Message("a number", "数"),
    "needs_token": Message("one token", "一个词元编号"),
    "needs_tokens": Message("a list of tokens", "词元编号的列表"),
    "needs_token_lists": Message("a list of lists of tokens", "词元编号列表的列表"),
    "needs_list": Message("a list", "列表"),
    "needs_object": Message("an object", "对象"),
    "needs_token_id": Message("a token id", "词元编号"),
    "needs_one_of": Message("one of {known}", "{known} 之一"),
    "needs_prefix_symbol": Message(
        "one of the tokens that attendo can begin outputs with ({symbols})",
        "attendo 能放在输出开头的词元之一（{symbols}）",
    ),
    "needs_encoder_and_decoder": Message(
        "true (a network with an encoder and a decoder)", "true（既有编码器又有解码器的网络）"
    ),
    "needs_positions_for_proof": Message(
        "at least {least} for the check (skip it with --no-proof)", "不小于 {least} 才能检查（用 --no-proof 可跳过）"
    ),
    "convert_weights_elsewhere": Message(
        "load them with the program that wrote them, and write {weights} with save_pretrained of transformers",
        "请用写出它们的程序读取，再用 transformers 的 save_pretrained 写出 {weights}",
    ),
    "convert_weights_by_command": Message(
        "if you trust them, convert them to {weights} with {command}",
        "如果来源可信，请转换为 {weights}：{command}",
    ),
    "control_token_id": Message("{name} has the id {token_id}", "{name} 的编号是 {token_id}"),
    "encoder_missing": Message("it has no encoder", "它没有编码器"),
    "rotary_keys_narrow": Message(
        "its rotary keys have width {keys}, less than the width {values} of its values",
        "旋转位置的键宽为 {keys}，小于值宽 {values}",
    ),
    "vocabulary_without_control_tokens": Message(
        "a vocabulary of {size} tokens has no room for pad, unk, bos and eos",
        "{size} 个词元的词表放不下 pad、unk、bos 和 eos",
    ),
    "final_norm_missing": Message("it has no norm after each stack", "编码器和解码器末尾没有归一化"),
    "final_norm_unsupported": Message("it has a norm after each stack", "编码器和解码器末尾有归一化"),
    "embedding_norm_missing": Message("it has no norm on the embedding", "嵌入没有归一化"),
    "embedding_norm_unsupported": Message("it has a norm on the embedding", "嵌入有归一化"),
    "vocabulary_sizes_differ": Message(
        "its vocabularies differ in size: {source} source tokens and {target} target tokens",
        "词表大小不同：源文 {source} 个词元，译文 {target} 个词元",
    ),
    "output_bias_unsupported": Message("it has a bias on the logits", "它的 logits 有偏置"),
    "position_offset_not_after_token": Message(
        "position_offset is {offset}, which must follow a token id",
        "position_offset 为 {offset}，必须紧跟在某个词元编号之后",
    ),
    "gated_activation_unsupported": Message(
        "activation is {activation}, which has a gate", "激活函数为 {activation}，它带有门控"
    ),
    "d_model_not_multiple_of_heads": Message(
        "d_model {d_model} is not a multiple of num_heads {num_heads}",
        "d_model {d_model} 不是 num_heads {num_heads} 的倍数",
    ),
    "head_counts_differ": Message(
        "the encoder has {encoder} heads and the decoder {decoder}, which must be equal",
        "编码器有 {encoder} 个头，解码器有 {decoder} 个，两者必须相等",
    ),
    "feed_forward_widths_differ": Message(
        "the feed-forward networks have widths {encoder} and {decoder}, which must be equal",
        "前馈网络的宽度为 {encoder} 和 {decoder}，两者必须相等",
    ),
    "activation_unknown": Message(
        "activation_function is {name}, which is not one of {known}", "activation_function 为 {name}，不是 {known} 之一"
    ),
    "weight_missing": Message("{name} is missing", "缺少 {name}"),
    "weight_shape_differs": Message("{name} is {found}, not {expected}", "{name} 的形状是 {found}，而不是 {expected}"),
    "weight_not_finite": Message("{name} has NaN or infinite values", "{name} 含有 NaN 或无穷大"),
    "shared_weights_differ": Message(
        "{first} and {other} differ, against {flags}", "{first} 和 {other} 不同，与 {flags} 矛盾"
    ),
    "weight_unknown": Message("{name} is not used", "{name} 没有用到"),
    "torch_network_class": Message(
        "it is a {found}, not a torch.nn.Transformer", "它是 {found}，不是 torch.nn.Transformer"
    ),
    "torch_layer_classes": Message(
        "its layers are {found}, not those of torch.nn",
        "它的层是 {found}，不是 torch.nn 的层",
        {"found": {"none": "空的"}},
    ),
    "torch_norm_classes": Message(
        "its norms are {found}, but all must be a LayerNorm with weights",
        "它的归一化是 {found}，而全部必须是带权重的 LayerNorm",
    ),
    "torch_module_replaced": Message(
        "its {part} is a {found}, whose forward is not that of torch.nn.{expected}",
        "它的 {part} 是 {found}，其 forward 不是 torch.nn.{expected} 的",
    ),
    "torch_widths_differ": Message("widths differ: {widths}", "宽度不一致：{widths}"),
    "torch_vocabulary_sizes_differ": Message(
        "it has {outputs} outputs and {tokens} target tokens", "它有 {outputs} 个输出和 {tokens} 个译文词元"
    ),
    "torch_max_norm": Message("an embedding has a max_norm", "嵌入设置了 max_norm"),
    "torch_one_final_norm": Message("only one stack has a final norm", "编码器和解码器中只有一个在末尾有归一化"),
    "torch_attention_options": Message(
        "an attention has bias_k, add_zero_attn or different widths",
        "有注意力使用了 bias_k、add_zero_attn 或不同的宽度",
    ),
    "torch_activation_unknown": Message(
        "the activation is not relu, gelu (without tanh) or silu", "激活函数不是 relu、gelu（非 tanh 近似）或 silu"
    ),
    "torch_layers_differ": Message(
        "layers differ in heads, width, activation or norm_first", "各层的头数、宽度、激活函数或 norm_first 不一致"
    ),
    "torch_epsilons_differ": Message("norms differ in epsilon: {values}", "各归一化的 epsilon 不同：{values}"),
}
