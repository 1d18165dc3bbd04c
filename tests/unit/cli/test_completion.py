"""Completion of commands, options and values in a shell, and `attendo help`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from tiny import Command

from attendo.cli.completion import suggest
from attendo.cli.main import app


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ge"], ["generate"]),
        (["--v"], ["--version"]),
        (["bench", ""], ["generate", "serve"]),
        (["generate", "--be"], ["--beam", "--beam-groups"]),
        (["generate", "m", "--no-sam"], ["--no-sample"]),
        (["generate", "m", "--at-limit", ""], ["truncate", "force_eos", "any"]),
        (["generate", "m", "--banned-phrase", ""], []),
        (["generate", "m", "--ban"], ["--banned-phrase"]),  # the old name --ban is hidden
        (["generate", "ru"], []),
        (["help", "tra"], ["train", "trace"]),
        (["nosuch", ""], []),
        (["trans"], []),
    ],
)
def test_words_are_completed_to_commands_options_and_choices(words: list[str], found: list[str]) -> None:
    assert [name for name, _ in suggest(typer.main.get_command(app), words)] == found


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_with_the_script(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "attendo").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m attendo "$@"\n')
    (tmp_path / "attendo").chmod(0o755)
    (tmp_path / "script").write_text(attendo("completion", "bash").output)
    code = 'source ./script; COMP_WORDS=(attendo train --ten); COMP_CWORD=2; _attendo ./attendo; echo "${COMPREPLY[*]}"'
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(
        ["bash", "--norc", "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "--tensorboard\n"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_zsh_and_fish_show_help_for_each_word(attendo: Command, shell: str) -> None:
    assert "completion" in attendo("completion", shell).output
    shown = attendo("completion", shell, "--words", "--", "train", "--ten")
    separator = {"zsh": ":", "fish": "\t"}[shell]
    assert shown.output == f"--tensorboard{separator}Write event files for TensorBoard too.\n"


def test_an_unknown_shell_is_a_usage_error(attendo: Command) -> None:
    assert attendo("completion", "tcsh").code == 2


@pytest.mark.parametrize("command", [[], ["train"], ["bench"], ["bench", "serve"]])
def test_help_of_a_command_equals_its_help_option(attendo: Command, command: list[str]) -> None:
    shown = attendo("help", *command)
    assert shown.code == 0
    assert shown.output == attendo(*command, "--help").output == attendo(*command, "-h").output


@pytest.mark.parametrize("command", [["trian"], ["train", "more"], ["bench", "x"]])
def test_help_of_an_unknown_command_is_a_usage_error(attendo: Command, command: list[str]) -> None:
    assert attendo("help", *command).code == 2
