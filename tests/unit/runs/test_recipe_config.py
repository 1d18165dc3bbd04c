"""The `reproduce` table of a recipe and its variants."""

import tomllib
from typing import Any

import pytest
from error_codes import ErrorCheck, has_code

from attendo.errors import UsageError
from attendo.runs.config import RunConfig, apply_changes_to_variant, to_toml
from attendo.runs.recipe_config import Reproduce

TEST = {"name": "test", "file": "{variant}.test.tsv", "metric": "bleu"}
VARIED: dict[str, Any] = {
    "preset": "tiny",
    "data": {"file": "{variant}.train.tsv", "valid_file": "{variant}.dev.tsv"},
    "about": {"source_language": "{variant}"},
    "reproduce": {"about": "words", "variants": ["bul", "dut"], "test": [TEST]},
}
FILES = {"source": "a", "target": "b"}


def test_the_variant_name_replaces_its_placeholders() -> None:
    config = RunConfig(**VARIED, variant="dut")
    assert (str(config.data.file), str(config.data.valid_file)) == ("dut.train.tsv", "dut.dev.tsv")
    assert config.about.source_language == "dut"
    assert config.reproduce is not None
    assert str(config.reproduce.test[0].file) == "dut.test.tsv"
    assert config.reproduce.variants == ("bul", "dut"), "the list of variants is unchanged"


def test_settings_of_a_variant_can_be_changed_and_written() -> None:
    config = RunConfig(**VARIED, variant="dut").replace(seed=7)
    assert (config.seed, str(config.data.file)) == (7, "dut.train.tsv")
    assert tomllib.loads(to_toml(config))["data"]["file"] == "dut.train.tsv"


@pytest.mark.parametrize(
    ("variant", "error"),
    [
        (None, has_code("variant_missing", example="bul", known=": bul, dut")),
        ("bull", has_code("unknown_variant", name="bull", suggestion=" (did you mean bul?)", known="bul, dut")),
    ],
)
def test_a_missing_or_unknown_variant_is_a_usage_error(variant: str | None, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        RunConfig(**VARIED, variant=variant)


OVERRIDES = {"dut": {"train": {"steps": 7, "weight_decay": 0.5}, "model": {"dropout": 0.2}}}


def test_a_variant_can_override_settings() -> None:
    common = {**VARIED, "train": {"steps": 3, "warmup": 2}, "variants": OVERRIDES}
    dut, bul = (RunConfig(**common, variant=name) for name in ("dut", "bul"))
    assert (dut.train.steps, dut.train.weight_decay, dut.train.warmup, dut.model) == (7, 0.5, 2, {"dropout": 0.2})
    assert (bul.train.steps, bul.train.weight_decay, bul.train.warmup, bul.model) == (3, 0.0, 2, {})


def test_given_changes_override_the_variant() -> None:
    common = {**VARIED, "train": {"steps": 3}, "variants": OVERRIDES}
    for variant in ("variant=dut", "variant = dut"):
        config = RunConfig(**apply_changes_to_variant({**common}, ["train.steps=9", variant]))
        assert (config.train.steps, config.train.weight_decay) == (9, 0.5)


def test_an_invalid_common_table_is_a_usage_error() -> None:
    with pytest.raises(UsageError, check=has_code("setting_invalid", fault=has_code("field_model_type", name="train"))):
        RunConfig(**VARIED, train=5, variants=OVERRIDES, variant="dut")


@pytest.mark.parametrize(
    ("overrides", "error"),
    [
        ({"dutch": {"train": {}}}, has_code("variant_table_unknown", variant="dutch")),
        ({"dut": {"seed": {}}}, has_code("variant_table_not_allowed", variant="dut", table="seed")),
        ({"dut": {"train": 5}}, has_code("variants_not_tables", name="variants.dut")),
        ({"dut": {"train": {"stepps": 5}}}, has_code("unknown_setting")),
        (5, has_code("variants_not_tables", name="variants")),
    ],
)
def test_invalid_variant_settings_are_usage_errors(overrides: Any, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        RunConfig(**VARIED, variants=overrides, variant="dut")


def test_a_variant_without_placeholders_is_a_usage_error() -> None:
    with pytest.raises(UsageError, check=has_code("variant_without_effect", variant="dut", placeholder="{variant}")):
        RunConfig(data=FILES, variant="dut")


def test_the_stored_config_excludes_the_reproduce_table() -> None:
    """An expected number can change without invalidating checkpoints."""
    config = RunConfig(preset="tiny", data=FILES, reproduce={"about": "x", "test": [{"name": "a", "metric": "loss"}]})
    assert to_toml(config) == to_toml(RunConfig(preset="tiny", data=FILES))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"test": []}, has_code("reproduce_list_empty", setting="test")),
        ({"seeds": []}, has_code("reproduce_list_empty", setting="seeds")),
        ({"seeds": [1, 1]}, has_code("reproduce_list_duplicate", setting="seeds")),
        ({"variants": ["a", "a"]}, has_code("reproduce_list_duplicate", setting="variants")),
        (
            {"variants": ["a/b"]},
            has_code("setting_invalid", fault=has_code("field_string_pattern_mismatch", name="variants.0")),
        ),
        (
            {"test": [{"name": "x", "metric": "blue"}]},
            has_code("test_metric_unknown", test="x", metric="blue", suggestion=" (did you mean bleu?)"),
        ),
        (
            {"test": [{"name": "x/y", "metric": "bleu"}]},
            has_code("setting_invalid", fault=has_code("field_string_pattern_mismatch", name="test.0.name")),
        ),
        ({"test": [{"name": "x", "metric": "bleu", "source": "a"}]}, has_code("test_files_incomplete", test="x")),
        (
            {"test": [{"name": "x", "metric": "bleu", **FILES, "file": "c.tsv"}]},
            has_code("test_files_incomplete", test="x"),
        ),
        ({"test": [{"name": "x", "metric": "loss", **FILES}]}, has_code("test_loss_with_files", test="x")),
        ({"test": [{"name": "x", "metric": "bleu", "spread": 1}]}, has_code("test_spread_without_expected", test="x")),
        (
            {"test": [{"name": "x", "metric": "bleu", "reference_source": "y"}]},
            has_code("test_reference_missing", test="x"),
        ),
        ({"test": [TEST, TEST]}, has_code("test_metric_duplicate", test="test")),
        ({"test": [TEST, {**TEST, "metric": "chrf", "file": "b.tsv"}]}, has_code("test_name_ambiguous", test="test")),
        (
            {"ensemble": True, "seeds": [1, 2], "test": [{"name": "x", "metric": "bleu"}]},
            has_code("ensemble_test_without_files", test="x"),
        ),
        ({"ensemble": True}, has_code("ensemble_of_one_seed")),
        (
            {"generate": {"beam": 2}, "test": [{"name": "x", "metric": "loss"}]},
            has_code("generate_without_decoded_tests"),
        ),
        (
            {"generate": {"bean": 5}},
            has_code("unknown_setting", name="generate.bean", suggestion=" (did you mean beam?)"),
        ),
    ],
)
def test_an_invalid_reproduce_table_is_a_usage_error(changes: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        Reproduce(**{"about": "x", "test": [TEST], **changes})


def test_decoding_has_only_the_given_options() -> None:
    reproduce = Reproduce(about="x", test=[TEST], generate={"beam": 5, "length_penalty": 1.0})
    assert reproduce.decoding == {"beam": 5, "length_penalty": 1.0}
