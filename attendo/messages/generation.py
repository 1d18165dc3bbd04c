"""Messages of decoding, text models and pipelines."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "beam_width_below_one": Message(
        "a beam has at least one row: width must be 1 or more, not {width}", "束宽为 {width}，应至少为 1"
    ),
    "patience_not_positive": Message(
        "patience must be more than 0, not {patience}", "patience 为 {patience}，应大于 0"
    ),
    "beam_not_divisible_by_groups": Message(
        "beam_groups must divide the beam evenly: {groups} and {beam}",
        "束宽必须能被组数整除：组数 {groups}，束宽 {beam}",
    ),
    "beam_patience_too_large": Message(
        "beam times patience must be at most {limit:,}, which are kept: {beam} and {patience}",
        "束宽 {beam} 乘以 patience {patience} 不得超过 {limit:,}",
    ),
    "sample_groups_conflict": Message(
        "sample and beam_groups exclude each other: diverse beam search does not sample",
        "采样不能分组：请去掉 sample 或 beam_groups",
    ),
    "coverage_penalty_without_source": Message(
        "a decoder-only network has no source to cover: coverage_penalty must be 0",
        "只有解码器的网络没有源文可覆盖：coverage_penalty 必须为 0",
    ),
    "coverage_layer_out_of_range": Message(
        "the layer whose attention counts must be from {first} to {last}, not {layer}",
        "用于覆盖惩罚的解码器层为 {layer}，应在 {first} 到 {last} 之间",
    ),
    "width_not_divisible_by_groups": Message(
        "groups must divide the width of the beam evenly: {groups} and {width}",
        "束宽必须能被组数整除：组数 {groups}，束宽 {width}",
    ),
    "diversity_strength_negative": Message(
        "the strength of diversity must be 0 or more, not {strength}", "多样性强度为 {strength}，不能小于 0"
    ),
    "ensemble_vocabulary_size_mismatch": Message(
        "members of an ensemble must have the same vocabulary: {quantity} are {sizes}",
        "集成模型的各成员词表大小必须相同；{quantity}：{sizes}",
        {
            "quantity": {
                "tokens in the logits": "logits 的词元数",
                "tokens of the target vocabulary": "目标词表的词元数",
                "tokens of the source vocabulary": "源词表的词元数",
            }
        },
    ),
    "ensemble_weight_count_mismatch": Message(
        "each member needs its weight: {members} members and {weights} weights",
        "集成模型的每个成员需要一个权重：现有 {members} 个成员，{weights} 个权重",
    ),
    "ensemble_empty": Message(
        "an ensemble has at least one member: give one model or more", "集成模型至少需要一个成员：请给出一个或多个模型"
    ),
    "unknown_ensemble_method": Message(
        "members are joined by probabilities or by logarithms, not by {how}",
        "how 为 {how}，应为 probabilities 或 logarithms",
    ),
    "ensemble_member_without_encoder": Message(
        "only networks read a source: start {kinds} by hand, with an EnsembleState",
        "含有 {kinds} 的集成模型不能编码源文：只有 Transformer 成员可以；请自行创建 EnsembleState",
    ),
    "ensemble_weight_not_positive": Message(
        "weights must be more than 0, not {weight}: leave out a member that is not to count",
        "权重为 {weight}，应为大于 0 的有限数：请去掉不参与的成员",
    ),
    "unknown_like_system": Message(
        "preset: {name!r} is none of {known}{suggestion}", "preset：未知的系统 {name!r}，可用：{known}{suggestion}"
    ),
    "coverage_penalty_negative": Message(
        "coverage_penalty must be 0 or more, not {coverage_penalty}",
        "coverage_penalty 为 {coverage_penalty}，不能小于 0",
    ),
    "candidates_without_probability": Message(
        "none of the candidates has a probability: weigh those that were found",
        "没有概率大于 0 的候选：请至少给出一个对数概率有限的候选",
    ),
    "no_candidates": Message(
        "there is nothing to choose from: give at least one candidate", "没有可选的候选：请至少给出一个"
    ),
    "candidate_weight_count_mismatch": Message(
        "each candidate needs its weight: {candidates} candidates and {weights} weights",
        "每个候选需要一个权重：现有 {candidates} 个候选，{weights} 个权重",
    ),
    "candidate_weights_invalid": Message(
        "weights must be 0 or more, and more than 0 for at least one candidate, not {weight}",
        "权重不能小于 0，且至少一个候选的权重须大于 0，而不是 {weight}",
        {"weight": {"0 for all": "全部为 0"}},
    ),
    "utility_shape_mismatch": Message(
        "a utility gives a row for each of {count} candidates and a column for each, not {shape}",
        "utility 应为 {count} 个候选各返回一行和一列，而不是形状 {shape}",
    ),
    "utility_not_finite": Message(
        "a utility must be a finite number for each pair of candidates", "utility 必须为每一对候选返回有限的数"
    ),
    "ngram_size_below_one": Message(
        "no_repeat_ngram_size counts tokens: it must be 1 or more, not {size}",
        "no_repeat_ngram_size 为 {size}，应至少为 1 个词元",
    ),
    "repetition_penalty_not_positive": Message(
        "repetition_penalty must be more than 0 (1 changes nothing), not {penalty}",
        "repetition_penalty 为 {penalty}，应大于 0（1 表示不变）",
    ),
    "phrase_without_tokens": Message(
        "a {kind} phrase has at least one token: leave empty ones out",
        "{kind}短语至少要有一个词元：请去掉空短语",
        {"kind": {"required": "必须出现的", "banned": "禁用的"}},
    ),
    "phrase_with_control_tokens": Message(
        "a {kind} phrase holds no control tokens (pad {pad}, bos {bos}, eos {eos}): {ids}",
        "{kind}短语不能含有控制词元（pad {pad}，bos {bos}，eos {eos}）或负的编号：{ids}",
        {"kind": {"required": "必须出现的", "banned": "禁用的"}},
    ),
    "temperature_not_positive": Message(
        "temperature must be more than 0, not {temperature}: for no chance at all use greedy",
        "temperature 为 {temperature}，应大于 0：要得到确定的回答，请用贪心解码",
    ),
    "top_k_negative": Message(
        "top_k must be 0 (all tokens) or more, not {top_k}", "top_k 为 {top_k}，应为 0（全部词元）或更大"
    ),
    "min_p_out_of_range": Message("min_p must be from 0 to 1, not {min_p}", "min_p 为 {min_p}，应在 0 到 1 之间"),
    "probability_mass_out_of_range": Message(
        "{option} must be more than 0 and at most 1, not {value}", "{option} 为 {value}，应大于 0 且不超过 1"
    ),
    "ban_cannot_be_met": Message(
        "banned_phrases {phrases}: every output that was found contains one of them",
        "无法避开 {phrases}：没有找到别的说法；请减少 banned_phrases 里的短语",
    ),
    "request_number_collision": Message(
        "two different texts have the same number: give them one after the other",
        "两段不同的文本有相同的请求编号：请分两次调用",
    ),
    "answer_log_probability_nan": Message(
        "an answer has a log-probability that is not a number (precision {precision}): take bf16 or fp32 (--precision); where that does not help, the weights of the model are not sound",
        "回答的对数概率不是数（精度 {precision}）：请改用 bf16 或 fp32；若仍如此，则模型权重有误",
    ),
    "prefix_with_decoder_only_model": Message(
        "prefix and a decoder-only model exclude each other: the text itself is how it begins",
        "只有解码器的模型不能用 prefix：文本本身就是回答的开头",
    ),
    "source_option_without_encoder": Message(
        "{option} and a decoder-only model exclude each other: it reads no source; leave it out",
        "只有解码器的模型不读源文，不能用 {option}：请去掉",
    ),
    "prompt_exceeds_model_limit": Message(
        "{text} has {tokens} tokens; the model reads at most {limit}: shorten it at its beginning",
        "{text}有 {tokens} 个词元，模型最多读 {limit} 个：请缩短开头",
    ),
    "prompt_longer_than_max_length": Message(
        "{text} has {tokens} tokens, more than max_length {limit}, which counts them too: raise it",
        "{text}有 {tokens} 个词元，超过了最大长度 {limit}，而它们也计算在内：请增大 max_length",
    ),
    "prompt_contains_banned_phrase": Message(
        "the text {text!r} contains the banned phrase {banned!r}, and the output begins with it",
        "{text!r} 里有禁用的 {banned!r}：请去掉其中之一",
    ),
    "prefix_longer_than_max_length": Message(
        "the prefix has {tokens} tokens, more than max_length {limit}",
        "prefix 有 {tokens} 个词元，超过了最大长度 {limit}",
    ),
    "stream_option_unsupported": Message(
        "a stream is one text: n_best and alignments are for generate",
        "流式回答只有一段文本：n_best 和 alignments 请不用流式",
    ),
    "text_position": Message("text {position} of {total}", "第 {position} 段文本（共 {total} 段）"),
    "text_log_probability_nan": Message(
        "{text} has a log-probability that is not a number (precision {precision}): take bf16 or fp32 (--precision); where that does not help, the weights of the model are not sound",
        "{text}的对数概率不是数（精度 {precision}）：请改用 bf16 或 fp32；若仍如此，则模型权重有误",
    ),
    "constraints_engine_conflict": Message(
        "constraints and the engine {engine} exclude each other: use cached, or auto",
        "constraints 不能与引擎 {engine} 同时使用：请用 cached 或 auto",
    ),
    "textbook_engine_conflict": Message(
        "{feature} and the engine textbook exclude each other: use cached, or auto",
        "{feature} 不能与引擎 textbook 同时使用：请用 cached 或 auto",
        {"feature": {"an ensemble": "集成模型", "scaled heads": "缩放的注意力头"}},
    ),
    "coverage_penalty_conflict": Message(
        "coverage_penalty and {feature} exclude each other: take a single model, or 0",
        "coverage_penalty 不能与{feature}同时使用：请用单个模型，或设为 0",
        {"feature": {"an ensemble": "集成模型", "scaled heads": "缩放的注意力头"}},
    ),
    "text_exceeds_model_limit": Message(
        "{text} has {tokens} tokens; the model reads at most {limit}: split it (split=True, --split)",
        "{text}有 {tokens} 个词元，模型最多读 {limit} 个：请拆分（split）",
    ),
    "min_length_exceeds_model_limit": Message(
        "min_length {min_length} is more than the model can say: {limit} tokens",
        "最小长度 {min_length} 超过了模型最多能说的 {limit} 个词元",
    ),
    "prefix_split_conflict": Message(
        "a prefix of several sentences and split exclude each other: a prefix begins the first answer: leave split out, or give the sentences one by one",
        "多句的 prefix 不能与 split 同时使用：请去掉 split，或逐句提交",
    ),
    "sentence_exceeds_model_limit": Message(
        "{text}: the sentence {sentence} alone has {tokens} tokens; the model reads at most {limit}: end sentences with . ! or ?, or shorten it",
        "{text}：仅句子 {sentence} 就有 {tokens} 个词元，模型最多读 {limit} 个：请用句号等断句，或缩短它",
    ),
    "alignment_head_out_of_range": Message(
        "scores.json: {name} {value} is no head of a decoder with {layers} layers of {heads} heads, counted from 0: attendo heads MODEL FILE --store writes one that is",
        "scores.json：{name} {value} 不是 {layers} 层、每层 {heads} 个头的解码器的头（从 0 数起）：attendo heads MODEL FILE --store 可写入正确的头",
    ),
    "exported_folder_without_network": Message(
        "{folder} was exported to {runtime}, which computes answers and nothing else: take the model folder that it was made from",
        "{folder} 是导出到 {runtime} 的模型，只能给出译文：请用导出前的模型文件夹",
    ),
    "tokenizers_missing": Message(
        "a network needs its tokenizers: TextModel(network, (source_tokenizer, target_tokenizer))",
        "网络需要它的分词器：TextModel(network, (source_tokenizer, target_tokenizer))",
    ),
    "tokenizer_count_invalid": Message(
        "give the tokenizers of source and target, or one for both, not {count}",
        "请给出源文和译文的分词器，或两者共用的一个，而不是 {count} 个",
    ),
    "save_with_scaled_heads": Message(
        "a model with scaled heads cannot be saved: save the one that it was made from",
        "缩放了注意力头的模型不能保存：请保存缩放前的模型",
    ),
    "ensemble_with_exported_folder": Message(
        "an ensemble is of model folders, and one of these was exported to {runtime}",
        "集成模型需要模型文件夹，而其中一个是导出到 {runtime} 的：请用导出前的模型文件夹",
    ),
    "alternatives_request_invalid": Message(
        "alternatives need a text that is not empty and a count of 1 or more, without banned_phrases",
        "alternatives 需要非空的文本和至少为 1 的 count，且不能用 banned_phrases",
    ),
    "search_tree_option_conflict": Message(
        "a search tree shows one search: split and banned_phrases need several",
        "搜索树只显示一次搜索，而 split 和 banned_phrases 需要多次：请去掉它们",
    ),
    "ensemble_operation_unsupported": Message(
        "an ensemble of {count} models cannot be {operation}",
        "由 {count} 个模型组成的集成模型{operation}",
        {
            "operation": {
                "saved: save its members": "不能保存：请保存各成员",
                "looked into: trace its members": "不能追踪：请追踪各成员",
                "asked to do without heads: ask its members": "不能缩放注意力头：请对各成员这样做",
            }
        },
    ),
    "redundant_model_arguments": Message(
        "what a model folder holds has its tokenizers and its generation settings: leave them out",
        "存储的模型自带分词器和生成设置：请去掉 tokenizers 和 generation",
    ),
    "tokenizer_vocabulary_size_mismatch": Message(
        "the {side} tokenizer has {tokens} tokens and the network {size}: make the network with {side}_vocab_size={tokens}",
        "{side} 分词器有 {tokens} 个词元，而网络的 {side}_vocab_size 为 {size}：请用 {side}_vocab_size={tokens} 创建网络",
    ),
    "generation_settings_invalid": Message("{path}: {error}", "{path}：{error}"),
    "ensemble_tokenizer_mismatch": Message(
        "model {position} of the ensemble has another {side} tokenizer: models answer together where their vocabularies are the same, as after training on one prepared folder",
        "集成模型的第 {position} 个模型的{side}分词器不同：各模型的词表必须相同，例如用同一个准备好的文件夹训练",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "unknown_device": Message(
        "unknown device {name}: use auto, cpu, cuda or cuda:N", "未知设备 {name}：可用 auto、cpu、cuda 或 cuda:N"
    ),
    "cuda_device_unavailable": Message(
        "device {name}: {count} CUDA GPUs are available here; use cpu or auto",
        "设备 {name}：这里有 {count} 块可用的 CUDA GPU；请用 cpu 或 auto",
    ),
    "prefix_not_in_vocabulary": Message(
        "prefix {prefix!r} cannot be said: the target vocabulary does not have {missing}",
        "无法说出 prefix {prefix!r}：目标词表里没有 {missing}",
    ),
    "phrases_not_list": Message(
        "{option} is a list of phrases: write [{phrases!r}] for a single one",
        "{option} 应为短语的列表：只有一个时请写 [{phrases!r}]",
    ),
    "constraint_not_in_vocabulary": Message(
        "constraint {phrase!r} cannot be said: the target vocabulary does not have {missing}",
        "无法说出 constraint {phrase!r}：目标词表里没有 {missing}",
    ),
    "phrase_blank_or_invalid": Message(
        "{option} holds {phrase!r}: a phrase is text that is more than white space",
        "{option} 里的 {phrase!r} 不是短语：短语不能只有空白",
    ),
    "unknown_prefix_symbol": Message(
        "{option}: {symbol!r} is no symbol of the tokenizer, which has {known}{more}",
        "{option}：{symbol!r} 不是分词器的符号，现有：{known}{more}",
        {"known": {"none": "无"}},
    ),
    "engine_option_unsupported": Message(
        "the engine {engine} cannot honour {reasons}",
        "引擎 {engine} 做不到以下各项：{reasons}",
        {
            "reasons": {
                "; nor ": "；",
                " or ": " 或 ",
                ", ": "、",
                "a search tree": "搜索树",
                "a repetition_penalty with renormalise off": "renormalise 关闭时的 repetition_penalty",
                "renormalise with an at_limit other than any": "at_limit 不为 any 时的 renormalise",
                "sample (what it draws does not follow from a seed)": "sample（它的采样不由 seed 决定）",
                "an at_limit other than any": "不为 any 的 at_limit",
                "renormalise off": "关闭 renormalise",
                "counts_eos off": "关闭 counts_eos",
            }
        },
    ),
    "model_folder_not_exported": Message(
        "the engine {engine} runs a folder exported to it, and this is a model folder: attendo export MODEL OUT --to {engine}, then take OUT",
        "引擎 {engine} 需要导出到它的文件夹，而这是模型文件夹：请先运行 attendo export MODEL OUT --to {engine}，再使用 OUT",
    ),
    "export_engine_mismatch": Message(
        "the folder was exported to {runtime}, not to {engine}: take that engine, or export the model to {engine}",
        "这个文件夹是导出到 {runtime} 的，而不是 {engine}：请用引擎 {runtime}，或把模型导出到 {engine}",
    ),
    "engine_needs_model_folder": Message(
        "the engine {engine} runs model folders, and this one was exported to {runtime}: take {runtime} or auto, or the model folder that it was made from",
        "引擎 {engine} 需要模型文件夹，而这个文件夹是导出到 {runtime} 的：请用 {runtime} 或 auto，或用导出前的模型文件夹",
    ),
    "score_pair_count_mismatch": Message(
        "score takes pairs: {sources} sources and {targets} targets",
        "score 需要每段源文对应一段译文：现有 {sources} 段源文，{targets} 段译文",
    ),
    "source_exceeds_model_limit": Message(
        "{text} has {tokens} tokens; the model reads at most {limit}: shorten it",
        "{text}有 {tokens} 个词元，模型最多读 {limit} 个：请缩短",
    ),
    "compile_engine_conflict": Message(
        "compile is for the engine fast, not for {engine}: set engine fast, or leave it out",
        "compile 只用于 fast 引擎，不能用于 {engine}：请把 engine 设为 fast，或去掉它",
        {"engine": {"cached, which auto takes on a CPU": "cached（auto 在 CPU 上选用它）"}},
    ),
    "alignments_scaled_heads_conflict": Message(
        "alignments and scaled heads exclude each other: take trace(text, heads=...).cross",
        "缩放了注意力头就不能给出对齐：请用 trace(text, heads=...).cross",
    ),
    "constraints_sample_conflict": Message(
        "constraints and sample exclude each other: a beam searches for answers that hold them",
        "constraints 不能与采样同时使用：只有束搜索能找到含有它们的回答",
    ),
    "constraints_groups_conflict": Message(
        "constraints and beam_groups ({groups}) exclude each other: use a plain beam",
        "constraints 不能与分组（{groups} 组）同时使用：请用普通的束搜索",
    ),
    "texts_not_list": Message(
        "a list of texts is needed: write [text] for a single one", "需要文本的列表：只有一段时请写 [text]"
    ),
    "text_not_string": Message(
        "a list of texts is needed: {item!r} in it is none", "需要文本的列表，而其中的 {item!r} 不是字符串"
    ),
    "sample_beam_conflict": Message(
        "sample and beam exclude each other: n_best is how many samples are drawn",
        "采样不能用束：要几个样本由 n_best 决定",
    ),
    "mbr_candidates_beam_conflict": Message(
        "mbr_candidates and a beam of {beam} exclude each other: the candidates are what the beam finds; for samples set sample",
        "束宽为 {beam} 时候选由束搜索给出，不能设 mbr_candidates：要采样请设置 sample",
    ),
    "mbr_candidates_without_mbr": Message(
        "mbr_candidates is for mbr: say chrf or bleu for it", "mbr_candidates 只用于 mbr：请把 mbr 设为 chrf 或 bleu"
    ),
    "repetition_of_without_penalty": Message(
        "repetition_of is for a repetition_penalty other than 1: set it too, or leave it out",
        "repetition_of 只在 repetition_penalty 不为 1 时有用：请一并设置，或去掉它",
    ),
    "length_penalty_normalise_conflict": Message(
        "length_penalty {length_penalty} and normalise none exclude each other: take average, gnmt or reward, or leave it out",
        "normalise 为 none 时长度惩罚 {length_penalty} 不起作用：请改用 average、gnmt 或 reward，或去掉它",
    ),
    "diversity_without_groups": Message(
        "diversity_penalty is for diverse beam search: set beam_groups to 2 or more, or leave it out",
        "diversity_penalty 只用于分组的束搜索：请把 beam_groups 设为 2 以上，或去掉它",
    ),
    "patience_stop_conflict": Message(
        "patience and the stop rule {stop} exclude each other: it is for the rule first",
        "patience 只用于停止规则 first，不能用于 {stop}",
    ),
    "groups_patience_conflict": Message(
        "beam_groups ({groups}) and patience ({patience}) exclude each other",
        "分成 {groups} 组的束搜索不能用 patience {patience}：请去掉一个",
    ),
    "min_length_factor_conflict": Message(
        "max_length and min_length_factor exclude each other: take min_length, or max_length_factor",
        "max_length 不能与 min_length_factor 同时使用：请改用 min_length，或 max_length_factor",
    ),
    "min_length_extra_exceeds_maximum": Message(
        "min_length_extra {min_length_extra} is more than max_length {max_length}",
        "min_length_extra {min_length_extra} 大于最大长度 {max_length}",
    ),
    "at_limit_free_conflict": Message(
        "{option} and at_limit any exclude each other: use truncate or force_eos",
        "{option} 不能与 at_limit any 同时使用：请改用 truncate 或 force_eos",
    ),
    "stop_rule_conflict": Message(
        "{option} and the stop rule {stop} exclude each other: take first or settled",
        "{option} 不能用停止规则 {stop}：请改用 first 或 settled",
    ),
    "n_best_out_of_range": Message(
        "n_best must be from 1 to {option} ({limit}), not {n_best}",
        "n_best 为 {n_best}，应在 1 到 {option}（{limit}）之间",
        {"option": {"samples": "样本数上限"}},
    ),
    "min_length_exceeds_maximum": Message(
        "min_length {min_length} is more than max_length {max_length}",
        "最小长度 {min_length} 大于最大长度 {max_length}",
    ),
    "constraints_split_conflict": Message(
        "constraints and split exclude each other: which sentence is to hold a phrase is not known: leave split out, or give the sentences one by one",
        "constraints 不能与 split 同时使用：不知道短语应出现在哪一句：请去掉 split，或逐句提交",
    ),
    "prefix_count_mismatch": Message(
        "prefix is one text or one for each: {prefixes} prefixes and {texts} texts",
        "prefix 应为一段，或每段文本各一段：现有 {prefixes} 段 prefix，{texts} 段文本",
    ),
    "constraints_count_mismatch": Message(
        "constraints are phrases for all texts or a list for each: {lists} and {texts} texts",
        "constraints 应为共用的短语，或每段文本各一组：现有 {lists} 组，{texts} 段文本",
    ),
    "unknown_generation_option": Message("unknown option {option}{suggestion}", "未知选项 {option}{suggestion}"),
    "sampling_option_without_sample": Message(
        "{option} is for samples: set sample too, or leave it out", "{option} 只用于采样：请同时设置 sample，或去掉它"
    ),
    "beam_option_without_beam": Message(
        "{option} is for a beam: set beam to 2 or more, or leave it out",
        "{option} 只用于束搜索：请把 beam 设为 2 以上，或去掉它",
    ),
    "length_below_one": Message("{option} must be at least 1, not {value}", "{option} 为 {value}，应至少为 1"),
    "length_exceeds_token_limit": Message(
        "{option} must be at most {limit:,}, not {value}", "{option} 为 {value}，不能大于 {limit:,}"
    ),
    "prefix_contains_banned_phrase": Message(
        "the prefix {prefix!r} contains the banned phrase {banned!r}",
        "{prefix!r} 里有禁用的 {banned!r}：请去掉其中之一",
    ),
    "length_option_conflict": Message(
        "{side}_length and {option} exclude each other: {length} is for sources of any length",
        "{side}_length 不能与 {option} 同时使用：{length} 适用于任何长度的源文；请去掉其中之一",
    ),
    "constraint_contains_banned_phrase": Message(
        "the constraint {phrase!r} contains the banned phrase {banned!r}",
        "{phrase!r} 里有禁用的 {banned!r}：请去掉其中之一",
    ),
    "invalid_batch_size": Message(
        "batch_size is how many texts are decoded together, 1 or more, not {value!r}",
        "batch_size 是一起解码的文本数：应为不小于 1 的整数，而不是 {value!r}",
    ),
    "invalid_pipeline_input": Message(
        "{task} takes {expected} or a list of such, not {value}",
        "{task} 接受{expected}，或由其组成的列表，而不是 {value}",
        {"expected": {"a list of messages": "消息列表", "a text": "文本"}},
    ),
    "new_tokens_with_prefix": Message(
        "{option} and prefix exclude each other: take {replacement}, which counts both",
        "{option} 和 prefix 不能同时使用：请改用 {replacement}，它把两者的词元都计算在内",
    ),
    "aliased_option_invalid": Message("{error} ({aliases})", "{error}（{aliases}）"),
    "unknown_pipeline_option": Message(
        "unknown option {option}{suggestion}: see docs/guides/pipelines.md for all there are",
        "未知的选项 {option}{suggestion}：全部选项见 docs/guides/pipelines.md",
    ),
    "unsupported_pipeline_option": Message(
        "{option}={value!r} has no meaning here: {remedy}",
        "不支持 {option}={value!r}：{remedy}",
        {
            "remedy": {
                "pipelines give texts: take TextModel.generate, whose results have ids": "pipeline 只返回文本：请用 TextModel.generate，其结果含 ids",
                "texts always come back: leave it out": "文本总会返回：请去掉",
                "texts come as the tokenizer writes them: leave it out": "文本按分词器解码的原样返回：请去掉",
                "nothing is cut in silence: shorten the text, or take split=True": "不会悄悄截断文本：请缩短文本，或用 split=True",
                "pipelines give texts: take TextModel.generate, whose results have pieces": "pipeline 只返回文本：请用 TextModel.generate，其结果含 pieces",
                "all engines give the same answers: take engine='textbook'": "所有引擎的回答都相同：请用 engine='textbook'",
                "it is for text-generation: leave it out": "它只用于 text-generation：请去掉",
                "it is for translation: leave it out": "它只用于 translation：请去掉",
                "pipelines give texts: take TextModel.generate": "pipeline 只返回文本：请用 TextModel.generate",
                "take TextModel.trace": "请用 TextModel.trace",
                "pipelines give texts: take TextModel.generate, whose results have scores": "pipeline 只返回文本：请用 TextModel.generate，其结果含 scores",
                "give its settings one by one": "请逐个给出其中的设置",
                "take TextModel.stream": "请用 TextModel.stream",
                "no such end is known here: cut the text that comes back": "不支持停止字符串：请自行截断返回的文本",
                "use banned_phrases=[...], which are texts": "请用 banned_phrases=[...]，其中为文本",
                "take constraints=[...], which are texts": "请用 constraints=[...]，其中为文本",
                "take target_prefix=[...], which are symbols": "请用 target_prefix=[...]，其中为符号",
                "nothing is cut in silence: shorten the text": "不会悄悄截断文本：请缩短文本",
                "a model folder has all that it needs: leave it out": "模型文件夹已含所需的一切：请去掉",
                "take device": "请用 device",
                "take precision='fp16' or 'bf16'": "请用 precision='fp16' 或 'bf16'",
            }
        },
    ),
    "pipeline_option_not_integer": Message(
        "{option} is a whole number, not {value!r}", "{option} 必须是整数，而不是 {value!r}"
    ),
    "new_tokens_with_length": Message(
        "{option} and {other} exclude each other: give one of them", "{option} 和 {other} 不能同时使用：请只给一个"
    ),
    "invalid_early_stopping": Message(
        "early_stopping is True, False or 'never', not {value!r}",
        "early_stopping 必须是 True、False 或 'never'，而不是 {value!r}",
    ),
    "option_alias_given_twice": Message(
        "{option} is {name} here, which is given too: give one of them",
        "{option} 即此处的 {name}，两者都给出了：请只给一个",
    ),
    "last_message_not_user": Message(
        "the last message is the assistant's: a conversation is answered where the user spoke last",
        "最后一条消息来自 assistant：对话须以 user 的消息结尾",
    ),
    "system_message_unsupported": Message(
        "a message of the system is an instruction, which no model here follows: leave it out",
        "不支持 system 消息，因为这里的模型都不遵循指令：请去掉",
    ),
    "invalid_message": Message(
        "a message is a role, user or assistant, and its content as text, not {message}",
        "消息须有 role（user 或 assistant）和文本形式的 content，而不是 {message}",
    ),
    "model_on_other_device": Message(
        "the model is on {device}, not on {requested}: load it there, or leave device out",
        "模型在 {device} 上，而不在 {requested} 上：请把它加载到那里，或去掉 device",
    ),
    "invalid_pipeline_model": Message(
        "a model is its folder, or what attendo.load made of one, not {value}",
        "model 须是模型文件夹或 attendo.load 的结果，而不是 {value}",
    ),
    "task_not_string": Message(
        "a task is a name, not {task!r}: use {tasks}", "任务须是名称，而不是 {task!r}：可用 {tasks}"
    ),
    "unknown_task": Message(
        "unknown task {task!r}{suggestion}: use {tasks}", "未知的任务 {task!r}{suggestion}：可用 {tasks}"
    ),
    "task_needs_decoder_only": Message(
        "{task} goes on with a text, and this model answers one: take text2text-generation, or a decoder-only model",
        "{task} 用于续写文本，而这个模型是编码器-解码器模型：请用 text2text-generation，或换一个只有解码器的模型",
    ),
    "task_needs_encoder": Message(
        "{task} answers a text, and this model goes on with one: take text-generation",
        "{task} 用于回答文本，而这个模型只有解码器，只会续写：请用 text-generation",
    ),
    "task_not_of_model": Message(
        "the model is for {model_task}, not for {task}: take {alternative!r}, or 'text2text-generation'",
        "这个模型用于 {model_task}，不能用于 {task}：请用 {alternative!r} 或 'text2text-generation'",
    ),
    "language_not_of_model": Message(
        "{subject} is {requested}, but that of the model is {own}: take a model for {requested}",
        "{subject} 为 {requested}，而模型的语言是 {own}：请换一个用于 {requested} 的模型",
    ),
    "model_language_unknown": Message(
        "{option} {value!r}: the model folder does not tell its {side} language; leave it out",
        "{option} {value!r}：模型文件夹没有注明{side}的语言；请去掉",
        {"side": {"source": "源文", "target": "译文"}},
    ),
}
