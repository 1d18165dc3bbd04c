"""The settings of a run, as a run file holds them."""

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from attendo.errors import UsageError
from attendo.recipes.demo import demo_config
from attendo.recipes.run_config import RunConfig, apply_changes, read_run_file, to_toml

FILES = {"source": "a", "target": "b"}


@pytest.mark.parametrize(
    "config",
    [
        RunConfig(data=FILES),
        demo_config(),
        RunConfig(
            seed=3,
            preset="base",
            data={**FILES, "valid_source": "c", "valid_target": "d"},
            tokenizer={"kind": "unigram", "joint": True},
            model={"tie": "all", "dropout": 0.25, "output_bias": True, "norm": "post", "d_ff": 100},
            train={"peak_lr": 1.5e-7, "warmup": 0, "clip_norm": 1e20},
        ),
    ],
)
def test_settings_written_as_toml_read_back_the_same(config: RunConfig, tmp_path: Path) -> None:
    """The preset and ModelConfig are spelled out, so that other defaults in another version cannot change the run."""
    (tmp_path / "run.toml").write_text(to_toml(config), "utf-8")
    again = RunConfig(**read_run_file(tmp_path / "run.toml"))
    for name in ("seed", "preset", "data", "tokenizer", "train"):
        assert getattr(again, name) == getattr(config, name)
    assert again.network(9, 9) == config.network(9, 9)
    assert again.model["d_model"] == config.network(9, 9).d_model


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


def test_a_change_is_laid_over_what_stands_in_the_file() -> None:
    values = {"seed": 1, "train": {"steps": 5, "warmup": 2}}
    assert apply_changes(values, ["train.steps=7"]) == {"seed": 1, "train": {"steps": 7, "warmup": 2}}


@pytest.mark.parametrize("change", ["steps", "=5", ""])
def test_a_change_without_a_name_or_a_value_is_refused(change: str) -> None:
    with pytest.raises(UsageError, match="write key=value"):
        apply_changes({}, [change])


def test_a_change_inside_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match="seed is a value, not a section"):
        apply_changes({"seed": 1}, ["seed.x=5"])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "data is missing"),
        ({"data": {"source": "a"}}, "data.source and data.target are missing"),
        ({"data": {**FILES, "valid_source": "c"}}, "give both data.valid_source and data.valid_target"),
        ({"data": {"task": "builtin", "source": "a"}}, "data.task builtin makes its own sentences"),
        ({"data": FILES, "sed": 1}, "unknown setting sed (did you mean seed?)"),
        ({"data": FILES, "train": {"setps": 1}}, "unknown setting train.setps (did you mean steps?)"),
        ({"data": FILES, "model": {"d_modle": 1}}, "d_modle (did you mean d_model?)"),
        ({"data": FILES, "model": {"name": 1}}, "unknown setting"),
        ({"data": FILES, "model": {"cls": 1}}, "unknown setting"),
        ({"data": FILES, "model": {"self": 1}}, "unknown setting"),
        ({"data": FILES, "self": 1}, "unknown setting self"),
        ({"data": FILES, "model": {"d_model": 500, "num_heads": 8}}, "must be a multiple of num_heads: 500 and 8"),
        ({"data": FILES, "preset": "samll"}, "unknown preset samll (did you mean small?)"),
        ({"data": FILES, "model": {"vocab_size": 8}}, "model.vocab_size comes from the tokenizer"),
        ({"data": FILES, "model": {"target_vocab_size": 8}}, "model.target_vocab_size comes from the tokenizer"),
        ({"data": FILES, "model": {"num_encoder_layers": 0}}, "a run needs an encoder"),
        ({"data": FILES, "model": {"tie": "all"}}, "set tokenizer.joint to true"),
        ({"data": FILES, "train": {"peak_lr": "fast"}}, "train.peak_lr: "),
        ({"data": FILES, "tokenizer": {"kind": "morse"}}, "tokenizer.kind: "),
        ({"data": FILES, "train": 5}, "train: "),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_that_names_it(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        RunConfig(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_network_gets_its_vocabularies_from_the_tokenizers() -> None:
    network = RunConfig(data=FILES, preset="tiny", model={"dropout": 0.3}).network(11, 12)
    assert (network.source_vocab_size, network.target_vocab_size) == (11, 12)
    assert (network.d_model, network.dropout) == (128, 0.3)


@pytest.mark.parametrize("content", [b"seed = ", b"\xff", b"[data"])
def test_a_run_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"run\.toml is not TOML"):
        read_run_file(tmp_path / "run.toml")


def test_a_run_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(UsageError, match=str(path)):
            read_run_file(path)


def test_checking_a_run_needs_no_torch() -> None:
    code = (
        "import sys; from attendo.recipes.run_config import RunConfig;"
        "RunConfig(data={'task': 'builtin'}); assert 'torch' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
