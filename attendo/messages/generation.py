"""Messages of decoding, text models and pipelines."""

from attendo.messages.message import Message

MESSAGES: dict[str, Message] = {
    "source_tag_missing": Message(
        "the model was trained with a tag before every text, such as {tags}: begin each text with a tag and a space",
        "模型训练时每段文本前都有标记，例如 {tags}：请在每段文本开头加上标记和空格",
    ),
    "batch_tokens_reduced": Message(
        "not enough memory for batches of {wanted:,} source tokens: batch_tokens is now {batch_tokens:,}",
        "内存不足以容纳 {wanted:,} 个源文词元的批次：batch_tokens 现为 {batch_tokens:,}",
    ),
    "incomplete_texts": Message(
        "{count} of {total} texts: {problem} ({field} in the result)",
        "{total} 段文本中有 {count} 段：{problem}（见结果的 {field}）",
    ),
    "incomplete_text": Message("the text: {problem} ({field} in the result)", "文本：{problem}（见结果的 {field}）"),
    "text_not_in_vocabulary": Message("not in the vocabulary: {parts}", "词表中没有：{parts}"),
    "source_tokens_left_out": Message(
        "the last {count:,} source tokens were not read: shorten the text, or use split=True",
        "末尾的 {count:,} 个源文词元没有读取：请缩短文本，或用 split=True",
    ),
    "source_not_split": Message(
        "read as one sentence, but the model was trained on single sentences: leave out constraints or prefix",
        "多个句子作为一句读取，而模型是用单句训练的：请去掉 constraints 或 prefix",
    ),
    "output_cut_at_limit": Message(
        "the answer was cut at its length limit: see max_length", "回答在长度上限处被截断：见 max_length"
    ),
    "constraints_not_met": Message("not all constraints are met", "没有满足所有的 constraints"),
    "beam_width_below_one": Message("beam must be 1 or more, not {width}", "beam 为 {width}，应至少为 1"),
    "patience_not_positive": Message(
        "patience must be more than 0, not {patience}", "patience 为 {patience}，应大于 0"
    ),
    "beam_not_divisible_by_groups": Message(
        "beam must be a multiple of beam_groups: {beam} and {groups}",
        "beam 必须是 beam_groups 的倍数：现为 {beam} 和 {groups}",
    ),
    "beam_patience_too_large": Message(
        "beam times patience must be at most {limit:,} hypotheses: {beam} and {patience}",
        "束宽 {beam} 乘以 patience {patience} 不得超过 {limit:,}",
    ),
    "sample_groups_conflict": Message(
        "sample and beam_groups cannot be used together: a diverse beam does not sample; leave one of them out",
        "sample 不能与 beam_groups 同时使用：分组束搜索不采样；请去掉其中之一",
    ),
    "coverage_penalty_without_source": Message(
        "coverage_penalty must be 0 for a decoder-only network, which has no source",
        "只有解码器的网络没有源文，coverage_penalty 必须为 0",
    ),
    "width_not_divisible_by_groups": Message(
        "beam must be a multiple of beam_groups: {width} and {groups}",
        "beam 必须是 beam_groups 的倍数：现为 {width} 和 {groups}",
    ),
    "diversity_strength_negative": Message(
        "diversity_penalty must be 0 or more, not {strength}", "diversity_penalty 为 {strength}，不能小于 0"
    ),
    "ensemble_vocabulary_size_mismatch": Message(
        "members of an ensemble must have the same vocabulary size; {quantity}: {sizes}",
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
        "an ensemble needs one weight for each member: there are {members} members and {weights} weights",
        "集成模型的每个成员需要一个权重：现有 {members} 个成员，{weights} 个权重",
    ),
    "ensemble_empty": Message(
        "an ensemble needs at least one member: give one or more models",
        "集成模型至少需要一个成员：请给出一个或多个模型",
    ),
    "unknown_ensemble_method": Message(
        "how must be probabilities or logarithms, not {how}",
        "how 为 {how}，应为 probabilities 或 logarithms",
    ),
    "ensemble_member_without_encoder": Message(
        "an ensemble with {kinds} cannot encode a source: only Transformer members can; create its EnsembleState yourself",
        "含有 {kinds} 的集成模型不能编码源文：只有 Transformer 成员可以；请自行创建 EnsembleState",
    ),
    "ensemble_weight_not_positive": Message(
        "weights must be finite and more than 0, not {weight}: leave out a member that should not count",
        "权重为 {weight}，应为大于 0 的有限数：请去掉不参与的成员",
    ),
    "unknown_decoding_preset": Message(
        "unknown preset {name!r}: use {known}{suggestion}", "未知的 preset {name!r}：可用 {known}{suggestion}"
    ),
    "coverage_penalty_negative": Message(
        "coverage_penalty must be 0 or more, not {coverage_penalty}",
        "coverage_penalty 为 {coverage_penalty}，不能小于 0",
    ),
    "candidates_without_probability": Message(
        "no candidate has a probability above 0: give at least one with a finite log-probability",
        "没有概率大于 0 的候选：请至少给出一个对数概率有限的候选",
    ),
    "no_candidates": Message(
        "there are no candidates to choose from: give at least one", "没有可选的候选：请至少给出一个"
    ),
    "candidate_weight_count_mismatch": Message(
        "each candidate needs one weight: there are {candidates} candidates and {weights} weights",
        "每个候选需要一个权重：现有 {candidates} 个候选，{weights} 个权重",
    ),
    "candidate_weights_invalid": Message(
        "weights must be 0 or more, and more than 0 for at least one candidate, not {weight}",
        "权重不能小于 0，且至少一个候选的权重须大于 0，而不是 {weight}",
        {"weight": {"0 for all": "全部为 0"}},
    ),
    "utility_shape_mismatch": Message(
        "the utility must return one row and one column for each of {count} candidates, not shape {shape}",
        "utility 应为 {count} 个候选各返回一行和一列，而不是形状 {shape}",
    ),
    "utility_not_finite": Message(
        "the utility must return a finite number for each pair of candidates", "utility 必须为每一对候选返回有限的数"
    ),
    "ngram_size_below_one": Message(
        "no_repeat_ngram_size must be 1 token or more, not {size}",
        "no_repeat_ngram_size 为 {size}，应至少为 1 个词元",
    ),
    "repetition_penalty_not_positive": Message(
        "repetition_penalty must be more than 0, not {penalty} (1 has no effect)",
        "repetition_penalty 为 {penalty}，应大于 0（1 表示不变）",
    ),
    "phrase_without_tokens": Message(
        "a {kind} phrase must have at least one token: leave empty phrases out",
        "{kind}短语至少要有一个词元：请去掉空短语",
        {"kind": {"required": "必须出现的", "banned": "禁用的"}},
    ),
    "phrase_with_control_tokens": Message(
        "a {kind} phrase must not contain control tokens (pad {pad}, bos {bos}, eos {eos}) or negative ids: {ids}",
        "{kind}短语不能含有控制词元（pad {pad}，bos {bos}，eos {eos}）或负的编号：{ids}",
        {"kind": {"required": "必须出现的", "banned": "禁用的"}},
    ),
    "temperature_not_positive": Message(
        "temperature must be more than 0, not {temperature}: for deterministic answers, use greedy decoding",
        "temperature 为 {temperature}，应大于 0：要得到确定的回答，请用贪心解码",
    ),
    "top_k_negative": Message(
        "top_k must be 0 (all tokens) or more, not {top_k}", "top_k 为 {top_k}，应为 0（全部词元）或更大"
    ),
    "min_p_out_of_range": Message("min_p must be from 0 to 1, not {min_p}", "min_p 为 {min_p}，应在 0 到 1 之间"),
    "probability_mass_out_of_range": Message(
        "{option} must be more than 0 and at most 1, not {value}", "{option} 为 {value}，应大于 0 且不超过 1"
    ),
    "banned_phrases_unavoidable": Message(
        "banned_phrases {phrases} cannot be met: every answer found contains one of them; ban fewer phrases",
        "无法避开 banned_phrases {phrases}：找到的回答都含有其中之一；请减少禁用的短语",
    ),
    "request_number_collision": Message(
        "two different texts have the same request number: generate them in separate calls",
        "两段不同的文本有相同的请求编号：请分两次调用",
    ),
    "answer_log_probability_nan": Message(
        "the log-probability of an answer is NaN in precision {precision}: use bf16 or fp32 (--precision); if it persists, the weights of the model are corrupt",
        "回答的对数概率为 NaN（精度 {precision}）：请改用 bf16 或 fp32（--precision）；若仍如此，则模型权重已损坏",
    ),
    "prefix_with_decoder_only_model": Message(
        "prefix cannot be used with a decoder-only model, whose answer begins with the text itself: leave prefix out",
        "只有解码器的模型不能用 prefix，因为回答以文本本身开头：请去掉 prefix",
    ),
    "source_option_without_encoder": Message(
        "{option} cannot be used with a decoder-only model, which reads no source: leave it out",
        "只有解码器的模型不读源文，不能用 {option}：请去掉",
    ),
    "prompt_exceeds_model_limit": Message(
        "{text} has {tokens} tokens; the model reads at most {limit}: shorten its beginning",
        "{text}有 {tokens} 个词元，模型最多读 {limit} 个：请缩短开头",
    ),
    "prompt_longer_than_max_length": Message(
        "{text} has {tokens} tokens, more than max_length {limit}, which includes them: raise max_length",
        "{text}有 {tokens} 个词元，超过了 max_length {limit}，而它们也计算在内：请增大 max_length",
    ),
    "prompt_contains_banned_phrase": Message(
        "the text {text!r} contains the banned phrase {banned!r}, and the answer begins with the text: change one of them",
        "文本 {text!r} 含有禁用的短语 {banned!r}，而回答以文本开头：请更改其中之一",
    ),
    "prefix_longer_than_max_length": Message(
        "prefix has {tokens} tokens, more than max_length {limit}: shorten prefix, or raise max_length",
        "prefix 有 {tokens} 个词元，超过了 max_length {limit}：请缩短 prefix，或增大 max_length",
    ),
    "stream_option_unsupported": Message(
        "a stream returns one answer as text: leave out n_best and alignments, or use generate",
        "流式回答只有一段文本：请去掉 n_best 和 alignments，或用 generate",
    ),
    "text_log_probability_nan": Message(
        "{text}: the log-probability is NaN in precision {precision}: use bf16 or fp32 (--precision); if it persists, the weights of the model are corrupt",
        "{text}的对数概率为 NaN（精度 {precision}）：请改用 bf16 或 fp32（--precision）；若仍如此，则模型权重已损坏",
    ),
    "constraints_engine_conflict": Message(
        "constraints cannot be used with the engine {engine}: use cached or auto",
        "constraints 不能与引擎 {engine} 同时使用：请用 cached 或 auto",
    ),
    "textbook_engine_conflict": Message(
        "{feature} cannot be used with the engine textbook: use cached or auto",
        "{feature} 不能与引擎 textbook 同时使用：请用 cached 或 auto",
        {"feature": {"an ensemble": "集成模型", "scaled heads": "缩放的注意力头"}},
    ),
    "coverage_penalty_conflict": Message(
        "coverage_penalty cannot be used with {feature}: use a single model, or set coverage_penalty to 0",
        "coverage_penalty 不能与{feature}同时使用：请用单个模型，或设为 0",
        {"feature": {"an ensemble": "集成模型", "scaled heads": "缩放的注意力头"}},
    ),
    "text_exceeds_model_limit": Message(
        "{text} has {tokens} tokens; the model reads at most {limit}: split it (split=True, --split)",
        "{text}有 {tokens} 个词元，模型最多读 {limit} 个：请拆分（split=True，--split）",
    ),
    "min_length_exceeds_model_limit": Message(
        "min_length {min_length} is more than the {limit} tokens that the model can generate: lower min_length",
        "min_length {min_length} 超过了模型最多能生成的 {limit} 个词元：请减小 min_length",
    ),
    "prefix_split_conflict": Message(
        "prefix with several sentences and split cannot be used together, because the prefix begins the first answer: leave split out, or give the sentences one by one",
        "含有多个句子的 prefix 不能与 split 同时使用，因为它只用作第一个回答的开头：请去掉 split，或逐句提交",
    ),
    "sentence_exceeds_model_limit": Message(
        "{text}: the sentence {sentence} alone has {tokens} tokens; the model reads at most {limit}: end sentences with . ! or ?, or shorten it",
        "{text}：仅句子 {sentence} 就有 {tokens} 个词元，模型最多读 {limit} 个：请用句号等断句，或缩短它",
    ),
    "alignment_head_out_of_range": Message(
        "scores.json: {name} {value} is not a head of the decoder, which has {layers} layers of {heads} heads, counted from 0: write a valid one with attendo heads MODEL FILE --store",
        "scores.json：{name} {value} 不是 {layers} 层、每层 {heads} 个头的解码器的头（从 0 数起）：attendo heads MODEL FILE --store 可写入正确的头",
    ),
    "exported_folder_without_network": Message(
        "{folder} was exported to {runtime}, which can only generate answers: use the model folder that it was exported from",
        "{folder} 是导出到 {runtime} 的模型，只能生成回答：请用导出前的模型文件夹",
    ),
    "tokenizers_missing": Message(
        "a network needs its tokenizers: TextModel(network, (source_tokenizer, target_tokenizer))",
        "网络需要它的分词器：TextModel(network, (source_tokenizer, target_tokenizer))",
    ),
    "tokenizer_count_invalid": Message(
        "give one tokenizer for source and target, or one for each, not {count}",
        "请给出源文和译文的分词器，或两者共用的一个，而不是 {count} 个",
    ),
    "save_with_scaled_heads": Message(
        "a model with scaled heads cannot be saved: save the model that it was made from",
        "缩放了注意力头的模型不能保存：请保存缩放前的模型",
    ),
    "ensemble_with_exported_folder": Message(
        "an ensemble needs model folders, but one of these was exported to {runtime}: use the model folder that it was exported from",
        "集成模型需要模型文件夹，而其中一个是导出到 {runtime} 的：请用导出前的模型文件夹",
    ),
    "alternatives_request_invalid": Message(
        "alternatives need a non-empty text, a count of 1 or more, and no banned_phrases",
        "alternatives 需要非空的文本和至少为 1 的 count，且不能用 banned_phrases",
    ),
    "search_tree_option_conflict": Message(
        "a search tree shows a single search, but split and banned_phrases need several: leave them out",
        "搜索树只显示一次搜索，而 split 和 banned_phrases 需要多次：请去掉它们",
    ),
    "ensemble_not_saveable": Message(
        "an ensemble of {count} models cannot be saved: save its members",
        "由 {count} 个模型组成的集成模型不能保存：请保存各成员",
    ),
    "ensemble_not_traceable": Message(
        "an ensemble of {count} models cannot be traced: trace its members",
        "由 {count} 个模型组成的集成模型不能追踪：请追踪各成员",
    ),
    "ensemble_heads_not_scalable": Message(
        "heads of an ensemble of {count} models cannot be scaled: scale those of its members",
        "由 {count} 个模型组成的集成模型不能缩放注意力头：请缩放各成员的注意力头",
    ),
    "redundant_model_arguments": Message(
        "a model folder has its own tokenizers and generation settings: leave tokenizers and generation out",
        "模型文件夹自带分词器和生成设置：请去掉 tokenizers 和 generation",
    ),
    "tokenizer_vocabulary_size_mismatch": Message(
        "the {side} tokenizer has {tokens} tokens, but the network has {size}: create the network with {side}_vocab_size={tokens}",
        "{side} 分词器有 {tokens} 个词元，而网络的 {side}_vocab_size 为 {size}：请用 {side}_vocab_size={tokens} 创建网络",
    ),
    "generation_settings_invalid": Message("{path}: {error}", "{path}：{error}"),
    "ensemble_tokenizer_mismatch": Message(
        "model {position} of the ensemble has a different {side} tokenizer: all models must have the same vocabularies, as after training on one prepared folder",
        "集成模型的第 {position} 个模型的{side}分词器不同：各模型的词表必须相同，例如用同一个准备好的文件夹训练",
        {"side": {"source": "源文", "target": "译文"}},
    ),
    "unknown_device": Message(
        "unknown device {name}: use auto, cpu, cuda or cuda:N", "未知设备 {name}：可用 auto、cpu、cuda 或 cuda:N"
    ),
    "cuda_device_unavailable": Message(
        "device {name}: this machine has {count} available CUDA GPUs; use cpu or auto",
        "设备 {name}：这里有 {count} 块可用的 CUDA GPU；请用 cpu 或 auto",
    ),
    "prefix_not_in_vocabulary": Message(
        "prefix {prefix!r} cannot be generated: the target vocabulary does not have {missing}",
        "无法生成 prefix {prefix!r}：目标词表里没有 {missing}",
    ),
    "phrases_not_list": Message(
        "{option} must be a list of phrases: write [{phrases!r}] for a single phrase",
        "{option} 应为短语的列表：只有一个时请写 [{phrases!r}]",
    ),
    "constraint_not_in_vocabulary": Message(
        "constraint {phrase!r} cannot be generated: the target vocabulary does not have {missing}",
        "无法生成 constraint {phrase!r}：目标词表里没有 {missing}",
    ),
    "phrase_blank_or_invalid": Message(
        "{option} contains {phrase!r}: a phrase must be a string with more than whitespace",
        "{option} 含有 {phrase!r}：短语必须是字符串，且不能只有空白",
    ),
    "unknown_prefix_symbol": Message(
        "{option}: {symbol!r} is not a symbol of the tokenizer; its symbols: {known}{more}",
        "{option}：{symbol!r} 不是分词器的符号，现有：{known}{more}",
        {"known": {"none": "无"}},
    ),
    "engine_option_unsupported": Message(
        "the engine {engine} does not support {reasons}", "引擎 {engine} 不支持 {reasons}"
    ),
    "engine_option_alternatives": Message(
        "{options} (leave it out, or use {engines})", "{options}（请去掉，或改用 {engines}）"
    ),
    "model_folder_not_exported": Message(
        "the engine {engine} needs a folder exported to it, but this is a model folder: run attendo export MODEL OUT --to {engine}, then use OUT",
        "引擎 {engine} 需要导出到它的文件夹，而这是模型文件夹：请先运行 attendo export MODEL OUT --to {engine}，再使用 OUT",
    ),
    "export_engine_mismatch": Message(
        "the folder was exported to {runtime}, not to {engine}: use the engine {runtime}, or export the model to {engine}",
        "这个文件夹是导出到 {runtime} 的，而不是 {engine}：请用引擎 {runtime}，或把模型导出到 {engine}",
    ),
    "engine_needs_model_folder": Message(
        "the engine {engine} needs a model folder, but this folder was exported to {runtime}: use {runtime} or auto, or the model folder that it was exported from",
        "引擎 {engine} 需要模型文件夹，而这个文件夹是导出到 {runtime} 的：请用 {runtime} 或 auto，或用导出前的模型文件夹",
    ),
    "score_pair_count_mismatch": Message(
        "score needs one target for each source: there are {sources} sources and {targets} targets",
        "score 需要每段源文对应一段译文：现有 {sources} 段源文，{targets} 段译文",
    ),
    "source_exceeds_model_limit": Message(
        "{text} has {tokens} tokens; the model reads at most {limit}: shorten it",
        "{text}有 {tokens} 个词元，模型最多读 {limit} 个：请缩短",
    ),
    "compile_engine_conflict": Message(
        "compile applies only to the engine fast, not to {engine}: set engine fast, or leave it out",
        "compile 只用于 fast 引擎，不能用于 {engine}：请把 engine 设为 fast，或去掉它",
        {"engine": {"cached (which auto selects on a CPU)": "cached（auto 在 CPU 上选用它）"}},
    ),
    "alignments_scaled_heads_conflict": Message(
        "alignments cannot be used with scaled heads: use trace(text, heads=...).cross",
        "缩放了注意力头就不能给出对齐：请用 trace(text, heads=...).cross",
    ),
    "constraints_sample_conflict": Message(
        "constraints and sample cannot be used together, because only beam search finds answers that contain the phrases: leave one of them out",
        "constraints 不能与 sample 同时使用，因为只有束搜索能找到含有这些短语的回答：请去掉其中之一",
    ),
    "constraints_groups_conflict": Message(
        "constraints and beam_groups ({groups}) cannot be used together: leave beam_groups out",
        "constraints 不能与 beam_groups（{groups}）同时使用：请去掉 beam_groups",
    ),
    "texts_not_list": Message(
        "texts must be a list of strings: write [text] for a single text",
        "texts 必须是字符串列表：只有一段文本时请写 [text]",
    ),
    "text_not_string": Message(
        "texts must be a list of strings, but contains {item!r}", "texts 必须是字符串列表，而其中有 {item!r}"
    ),
    "sample_beam_conflict": Message(
        "sample and beam cannot be used together: leave beam out; n_best sets the number of samples",
        "sample 不能与 beam 同时使用：请去掉 beam；样本数由 n_best 决定",
    ),
    "mbr_candidates_beam_conflict": Message(
        "mbr_candidates and beam {beam} cannot be used together, because the beam finds the candidates: leave mbr_candidates out, or set sample",
        "mbr_candidates 不能与 beam {beam} 同时使用，因为候选由束搜索给出：请去掉 mbr_candidates，或设置 sample",
    ),
    "mbr_candidates_without_mbr": Message(
        "mbr_candidates applies only to mbr: set mbr to chrf or bleu",
        "mbr_candidates 只用于 mbr：请把 mbr 设为 chrf 或 bleu",
    ),
    "repetition_of_without_penalty": Message(
        "repetition_of applies only if repetition_penalty is not 1: set repetition_penalty, or leave repetition_of out",
        "repetition_of 只在 repetition_penalty 不为 1 时起作用：请设置 repetition_penalty，或去掉 repetition_of",
    ),
    "length_penalty_normalise_conflict": Message(
        "length_penalty {length_penalty} has no effect with normalise none: use average, gnmt or reward, or leave length_penalty out",
        "normalise 为 none 时 length_penalty {length_penalty} 不起作用：请改用 average、gnmt 或 reward，或去掉 length_penalty",
    ),
    "diversity_without_groups": Message(
        "diversity_penalty applies only to a diverse beam: set beam_groups to 2 or more, or leave it out",
        "diversity_penalty 只用于分组的束搜索：请把 beam_groups 设为 2 以上，或去掉它",
    ),
    "patience_stop_conflict": Message(
        "patience applies only to the stop rule first, not to {stop}: leave one of them out",
        "patience 只用于停止规则 first，不能用于 {stop}：请去掉其中之一",
    ),
    "groups_patience_conflict": Message(
        "beam_groups ({groups}) and patience ({patience}) cannot be used together: leave one of them out",
        "beam_groups（{groups}）不能与 patience（{patience}）同时使用：请去掉其中之一",
    ),
    "min_length_factor_conflict": Message(
        "max_length and min_length_factor cannot be used together: use min_length, or max_length_factor",
        "max_length 不能与 min_length_factor 同时使用：请改用 min_length，或 max_length_factor",
    ),
    "min_length_extra_exceeds_maximum": Message(
        "min_length_extra {min_length_extra} is more than max_length {max_length}: lower min_length_extra, or raise max_length",
        "min_length_extra {min_length_extra} 大于 max_length {max_length}：请减小 min_length_extra，或增大 max_length",
    ),
    "at_limit_any_conflict": Message(
        "{option} and at_limit any cannot be used together: set at_limit to truncate or force_eos",
        "{option} 不能与 at_limit any 同时使用：请把 at_limit 设为 truncate 或 force_eos",
    ),
    "stop_rule_conflict": Message(
        "{option} and the stop rule {stop} cannot be used together: use first or settled",
        "{option} 不能与停止规则 {stop} 同时使用：请改用 first 或 settled",
    ),
    "n_best_out_of_range": Message(
        "n_best must be from 1 to {option} ({limit}), not {n_best}",
        "n_best 为 {n_best}，应在 1 到 {option}（{limit}）之间",
        {"option": {"samples": "样本数上限"}},
    ),
    "min_length_exceeds_maximum": Message(
        "min_length {min_length} is more than max_length {max_length}: lower min_length, or raise max_length",
        "min_length {min_length} 大于 max_length {max_length}：请减小 min_length，或增大 max_length",
    ),
    "constraints_split_conflict": Message(
        "constraints and split cannot be used together, because it is unknown which sentence must contain a phrase: leave split out, or give the sentences one by one",
        "constraints 不能与 split 同时使用，因为不知道短语应出现在哪一句：请去掉 split，或逐句提交",
    ),
    "prefix_count_mismatch": Message(
        "prefix must be one text for all, or one for each text: there are {prefixes} prefixes and {texts} texts",
        "prefix 应为所有文本共用的一段，或每段文本各一段：现有 {prefixes} 段 prefix，{texts} 段文本",
    ),
    "constraints_count_mismatch": Message(
        "constraints must be one list for all texts, or one list for each text: there are {lists} lists and {texts} texts",
        "constraints 应为所有文本共用的一组，或每段文本各一组：现有 {lists} 组，{texts} 段文本",
    ),
    "unknown_generation_option": Message("unknown option {option}{suggestion}", "未知选项 {option}{suggestion}"),
    "sampling_option_without_sample": Message(
        "{option} applies only to sampling: set sample too, or leave it out",
        "{option} 只用于采样：请同时设置 sample，或去掉它",
    ),
    "beam_option_without_beam": Message(
        "{option} applies only to beam search: set beam to 2 or more, or leave it out",
        "{option} 只用于束搜索：请把 beam 设为 2 以上，或去掉它",
    ),
    "length_below_one": Message("{option} must be at least 1, not {value}", "{option} 为 {value}，应至少为 1"),
    "length_exceeds_token_limit": Message(
        "{option} must be at most {limit:,}, not {value}", "{option} 为 {value}，不能大于 {limit:,}"
    ),
    "prefix_contains_banned_phrase": Message(
        "prefix {prefix!r} contains the banned phrase {banned!r}: change one of them",
        "prefix {prefix!r} 含有禁用的短语 {banned!r}：请更改其中之一",
    ),
    "length_option_conflict": Message(
        "{side}_length and {option} cannot be used together, because {length} applies to sources of any length: leave one of them out",
        "{side}_length 不能与 {option} 同时使用：{length} 适用于任何长度的源文；请去掉其中之一",
    ),
    "constraint_contains_banned_phrase": Message(
        "constraint {phrase!r} contains the banned phrase {banned!r}: change one of them",
        "constraint {phrase!r} 含有禁用的短语 {banned!r}：请更改其中之一",
    ),
    "invalid_batch_size": Message(
        "batch_size is the number of texts decoded together: give an integer of 1 or more, not {value!r}",
        "batch_size 是一起解码的文本数：应为不小于 1 的整数，而不是 {value!r}",
    ),
    "invalid_pipeline_input": Message(
        "{task} takes {expected} or a list of them, not {value}",
        "{task} 接受{expected}，或由其组成的列表，而不是 {value}",
        {"expected": {"a list of messages": "消息列表", "a text": "文本"}},
    ),
    "new_tokens_with_prefix": Message(
        "{option} and prefix cannot be used together: use {replacement}, which counts the tokens of both",
        "{option} 和 prefix 不能同时使用：请改用 {replacement}，它把两者的词元都计算在内",
    ),
    "aliased_option_invalid": Message("{error} ({aliases})", "{error}（{aliases}）"),
    "unknown_pipeline_option": Message(
        "unknown option {option}{suggestion}: see docs/guides/pipelines.md for all options",
        "未知的选项 {option}{suggestion}：全部选项见 docs/guides/pipelines.md",
    ),
    "unsupported_pipeline_option": Message(
        "{option}={value!r} is not supported: {remedy}",
        "不支持 {option}={value!r}：{remedy}",
        {
            "remedy": {
                "a pipeline returns only texts: use TextModel.generate, whose results have ids": "pipeline 只返回文本：请用 TextModel.generate，其结果含 ids",
                "a pipeline always returns texts: leave it out": "文本总会返回：请去掉",
                "texts are returned as the tokenizer decodes them: leave it out": "文本按分词器解码的原样返回：请去掉",
                "texts are never truncated silently: shorten the text, or use split=True": "不会悄悄截断文本：请缩短文本，或用 split=True",
                "a pipeline returns only texts: use TextModel.generate, whose results have pieces": "pipeline 只返回文本：请用 TextModel.generate，其结果含 pieces",
                "all engines return the same answers: use engine='textbook'": "所有引擎的回答都相同：请用 engine='textbook'",
                "it applies only to text-generation: leave it out": "它只用于 text-generation：请去掉",
                "it applies only to translation: leave it out": "它只用于 translation：请去掉",
                "a pipeline returns only texts: use TextModel.generate": "pipeline 只返回文本：请用 TextModel.generate",
                "use TextModel.trace": "请用 TextModel.trace",
                "a pipeline returns only texts: use TextModel.generate, whose results have scores": "pipeline 只返回文本：请用 TextModel.generate，其结果含 scores",
                "give its settings one by one": "请逐个给出其中的设置",
                "use TextModel.stream": "请用 TextModel.stream",
                "stop strings are not supported: cut the returned text": "不支持停止字符串：请自行截断返回的文本",
                "use banned_phrases=[...] with texts": "请用 banned_phrases=[...]，其中为文本",
                "use constraints=[...] with texts": "请用 constraints=[...]，其中为文本",
                "use target_prefix=[...] with symbols": "请用 target_prefix=[...]，其中为符号",
                "texts are never truncated silently: shorten the text": "不会悄悄截断文本：请缩短文本",
                "a model folder contains everything that it needs: leave it out": "模型文件夹已含所需的一切：请去掉",
                "use device": "请用 device",
                "use precision='fp16' or 'bf16'": "请用 precision='fp16' 或 'bf16'",
            }
        },
    ),
    "pipeline_option_not_integer": Message(
        "{option} must be an integer, not {value!r}", "{option} 必须是整数，而不是 {value!r}"
    ),
    "new_tokens_with_length": Message(
        "{option} and {other} cannot be used together: give only one of them",
        "{option} 和 {other} 不能同时使用：请只给一个",
    ),
    "invalid_early_stopping": Message(
        "early_stopping must be True, False or 'never', not {value!r}",
        "early_stopping 必须是 True、False 或 'never'，而不是 {value!r}",
    ),
    "option_alias_given_twice": Message(
        "{option} is called {name} here, and both are given: give only one of them",
        "{option} 即此处的 {name}，两者都给出了：请只给一个",
    ),
    "last_message_not_user": Message(
        "the last message is from the assistant: end the conversation with a message from the user",
        "最后一条消息来自 assistant：对话须以 user 的消息结尾",
    ),
    "system_message_unsupported": Message(
        "system messages are not supported, because no attendo model follows instructions: leave them out",
        "不支持 system 消息，因为这里的模型都不遵循指令：请去掉",
    ),
    "invalid_message": Message(
        "a message must have a role (user or assistant) and its content as a string, not {message}",
        "消息须有 role（user 或 assistant）和文本形式的 content，而不是 {message}",
    ),
    "model_on_other_device": Message(
        "the model is on {device}, not on {requested}: load it on {requested}, or leave device out",
        "模型在 {device} 上，而不在 {requested} 上：请把它加载到 {requested}，或去掉 device",
    ),
    "invalid_pipeline_model": Message(
        "model must be a model folder or a model loaded with attendo.load, not {value}",
        "model 须是模型文件夹或 attendo.load 的结果，而不是 {value}",
    ),
    "task_not_string": Message(
        "task must be a string, not {task!r}: use {tasks}", "任务须是名称，而不是 {task!r}：可用 {tasks}"
    ),
    "unknown_task": Message(
        "unknown task {task!r}{suggestion}: use {tasks}", "未知的任务 {task!r}{suggestion}：可用 {tasks}"
    ),
    "task_needs_decoder_only": Message(
        "{task} continues a text, but this model is an encoder–decoder: use text2text-generation, or a decoder-only model",
        "{task} 用于续写文本，而这个模型是编码器–解码器模型：请用 text2text-generation，或换一个只有解码器的模型",
    ),
    "task_needs_encoder": Message(
        "{task} answers a text, but this model is decoder-only and continues it: use text-generation",
        "{task} 用于回答文本，而这个模型只有解码器，只会续写：请用 text-generation",
    ),
    "task_not_of_model": Message(
        "the model is for {model_task}, not for {task}: use {alternative!r}, or 'text2text-generation'",
        "这个模型用于 {model_task}，不能用于 {task}：请用 {alternative!r} 或 'text2text-generation'",
    ),
    "language_not_of_model": Message(
        "{subject} is {requested}, but the model's language is {own}: use a model for {requested}",
        "{subject} 为 {requested}，而模型的语言是 {own}：请换一个用于 {requested} 的模型",
    ),
    "model_language_unknown": Message(
        "{option} {value!r}: the model folder does not name its {side} language; leave it out",
        "{option} {value!r}：模型文件夹没有注明{side}的语言；请去掉",
        {"side": {"source": "源文", "target": "译文"}},
    ),
}
