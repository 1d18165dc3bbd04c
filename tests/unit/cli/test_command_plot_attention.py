"""`attendo plot-attention`: the maps, the picture file and usage errors."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from error_codes import fragment, message
from late_import import needs
from tiny import Command, tiny_model, without_source

from attendo.explore import figure_style
from attendo.text_model import load

pytestmark = needs("matplotlib")

TEXT, TARGET = "the cat sat", "猫 坐 着"


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def texts(path: str) -> list[str]:
    return ["".join(each.itertext()).strip() for each in ElementTree.parse(path).iter() if each.tag.endswith("text")]


def test_rows_are_predicted_tokens_and_columns_source_tokens(attendo: Command, model_folder: Path) -> None:
    done = attendo("plot-attention", model_folder, TEXT, "--target", TARGET, "-o", "new/x.svg")
    assert (done.code, done.output) == (0, "new/x.svg\n")
    assert done.errors == "decoder.1.cross, mean of heads written to new/x.svg\n"
    tokens = [each for each in texts("new/x.svg") if each in ("the", "cat", "sat", "猫", "坐", "着", "</s>", "<s>")]
    assert tokens == ["the", "cat", "sat", "</s>", "猫", "坐", "着", "</s>"]


def test_decoder_maps_have_input_tokens_as_columns(attendo: Command, model_folder: Path) -> None:
    attendo("plot-attention", model_folder, TEXT, "--target", TARGET, "--site", "decoder", "-o", "x.svg")
    tokens = [each for each in texts("x.svg") if each in ("猫", "坐", "着", "</s>", "<s>")]
    assert tokens == ["<s>", "猫", "坐", "着", "猫", "坐", "着", "</s>"]
    attendo("plot-attention", model_folder, TEXT, "--site", "encoder", "-o", "x.svg")
    assert texts("x.svg").count("cat") == 2


def test_a_decoder_only_model_plots_self_attention(attendo: Command, tmp_path: Path) -> None:
    without_source().save(tmp_path / "alone")
    done = attendo("plot-attention", tmp_path / "alone", "the cat", "--target", " sat", "-o", "x.svg")
    assert done.errors == "decoder.1.self, mean of heads written to x.svg\n"
    tokens = [each for each in texts("x.svg") if each in ("the", "cat", "sat", "<s>", "</s>")]
    assert tokens == ["<s>", "the", "cat", "<s>", "the", "sat"]  # columns, then rows: the last one is a prediction
    failed = attendo("plot-attention", tmp_path / "alone", "the cat", "--site", "cross")
    expected = message("site_needs_encoder", site="cross")
    assert (failed.code, failed.error) == (2, expected)
    zh = attendo("plot-attention", tmp_path / "alone", "the cat", "--site", "cross", "--lang", "zh")
    assert zh.error == "--site cross：只有解码器的模型不读源文；请选 decoder，或不写"


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("options", "titles"),
    [
        (["--head", "0,1"], ["decoder.1.cross, head 0", "decoder.1.cross, head 1"]),
        (["--all", "--layer", "0"], ["decoder.0.cross, head 0", "decoder.0.cross, head 1"]),
        (
            ["--all", "--site", "encoder"],
            [f"encoder.{layer}.self, head {head}" for layer in range(2) for head in range(2)],
        ),
    ],
)
def test_several_heads_are_drawn_as_a_grid(
    attendo: Command, model_folder: Path, options: list[str], titles: list[str]
) -> None:
    done = attendo("plot-attention", model_folder, TEXT, *options, "-o", "x.svg")
    assert done.code == 0
    assert [each for each in texts("x.svg") if "head " in each] == titles
    assert done.errors == f"{len(titles)} maps, {titles[0]} to {titles[-1]}, written to x.svg\n"


@pytest.mark.slow
def test_the_stored_alignment_head_is_the_default(attendo: Command, tmp_path: Path) -> None:
    model = tiny_model()
    model.scores["alignment_head"] = {"layer": 0, "head": 1}
    model.save(tmp_path / "m")
    assert "decoder.0.cross, head 1 written" in attendo("plot-attention", "m", TEXT, "-o", "x.svg").errors
    assert "decoder.1.cross, mean" in attendo("plot-attention", "m", TEXT, "--head", "mean", "-o", "x.svg").errors
    assert "decoder.0.cross, mean" in attendo("plot-attention", "m", TEXT, "--layer", "0", "-o", "x.svg").errors
    assert "encoder.1.self, mean" in attendo("plot-attention", "m", TEXT, "--site", "encoder", "-o", "x.svg").errors


def test_maps_match_the_trace(model_folder: Path) -> None:
    from attendo.explore.heatmaps import MapSelection

    model = load(model_folder, "cpu")
    trace = model.trace(TEXT, TARGET)
    (one,), _ = MapSelection.from_options(model, "cross", 0, "1", False).compute_maps(model, TEXT, TARGET)
    assert one.weights == pytest.approx(trace.cross[0, 1].numpy())
    (mean,), _ = MapSelection.from_options(model, "decoder", None, None, False).compute_maps(model, TEXT, TARGET)
    assert mean.weights == pytest.approx(trace.decoder_self[1].mean(0).numpy())


def test_characters_without_a_font_give_a_warning(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_style, "choose_fonts", lambda text: ["DejaVu Sans"])
    done = attendo("plot-attention", model_folder, TEXT, "--target", TARGET, "-o", "x.png")
    assert done.code == 0
    assert done.errors.startswith("warning: no font that is installed here has 猫 (\\u732B)")
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([TEXT, "-o", "x.gif"], fragment("unknown_picture_format", path="x.gif")),
        ([TEXT, "--layer", "2"], message("layer_out_of_range", layer=2, stack="decoder", count=2)),
        ([TEXT, "--head", "2"], message("invalid_head_list", heads=2, mean="mean", last=1)),
        ([TEXT, "--head", "0,x"], fragment("invalid_head_list", heads="0,x", mean="mean")),
        ([TEXT, "--all", "--head", "0"], fragment("all_heads_with_head", heads=0)),
        ([" "], "TEXT is empty"),
    ],
)
def test_usage_errors_are_one_line(attendo: Command, model_folder: Path, arguments: list[str], words: str) -> None:
    done = attendo("plot-attention", model_folder, *arguments)
    assert (done.code, words in done.error) == (2, True)


def test_without_matplotlib_the_error_names_it(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = attendo("plot-attention", model_folder, TEXT)
    assert done.error == message("matplotlib_missing", command="attendo plot-attention")


def test_picture_and_message_are_translated_to_chinese(attendo: Command, model_folder: Path) -> None:
    done = attendo("plot-attention", model_folder, TEXT, "--head", "0,1", "--lang", "zh", "-o", "x.svg")
    assert done.errors == "2 张图（decoder.1.cross，头 0 到 decoder.1.cross，头 1）：已写入 x.svg\n"
    found = texts("x.svg")
    assert {"正在预测的词元", "源文词元", "注意力权重", "decoder.1.cross，头 0"} <= set(found)
    assert {"token being predicted", "source token", "attention weight"}.isdisjoint(found)


def test_without_a_chinese_font_labels_are_english_with_a_warning(
    attendo: Command, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figure_style, "choose_fonts", lambda text: ["DejaVu Sans"])
    arguments = ["plot-attention", model_folder, "the cat", "--target", "NLP", "--lang", "zh"]
    done = attendo(*arguments, "-o", "x.png")
    assert "警告：本机没有中文字体：图中的说明改用英文" in done.errors
    assert "编码" not in done.errors  # no label is printed as code points
    assert "警告" not in attendo(*arguments, "-o", "x.svg").errors
    assert "正在预测的词元" in texts("x.svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([TEXT, "--layer", "2"], "--layer 2：解码器有 2 层，从 0 数起"),
        ([TEXT, "--head", "0,x"], "--head 0,x：请写 mean，或 0 到 1 之间的头，例如 0,1"),
        ([TEXT, "--all", "--head", "0"], "--all 和 --head 0 不能同时使用：请画所有的头，或 --head 指定的头"),
        ([" "], "TEXT 是空的：请给出一句话"),
    ],
)
def test_usage_errors_are_translated_to_chinese(
    attendo: Command, model_folder: Path, arguments: list[str], message: str
) -> None:
    done = attendo("plot-attention", model_folder, *arguments, "--lang", "zh")
    assert (done.code, done.error) == (2, message)


def test_a_text_longer_than_learned_positions_is_rejected(attendo: Command) -> None:
    tiny_model(positions="learned", max_length=6).save(Path("m"))
    for more in ([], ["--target", "猫"]):
        failed = attendo("plot-attention", "m", "the cat sat " * 3, *more)
        assert (failed.code, failed.error) == (2, message("text_exceeds_model_length", tokens=10, limit=5))
