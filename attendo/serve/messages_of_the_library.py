"""What the library says of settings and texts that do not go together, and how it reads in Chinese.

Keys are patterns of the English messages; what their groups found stands in the gaps.
"""

OF_THE_LIBRARY: dict[str, str] = {
    # how an answer is searched for
    r"groups must divide the beam evenly: (\d+) and (\d+)": "束宽必须能被组数整除：组数 {0}，束宽 {1}",
    r"groups \((\d+)\) and the stop rule (\w+) .*": "分成 {0} 组的束搜索不能用停止规则 {1}：请改用 first 或 settled",
    r"constraints and the stop rule (\w+) .*": "constraints 不能用停止规则 {0}：请改用 first 或 settled",
    r"groups \((\d+)\) and patience \((.+)\) exclude each other": "分成 {0} 组的束搜索不能用 patience {1}：请去掉一个",
    r"(.+) and at_limit free exclude each other: .*": "{0} 不能与 at_limit free 同时使用：请改用 cut 或 end",
    r"patience and the stop rule (\w+) .*": "patience 只用于停止规则 first，不能用于 {0}",
    r"diversity is for a beam in groups: .*": "diversity 只用于分组的束搜索：请把 groups 设为 2 以上，或去掉它",
    r"(\w+) is for a beam: .*": "{0} 只用于束搜索：请把 beam 设为 2 以上，或去掉它",
    r"(\w+) is for samples: .*": "{0} 只用于采样：请同时设置 sample，或去掉它",
    r"sample and beam exclude each other: .*": "采样不能用束：要几个样本由 n_best 决定",
    r"sample and groups exclude each other: .*": "采样不能分组：请去掉 sample 或 groups",
    r"n_best must be from 1 to (\w+) \((\d+)\), not (-?\d+)": "n_best 为 {2}，应在 1 到 {0}（{1}）之间",
    r"mbr_candidates and a beam of (\d+) .*": (
        "束宽为 {0} 时候选由束搜索给出，不能设 mbr_candidates：要采样请设置 sample"
    ),
    r"mbr_candidates is for mbr: .*": "mbr_candidates 只用于 mbr：请把 mbr 设为 chrf 或 bleu",
    r"repetition_of is for a repetition_penalty .*": (
        "repetition_of 只在 repetition_penalty 不为 1 时有用：请一并设置，或去掉它"
    ),
    r"coverage_penalty and scaled heads .*": "这个模型使用覆盖惩罚，不能同时缩放注意力头",
    r"coverage_penalty and (.+) exclude each other: .*": "覆盖惩罚只用于单个模型：请设为 0",
    r"alignments and scaled heads .*": "缩放了注意力头就不能给出对齐",
    r"a stream is one text: .*": "流式回答只有一段文本：n_best 和 alignments 请不用流式",
    r"the engine (\w+) cannot honour (.+)": "引擎 {0} 做不到以下各项：{1}",
    # what is to be said
    r"prefix is one text or one for each: (\d+) prefixes and (\d+) texts": (
        "prefix 应为一段，或每段文本各一段：现有 {0} 段 prefix，{1} 段文本"
    ),
    r"constraints are phrases for all texts or a list for each: (\d+) and (\d+) texts": (
        "constraints 应为共用的短语，或每段文本各一组：现有 {0} 组，{1} 段文本"
    ),
    r"constraints and sample exclude each other: .*": "constraints 不能与采样同时使用：只有束搜索能找到含有它们的回答",
    r"constraints and groups \((\d+)\) .*": "constraints 不能与分组（{0} 组）同时使用：请用普通的束搜索",
    r"(\w+) holds (.+): a phrase is text that is more than white space": "{0} 里的 {1} 不是短语：短语不能只有空白",
    r"(constraint|prefix|the text) (.+) and ban (.+) exclude each other.*": "{1} 里有禁用的 {2}：请去掉其中之一",
    r"(constraint|prefix) (.+) cannot be said: the target vocabulary does not have (.+)": (
        "无法说出 {1}：目标词表里没有 {2}"
    ),
    r"ban (.+) cannot be kept: .*": "无法避开 {0}：没有找到别的说法",
    r"(source_prefix|target_prefix): (.+) is no symbol of the tokenizer, which has (.+)": (
        "{0}：{1} 不是分词器的符号，现有：{2}"
    ),
    r"length_penalty (.+) and normalise none exclude each other: .*": (
        "normalise 为 none 时长度惩罚 {0} 不起作用：请改用 average、gnmt 或 reward，或去掉它"
    ),
    r"beam times patience must be at most ([\d,]+), .*: (\d+) and (.+)": "束宽 {1} 乘以 patience {2} 不得超过 {0}",
    r"compile is for the engine fast, not for (\w+).*": "compile 只用于 fast 引擎，不能用于 {0}",
    # how long it is
    r"(min|max)_length and (\w+) exclude each other: .*": "{0}_length 不能与 {1} 同时使用：请去掉其中之一",
    r"min_length_extra (\d+) is more than max_length (\d+)": "min_length_extra {0} 大于最大长度 {1}",
    r"min_length (\d+) is more than max_length (\d+)": "最小长度 {0} 大于最大长度 {1}",
    r"min_length (\d+) is more than the model can say: (\d+) tokens": "最小长度 {0} 超过了模型最多能说的 {1} 个词元",
    r"the prefix has (\d+) tokens, more than max_length (\d+)": "prefix 有 {0} 个词元，超过了最大长度 {1}",
    r"text (\d+) of (\d+) has (\d+) tokens, more than max_length (\d+), .*": (
        "第 {0} 段文本（共 {1} 段）有 {2} 个词元，超过了最大长度 {3}，而它们也计算在内：请增大 max_length"
    ),
    r"text (\d+) of (\d+) has (\d+) tokens; the model reads at most (\d+): split it .*": (
        "第 {0} 段文本（共 {1} 段）有 {2} 个词元，模型最多读 {3} 个：请拆分（split）"
    ),
    r"text (\d+) of (\d+) has (\d+) tokens; the model reads at most (\d+): shorten it": (
        "第 {0} 段文本（共 {1} 段）有 {2} 个词元，模型最多读 {3} 个：请缩短"
    ),
    r"text (\d+) of (\d+) has (\d+) tokens; the model reads at most (\d+): shorten .*": (
        "第 {0} 段文本（共 {1} 段）有 {2} 个词元，模型最多读 {3} 个：请缩短开头"
    ),
    r"text (\d+) of (\d+): the sentence (.+) alone has (\d+) tokens; the model reads at most (\d+): .*": (
        "第 {0} 段文本（共 {1} 段）：仅句子 {2} 就有 {3} 个词元，模型最多读 {4} 个：请用句号等断句，或缩短它"
    ),
    r"text (\d+) of (\d+) has a log-probability that is not a number \(precision (\w+)\): .*": (
        "第 {0} 段文本（共 {1} 段）的对数概率不是数（精度 {2}）：请改用 bf16 或 fp32；若仍如此，则模型权重有误"
    ),
    r"an answer has a log-probability that is not a number \(precision (\w+)\): .*": (
        "回答的对数概率不是数（精度 {0}）：请改用 bf16 或 fp32；若仍如此，则模型权重有误"
    ),
    r"(\w+) and split exclude each other: .*": "{0} 不能与 split 同时使用：它针对整段文本",
    r"a prefix of several sentences and split exclude each other: .*": (
        "多句的 prefix 不能与 split 同时使用：请去掉 split，或逐句提交"
    ),
    # models that go on with a text
    r"prefix and a decoder-only model exclude each other: .*": "只有解码器的模型不能用 prefix：文本本身就是回答的开头",
    r"(\w+) and a decoder-only model exclude each other: .*": "只有解码器的模型不读源文，不能用 {0}：请去掉",
}
