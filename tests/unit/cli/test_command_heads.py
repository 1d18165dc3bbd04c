"""`attendo heads`: the table, the JSON, the picture and the stored alignment head."""

import json
import re
import sys
from pathlib import Path

import pytest
from error_codes import fragment, message
from rich.cells import cell_len
from tiny import SOURCES, TARGETS, Command

from attendo.text_model import load


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Source, target and gold links."""
    gold = ["0-0 1-1 2-2", "1-0 2-1", "1-0 2-1 3?3", ""]
    found = []
    for name, lines in (("dev.en", SOURCES), ("dev.zh", TARGETS), ("dev.gold", gold)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
        found.append(tmp_path / name)
    return found


def test_the_table_is_ranked_and_fits_a_terminal(attendo: Command, model_folder: Path, files: list[Path]) -> None:
    done = attendo("heads", model_folder, files[0], "--target", files[1], "--gold", files[2], "--sort", "entropy")
    assert done.code == 0
    heading, *rows = done.output.split("\n\n")[0].splitlines()
    assert heading.split() == [
        "place",
        "head",
        "entropy",
        "rel.",
        *["distance", "diagonal", "special", "max", "AER", "agree"],
    ]
    assert max(map(len, [heading, *rows])) <= 80
    assert len(rows) == 12
    entropies = [float(row.replace("*", " ").split()[2]) for row in rows]
    assert entropies == sorted(entropies)
    assert sum("*" in row for row in rows) == 1
    assert "4 sentences, 19 source and 19 target tokens, </s> included" in done.output
    assert "against 7 gold links)" in done.output
    assert "--store" in done.errors


def test_json_has_unrounded_values(attendo: Command, model_folder: Path, files: list[Path]) -> None:
    done = attendo("heads", model_folder, files[0], "--json")
    report = json.loads(done.output)
    assert (done.code, len(report["heads"]), report["sorted_by"]) == (0, 12, "agreement")
    best = report["best_alignment_head"]
    assert (best["layer"], best["head"]) == (report["heads"][0]["layer"], report["heads"][0]["head"])
    assert report["heads"][-1]["agreement"] is None
    assert report["sentences"] == 4


def test_the_best_head_is_stored_only_with_store(attendo: Command, model_folder: Path, files: list[Path]) -> None:
    attendo("heads", model_folder, files[0])
    assert "alignment_head" not in load(model_folder, "cpu").scores
    done = attendo("heads", model_folder, files[0], "--json", "--store")
    best = json.loads(done.output)["best_alignment_head"]
    assert load(model_folder, "cpu").scores["alignment_head"] == best
    assert f"alignment head is layer {best['layer']}, head {best['head']} (scores.json)" in done.errors
    assert "warning: chosen by agreement" in done.errors


def test_a_head_no_better_than_the_last_layer_gives_a_warning(
    attendo: Command, model_folder: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["heads", model_folder, files[0], "--target", files[1], "--gold", files[2], "--store"]
    done = attendo(*arguments)
    best, mean = (float(line.split("error rate ")[1][:5]) for line in done.output.splitlines()[-2:])
    assert ("aligns no better" in done.errors) == (best >= mean)
    assert "chosen by agreement" not in done.errors
    monkeypatch.setattr("attendo.explore.head_stats.AttentionStats.last_layer_error_rate", best - 0.1)
    assert f"aligns no better than the mean of the last layer did (error rate {best:.3f}" in attendo(*arguments).errors
    monkeypatch.setattr("attendo.explore.head_stats.AttentionStats.last_layer_error_rate", best + 0.1)
    assert "warning" not in attendo(*arguments).errors


def test_a_picture_is_written(attendo: Command, model_folder: Path, files: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = attendo("heads", model_folder, files[0], "-o", tmp_path / "new" / "heads.svg", "--sort", "distance")
    assert done.code == 0
    assert "picture of distance written to" in done.errors
    assert "mean distance (tokens)" in (tmp_path / "new" / "heads.svg").read_text("utf-8")


def test_gold_links_that_do_not_fit_suggest_links_tokens(
    attendo: Command, model_folder: Path, files: list[Path]
) -> None:
    files[1].write_text("".join(f"{line.replace(' ', '')}\n" for line in TARGETS), "utf-8")
    done = attendo("heads", model_folder, files[0], "--target", files[1], "--gold", files[2])
    assert done.code == 3
    assert "dev.gold line 1" in done.error or "dev.en line 1" in done.error
    assert "--links tokens" in done.error


def test_the_built_in_task_brings_its_gold_links(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("attendo.cli.heads.BUILTIN_PAIRS", 20)
    done = attendo("heads", model_folder, "builtin")
    assert done.code == 0
    assert "20 sentences" in done.output
    assert "gold links)" in done.output
    assert "leave out --target" in attendo("heads", model_folder, "builtin", "--target", "x").error


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing.en"], 3, fragment("file_open_failed", path="nothing.en")),
        (["dev.en", "-o", "heads.gif"], 2, fragment("unknown_picture_format", path="heads.gif")),
        (["dev.en", "--gold", "dev.gold"], 2, fragment("gold_without_target_file")),
        (["dev.en", "--sort", "beauty"], 2, "beauty"),
    ],
)
def test_usage_errors_are_one_line(
    attendo: Command,
    model_folder: Path,
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(files[0].parent)
    done = attendo("heads", model_folder, *arguments)
    assert (done.code, words in done.error) == (code, True)


def test_only_the_picture_needs_matplotlib(
    attendo: Command, model_folder: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert attendo("heads", model_folder, files[0]).code == 0
    done = attendo("heads", model_folder, files[0], "-o", "heads.svg")
    assert (done.code, done.error) == (2, message("matplotlib_missing", command="attendo heads --output"))


def test_output_and_messages_are_translated_to_chinese(
    attendo: Command, model_folder: Path, files: list[Path], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    arguments = ["heads", model_folder, files[0], "--target", files[1], "--gold", files[2], "--lang", "zh"]
    done = attendo(*arguments, "-o", tmp_path / "heads.svg", "--store")
    assert done.code == 0
    heading, *rows = done.output.split("\n\n")[0].splitlines()
    assert heading.split() == [*("位置", "头", "熵", "相对熵", "距离", "对角", "特殊词元", "最大", "错误率", "一致")]
    assert {cell_len(row) for row in rows if row.startswith("decoder.0.cross")} == {cell_len(heading)}
    assert cell_len(heading) <= 80
    assert "共 4 句，源文 19 个词元，译文 19 个词元（含 </s>）" in done.output
    assert "对照 7 条标准对齐" in done.output
    assert "对齐错误率的图已写入" in done.errors
    assert "对齐头为第" in done.errors
    assert "加框：最好的对齐头" in (tmp_path / "heads.svg").read_text("utf-8")
    assert not re.search(r"[A-Za-z]{3,} [a-z]{2,}", f"{done.output}{done.errors}".replace(str(tmp_path), ""))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing.en"], 3, "无法打开 nothing.en：没有这个文件或文件夹"),
        (["dev.en", "-o", "heads.gif"], 2, "heads.gif：文件名必须以 .svg、.png 或 .pdf 结尾"),
        (["dev.en", "--gold", "dev.gold"], 2, "--gold dev.gold 需要它所对齐的译文：请同时给出 --target 文件"),
        (["builtin", "--target", "x"], 2, "builtin 自带译文和标准对齐：请去掉 --target 和 --gold"),
        (
            ["dev.en", "--target", "dev.zh", "--gold", "dev.zh"],
            3,
            "dev.zh 第 1 行：“我”不是对齐：请写成“源-译”，从 0 数起，例如 0-0 1-2",
        ),
    ],
)
def test_usage_errors_are_translated_to_chinese(
    attendo: Command,
    model_folder: Path,
    files: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(files[0].parent)
    done = attendo("heads", model_folder, *arguments, "--lang", "zh")
    assert (done.code, done.error) == (code, message)
