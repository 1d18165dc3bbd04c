"""How a recipe is judged, as its run file says, and the variants that one file stands for."""

import tomllib
from typing import Any

import pytest

from attendo.errors import UsageError
from attendo.recipes.reproduce.config import Reproduce
from attendo.recipes.run_config import RunConfig, to_toml, with_changes

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
    ("variant", "message"),
    [
        (None, "variant is missing: choose one, such as --set variant=bul: bul, dut"),
        ("bull", r"unknown variant bull \(did you mean bul\?\); there are bul, dut"),
    ],
)
def test_a_variant_must_be_named_and_be_one_of_them(variant: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
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
        config = RunConfig(**with_changes({**common}, ["train.steps=9", variant]))
        assert (config.train.steps, config.train.weight_decay) == (9, 0.5)


def test_a_table_of_all_that_is_none_is_told_as_without_variants() -> None:
    with pytest.raises(UsageError, match=r"^train: "):
        RunConfig(**VARIED, train=5, variants=OWN, variant="dut")


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ({"dutch": {"train": {}}}, r"variants.dutch: unknown variant dutch \(did you mean dut\?\); there are bul, dut"),
        ({"dut": {"seed": {}}}, "variants.dut.seed: a variant has tables of its own, tokenizer, model, train"),
        ({"dut": {"train": 5}}, r"variants.dut: write tables, such as \[variants.NAME.train\]"),
        ({"dut": {"train": {"stepps": 5}}}, "stepps"),
        (5, "variants: write tables"),
    ],
)
def test_a_mistake_in_the_settings_of_a_variant_is_told(own: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        RunConfig(**VARIED, variants=own, variant="dut")


def test_a_variant_of_a_run_file_without_places_for_it_is_refused() -> None:
    with pytest.raises(UsageError, match=r"variant dut means nothing: no file name of the run file has \{variant\}"):
        RunConfig(data=FILES, variant="dut")


def test_what_a_run_is_known_by_does_not_hold_how_it_is_judged() -> None:
    """So that an expected number may change while checkpoints stay those of the same run."""
    judged = RunConfig(preset="tiny", data=FILES, reproduce={"about": "x", "test": [{"name": "a", "metric": "loss"}]})
    assert to_toml(judged) == to_toml(RunConfig(preset="tiny", data=FILES))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": []}, "reproduce.test is empty"),
        ({"seeds": []}, "reproduce.seeds is empty"),
        ({"seeds": [1, 1]}, "reproduce.seeds: one of them is there twice"),
        ({"variants": ["a", "a"]}, "reproduce.variants: one of them is there twice"),
        ({"variants": ["a/b"]}, "variants.0: string should match pattern"),
        ({"test": [{"name": "x", "metric": "blue"}]}, r"x: unknown metric blue \(did you mean bleu\?\)"),
        ({"test": [{"name": "x/y", "metric": "bleu"}]}, "test.0.name: string should match pattern"),
        ({"test": [{"name": "x", "metric": "bleu", "source": "a"}]}, "x: name both source and target, or file"),
        ({"test": [{"name": "x", "metric": "bleu", **FILES, "file": "c.tsv"}]}, "x: name both source and target, or"),
        ({"test": [{"name": "x", "metric": "loss", **FILES}]}, "x: loss is that of the run's validation"),
        ({"test": [{"name": "x", "metric": "bleu", "spread": 1}]}, "x: spread is around what is expected"),
        ({"test": [{"name": "x", "metric": "bleu", "reference_source": "y"}]}, "x: reference_source belongs to a ref"),
        ({"test": [TEST, TEST]}, "test is scored twice by the same metric"),
        ({"test": [TEST, {**TEST, "metric": "chrf", "file": "b.tsv"}]}, "two texts are called test"),
        (
            {"ensemble": True, "seeds": [1, 2], "test": [{"name": "x", "metric": "bleu"}]},
            "an ensemble is scored on files, and x names",
        ),
        ({"ensemble": True}, "reproduce.ensemble of one seed is that model alone"),
        (
            {"generate": {"beam": 2}, "test": [{"name": "x", "metric": "loss"}]},
            "reproduce.generate is for tests that are decoded, and none is",
        ),
        ({"generate": {"bean": 5}}, r"unknown setting generate.bean \(did you mean beam\?\)"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Reproduce(**{"about": "x", "test": [TEST], **changes})


def test_only_the_options_of_decoding_that_are_set_are_handed_on() -> None:
    judged = Reproduce(about="x", test=[TEST], generate={"beam": 5, "length_penalty": 1.0})
    assert judged.decoding == {"beam": 5, "length_penalty": 1.0}
