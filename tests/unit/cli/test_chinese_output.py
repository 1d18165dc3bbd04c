"""Help and typical output of every command in Chinese."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from late_import import needs
from test_start_up import list_commands
from tiny import QUICK_RUN, SOURCES, TARGETS, Command, settings, write_pairs

from attendo.cli.main import BENCH, COMMANDS, _Commands
from attendo.messages import translate
from attendo.recipes.recipe import list_recipes, read_recipe
from attendo.runs import demo

CHINESE = re.compile("[\u4e00-\u9fff]")
ENGLISH = re.compile(r"[a-z]{2,} [a-z]{2,} [a-z]{2,}")
PathOrText = str | Path


def english_lines(text: str) -> list[str]:
    """Return the lines with three English words and no Chinese, except commands to type and sentences of the demo."""
    lines = [line for line in text.splitlines() if ENGLISH.search(line) and not CHINESE.search(line)]
    return [line for line in lines if "attendo " not in line and not re.match("[✓✗]|.*</s>$", line)]


def explanations(command: Any) -> Iterator[str]:
    """Yield the paragraphs of a command and the help of its options and arguments."""
    yield from (" ".join(paragraph.split()) for paragraph in (command.help or "").split("\n\n"))
    yield from (each.help for each in command.params if not each.hidden and each.help)


def test_help_of_every_command_and_option_has_chinese() -> None:
    missing = []
    for table in (COMMANDS, BENCH):
        for name, command in _Commands(table).items():
            missing += [f"{name}: {text}" for text in explanations(command) if not CHINESE.search(translate(text))]
    # A command to type, or a list of values, is the same in both languages.
    assert [text for text in missing if ENGLISH.search(text.partition(": ")[2]) and ": attendo " not in text] == []


def test_help_is_shown_in_chinese(attendo: Command) -> None:
    for name in list_commands():
        shown = attendo(*name, "--help", "--lang", "zh")
        assert shown.code == 0
        assert shown.output.startswith("用法：attendo")
        assert "显示本帮助，然后退出。" in shown.output
        assert english_lines(shown.output) == [], name
    assert "Options" not in attendo("--help", "--lang", "zh").output


@pytest.fixture
def pairs(tmp_path: Path) -> tuple[PathOrText, ...]:
    source, target = tmp_path / "dev.en", tmp_path / "dev.zh"
    source.write_text("".join(f"{line}\n" for line in SOURCES), "utf-8")
    target.write_text("".join(f"{line}\n" for line in TARGETS), "utf-8")
    return source, target


def test_output_of_commands_that_use_a_model_is_chinese(
    attendo: Command, model_folder: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    source, target = pairs
    picture = tmp_path / "a.svg"
    calls: dict[str, tuple[tuple[PathOrText, ...], str]] = {
        "evaluate": (("--source", source, "--reference", target, "--metric", "chrf"), "在长度上限处被截断"),
        "heads": ((source, "--target", target), "特殊词元"),
        "trace": (("the cat sat",), "模型自己的输出（贪心解码）；每词元损失"),
        "describe": ((), "编码器层"),
        "exposure": (("--source", source, "--reference", target), "每词元负对数似然"),
        "verify": (("--source", source), "所有路径一致"),
    }
    for name, (arguments, text) in calls.items():
        done = attendo(name, model_folder, *arguments, "--lang", "zh")
        assert done.code == 0, done.errors
        assert text in done.output + done.errors, name
        assert english_lines(done.output + done.errors) == [], name
    assert attendo("plot-attention", model_folder, "the cat", "-o", picture, "--lang", "zh").code == 0


def test_results_are_the_same_in_both_languages(attendo: Command, model_folder: Path, pairs: tuple[Path, Path]) -> None:
    source, target = pairs
    for name, given in (("generate", b"the zebra\n"), ("tokenize", b"the zebra\n"), ("detokenize", b"5 4\n")):
        english = attendo(name, model_folder, given=given)
        chinese = attendo(name, model_folder, "--lang", "zh", given=given)
        assert (english.code, english.output) == (chinese.code, chinese.output)
        assert english_lines(chinese.errors) == []
    assert "词表中没有：'zebra'" in attendo("generate", model_folder, "--lang", "zh", given=b"the zebra\n").errors
    files = ("--source", source, "--target", target)
    assert (
        attendo("score", model_folder, *files).output == attendo("score", model_folder, *files, "--lang", "zh").output
    )


def test_output_of_training_commands_is_chinese(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    files = ("--source", source, "--target", target)
    run, quick = tmp_path / "run", settings(*QUICK_RUN)
    calls: list[tuple[tuple[PathOrText, ...], str]] = [
        (("train", *files, "--out", run, *quick), "第 3 步：验证损失"),
        (("finetune", run / "model", *files, "--out", tmp_path / "tuned", *settings("train.steps=2")), "旧文本 损失"),
        (("prepare", *files, "--out", tmp_path / "prepared"), "下一步：attendo train"),
        (("average", run, "--out", tmp_path / "mean"), "步的平均已写入"),
        (("doctor", *files, "--quick", *quick), "因果泄漏"),
        (("distill", run, *files, "--folds", "1", "--out", tmp_path / "new"), "新译文"),
    ]
    for arguments, text in calls:
        done = attendo(*arguments, "--lang", "zh")
        assert done.code == 0, done.errors
        assert text in done.output + done.errors, arguments[0]
        assert english_lines(done.output + done.errors) == [], arguments[0]
    failed = attendo("train", *files, "--out", run, *quick, "--lang", "zh")
    assert (failed.code, failed.error) == (
        2,
        f"{run} 里已有训练：请继续它（--resume {run}），换一个文件夹，或覆盖它（--overwrite）",
    )


@needs("matplotlib")
def test_plot_reports_a_missing_run_in_chinese(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("plot", tmp_path / "none", "--lang", "zh")
    assert failed.error == f"无法读取 {tmp_path / 'none'}：没有这个文件或文件夹；请给出训练目录，或其中的 metrics.jsonl"


def test_the_demo_is_chinese(attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full_config, evaluate = demo.demo_config, demo.evaluate
    monkeypatch.setattr("attendo.runs.corpora.BUILTIN_VALID_PAIRS", 20)
    monkeypatch.setattr(
        demo,
        "demo_config",
        lambda seed, kind: full_config(seed, kind).replace(
            data={"task": "builtin", "pairs": 500},
            model={"d_model": 16, "num_heads": 2, "d_ff": 16},
            train={"steps": 2, "batch_tokens": 256, "warmup": 1},
        ),
    )
    monkeypatch.setattr(demo, "evaluate", lambda model, task: evaluate(model, task, count=30))
    done = attendo("demo", "--out", tmp_path / "demo", "--lang", "zh")
    assert done.code == 0
    for text in ("完全匹配率", "词对齐错误率", "接下来："):
        assert text in done.output
    assert english_lines(done.output.partition("接下来")[0] + done.errors) == []


@needs("fastapi")
def test_the_check_of_a_server_is_chinese(attendo: Command, model_folder: Path) -> None:
    done = attendo("serve", model_folder, "--check", "--port", "0", "--lang", "zh")
    assert done.code == 0
    assert english_lines(done.output + done.errors) == []
    assert CHINESE.search(done.output + done.errors)


def test_families_and_recipes_are_chinese(attendo: Command) -> None:
    shown = attendo("families", "--lang", "zh")
    assert english_lines(shown.output) == []
    listed = attendo("reproduce", "--list", "--lang", "zh")
    assert listed.output.startswith("配方")
    assert english_lines(listed.output) == []
    descriptions = [read_recipe(path).criteria.about for path in list_recipes().values()]
    assert [each for each in descriptions if not CHINESE.search(translate(each))] == []


@pytest.mark.parametrize(
    "arguments", [["generate", "none"], ["train", "none.toml"], ["trace"], ["nosuch"], ["generate", "m", "--beam", "x"]]
)
def test_errors_are_chinese(attendo: Command, arguments: list[str]) -> None:
    failed = attendo(*arguments, "--lang", "zh")
    assert failed.code != 0
    assert CHINESE.search(failed.error)


def test_the_environment_chooses_the_language(attendo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ATTENDO_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert attendo("--help").output.startswith("Usage")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert attendo("--help").output.startswith("用法")
    assert attendo("--help", "--lang", "en").output.startswith("Usage")
    monkeypatch.setenv("ATTENDO_LANG", "en")
    assert attendo("--help").output.startswith("Usage")
