"""How a recipe is judged, as its run file says, and the variants that one file stands for."""

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


def test_the_name_of_a_variant_is_put_in_all_its_places() -> None:
    config = RunConfig(**VARIED, variant="dut")
    assert (str(config.data.file), str(config.data.valid_file)) == ("dut.train.tsv", "dut.dev.tsv")
    assert config.about.source_language == "dut"
    assert config.reproduce is not None
    assert str(config.reproduce.test[0].file) == "dut.test.tsv"
    assert config.reproduce.variants == ("bul", "dut"), "the names themselves stay"


def test_settings_for_a_variant_can_be_changed_and_written_down() -> None:
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
def test_a_variant_must_be_named_and_be_one_of_them(variant: str | None, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        RunConfig(**VARIED, variant=variant)


OWN = {"dut": {"train": {"steps": 7, "weight_decay": 0.5}, "model": {"dropout": 0.2}}}


def test_a_variant_may_have_settings_of_its_own() -> None:
    common = {**VARIED, "train": {"steps": 3, "warmup": 2}, "variants": OWN}
    dut, bul = (RunConfig(**common, variant=name) for name in ("dut", "bul"))
    assert (dut.train.steps, dut.train.weight_decay, dut.train.warmup, dut.model) == (7, 0.5, 2, {"dropout": 0.2})
    assert (bul.train.steps, bul.train.weight_decay, bul.train.warmup, bul.model) == (3, 0.0, 2, {})


def test_what_is_set_for_a_run_stands_above_what_its_variant_has() -> None:
    common = {**VARIED, "train": {"steps": 3}, "variants": OWN}
    for variant in ("variant=dut", "variant = dut"):
        config = RunConfig(**apply_changes_to_variant({**common}, ["train.steps=9", variant]))
        assert (config.train.steps, config.train.weight_decay) == (9, 0.5)


def test_a_table_of_all_that_is_none_is_told_as_without_variants() -> None:
    with pytest.raises(UsageError, check=has_code("setting_invalid", name="train")):
        RunConfig(**VARIED, train=5, variants=OWN, variant="dut")


@pytest.mark.parametrize(
    ("own", "error"),
    [
        ({"dutch": {"train": {}}}, has_code("variant_table_unknown", variant="dutch")),
        ({"dut": {"seed": {}}}, has_code("variant_table_not_allowed", variant="dut", table="seed")),
        ({"dut": {"train": 5}}, has_code("variants_not_tables", name="variants.dut")),
        ({"dut": {"train": {"stepps": 5}}}, has_code("unknown_setting")),
        (5, has_code("variants_not_tables", name="variants")),
    ],
)
def test_a_mistake_in_the_settings_of_a_variant_is_told(own: Any, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        RunConfig(**VARIED, variants=own, variant="dut")


def test_a_variant_of_a_run_file_without_places_for_it_is_refused() -> None:
    with pytest.raises(UsageError, check=has_code("variant_without_effect", variant="dut", placeholder="{variant}")):
        RunConfig(data=FILES, variant="dut")


def test_what_a_run_is_known_by_does_not_hold_how_it_is_judged() -> None:
    """So that an expected number may change while checkpoints stay those of the same run."""
    judged = RunConfig(preset="tiny", data=FILES, reproduce={"about": "x", "test": [{"name": "a", "metric": "loss"}]})
    assert to_toml(judged) == to_toml(RunConfig(preset="tiny", data=FILES))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"test": []}, has_code("reproduce_list_empty", setting="test")),
        ({"seeds": []}, has_code("reproduce_list_empty", setting="seeds")),
        ({"seeds": [1, 1]}, has_code("reproduce_list_duplicate", setting="seeds")),
        ({"variants": ["a", "a"]}, has_code("reproduce_list_duplicate", setting="variants")),
        ({"variants": ["a/b"]}, has_code("setting_invalid", name="variants.0")),
        (
            {"test": [{"name": "x", "metric": "blue"}]},
            has_code("test_metric_unknown", test="x", metric="blue", suggestion=" (did you mean bleu?)"),
        ),
        ({"test": [{"name": "x/y", "metric": "bleu"}]}, has_code("setting_invalid", name="test.0.name")),
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
def test_a_mistake_is_one_line_that_names_it(changes: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        Reproduce(**{"about": "x", "test": [TEST], **changes})


def test_only_the_options_of_decoding_that_are_set_are_handed_on() -> None:
    judged = Reproduce(about="x", test=[TEST], generate={"beam": 5, "length_penalty": 1.0})
    assert judged.decoding == {"beam": 5, "length_penalty": 1.0}
