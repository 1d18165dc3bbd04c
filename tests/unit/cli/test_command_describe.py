"""`attendo describe`: shapes and parameters."""

from pathlib import Path

import pytest
from tiny import Command, tiny_model


def test_a_preset_is_shown_with_its_numbers(attendo: Command) -> None:
    shown = attendo("describe", "base", "--vocab-size", "37000", "--set", "tie=all", "--source-length", "15")
    assert (shown.code, shown.errors) == (0, "")
    assert shown.output.startswith("base: 63,")
    for number in ("3,152,384", "4,204,032", "262,656", "525,312", "(8, 5, 15)", "shared with target"):
        assert number in shown.output


@pytest.mark.parametrize("name", ["model", "m[b]", "m[", "[", "[red]x[", "m" * 120])
def test_a_model_folder_of_any_name_is_shown(attendo: Command, tmp_path: Path, name: str) -> None:
    model = tiny_model()
    model.save(tmp_path / name)
    shown = attendo("describe", tmp_path / name)
    assert (shown.code, shown.errors) == (0, "")
    parameters = sum(weight.numel() for weight in model.network.parameters())
    assert shown.output.startswith(f"{tmp_path / name}: {parameters:,} parameters\n")


def test_a_folder_whose_name_closes_a_tag_is_shown(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "q[").mkdir()
    tiny_model().save(tmp_path / "q[" / "b]")
    assert attendo("describe", tmp_path / "q[" / "b]").output.startswith(f"{tmp_path / 'q[' / 'b]'}: ")


def test_a_model_folder_cannot_be_changed(attendo: Command, model_folder: Path) -> None:
    failed = attendo("describe", model_folder, "--set", "d_model=8")
    assert failed.code == 2
    assert "change a preset" in failed.error
