"""The catalogue of all formulas and facts by name, and the bilingual glossary of symbols, read from catalogue.toml.

The numbers of a fact are computed by the function of its name in the modules facts_*.
"""

import tomllib
from pathlib import Path
from typing import Any

from attendo.explore.formulas import facts_attention, facts_inputs, facts_layers, facts_output
from attendo.explore.formulas.formula import Formula
from attendo.messages import LANGUAGES, Language
from attendo.model.trace_layers import TracedTensor
from attendo.text_model import Trace

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_NUMBERS = {**vars(facts_inputs), **vars(facts_attention), **vars(facts_layers), **vars(facts_output)}

STEPS = tuple(Formula(name, **row) for name, row in _TABLES["steps"].items())
FACTS = tuple(
    Formula(name, numbers=None if "training_only" in row else _NUMBERS[name], **row)
    for name, row in _TABLES["facts"].items()
)
CATALOGUE: dict[str, Formula] = {each.name: each for each in (*STEPS, *FACTS)}
GLOSSARY: dict[str, dict[Language, str]] = _TABLES["glossary"]


def find_formula(entry: TracedTensor) -> Formula:
    return CATALOGUE[entry.formula]


def bind_formula(entry: TracedTensor) -> str:
    """Return the formula of a tensor followed by the actual shapes."""
    return find_formula(entry).bind_shapes(entry.operands, entry.shape, entry.letter)


def evaluate_facts(trace: Trace) -> list[tuple[Formula, str]]:
    """Return every fact with its numbers; "" if the model lacks it or it concerns only training."""
    return [(each, each.numbers(trace) if each.numbers else "") for each in FACTS]


def explain_symbols(formula: Formula, language: Language) -> dict[str, str]:
    return {symbol: GLOSSARY[symbol][language] for symbol in formula.symbols.split()}


def describe_formulas(trace: Trace) -> dict[str, Any]:
    """Return the formulas of a trace by their key in the catalogue, in both languages."""
    found = {entry.formula: find_formula(entry) for entry in trace.entries.values()}
    return {
        key: {
            "text": formula.text,
            "tex": formula.tex,
            "explain": {"en": formula.en, "zh": formula.zh},
            "symbols": {language: explain_symbols(formula, language) for language in LANGUAGES},
        }
        for key, formula in found.items()
    }


def catalogue_json() -> dict[str, Any]:
    """Return the catalogue as JSON values, in both languages."""
    return {
        each.name: {
            "rows": list(each.spec_ids),
            "text": each.render(),
            "en": each.en,
            "zh": each.zh,
            "symbols": {symbol: GLOSSARY[symbol] for symbol in each.symbols.split()},
        }
        for each in CATALOGUE.values()
    }
