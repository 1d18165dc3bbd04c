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
        {"reasons": {"it has no encoder": "它没有编码器"}},
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
            "needed": {
                "a text": "文本",
                "true or false": "true 或 false",
                "an integer of 0 or more": "不小于 0 的整数",
                "a number": "数",
                "one token": "一个词元编号",
                "a list of tokens": "词元编号的列表",
                "a list of lists of tokens": "词元编号列表的列表",
                "a list": "列表",
                "an object": "对象",
                "one of the tokens that attendo can begin answers with (none)": "attendo 能放在译文开头的词元之一（无）",
                "true (a network with an encoder and a decoder)": "true（既有编码器又有解码器的网络）",
                "a token id": "词元编号",
            },
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
        "{path}: {reason}: the two files are not from the same tokenizer; copy both from the same model",
        "{path}：{reason}：两个文件不属于同一个分词器，请从同一个模型复制这两个文件",
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
        {
            "reasons": {
                "its layers are none, not those of torch.nn": "它没有 torch.nn 的层",
                "an embedding has a max_norm": "嵌入设置了 max_norm",
                "only one stack has a norm behind it": "编码器和解码器中只有一个在末尾有归一化",
                "an attention has a bias_k, a zero or widths of its own": "有注意力使用了 bias_k、add_zero_attn 或不同的宽度",
                "the activation is none of relu, gelu (not tanh), silu": "激活函数不是 relu、gelu（非 tanh 近似）或 silu",
                "layers differ in heads, width, activation or norm_first": "各层的头数、宽度、激活函数或 norm_first 不一致",
            }
        },
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
        {"reasons": {"it has no encoder (num_encoder_layers is 0)": "它没有编码器（num_encoder_layers 为 0）"}},
    ),
    "onnx_fixed_size_unsupported": Message(
        "an ONNX network has no fixed-size cache: use the engine onnx",
        "ONNX 网络没有固定大小的缓存：请用引擎 onnx",
    ),
    "onnx_multiple_tokens_per_step": Message(
        "an ONNX network reads one token per row and step, not {count}",
        "ONNX 网络每行每次只读一个词元，而不是 {count} 个",
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
        "none of the {count} given sentences can be compared{reason}: give other sentences, or none",
        "给出的 {count} 个句子都无法比较{reason}；请换一些句子，或不给句子",
        {"reason": {", there are none": "（没有句子）"}},
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
            "reasons": {
                "it has no encoder": "它没有编码器",
                "it has no norm behind each stack": "编码器和解码器末尾没有归一化",
                "it has a norm behind each stack": "编码器和解码器末尾有归一化",
                "it has no norm on the embedding": "嵌入没有归一化",
                "it has a norm on the embedding": "嵌入有归一化",
                "it has a bias on the logits": "它的 logits 有偏置",
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
}
