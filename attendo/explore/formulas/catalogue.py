"""The catalogue of all formulas and facts by name, and the bilingual glossary of symbols."""

from typing import Any

from attendo.explore.formulas.facts_attention import ATTENTION_FACTS, CROSS_FACTS, HEAD_FACTS
from attendo.explore.formulas.facts_inputs import INPUT_FACTS, MASK_FACTS
from attendo.explore.formulas.facts_layers import LAYER_FACTS
from attendo.explore.formulas.facts_output import OUTPUT_FACTS
from attendo.explore.formulas.formula import Formula
from attendo.explore.formulas.steps import STEPS
from attendo.explore.i18n import LANGUAGES, Language
from attendo.model.trace_layers import TracedTensor
from attendo.text_model import Trace

FACTS: tuple[Formula, ...] = (
    *INPUT_FACTS,
    *ATTENTION_FACTS,
    *HEAD_FACTS,
    *MASK_FACTS,
    *CROSS_FACTS,
    *LAYER_FACTS,
    *OUTPUT_FACTS,
)
CATALOGUE: dict[str, Formula] = {each.name: each for each in (*STEPS, *FACTS)}
GLOSSARY: dict[str, tuple[str, str]] = {
    "x": ("token ids of the source", "源句的词元编号"),
    "y": ("tokens of the target", "目标句的词元"),
    "n": ("tokens of the source", "源句的词元数"),
    "m": ("tokens of the target", "目标句的词元数"),
    "E": ("embedding table", "词嵌入矩阵"),
    "P": ("position vectors", "位置编码"),
    "pos": ("number of a position, from 0", "位置序号，从 0 开始"),
    "i": ("number of a pair of components", "分量对的序号"),
    "ω": ("frequency", "频率"),
    "θ": ("angle", "角度"),
    "X": ("vectors of the encoder", "编码器里的向量"),
    "Y": ("vectors of the decoder", "解码器里的向量"),
    "Z": ("memory: what the encoder made of the source", "记忆：编码器的输出"),
    "Q": ("queries", "查询"),
    "K": ("keys", "键"),
    "V": ("values", "值"),
    "W_Q": ("matrix of the queries", "查询的权重矩阵"),
    "W_K": ("matrix of the keys", "键的权重矩阵"),
    "W_V": ("matrix of the values", "值的权重矩阵"),
    "W_O": ("matrix that joins the heads", "合并各头的输出矩阵"),
    "b": ("bias", "偏置"),
    "S": ("scores", "注意力分数"),
    "M": ("mask: 0 where a key may be looked at, −∞ elsewhere", "掩码：可看处为 0，其余为 −∞"),
    "A": ("attention weights; each row sums to 1", "注意力权重，每行之和为 1"),
    "g": ("factor of a head; 0 switches it off", "头的系数，0 表示关闭"),
    "head": ("what one head makes", "单个头的输出"),
    "h": ("number of heads", "头数"),
    "d_model": ("width of the vectors", "向量维度"),
    "d_k": ("width of a head's queries and keys", "每个头的查询与键的维度"),
    "d_v": ("width of a head's values", "每个头的值的维度"),
    "d_ff": ("inner width of the feed-forward network", "前馈网络的内层维度"),
    "W_1": ("matrix that widens", "升维矩阵"),
    "W_2": ("matrix that narrows", "降维矩阵"),
    "H": ("inner vectors of the feed-forward network", "前馈网络的内层向量"),
    "μ": ("mean of a vector's components", "向量各分量的均值"),
    "σ²": ("variance of a vector's components", "向量各分量的方差"),
    "γ": ("learned gain", "可学习的缩放"),
    "β": ("learned shift", "可学习的平移"),
    "ε": ("a small number that keeps the root from 0", "防止除以零的小数"),
    "Φ": ("distribution function of the normal distribution", "标准正态分布函数"),
    "σ": ("sigmoid 1/(1+e⁻ˣ)", "S 形函数 1/(1+e⁻ˣ)"),
    "W_out": ("matrix of the output layer", "输出层矩阵"),
    "p": ("probability", "概率"),
    "L": ("loss", "损失"),
    "τ": ("temperature", "温度"),
    "N": ("number of layers", "层数"),
    "|V|": ("size of the vocabulary", "词表大小"),
    "R": ("a rotation", "旋转矩阵"),
    "η": ("learning rate", "学习率"),
    "∇": ("gradient", "梯度"),
    "c": ("largest length a gradient may have", "梯度长度的上限"),
    "B": ("sentences of a batch", "批内句数"),
}


def find_formula(entry: TracedTensor) -> Formula:
    return CATALOGUE[entry.formula]


def bind_formula(entry: TracedTensor) -> str:
    """Return the formula of a tensor followed by the actual shapes."""
    return find_formula(entry).bind_shapes(entry.operands, entry.shape, entry.letter)


def evaluate_facts(trace: Trace) -> list[tuple[Formula, str]]:
    """Return every fact with its numbers; "" if the model lacks it or it concerns only training."""
    return [(each, each.numbers(trace) if each.numbers else "") for each in FACTS]


def explain_symbols(formula: Formula, language: Language) -> dict[str, str]:
    place = LANGUAGES.index(language)
    return {symbol: GLOSSARY[symbol][place] for symbol in formula.symbols.split()}


def catalogue_json() -> dict[str, Any]:
    """Return the catalogue as JSON values, in both languages."""
    return {
        each.name: {
            "rows": list(each.spec_ids),
            "text": each.render(),
            "en": each.en,
            "zh": each.zh,
            "symbols": {symbol: dict(zip(LANGUAGES, GLOSSARY[symbol], strict=True)) for symbol in each.symbols.split()},
        }
        for each in CATALOGUE.values()
    }
