"""`attendo train`: text files to a model folder."""

import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tiny import QUICK_RUN, SOURCES, Command, settings, write_pairs

from attendo.recipes.run_config import RunConfig
from attendo.text_model import load

PROGRAM = "from attendo.cli.main import main; main()"


def test_two_files_become_a_model_that_answers(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    out = tmp_path / "runs" / ("x" * 100)
    done = attendo("train", "--source", source, "--target", target, "--out", out, *settings(*QUICK_RUN))
    assert (done.code, done.output) == (0, "")
    assert f"model written to {out / 'model'}\n" in done.errors
    assert "38 sentence pairs to train on, 2 to validate with\n" in done.errors
    assert "step 3: validation loss" in done.errors
    assert attendo("generate", out / "model", given=b"the cat\n").output.count("\n") == 1


def test_a_run_file_names_its_run_folder(attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('[data]\nsource = "train.source"\ntarget = "train.target"\n')
    assert attendo("train", "mine.toml", *settings(*QUICK_RUN)).code == 0
    assert load("runs/mine/model", "cpu").generate(["the cat"])
    assert attendo("train", "mine.toml", "--out", "other", *settings(*QUICK_RUN)).code == 0
    assert load("other/model", "cpu").generate(["the cat"])


def test_pairs_left_out_are_counted(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    source.write_text(source.read_text("utf-8") + "\n\n", "utf-8")
    target.write_text(target.read_text("utf-8") + "猫\n\n", "utf-8")
    done = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run", *settings(*QUICK_RUN))
    assert "2 pairs left out: one side has no text\n" in done.errors


def test_what_show_prints_reads_back_to_the_same_settings(attendo: Command, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text('preset = "base"\n[data]\nsource = "a"\ntarget = "b"\n[train]\nsteps = 7\n')
    shown = attendo("train", tmp_path / "run.toml", "--show", *settings("model.norm=post", "train.peak_lr=3e-4"))
    assert (shown.code, shown.errors) == (0, "")
    config = RunConfig(**tomllib.loads(shown.output))
    assert (config.preset, config.model["norm"], config.model["d_ff"], config.train.steps) == ("base", "post", 2048, 7)
    assert config.train.peak_lr == 3e-4
    (tmp_path / "again.toml").write_text(shown.output, "utf-8")
    assert attendo("train", tmp_path / "again.toml", "--show").output == shown.output


@pytest.mark.parametrize("name", ["2024", "true", "1e5", "2024-01-01", " a ", '"a"', "[a]", "a=b", "{}", "a # b"])
def test_any_file_name_may_be_given_with_or_without_a_run_file(attendo: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / "run.toml").write_text('[data]\nsource = "a"\ntarget = "b"\n')
    for start in ([tmp_path / "run.toml", "--source", name], ["--source", name, "--target", "b", "--out", "c"]):
        shown = attendo("train", *start, "--show")
        assert shown.code == 0, shown.errors
        assert tomllib.loads(shown.output)["data"] == {"task": "files", "source": name, "target": "b"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[data", "is not TOML"),
        (b"\xff\xfe", "is not TOML"),
        (b'data = 5\nseed = "x"', "data"),
        (b'"a\\nb" = 1\n[data]\ntask = "builtin"', "unknown setting"),
        (b'self = 1\n[data]\ntask = "builtin"', "unknown setting self"),
        (b'[data]\ntask = "builtin"\n[model]\nd_modle = 3', "did you mean d_model?"),
        (b'[data]\ntask = "builtin"\n[model]\nname = 3', "unknown setting"),
        (b'[data]\ntask = "builtin"\n[train]\nwarmpu = 3', "unknown setting train.warmpu (did you mean warmup?)"),
    ],
)
def test_a_mistake_in_a_run_file_is_one_line_and_exit_code_2(
    attendo: Command, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "run.toml").write_bytes(content)
    for more in ([], ["--source", "a"], ["--show"]):
        failed = attendo("train", tmp_path / "run.toml", *more)
        assert failed.code == 2
        if not more:
            assert message in failed.error


def test_bad_data_is_exit_code_3(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    target.write_bytes(target.read_bytes() + b"one more\n")
    failed = attendo("train", "--source", source, "--target", target, "--out", tmp_path / "run")
    assert failed.code == 3
    assert f"{source} ends after 40 lines" in failed.error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_with_a_model_that_loads(tmp_path: Path, number: signal.Signals, code: int) -> None:
    source, target = write_pairs(tmp_path)
    endless = settings(*QUICK_RUN, "train.steps=1000000")
    arguments = ["train", "--source", str(source), "--target", str(target), "--out", str(tmp_path / "run"), *endless]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert "to train on" in running.stderr.readline()
        running.send_signal(number)
        errors = running.stderr.read()
        assert running.stdout.read() == ""
    assert running.returncode == code
    assert "Traceback" not in errors
    assert f"model written to {tmp_path / 'run' / 'model'}" in errors
    assert len(load(tmp_path / "run" / "model", "cpu").generate(SOURCES)) == len(SOURCES)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "metrics.jsonl",
        "model",
        "run.json",
        "run.toml",
    ]
