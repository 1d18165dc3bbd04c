"""Modules imported before a command runs."""

import inspect
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from attendo.cli.main import BENCH, COMMANDS

# Runs `attendo` with each list of arguments and prints all imported modules.
PROGRAM = """
import sys
before = set(sys.modules)
from attendo.cli.entry import main
import json, os
codes = []
out, sys.stdout, sys.stderr = sys.stdout, open(os.devnull, "w"), open(os.devnull, "w")
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["attendo", *arguments]
    try:
        main()
    except SystemExit as left:
        codes.append(left.code)
json.dump({"codes": codes, "modules": sorted(set(sys.modules) - before)}, out)
"""
SLOW = {"torch", "numpy", "pydantic", "asyncio", "rich"}
CLI = ["entry", "help", "language", "main", "signals"]
OURS = ["attendo", "attendo.cli", *(f"attendo.cli.{name}" for name in CLI), "attendo.errors"]


def run(commands: list[list[str]], folder: Path) -> tuple[list[int], list[str]]:
    """The exit codes and the imported modules."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True).stdout)
    return found["codes"], found["modules"]


def list_commands() -> list[list[str]]:
    top = [[name] for section in COMMANDS.values() for name in section]
    return [*top, *(["bench", name] for section in BENCH.values() for name in section)]


def test_help_imports_only_these_modules(tmp_path: Path) -> None:
    codes, modules = run([["--help"]], tmp_path)
    assert codes == [0]
    assert [name for name in modules if name.split(".")[0] == "attendo"] == OURS
    others = {name.split(".")[0] for name in modules} - set(sys.stdlib_module_names) - {"attendo"}
    assert others == {"annotated_doc", "shellingham", "typer"}


def test_command_help_imports_no_slow_module(tmp_path: Path) -> None:
    codes, modules = run(
        [*([*name, "--help"] for name in list_commands()), *([*name, "-h"] for name in list_commands())], tmp_path
    )
    assert set(codes) == {0}
    assert SLOW & set(modules) == set()


def test_usage_errors_import_no_slow_module(tmp_path: Path) -> None:
    mistakes = [["trian"], ["train", "--sorce", "a"], ["generate"], ["generate", "m", "--beam", "x"], ["bench", "x"]]
    missing = [["generate", "m"], ["serve", "m"], ["train", "missing.toml"], ["doctor", "missing.toml"]]
    codes, modules = run([*mistakes, *missing], tmp_path)
    assert codes == [2, 2, 2, 2, 2, 4, 4, 2, 2]
    assert SLOW & set(modules) == set()


@pytest.mark.parametrize("table", [COMMANDS, BENCH])
def test_command_summaries_match_their_docstrings(table: dict[str, dict[str, tuple[str, str]]]) -> None:
    for section in table.values():
        for name, (location, line) in section.items():
            module, function = location.split(":")
            if name not in ("translate", "bench"):
                found = getattr(import_module(f"attendo.cli.{module}"), function)
                assert line == (inspect.getdoc(found) or "").splitlines()[0], name
