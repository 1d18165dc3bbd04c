"""Strings of the `attendo heads` report, in English and Chinese."""

from attendo.explore.i18n import Language, localise

# Column headings of the table.
COLUMN_HEADINGS: dict[str, tuple[str, str]] = {
    "entropy": ("entropy", "熵"),
    "relative_entropy": ("rel.", "相对熵"),
    "distance": ("distance", "距离"),
    "diagonality": ("diagonal", "对角"),
    "special": ("special", "特殊词元"),
    "largest": ("max", "最大"),
    "error_rate": ("AER", "错误率"),
    "agreement": ("agree", "一致"),
}

REPORT_STRINGS: dict[str, tuple[str, str]] = {
    "place": ("place", "位置"),
    "head": ("head", "头"),
    "layer": ("layer", "层"),
    "counted": (
        "{0:,} sentences, {1:,} source and {2:,} target tokens, </s> included",
        "共 {0:,} 句，源文 {1:,} 个词元，译文 {2:,} 个词元（含 </s>）",
    ),
    "best": (
        "best alignment head: {0}, head {1} ({2} {3:.3f} against {4})",
        "最好的对齐头：{0}，头 {1}（{2} {3:.3f}，对照{4}）",
    ),
    "error_rate": ("error rate", "错误率"),
    "agreement": ("agreement", "一致率"),
    "gold": ("{0:,} gold links", " {0:,} 条标准对齐"),
    "all_heads": ("the mean of all heads", "所有头的平均"),
    "last_layer": (
        "mean of the last layer, used where no head is stored: error rate {0:.3f}",
        "最后一层的平均（没有保存对齐头时使用）：错误率 {0:.3f}",
    ),
    "picture": ("picture of {0} written to {1}", "{0}的图已写入 {1}"),
    "warning": ("warning: {0}", "警告：{0}"),
    "not_kept": (
        "not kept in the model folder: --store does, for attendo generate --alignments",
        "没有保存到模型文件夹：加 --store 可保存，供 attendo generate --alignments 使用",
    ),
    "by_agreement": (
        "warning: chosen by agreement, which does not tell whether it aligns better than the mean of the last layer "
        "did: give --gold to know",
        "警告：这是按一致率选出的，看不出它是否比最后一层的平均对齐得更好：给出 --gold 才能知道",
    ),
    "no_better": (
        "warning: it aligns no better than the mean of the last layer did (error rate {0:.3f}, {1:.3f})",
        "警告：它并不比最后一层的平均对齐得更好（错误率 {0:.3f}，{1:.3f}）",
    ),
    "kept": (
        "{0}: alignment head is layer {1}, head {2} (scores.json)",
        "{0}：对齐头为第 {1} 层的头 {2}（scores.json）",
    ),
    "encoder": ("Encoder self-attention", "编码器自注意力"),
    "decoder": ("Decoder self-attention", "解码器自注意力"),
    "cross": ("Cross-attention", "交叉注意力"),
    "framed": ("framed: best alignment head", "加框：最好的对齐头"),
    "scale_entropy": ("entropy (nats)", "熵（奈特）"),
    "scale_distance": ("mean distance (tokens)", "平均距离（词元）"),
    "scale_diagonality": ("diagonality", "对角程度"),
    "scale_special": ("share on <s> and </s>", "落在 <s> 和 </s> 上的比例"),
    "scale_error_rate": ("alignment error rate", "对齐错误率"),
    "scale_agreement": ("agreement with the mean of all heads", "与所有头的平均的一致率"),
}


def report_string(key: str, language: Language, *values: object) -> str:
    return localise(REPORT_STRINGS, key, language, *values)


def statistic_name(field: str, language: Language) -> str:
    """Return the name of a statistic for use in a sentence."""
    return field.replace("_", " ") if language == "en" else localise(REPORT_STRINGS, f"scale_{field}", language)
