"""Options of all commands: help, version, usage errors, exit codes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import QUICK_RUN, Command, settings, write_pairs

from attendo import __version__

PROGRAM = "from attendo.cli.main import main; main()"


def test_help_names_every_command(attendo: Command) -> None:
    shown = attendo("--help")
    assert shown.code == 0
    for command in ("demo", "train", "generate", "describe"):
        assert command in shown.output
    assert shown.errors == ""


@pytest.mark.parametrize("command", ["demo", "train", "generate", "translate", "describe"])
def test_every_command_has_help(attendo: Command, command: str) -> None:
    shown = attendo(command, "--help")
    assert shown.code == 0
    assert "Usage" in shown.output
    assert shown.errors == ""


def test_version_prints_the_package_version(attendo: Command) -> None:
    shown = attendo("--version")
    assert (shown.code, shown.output, shown.errors) == (0, f"attendo {__version__}\n", "")


def test_without_a_command_only_help_is_shown(attendo: Command) -> None:
    shown = attendo()
    assert shown.code == 2
    assert "Usage" in shown.output + shown.errors
    assert "attendo: " not in shown.errors


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["train", "--help"], ["train", "missing.toml"], ["trian"]]
)
def test_help_and_usage_errors_do_not_import_torch(arguments: list[str], tmp_path: Path) -> None:
    code = f"import sys\ntry:\n    {PROGRAM}\nfinally:\n    assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert "AssertionError" not in done.stderr
    assert done.returncode == (0 if arguments[-1] in ("--help", "--version") else 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "train"),
        (["train", "--sorce", "a"], "--source"),
        (["generate"], "MODEL"),
        (["generate", "m", "--max-length", "0"], "--max-length"),
        (["generate", "m", "--max-length", "many"], "--max-length"),
        (["train"], fragment("training_input_missing")),
        (["train", "--source", "a", "--target", "b"], "--out"),
        (["train", "a.toml", "b.toml"], "b.toml"),
        (["train", "missing.toml"], message("run_file_not_found", path="missing.toml")),
        (
            ["train", "--source", "a", "--target", "b", "--out", "c", "--set", "steps"],
            fragment("set_option_without_value"),
        ),
        (
            ["train", "--source", "a", "--target", "b", "--out", "c", "--set", "x\ny"],
            fragment("set_option_without_value"),
        ),
        (["train", "--source", "a", "--target", "b", "--out", "c", "--set", "train.setps=1"], "did you mean steps?"),
        (["train", "--source", "a", "--target", "b", "--out", "c", "--set", "model.d_model=510"], "510 and 4"),
        (["describe", "bse"], fragment("model_or_preset_not_found", model="bse")),
        (["describe", "base", "--set", "d_modle=8"], "did you mean d_model?"),
        (["describe", "base", "--set", "name=8"], fragment("unknown_setting", name="name")),
        (["describe", "base", "--vocab-size", "0"], "--vocab-size"),
    ],
)
def test_a_usage_error_is_one_line_with_exit_code_2(attendo: Command, arguments: list[str], message: str) -> None:
    failed = attendo(*arguments)
    assert failed.code == 2
    assert message in failed.error


def test_a_missing_data_file_exits_with_code_3(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("train", "--source", tmp_path / "a", "--target", tmp_path / "b", "--out", tmp_path / "run")
    assert failed.code == 3
    assert str(tmp_path / "a") in failed.error


def test_a_missing_model_exits_with_code_4(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("generate", tmp_path / "model")
    assert failed.code == 4
    assert str(tmp_path / "model") in failed.error


@pytest.mark.parametrize("command", ["generate", "describe"])
def test_a_damaged_model_exits_with_code_4(attendo: Command, model_folder: Path, command: str) -> None:
    with (model_folder / "weights.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    failed = attendo(command, model_folder)
    assert failed.code == 4
    assert str(model_folder / "weights.safetensors") in failed.error


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_an_unavailable_device_exits_with_code_2(attendo: Command, model_folder: Path, device: str) -> None:
    failed = attendo("generate", model_folder, "--device", device)
    assert failed.code == 2
    assert device in failed.error


def test_an_unwritable_output_folder_is_a_one_line_error(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    (tmp_path / "file").write_text("text")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        failed = attendo("train", "--source", source, "--target", target, "--out", out, *settings(*QUICK_RUN))
        assert failed.code in (1, 2)
        assert str(tmp_path / "file") in failed.error


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_output_device_exits_with_code_1() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "attendo: output: No space left on device\n")


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["describe", "tiny"], marks=pytest.mark.slow),  # imports torch, as generate does
        pytest.param(["generate", "model"], marks=pytest.mark.slow),
        ["--help"],
        ["train", "run.toml", "--show"],
    ],
)
def test_a_closed_output_pipe_ends_quietly(model_folder: Path, tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "run.toml").write_text('preset = "tiny"\n[data]\ntask = "builtin"\n')
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing) as closed:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            input="the cat\n",
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if "cut at" not in line] == []
