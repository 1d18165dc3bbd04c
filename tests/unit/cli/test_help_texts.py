"""Help texts are readable at any width."""

import re
from itertools import pairwise

import pytest
from test_start_up import list_commands
from tiny import Command


@pytest.mark.parametrize("columns", [80, 120])
def test_help_lines_are_wrapped_once(attendo: Command, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line ends only if the next word does not fit or the paragraph ends."""
    monkeypatch.setenv("COLUMNS", str(columns))
    width = min(columns, 100) - 2
    for name in [[], *list_commands()]:
        text = attendo(*name, "--help").output.split("Arguments:")[0].split("Options:")[0]
        lines = text.splitlines()
        assert max(map(len, lines)) <= width
        for line, following in pairwise(lines):
            if line and following and not following.startswith(" "):
                assert len(f"{line} {following.split()[0]}") > width, line


def test_option_values_have_readable_names(attendo: Command) -> None:
    for name in list_commands():
        shown = attendo(*name, "--help").output
        assert not re.search(r"<\w+|list\[|\bBool\b|\[x>=", shown), name
    shown = attendo("train", "--help").output
    assert re.search(r"--source FILE\b", shown)
    assert re.search(r"--out DIR\b", shown)
    assert re.search(r"--device DEVICE .*\n?.*\[default: auto\]", shown)
    assert re.search(r"--\[no-\]sample ", attendo("generate", "--help").output)
