"""`attendo trace`: the terminal view, JSON, the HTML page and usage errors."""

import json
import re
from pathlib import Path

import pytest
from error_codes import fragment, message
from tiny import Command, parallel_model, tiny_model, without_source

from attendo.cli import trace as command
from attendo.text_model import load


def test_the_trace_is_printed(attendo: Command, model_folder: Path) -> None:
    shown = attendo("trace", model_folder, "the cat sat")
    assert (shown.code, shown.errors) == (0, "")
    assert shown.output.startswith("source  the cat sat </s>  [4]\n")
    assert "the model's own answer, greedy" in shown.output
    assert "\x1b" not in shown.output


def test_a_given_target_is_traced(attendo: Command, model_folder: Path) -> None:
    shown = attendo("trace", model_folder, "the cat sat", "--target", "猫 坐 着", "--lang", "zh")
    assert "预测  猫 坐 着 </s>  [4]" in shown.output
    assert "目标句由用户给定" in shown.output


def test_json_has_all_tensors(attendo: Command, model_folder: Path) -> None:
    shown = attendo("trace", model_folder, "the cat sat", "--target", "猫 坐", "--json")
    report = json.loads(shown.output)
    trace = tiny_model().trace("the cat sat", "猫 坐")
    assert {name: report[name] for name in trace.as_json() if name != "tensors"} == {
        name: value for name, value in trace.as_json().items() if name != "tensors"
    }
    assert [each["name"] for each in report["tensors"]] == list(trace)
    assert {each["formula"] for each in report["tensors"]} <= set(report["formulas"])
    assert report["tensors"][-1]["bound"].endswith(f"→ {list(trace.probabilities.shape)}")


def test_layer_selects_one_layer_of_the_json(attendo: Command, model_folder: Path) -> None:
    report = json.loads(attendo("trace", model_folder, "the cat sat", "--layer", "1", "--json").output)
    assert report["layers"] == {"encoder": [1], "decoder": [1]}


def test_an_html_page_is_written(attendo: Command, model_folder: Path, tmp_path: Path) -> None:
    shown = attendo("trace", model_folder, "the cat sat", "--html", tmp_path / "a.html", "--lang", "zh")
    assert (shown.code, shown.output) == (0, "")
    assert shown.errors == f"已写入 {tmp_path / 'a.html'}\n"
    page = (tmp_path / "a.html").read_text("utf-8")
    assert page.startswith("<!doctype html>\n<html")
    assert re.search(r'data-state="view=home&amp;lang=zh&amp;text=the\+cat\+sat', page)


def test_no_mask_disables_the_causal_mask(attendo: Command, model_folder: Path) -> None:
    shown = attendo("trace", model_folder, "the cat sat", "--target", "猫 坐", "--no-mask")
    assert "the decoder's mask is off" in shown.output
    assert "M[i, j] = 0 (j ≤ i)" not in shown.output
    assert "every row sees the tokens that are yet to be predicted" in shown.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([" "], fragment("trace_text_empty")),
        (["cat", "--layer", "2"], fragment("trace_layer_out_of_range", layer=2, encoder_layers=2, decoder_layers=2)),
        (["cat", "--head", "5"], message("head_out_of_range", head=5, count=2)),
        (["cat", "--target", "猫", "--step", "2"], message("step_out_of_range", step=2, count=2)),
        (["cat", "--head", "1", "--json"], fragment("view_options_with_full_output", option="--json")),
        (["cat", "--lang", "fr"], "'fr' is not one of"),
    ],
)
def test_usage_errors_are_one_line(attendo: Command, model_folder: Path, arguments: list[str], message: str) -> None:
    failed = attendo("trace", model_folder, *arguments)
    assert failed.code == 2
    assert message in failed.error


def test_too_large_json_suggests_layer(attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MAX_NUMBERS", 1000)
    failed = attendo("trace", model_folder, "the cat sat", "--target", "猫", "--json")
    assert failed.code == 2
    assert "choose one with --layer" in failed.error


def test_a_source_longer_than_learned_positions_is_rejected(attendo: Command, tmp_path: Path) -> None:
    tiny_model(positions="learned", max_length=6).save(tmp_path / "model")
    for more in ([], ["--target", "猫"]):
        failed = attendo("trace", tmp_path / "model", "the cat sat " * 3, *more)
        assert (failed.code, failed.error) == (2, message("text_exceeds_model_length", tokens=10, limit=5))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([" "], 2, "文本是空的：请给出要追踪的句子"),
        (["cat", "--layer", "2"], 2, "没有第 2 层：模型有 2 层编码器和 2 层解码器，从 0 数起"),
        (["cat", "--head", "5"], 2, "--head 5：模型有 2 个头，从 0 数起"),
        (
            ["cat", "--head", "1", "--json"],
            2,
            "--head 和 --step 用来选择终端显示的部分，而 --json 包含全部：请去掉它们",
        ),
        (["cat", "--device", "tpu"], 2, "未知设备 tpu：可用 auto、cpu、cuda 或 cuda:N"),
        (["cat", "--html", "none/a.html"], 1, "none/a.html：没有这个文件或文件夹"),
    ],
)
def test_usage_errors_are_translated_to_chinese(
    attendo: Command, model_folder: Path, arguments: list[str], code: int, message: str
) -> None:
    failed = attendo("trace", model_folder, *arguments, "--lang", "zh")
    assert (failed.code, failed.error) == (code, message)


def test_a_missing_folder_is_reported_in_chinese(attendo: Command, tmp_path: Path) -> None:
    failed = attendo("trace", tmp_path / "none", "cat", "--lang", "zh")
    expected = f"{tmp_path / 'none'} 不是文件夹：请给出含有 manifest.json 的文件夹，例如 runs/demo/model"
    assert (failed.code, failed.error) == (4, expected)


def test_a_decoder_only_model_is_traced_without_a_source(attendo: Command, tmp_path: Path) -> None:
    without_source().save(tmp_path / "model")
    shown = attendo("trace", tmp_path / "model", "the cat", "--target", " sat")
    assert (shown.code, shown.errors) == (0, "")
    heading = "prompt  the cat  [2]\nread  <s> the cat  [3]\npredicted  sat  [1]\ncontinuation given; loss"
    assert shown.output.startswith(heading)
    assert "Encoder" not in shown.output
    assert ": attention to the source" not in shown.output
    for fact in ("B = 1: [1, 3]", "pos = 0 … 2", "tril [3, 3]", "1 × Dec"):
        assert f"\n  {fact}\n" in shown.output
    own = attendo("trace", tmp_path / "model", "the cat", "--lang", "zh")
    assert "模型自己的续写（贪心解码）" in own.output
    whole = attendo("trace", tmp_path / "model", "the cat", "--target", "")
    assert whole.output.startswith("read  <s> the  [2]\npredicted  the cat  [2]\ntext given; loss")
    page = attendo("trace", tmp_path / "model", "the cat", "--html", tmp_path / "page.html")
    assert page.code == 0
    assert "decoder.1.self" in (tmp_path / "page.html").read_text("utf-8")
    report = json.loads(attendo("trace", tmp_path / "model", "the cat", "--target", "", "--json").output)
    assert (report["predicted"]["pieces"], report["source"]["pieces"]) == (["the", "cat"], [])
    assert report["layers"] == {"encoder": [], "decoder": [0, 1]}


def test_heads_needs_an_encoder(attendo: Command, tmp_path: Path) -> None:
    without_source().save(tmp_path / "model")
    (tmp_path / "text").write_text("the cat\n", "utf-8")
    failed = attendo("heads", tmp_path / "model", tmp_path / "text")
    assert (failed.code, failed.error) == (
        2,
        message("model_without_encoder"),
    )
    failed = attendo("heads", tmp_path / "model", tmp_path / "text", "--lang", "zh")
    assert failed.error == "这个模型只有解码器，不读源文：请换一个有编码器的模型"


@pytest.fixture(scope="module")
def parallel_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("kinds")
    for kind in ("masked", "ctc", "graph"):
        parallel_model(kind).save(folder / kind)
    return {kind: folder / kind for kind in ("masked", "ctc", "graph")}


@pytest.mark.parametrize(
    ("kind", "title"), [("masked", "Passes of mask-predict"), ("ctc", "The CTC alignment"), ("graph", "The graph")]
)
def test_a_model_that_predicts_all_tokens_at_once_is_traced(
    attendo: Command, parallel_folders: dict[str, Path], tmp_path: Path, kind: str, title: str
) -> None:
    folder, text = parallel_folders[kind], "the cat sat"
    shown = attendo("trace", folder, text)
    assert (shown.code, shown.errors) == (0, "")
    assert title in shown.output
    report = json.loads(attendo("trace", folder, text, "--json").output)
    assert report == json.loads(json.dumps(load(folder, "cpu").trace_parallel(text).as_json()))
    page = attendo("trace", folder, text, "--html", tmp_path / "a.html", "--lang", "zh")
    assert (page.code, page.output) == (0, "")
    assert "view=home&amp;lang=zh" in (tmp_path / "a.html").read_text("utf-8")


def test_decoding_options_of_the_kind_apply_to_the_trace(attendo: Command, parallel_folders: dict[str, Path]) -> None:
    passes = json.loads(attendo("trace", parallel_folders["masked"], "the cat", "--passes", "2", "--json").output)
    assert len(passes["passes"]) == 2
    options = ("--graph-search", "viterbi", "--path-length-penalty", "0.5")
    graph = json.loads(attendo("trace", parallel_folders["graph"], "the cat", *options, "--json").output)
    assert graph["options"] == {"graph_search": "viterbi", "path_length_penalty": 0.5, "merge_repeats": False}
    given = json.loads(attendo("trace", parallel_folders["graph"], "the cat", "--target", "猫 坐", "--json").output)
    assert (given["text"], given["given"]) == ("猫 坐", True)


def test_an_autoregressive_model_is_shown_beside(
    attendo: Command, parallel_folders: dict[str, Path], model_folder: Path
) -> None:
    arguments = ("trace", parallel_folders["ctc"], "the cat sat", "--beside", model_folder)
    assert f"token by token: {model_folder}" in attendo(*arguments).output.replace("\n", "")
    report, trace = json.loads(attendo(*arguments, "--json").output), tiny_model().trace("the cat sat")
    assert report["beside"]["text"] == trace.text
    assert report["beside"]["steps"] == trace.as_json()["steps"]


@pytest.mark.parametrize(
    ("model", "arguments", "expected"),
    [
        ("graph", ["--layer", "0"], ("view_option_needs_autoregressive", {"option": "--layer", "kind": "graph"})),
        ("ctc", ["--no-mask"], ("view_option_needs_autoregressive", {"option": "--no-mask", "kind": "ctc"})),
        ("masked", ["--target", "猫"], ("masked_target_not_traceable", {})),
    ],
)
def test_options_of_layers_are_rejected_for_other_kinds(
    attendo: Command,
    parallel_folders: dict[str, Path],
    model: str,
    arguments: list[str],
    expected: tuple[str, dict[str, str]],
) -> None:
    failed = attendo("trace", parallel_folders[model], "cat", *arguments)
    assert (failed.code, failed.error) == (2, message(expected[0], **expected[1]))


def test_beside_needs_one_model_of_each_sort(
    attendo: Command, parallel_folders: dict[str, Path], model_folder: Path
) -> None:
    graph = parallel_folders["graph"]
    failed = attendo("trace", model_folder, "cat", "--beside", graph)
    assert (failed.code, failed.error) == (2, message("beside_needs_parallel_model", model=graph))
    failed = attendo("trace", graph, "cat", "--beside", graph)
    assert (failed.code, failed.error) == (2, message("beside_not_autoregressive", model=graph, kind="graph"))
    assert attendo("trace", model_folder, "cat", "--passes", "2").code == 2
