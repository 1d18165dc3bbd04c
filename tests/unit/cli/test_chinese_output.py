"""Help and typical output of every command in Chinese."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from foreign_models import random_model, written
from foreign_tokenizers import write_marian
from late_import import needs
from stand_in_server import StandIn, listening
from test_start_up import list_commands
from tiny import QUICK_RUN, SOURCES, TARGETS, Command, settings, write_pairs

from attendo.bench import systems
from attendo.cli.main import BENCH, COMMANDS, _Commands
from attendo.interop import certify, import_model
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
    assert (
        failed.error == f"无法读取 {tmp_path / 'none'}：没有这个文件或文件夹；请给出运行文件夹，或其中的 metrics.jsonl"
    )


@needs("matplotlib")
def test_output_of_plot_is_chinese(attendo: Command, tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    run, picture = tmp_path / "run", tmp_path / "curves.svg"
    files = ("--source", source, "--target", target, "--out", run)
    assert attendo("train", *files, *settings(*QUICK_RUN)).code == 0
    done = attendo("plot", run, "-o", picture, "--lang", "zh")
    assert (done.code, done.output, done.errors) == (0, f"{picture}\n", f"run 的学习曲线已写入 {picture}\n")


@needs("ctranslate2")
def test_output_of_export_is_chinese(
    attendo: Command, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certify.collect_sentences, "__defaults__", (None, None, 4))
    source, target = write_pairs(tmp_path, times=2)
    files = ("--source", source, "--target", target)
    done = attendo("export", model_folder, tmp_path / "out", "--to", "ctranslate2", *files, "--lang", "zh")
    assert done.code == 0, done.errors
    assert done.output.startswith("比较：CTranslate2 4")
    assert done.output.endswith("通过\n")
    assert english_lines(done.output + done.errors) == []
    failed = attendo("export", model_folder, tmp_path / "marian", "--to", "marian", "--lang", "zh")
    assert failed.code != 0
    assert english_lines(failed.output + failed.errors) == []


@needs("transformers")
def test_output_of_import_is_chinese(attendo: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect = import_model.collect_sentences
    monkeypatch.setattr(
        import_model, "collect_sentences", lambda model, texts, min_count: collect(model, texts, min_count=6)
    )
    folder = tmp_path / "marian"
    folder.mkdir()
    last = len(write_marian(folder)) - 1
    model = random_model("marian", vocab_size=last + 1, pad_token_id=last, decoder_start_token_id=last)
    written(model, folder, num_beams=2, suppress_tokens=[9])
    done = attendo("import", folder, tmp_path / "out", "--lang", "zh")
    assert done.code == 0, done.errors
    assert "通过" in done.output
    assert english_lines(done.output + done.errors) == []
    plain = attendo("import", folder, tmp_path / "plain", "--no-proof", "--lang", "zh")
    assert plain.code == 0, plain.errors
    assert english_lines(plain.output + plain.errors) == []
    (folder / "model.safetensors").unlink()
    failed = attendo("import", folder, tmp_path / "none", "--lang", "zh")
    assert failed.code != 0
    assert CHINESE.search(failed.error)
    assert english_lines(failed.error) == []


def test_output_of_benchmarks_is_chinese(attendo: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "find_spec", lambda name: None)  # every other system is skipped, with a reason
    small = ("--preset", "tiny", "--vocabulary", "40", "--source-length", "4", "--steps", "3", "--rounds", "1")
    done = attendo("bench", "generate", *small, "--batch", "2", "--beam", "1", "--device", "cpu", "--lang", "zh")
    assert done.code == 0, done.errors
    assert "随机权重" in done.output
    assert english_lines(done.output + done.errors) == []
    calls = {"answered": StandIn(delay=0.01), "rejected": StandIn(status=400), "wrong": StandIn(wrong_when_busy=True)}
    for name, server in calls.items():
        equal = ("--check-equal", "--count", "9") if name == "wrong" else ("--seconds", "0.1", "--warm-up", "0")
        with listening(server) as url:
            found = attendo("bench", "serve", url, *equal, "--clients", "2", "--lang", "zh")
        assert CHINESE.search(found.output + found.errors), name
        assert english_lines(found.output + found.errors) == [], name


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
