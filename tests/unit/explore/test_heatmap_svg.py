"""The SVG is well-formed for any tokens, and draws every weight inside the picture."""

from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attendo.explore.attention_map import CAPTION, LIGHT, AttentionMap, colour_level
from attendo.explore.heatmap_svg import render_map_svg

NAME = "{http://www.w3.org/2000/svg}"
SENTENCE = AttentionMap(
    [[0.93, 0.07, 0.0], [0.1, 0.6, 0.3]], ["我", "自然"], ["I", "natural", "</s>"], "decoder layer 2, head 1"
)


def test_every_cell_has_its_colour_and_its_tooltip() -> None:
    cells = _elements(SENTENCE, "rect", "cell")
    assert [cell.findtext(f"{NAME}title") for cell in cells] == [
        "我 ← I 0.93",
        "我 ← natural 0.07",
        "我 ← </s> 0.00",
        "自然 ← I 0.10",
        "自然 ← natural 0.60",
        "自然 ← </s> 0.30",
    ]
    assert [cell.get("fill") for cell in cells] == [LIGHT[colour_level(weight)] for weight in SENTENCE.weights.flat]


def test_the_picture_has_title_labels_and_caption() -> None:
    texts = [element.text for element in _elements(SENTENCE, "text")]
    assert {"decoder layer 2, head 1", CAPTION, *SENTENCE.rows, *SENTENCE.columns} <= set(texts)
    assert [label.text for label in _elements(SENTENCE, "text", "row")] == ["我", "自然"]
    assert [label.text for label in _elements(SENTENCE, "text", "column")] == ["I", "natural", "</s>"]


def test_the_background_covers_the_picture() -> None:
    root = ElementTree.fromstring(render_map_svg(SENTENCE))
    (background,) = _elements(SENTENCE, "rect", "paper")
    assert (background.get("width"), background.get("height")) == (root.get("width"), root.get("height"))
    assert background.get("fill") == "#ffffff"


def test_only_long_column_labels_are_rotated() -> None:
    assert all(label.get("transform") for label in _elements(SENTENCE, "text", "column"))
    short = AttentionMap([[0.5, 0.5]], ["I"], ["我", "爱"], "head")
    assert not any(label.get("transform") for label in _elements(short, "text", "column"))


@pytest.mark.parametrize(("side", "digits"), [(1, True), (16, True), (17, False), (64, False)])
def test_digits_are_drawn_if_cells_are_large_enough(side: int, digits: bool) -> None:
    tokens = [f"w{number}" for number in range(side)]
    assert bool(_elements(AttentionMap(np.eye(side), tokens, tokens, "head"), "text", "digits")) == digits


@pytest.mark.parametrize("side", [1, 5, 14, 40, 64])
def test_cells_are_inside_the_picture_and_do_not_overlap(side: int) -> None:
    tokens = [f"词{number}" for number in range(side)]
    attention = AttentionMap(np.eye(side), tokens, tokens, "decoder layer 2, head 1")
    root = ElementTree.fromstring(render_map_svg(attention))
    positions = [(float(cell.get("x", "")), float(cell.get("y", ""))) for cell in _elements(attention, "rect", "cell")]
    size = float(_elements(attention, "rect", "cell")[0].get("width", ""))
    steps = {later - earlier for (earlier, _), (later, _) in pairwise(positions[:side])}
    assert len(set(positions)) == side * side
    assert all(step > size for step in steps)
    assert min(min(position) for position in positions) > 0
    assert max(x for x, _ in positions) + size < float(root.get("width", ""))
    assert max(y for _, y in positions) + size < float(root.get("height", ""))


def test_a_long_token_is_truncated_in_its_label_only() -> None:
    attention = AttentionMap([[1.0]], ["x" * 500], ["y"], "head")
    (label,) = _elements(attention, "text", "row")
    assert label.text == "x" * 39 + "…"
    assert _elements(attention, "rect", "cell")[0].findtext(f"{NAME}title") == "x" * 500 + " ← y 1.00"


@settings(max_examples=60, deadline=None)
@given(row=st.text(max_size=20), column=st.text(max_size=20), title=st.text(max_size=20))
def test_any_text_gives_well_formed_xml_without_new_elements(row: str, column: str, title: str) -> None:
    root = ElementTree.fromstring(render_map_svg(AttentionMap([[1.0]], [row], [column], title)))
    assert {element.tag for element in root.iter()} == {f"{NAME}{tag}" for tag in ("svg", "rect", "text", "title")}


def test_markup_in_tokens_stays_text() -> None:
    token = "<img src=x onerror=alert(1)>"
    picture = render_map_svg(AttentionMap([[1.0]], [token], [token], '"><script>'))
    assert "<img" not in picture
    assert "<script" not in picture


def _elements(attention: AttentionMap, tag: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(render_map_svg(attention)).iter(NAME + tag)
    return [element for element in found if not kind or kind in element.get("class", "").split()]
