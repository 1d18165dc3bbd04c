"""Figures of attention maps: labels are text, maps are vectors, and sizes follow the tokens."""

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from error_codes import has_code
from late_import import needs

from attendo.errors import UsageError
from attendo.explore import figure_style
from attendo.explore.attention_map import AttentionMap
from attendo.explore.figure_style import FontChooser, plot_style, require_matplotlib
from attendo.explore.heatmap_figure import MapAxisLabels, build_maps_figure, draw_maps

pytestmark = needs("matplotlib")

AXIS = MapAxisLabels("predicted", "source")
ROWS, COLUMNS = ("我", "爱", "</s>"), ("I", "love", "$x$", "</s>")


def attention(rows: tuple[str, ...] = ROWS, columns: tuple[str, ...] = COLUMNS, title: str = "head 0") -> AttentionMap:
    weights = np.random.default_rng(1).dirichlet(np.ones(len(columns)), len(rows))
    return AttentionMap(weights, rows, columns, title)


def texts(picture: bytes) -> list[str]:
    return [
        "".join(each.itertext()).strip() for each in ElementTree.fromstring(picture).iter() if each.tag.endswith("text")
    ]


def test_an_svg_has_text_labels_and_vector_maps() -> None:
    picture, warning = draw_maps([attention()], AXIS, 1, "svg")
    found = texts(picture)
    assert warning == ""
    assert [each for each in found if each in (*ROWS, *COLUMNS)] == [*COLUMNS, *ROWS]
    assert {"token being predicted", "source token", "attention weight"} <= set(found)
    assert b"<image" not in picture
    families = set(re.findall(rb"font-family: ([^;]*)", picture))
    assert len(families) == 1
    assert all(
        name in families.copy().pop() for name in (b"DejaVu Sans", b"Noto Sans CJK SC", b"PingFang SC", b"sans-serif")
    )


@pytest.mark.short(1)
@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_same_map_gives_the_same_bytes(form: str, start: bytes) -> None:
    first, second = (draw_maps([attention(("a",), ("b", "c"))], AXIS, 1, form)[0] for _ in range(2))
    assert first.startswith(start)
    assert first == second


def test_a_pdf_embeds_its_fonts() -> None:
    picture, _ = draw_maps([attention(("a",), ("b", "c"))], AXIS, 1, "pdf")
    assert b"/FontFile2" in picture
    assert b"/Subtype /Type3" not in picture
    assert b"/Subtype /Image" not in picture


def test_a_grid_has_a_title_per_map_and_tokens_at_the_edges() -> None:
    maps = [attention(title=f"decoder.{layer}.cross, head {head}") for layer in range(2) for head in range(3)]
    found = texts(draw_maps(maps, AXIS, 3, "svg")[0])
    assert [each for each in found if "head" in each] == [each.title for each in maps]
    assert found.count("love") == 3
    assert found.count("我") == 2


@pytest.mark.short(1)
@pytest.mark.parametrize("count", [3, 30, 90])
def test_the_figure_grows_with_the_tokens(count: int) -> None:
    tokens = tuple(f"token{n}" for n in range(count))
    with plot_style(["DejaVu Sans"], maps=True):
        figure = build_maps_figure([attention(tokens, tokens)], AXIS, 1, FontChooser(("DejaVu Sans",), ""))
        panel = figure.axes[0]
        figure.draw_without_rendering()
        box = panel.get_window_extent()
        cell = box.height / count
        assert box.width / count == pytest.approx(cell)
        labels = panel.get_yticklabels()
        assert [each.get_text() for each in labels] == list(tokens)
        assert all(each.get_window_extent().height <= 1.35 * cell for each in labels)
        assert 0.069 <= cell / figure.dpi <= 0.27


def test_a_large_grid_is_drawn_as_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("attendo.explore.heatmap_figure.MAX_VECTOR_CELLS", 23)
    assert b"<image" in draw_maps([attention()] * 2, AXIS, 2, "svg")[0]
    assert b"<image" not in draw_maps([attention()], AXIS, 1, "svg")[0]


def test_characters_without_a_font_become_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_style, "choose_fonts", lambda text: ["DejaVu Sans"])
    chooser = FontChooser.for_texts(["猫", "cat", "\U00012345", "▁猫"])
    assert chooser.missing == "猫\U00012345"
    assert chooser.escape_missing("▁猫s\U00012345") == "▁\\u732Bs\\U00012345"
    assert "no font that is installed here has 猫 (\\u732B) \U00012345 (\\U00012345)" in chooser.warning()
    assert "apt install fonts-noto-cjk" in chooser.warning()
    picture, warning = draw_maps([attention()], AXIS, 1, "png")
    assert picture.startswith(b"\x89PNG")
    assert "我 (\\u6211) 爱 (\\u7231): written as codes" in warning
    with plot_style(["DejaVu Sans"], maps=True):
        figure = build_maps_figure([attention()], AXIS, 1, FontChooser.for_texts(ROWS))
    assert [each.get_text() for each in figure.axes[0].get_yticklabels()] == ["\\u6211", "\\u7231", "</s>"]


def test_an_svg_keeps_characters_without_a_font(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figure_style, "choose_fonts", lambda text: ["DejaVu Sans"])
    picture, warning = draw_maps([attention()], AXIS, 1, "svg")
    assert (warning, "我" in texts(picture)) == ("", True)


def test_installed_fonts_are_found_for_chinese() -> None:
    if not set(figure_style.choose_fonts("我 爱 自然 语言 处理")) & set(figure_style.CHINESE_FONTS):
        pytest.skip("no Chinese font is installed")
    chooser = FontChooser.for_texts(["我 爱 自然 语言 处理"])
    assert (chooser.missing, chooser.warning()) == ("", "")
    assert set(chooser.families) & set(figure_style.CHINESE_FONTS)


def test_the_scale_ends_at_one_or_near_the_largest_weight() -> None:
    def top(*weights: float) -> float:
        with plot_style(["DejaVu Sans"], maps=True):
            one = AttentionMap([list(weights)], ["a"], [str(n) for n in range(len(weights))], "x")
            figure = build_maps_figure([one], AXIS, 1, FontChooser(("DejaVu Sans",), ""))
        return float(figure.axes[-1].get_ylim()[1])

    assert top(0.9, 0.1) == 1
    assert top(0.31, 0.3, 0.39) == pytest.approx(0.4)


def test_maps_with_different_tokens_are_rejected() -> None:
    for maps in ([], [attention(), attention(("x",))]):
        with (
            plot_style(["DejaVu Sans"], maps=True),
            pytest.raises(UsageError, check=has_code("attention_maps_not_comparable", count=len(maps))),
        ):
            build_maps_figure(maps, AXIS, 2, FontChooser(("DejaVu Sans",), ""))


def test_without_matplotlib_an_error_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, check=has_code("matplotlib_missing", command="attendo heads --output")):
        require_matplotlib("attendo heads --output")
