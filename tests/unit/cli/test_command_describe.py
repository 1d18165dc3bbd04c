"""`attendo describe`: shapes and parameters."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from error_codes import fragment
from tiny import Command, tiny_model, without_source

from attendo.text_model import TextModel


def test_a_preset_shows_its_parameter_counts(attendo: Command) -> None:
    shown = attendo("describe", "base", "--vocab-size", "37000", "--set", "tie=all", "--source-length", "15")
    assert (shown.code, shown.errors) == (0, "")
    assert shown.output.startswith("base: 63,")
    for number in ("3,152,384", "4,204,032", "262,656", "525,312", "(8, 5, 15)", "shared with target"):
        assert number in shown.output


@pytest.mark.parametrize("name", ["model", "m[b]", "m[", "[", "[red]x[", "m" * 120])
def test_any_folder_name_is_shown(attendo: Command, tmp_path: Path, name: str) -> None:
    model = tiny_model()
    model.save(tmp_path / name)
    shown = attendo("describe", tmp_path / name)
    assert (shown.code, shown.errors) == (0, "")
    parameters = sum(weight.numel() for weight in model.network.parameters())
    assert shown.output.startswith(f"{tmp_path / name}: {parameters:,} parameters\n")


def test_a_folder_name_that_closes_a_tag_is_shown(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "q[").mkdir()
    tiny_model().save(tmp_path / "q[" / "b]")
    assert attendo("describe", tmp_path / "q[" / "b]").output.startswith(f"{tmp_path / 'q[' / 'b]'}: ")


def test_a_decoder_only_model_has_no_source_tokens(attendo: Command, tmp_path: Path) -> None:
    without_source().save(tmp_path / "model")
    shown = attendo("describe", tmp_path / "model")
    assert "shapes for 5 tokens;" in shown.output
    assert "source" not in shown.output
    failed = attendo("describe", tmp_path / "model", "--source-length", "3")
    assert failed.code == 2
    assert "--source-length" in failed.error


def test_training_source_lengths_are_shown(attendo: Command, tmp_path: Path) -> None:
    measured = {"counted": 50, "with_end": 1.0, "several_sentences": 0.02, "tokens": {"50": 7, "100": 31}}
    TextModel(replace(tiny_model().stored_model, about={"trained_on": measured})).save(tmp_path / "model")
    shown = attendo("describe", tmp_path / "model").output
    assert "trained on sources of which 2.0% have several sentences; tokens: 50% up to 7, 100% up to 31\n" in shown


@pytest.mark.slow
def test_describe_does_not_import_the_compiler() -> None:
    """Importing `torch._dynamo` takes seconds."""
    program = (
        "import sys; from attendo.explore.describe import describe; from attendo.model.config import ModelConfig; "
        "describe(ModelConfig.preset('tiny', vocab_size=50)); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_preset_options_with_a_model_are_a_usage_error(attendo: Command, model_folder: Path) -> None:
    failed = attendo("describe", model_folder, "--set", "d_model=8")
    assert failed.code == 2
    assert fragment("preset_options_with_model") in failed.error
