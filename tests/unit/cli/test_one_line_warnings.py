"""Warnings on the command line."""

import warnings

import pytest

from attendo.cli import main as commands
from attendo.cli.entry import main
from attendo.text_model.text_model import MissingTagWarning


def test_a_warning_of_ours_is_one_line_and_others_stay_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def warned() -> None:
        warnings.warn("a tag is missing", MissingTagWarning, stacklevel=1)
        warnings.warn("of another library", UserWarning, stacklevel=1)

    monkeypatch.setattr(commands, "main", warned)
    with warnings.catch_warnings(record=True) as others:  # puts the way they are shown back, too
        warnings.simplefilter("always")
        main()
    assert capsys.readouterr().err == "attendo: a tag is missing\n"
    assert [str(each.message) for each in others] == ["of another library"]
