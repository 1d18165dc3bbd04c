"""The catalogue of formulas: all that the study texts state about the Transformer, by name."""

from typing import Any

from attendo.explore.facts_attention import ATTENTION_FACTS
from attendo.explore.facts_cross import CROSS_FACTS
from attendo.explore.facts_heads import HEAD_FACTS
from attendo.explore.facts_input import INPUT_FACTS
from attendo.explore.facts_layers import LAYER_FACTS
from attendo.explore.facts_masks import MASK_FACTS
from attendo.explore.facts_output import OUTPUT_FACTS
from attendo.explore.formula import Formula
from attendo.explore.formulas_glossary import GLOSSARY
from attendo.explore.formulas_steps import STEPS
from attendo.explore.language import LANGUAGES, Language
from attendo.model.ledger import Traced
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


def formula_of(entry: Traced) -> Formula:
    return CATALOGUE[entry.formula]


def bound(entry: Traced) -> str:
    """The formula of a tensor with the real shapes behind it."""
    return formula_of(entry).bound(entry.operands, entry.shape, entry.letter)


def shown_facts(trace: Trace) -> list[tuple[Formula, str]]:
    """Every fact with what this run shows of it: nothing, where the model has none of it or training alone has it."""
    return [(each, each.numbers(trace) if each.numbers else "") for each in FACTS]


def symbols_of(formula: Formula, language: Language) -> dict[str, str]:
    place = LANGUAGES.index(language)
    return {symbol: GLOSSARY[symbol][place] for symbol in formula.symbols.split()}


def catalogue_json() -> dict[str, Any]:
    """The catalogue as plain values, both languages."""
    return {
        each.name: {
            "rows": list(each.rows),
            "text": each.written(),
            "en": each.en,
            "zh": each.zh,
            "symbols": {symbol: dict(zip(LANGUAGES, GLOSSARY[symbol], strict=True)) for symbol in each.symbols.split()},
        }
        for each in CATALOGUE.values()
    }
