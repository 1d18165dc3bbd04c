"""Warnings on the command line."""

import warnings

import pytest

from attendo.cli import main as commands
from attendo.cli.entry import main
from attendo.text_model.text_model import MissingTagWarning


def test_attendo_warnings_are_one_line_and_others_unchanged(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def emit_warnings() -> None:
        warnings.warn("a tag is missing", MissingTagWarning, stacklevel=1)
        warnings.warn("of another library", UserWarning, stacklevel=1)

    monkeypatch.setattr(commands, "main", emit_warnings)
    with warnings.catch_warnings(record=True) as others:  # also restores `showwarning`
        warnings.simplefilter("always")
        main()
    assert capsys.readouterr().err == "attendo: a tag is missing\n"
    assert [str(each.message) for each in others] == ["of another library"]
