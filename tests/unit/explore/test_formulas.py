"""The catalogue has every formula of the study texts, each with the shapes of a run."""

import re
from typing import Any

import pytest
from tiny import tiny_model

from attendo.explore.formulas.catalogue import (
    CATALOGUE,
    FACTS,
    GLOSSARY,
    STEPS,
    bind_formula,
    catalogue_json,
    evaluate_facts,
    explain_symbols,
)
from attendo.messages import LANGUAGES

# The number of rows of each kind in the specification.
COUNTS = {"A": 10, "B": 8, "C": 9, "D": 10, "E-": 11, "F": 7, "G": 4, "H": 8, "I": 10, "J": 9, "K": 8}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "activation": "gelu"},
    {"positions": "rotary", "activation": "silu"},
    {"positions": "learned", "activation": "swiglu", "max_length": 30},
    {"positions": "none", "norm_kind": "rms", "scale_embedding": False},
    {"position_layout": "halves", "embedding_norm": True, "output_bias": True, "final_norm": False},
    {"d_key": 6, "d_value": 10, "scale_embedding": False},
    {"positions": "relative", "activation": "geglu_tanh", "linear_bias": False, "attention_scale": 1.0},
    {"positions": "relative", "relative_bias": "per_layer", "activation": "reglu", "output_scale": 0.25},
    {"num_kv_heads": 1, "qk_norm": True, "norm": "sandwich", "norm_kind": "rms", "logit_softcap": 2.0},
    {"merged_attention": True, "sliding_window": 2, "sliding_window_pattern": 2, "num_kv_heads": 1},
    {"positions": "rotary", "rope_theta": 1e6, "rope_local_theta": 1e3, "sliding_window": 2},
    {"activation": "geglu"},
    {"activation": "gelu_tanh"},
]


def test_every_row_of_the_list_is_in_the_catalogue() -> None:
    expected = {f"{kind}{number}" for kind, count in COUNTS.items() for number in range(1, count + 1)}
    assert {row for formula in CATALOGUE.values() for row in formula.spec_ids} == expected
    assert len(expected) == 94


def test_names_are_unique() -> None:
    assert len(CATALOGUE) == len(STEPS) + len(FACTS)


@pytest.mark.parametrize("formula", CATALOGUE.values(), ids=lambda each: each.name)
def test_a_formula_is_one_line_explained_in_both_languages(formula: Any) -> None:
    assert "\n" not in formula.text
    assert formula.en.endswith(".")
    assert formula.en.isascii() or not re.search("[\u4e00-\u9fff]", formula.en)
    assert formula.zh.endswith("。")
    assert re.search("[\u4e00-\u9fff]", formula.zh)
    for language in LANGUAGES:
        assert set(explain_symbols(formula, language)) == set(formula.symbols.split())


def test_every_symbol_of_the_glossary_is_used() -> None:
    used = {symbol for formula in CATALOGUE.values() for symbol in formula.symbols.split()}
    assert set(GLOSSARY) == used


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_tensor_has_a_formula_with_its_shapes(changes: dict[str, Any]) -> None:
    trace = tiny_model(**changes).trace("the cat sat", "猫 坐")
    for entry in trace.entries.values():
        formula = CATALOGUE[entry.formula]
        operand_indices = set(re.findall(r"\{(\d)\}", formula.shapes))
        assert operand_indices <= {str(n) for n in range(len(entry.operands))}
        bound = bind_formula(entry)
        assert bound.endswith(str(list(entry.shape)))
        assert "{" not in bound.replace("{0 … |V|−1}", "")


def test_a_formula_names_its_input_vectors() -> None:
    trace = tiny_model(norm="post").trace("the cat sat", "猫 坐")
    assert bind_formula(trace.entries["decoder.0.self.queries"]) == (
        "Q = Y·W_Q + b_Q : [3, 16]·[16, 16] + [16] → [3, 16] → [2, 3, 8]"
    )
    assert bind_formula(trace.entries["decoder.0.cross.keys"]).startswith("K = Z·W_K + b_K : [4, 16]·[16, 16]")
    assert bind_formula(trace.entries["encoder.0.self.values"]).startswith("V = X·W_V + b_V")
    pre_norm = tiny_model(norm="pre").trace("the cat sat", "猫 坐")
    assert bind_formula(pre_norm.entries["encoder.0.self.values"]).startswith("V = X\u0302·W_V + b_V")


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [
        *((changes, {}) for changes in VARIANTS),
        ({"positions": "rotary"}, {"layer": 1}),
        ({"num_encoder_layers": 1}, {"layer": 1}),
        ({}, {"masked": False}),
        ({}, {"heads": {"decoder.1.cross": {0: 0.0}}}),
    ],
)
def test_facts_have_numbers_for_every_kind_of_model(changes: dict[str, Any], arguments: dict[str, Any]) -> None:
    trace = tiny_model(**changes).trace("the cat sat", "猫 坐", **arguments)
    shown = {formula.name: numbers for formula, numbers in evaluate_facts(trace)}
    assert list(shown) == [formula.name for formula in FACTS]
    assert {"clipping", "adam", "no_cross"} <= {name for name, numbers in shown.items() if not numbers}
    assert sum(bool(numbers) for numbers in shown.values()) > 50
    assert not any("nan" in numbers or "\n" in numbers for numbers in shown.values())


def test_facts_have_the_values_of_the_run() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐")
    shown = {formula.name: numbers for formula, numbers in evaluate_facts(trace)}
    assert shown["shift"] == "<s> 猫 坐  →  猫 坐 </s>"
    assert shown["head_width"] == "16 / 2 = 8"
    assert shown["boolean_mask"] == "3 / 9"
    assert shown["cross_entropy"].startswith(f"L = {trace.loss:.4f}")
    assert shown["maps"] == "encoder [2, 2, 4, 4], decoder [2, 2, 3, 3], cross [2, 2, 3, 4]"


def test_a_single_token_has_facts_too() -> None:
    trace = tiny_model().trace("cat", "")
    assert all(isinstance(numbers, str) for _, numbers in evaluate_facts(trace))


def test_catalogue_json_has_plain_values() -> None:
    entry = catalogue_json()["queries"]
    assert (entry["rows"], entry["text"]) == (["C1"], "Q = X·W_Q + b_Q")
    assert entry["symbols"]["Q"] == {"en": "queries", "zh": "查询"}
