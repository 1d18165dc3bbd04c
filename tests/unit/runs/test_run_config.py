"""The settings of a run and their TOML form."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from error_codes import ErrorCheck, fragment, has_code, message
from tiny import Command

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.runs.config import (
    RunConfig,
    apply_changes,
    list_differences,
    load_run_config,
    read_run_file,
    to_toml,
    toml_literal,
)
from attendo.runs.demo import demo_config
from attendo.train.config import TrainConfig

FILES = {"source": "a", "target": "b"}


CORPORA = (
    {"source": "a", "target": "b", "weight": 2.5, "tag": "<2de>"},
    {"file": "c.jsonl", "source_field": "en", "target_field": "fr", "tag": "<2fr>"},
)


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(data=FILES),
        demo_config(),
        RunConfig(
            seed=3,
            preset="base",
            data={**FILES, "valid_source": "c", "valid_target": "d", "folder": "texts", "tag": "<2de>"},
            tokenizer={"kind": "unigram", "joint": True, "symbols": ["<a>", '"']},
            model={"tie": "all", "dropout": 0.25, "output_bias": True, "norm": "post", "d_ff": 100},
            train={"peak_lr": 1.5e-7, "warmup": 0, "clip_norm": 1e20, "metrics": ["bleu", "chrf"]},
        ),
        RunConfig(preset="tiny", data={"corpora": CORPORA, "valid_file": "v.tsv"}, tokenizer={"kind": "bytes"}),
        RunConfig(preset="tiny", data={"corpora": CORPORA, "valid_corpora": CORPORA[:1]}),
        RunConfig(preset="tiny", data={"prepared": "data"}, model={"tie": "all"}, train={"schedule": "noam"}),
        RunConfig(start_from="old", data=FILES, tokenizer={"dropout": 0.1}, model={"dropout": 0.2}),
    ],
)
def test_settings_written_as_toml_read_back_the_same(config: RunConfig, tmp_path: Path) -> None:
    """The preset and ModelConfig are written in full, so that new defaults cannot change the run."""
    (tmp_path / "run.toml").write_text(to_toml(config), "utf-8")
    again = RunConfig(**read_run_file(tmp_path / "run.toml"))
    for name in ("seed", "preset", "start_from", "data", "tokenizer"):
        assert getattr(again, name) == getattr(config, name)
    expected = config.train if config.train.schedule == "noam" else config.train.replace(peak_lr=again.train.peak_lr)
    assert again.train == expected
    assert again.train.peak_lr == config.train.peak_lr or config.train.peak_lr is None
    assert again.make_model_config(9, 9) == config.make_model_config(9, 9)
    assert to_toml(again) == to_toml(config)


def test_every_setting_is_written() -> None:
    written = tomllib.loads(to_toml(RunConfig(preset="small", data=FILES)))
    assert written["train"].keys() == TrainConfig.model_fields.keys() - {
        "epochs",
        "guided_alignment",
        "guided_alignment_layer",
    }
    assert written["train"]["peak_lr"] == 1e-3
    unset = {name for name, field in ModelConfig.model_fields.items() if field.default is None}
    assert written["model"].keys() == ModelConfig.model_fields.keys() - unset
    assert written["model"]["d_model"] == 256


def test_start_from_writes_no_network_and_tokenizer_settings() -> None:
    written = tomllib.loads(to_toml(RunConfig(start_from="old", data=FILES)))
    assert written.keys() == {"seed", "start_from", "data", "model", "train", "generation"}
    assert written["model"] == {}


def test_generation_settings_are_checked_and_written() -> None:
    config = RunConfig(preset="small", data=FILES, generation={"max_length_factor": 3.0, "beam": 4})
    assert tomllib.loads(to_toml(config))["generation"] == {"max_length_factor": 3.0, "beam": 4}
    with pytest.raises(UsageError, check=has_code("run_generation_settings_invalid")):
        RunConfig(preset="small", data=FILES, generation={"beem": 4})


@pytest.mark.parametrize(
    "name",
    [
        'a "b"',
        "a\\b",
        "a\tb",
        "a\nb",
        "été 猫",
        "'",
        "#",
        " ",
        "😀",
        "\u2028",
        "\x7f",
        "\x00",
        "\U000f0000b",
        "a\U000e0001",
    ],
)
def test_any_file_name_reads_back_the_same(name: str) -> None:
    config = RunConfig(data={"source": name, "target": "b"})
    assert RunConfig(**tomllib.loads(to_toml(config))).data.source == Path(name)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["train.steps=5"], {"train": {"steps": 5}}),
        (["train.peak_lr=3e-4"], {"train": {"peak_lr": 3e-4}}),
        (["model.norm=post"], {"model": {"norm": "post"}}),
        (['model.norm="post"'], {"model": {"norm": "post"}}),
        (["tokenizer.joint=true"], {"tokenizer": {"joint": True}}),
        (["data.source=a b.txt"], {"data": {"source": "a b.txt"}}),
        (["data.source=x=y"], {"data": {"source": "x=y"}}),
        ([" seed = 4 "], {"seed": 4}),
        (["seed=1", "seed=2"], {"seed": 2}),
    ],
)
def test_a_change_is_a_toml_value_or_else_a_string(changes: list[str], expected: dict[str, Any]) -> None:
    assert apply_changes({}, changes) == expected


def test_a_change_is_merged_into_the_file_values() -> None:
    values = {"seed": 1, "train": {"steps": 5, "warmup": 2}}
    assert apply_changes(values, ["train.steps=7"]) == {"seed": 1, "train": {"steps": 7, "warmup": 2}}


@pytest.mark.parametrize("change", ["steps", "=5", ""])
def test_a_change_without_name_or_value_is_rejected(change: str) -> None:
    with pytest.raises(UsageError, check=has_code("set_option_without_value")):
        apply_changes({}, [change])


def test_a_change_inside_a_value_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("set_option_not_section", name="seed")):
        apply_changes({"seed": 1}, ["seed.x=5"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "data is missing"),
        ({"data": {}}, fragment("training_files_missing")),
        ({"data": {"source": "a"}}, fragment("corpus_files_missing")),
        ({"data": {"corpora": [{**FILES, "weight": 0}]}}, "data.corpora.0.weight must be "),
        ({"data": {**FILES, "valid_source": "c"}}, fragment("validation_side_missing")),
        ({"data": {"task": "builtin", "source": "a"}}, fragment("builtin_task_with_files")),
        ({"data": FILES, "sed": 1}, fragment("unknown_setting", name="sed", suggestion=" (did you mean seed?)")),
        (
            {"data": FILES, "train": {"setps": 1}},
            fragment("unknown_setting", name="train.setps", suggestion=" (did you mean steps?)"),
        ),
        ({"data": FILES, "model": {"d_modle": 1}}, "d_modle (did you mean d_model?)"),
        ({"data": FILES, "model": {"name": 1}}, "unknown setting"),
        ({"data": FILES, "model": {"cls": 1}}, "unknown setting"),
        ({"data": FILES, "model": {"self": 1}}, "unknown setting"),
        ({"data": FILES, "self": 1}, fragment("unknown_setting", name="self")),
        (
            {"data": FILES, "model": {"d_model": 500, "num_heads": 8}},
            fragment("d_model_not_divisible", d_model=500, num_heads=8),
        ),
        (
            {"data": FILES, "preset": "samll"},
            fragment("unknown_preset", preset="samll", suggestion=" (did you mean small?)"),
        ),
        ({"data": FILES, "model": {"vocab_size": 8}}, fragment("vocabulary_size_in_model", setting="vocab_size")),
        (
            {"data": FILES, "model": {"target_vocab_size": 8}},
            fragment("vocabulary_size_in_model", setting="target_vocab_size"),
        ),
        ({"data": FILES, "model": {"num_encoder_layers": 0}}, fragment("decoder_only_without_text")),
        (
            {"data": FILES, "model": {"tie": "all"}, "preset": "tiny"},
            fragment("tie_all_without_joint_vocabulary", tie="all"),
        ),
        (
            {"data": FILES, "model": {"tie": "inputs"}, "preset": "tiny"},
            fragment("tie_all_without_joint_vocabulary", tie="inputs"),
        ),
        ({"data": FILES, "start_from": "m", "preset": "tiny"}, fragment("start_from_preset_fixed")),
        ({"data": FILES, "start_from": "m", "tokenizer": {"size": 9}}, fragment("start_from_tokenizer_fixed")),
        (
            {"data": FILES, "start_from": "m", "model": {"d_model": 8}},
            fragment("start_from_network_fixed", setting="d_model"),
        ),
        ({"data": FILES, "train": {"schedule": "noam", "peak_lr": 1e-3}}, "leave peak_lr out"),
        ({"data": FILES, "train": {"final_lr": 0.1}}, fragment("final_lr_unused", schedule="inverse_square_root")),
        ({"data": FILES, "train": {"metrics": ["blue"]}}, "train.metrics.0 must be "),
        ({"data": FILES, "train": {"peak_lr": "fast"}}, "train.peak_lr must be "),
        ({"data": FILES, "tokenizer": {"kind": "morse"}}, "tokenizer.kind must be "),
        ({"data": FILES, "train": 5}, "train must be "),
    ],
)
def test_invalid_settings_are_one_line_usage_errors(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        RunConfig(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tie_all_is_allowed_if_the_vocabulary_is_open_or_prepared() -> None:
    assert RunConfig(data=FILES, model={"tie": "all"}).preset == "auto"
    assert RunConfig(data={"prepared": "data"}, preset="tiny", model={"tie": "all"}).model == {"tie": "all"}


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (True, "true"),
        (3, "3"),
        (1e-9, "1e-09"),
        ("a\\b", '"a\\\\b"'),
        (("a", "b"), '["a", "b"]'),
        ([], "[]"),
        ([1, 2], "[1, 2]"),
    ],
)
def test_a_value_has_a_toml_literal(value: Any, literal: str) -> None:
    assert toml_literal(value) == literal
    read = tomllib.loads(f"value = {literal}")["value"]
    assert read == (list(value) if isinstance(value, tuple) else value)


def test_vocabulary_sizes_come_from_the_tokenizers() -> None:
    network = RunConfig(data=FILES, preset="tiny", model={"dropout": 0.3}).make_model_config(11, 12)
    assert (network.source_vocab_size, network.target_vocab_size) == (11, 12)
    assert (network.d_model, network.dropout) == (128, 0.3)


@pytest.mark.parametrize("content", [b"seed = ", b"\xff", b"[data"])
def test_a_run_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(UsageError, check=has_code("run_file_not_toml")):
        read_run_file(tmp_path / "run.toml")


def test_a_run_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(UsageError, match=str(path)):
            read_run_file(path)


def test_errors_name_the_run_file(attendo: Command, tmp_path: Path) -> None:
    file, good = tmp_path / "mine.toml", '[data]\nsource = "a"\ntarget = "b"\n'
    file.write_text(f"{good}[train]\nstepz = 3\n", "utf-8")
    for command in (["train", file], ["prepare", file, "--out", "x"], ["doctor", file]):
        assert attendo(*command).error == f"{file}: unknown setting train.stepz (did you mean steps?)"
    file.write_text(good, "utf-8")
    assert attendo("train", file, "--set", "train.stepz=3").error.startswith(
        message("run_file_with_changes_invalid", path=file, error="unknown setting")
    )
    assert attendo("train", "--set", "data.task=x", "--out", "y").error.startswith("data.task must be ")


def test_errors_in_a_stored_config_name_its_file(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('[data]\ntask = "builtin"\ntasks = 1\n', "utf-8")
    expected = f"{tmp_path / 'run.toml'}: unknown setting data.tasks (did you mean task?)"
    assert attendo("train", "--resume", tmp_path).error == expected
    with pytest.raises(UsageError, check=has_code("run_file_invalid")):
        load_run_config(tmp_path)


def test_differences_are_listed_with_their_table() -> None:
    """`tokenizer.dropout` and `model.dropout` have the same short name."""
    one = RunConfig(data=FILES, preset="tiny", model={"dropout": 0.1}, tokenizer={"dropout": 0.2})
    other = RunConfig(data=FILES, preset="tiny", model={"dropout": 0.2}, tokenizer={"dropout": 0.1})
    assert list_differences(one, other) == ["tokenizer.dropout = 0.1", "model.dropout = 0.2"]
    assert list_differences(one, one) == []
    named = one.replace(about={"task": "generation"})
    assert (list_differences(one, named), list_differences(named, one)) == (
        ['about.task = "generation"'],
        ["no about.task"],
    )


def test_prepared_data_fixes_the_tokenizer() -> None:
    for name, value in (("kind", "words"), ("size", 500), ("joint", True), ("symbols", ["<a>"])):
        with pytest.raises(UsageError, check=has_code("prepared_tokenizer_fixed", setting=name)):
            RunConfig(data={"prepared": "data"}, tokenizer={name: value})
    assert RunConfig(data={"prepared": "data"}, tokenizer={"dropout": 0.1}).tokenizer.dropout == 0.1


def test_checking_a_config_does_not_import_torch() -> None:
    code = (
        "import sys; from attendo.runs.config import RunConfig;"
        "RunConfig(data={'task': 'builtin'}); assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_preset_with_tied_embeddings_uses_a_joint_vocabulary() -> None:
    assert RunConfig(preset="paper", data=FILES).tokenizer.joint
    assert not RunConfig(preset="paper", data=FILES, model={"tie": "output"}).tokenizer.joint
    assert not RunConfig(preset="base", data=FILES).tokenizer.joint
    with pytest.raises(
        UsageError, check=has_code("tie_all_without_joint_vocabulary", tie="all", origin=" (which preset paper has)")
    ):
        RunConfig(preset="paper", data=FILES, tokenizer={"joint": False})


def test_a_run_file_extends_its_base(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "first.toml").write_text(
        'seed = 3\n[data]\nsource = "a"\ntarget = "b"\n[train]\nsteps = 5\nema = 0.5\n'
    )
    (tmp_path / "deep" / "second.toml").write_text('base = "../first.toml"\npreset = "tiny"\n[train]\nsteps = 6\n')
    (tmp_path / "third.toml").write_text('base = "deep/second.toml"\n[data]\ntarget = "c"\n')
    values = read_run_file(tmp_path / "third.toml")
    assert values == {
        "seed": 3,
        "preset": "tiny",
        "data": {"source": "a", "target": "c"},
        "train": {"steps": 6, "ema": 0.5},
    }
    assert "base" not in to_toml(RunConfig(**values))


@pytest.mark.parametrize(
    ("base", "error"),
    [
        ('"b.toml"', has_code("base_circular")),
        ('"a.toml"', has_code("base_circular")),
        ('"c.toml"', has_code("run_file_not_readable")),
        ("3", has_code("base_not_file_name", value="3")),
    ],
)
def test_an_invalid_base_is_a_usage_error(tmp_path: Path, base: str, error: ErrorCheck) -> None:
    (tmp_path / "a.toml").write_text(f"base = {base}\n")
    (tmp_path / "b.toml").write_text('base = "./a.toml"\n')
    with pytest.raises(UsageError, check=error):
        read_run_file(tmp_path / "a.toml")
