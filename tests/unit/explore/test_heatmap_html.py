"""The page is one file that asks nothing of the network and in which every token stays text."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from error_codes import has_code

from attendo.errors import UsageError
from attendo.explore.attention_map import DARK, LIGHT, AttentionMap
from attendo.explore.heatmap_html import render_maps_html
from attendo.explore.heatmap_svg import render_map_svg

FIRST = AttentionMap([[0.93, 0.07]], ["我"], ["I", "</s>"], "decoder layer 1, head 1")
SECOND = AttentionMap([[0.2, 0.8]], ["我"], ["I", "</s>"], "decoder layer 1, head 2")
OTHER = AttentionMap(np.eye(2), ["I", "</s>"], ["I", "</s>"], "encoder layer 1, head 1")
HOSTILE = "</script></title><img src=x onerror=alert(1)>&amp;"


class Outline(HTMLParser):
    """Collects what a browser would see: elements with attributes, and the text in each kind of element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._open:
            self.text.setdefault(self._open[-1], []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def test_heading_facts_and_picker_are_on_the_page() -> None:
    page = Outline(render_maps_html([FIRST, SECOND], "Where the model looked", [("source", "I"), ("prediction", "我")]))
    assert page.text["h1"] == ["Where the model looked"]
    assert (page.text["th"], page.text["td"]) == (["source", "prediction"], ["I", "我"])
    assert page.text["option"] == ["decoder layer 1, head 1", "decoder layer 1, head 2"]


def test_the_first_map_is_drawn_without_javascript() -> None:
    page = render_maps_html([FIRST, SECOND, OTHER], "heading", [])
    assert render_map_svg(FIRST) in page
    figures = Outline(page).all("figure")
    assert ["hidden" in figure for figure in figures] == [False, True]


def test_maps_over_the_same_tokens_share_a_drawing() -> None:
    data = _data(render_maps_html([FIRST, OTHER, SECOND], "heading", []))
    assert [attention["drawing"] for attention in data["maps"]] == [0, 1, 0]
    assert data["drawings"][1] == {"rows": ["I", "</s>"], "columns": ["I", "</s>"]}
    assert [attention["weights"] for attention in data["maps"]] == [[[0.93, 0.07]], [[1, 0], [0, 1]], [[0.2, 0.8]]]


def test_hostile_text_adds_no_element_wherever_it_stands() -> None:
    attention = AttentionMap([[1.0]], [HOSTILE], [HOSTILE], HOSTILE)
    hostile = Outline(render_maps_html([attention], HOSTILE, [(HOSTILE, HOSTILE)]))
    harmless = Outline(render_maps_html([AttentionMap([[1.0]], ["a"], ["b"], "c")], "d", [("e", "f")]))
    assert [tag for tag, _ in hostile.elements] == [tag for tag, _ in harmless.elements]
    assert "".join(hostile.text["h1"]) == HOSTILE


def test_data_holds_no_character_that_could_end_the_script() -> None:
    page = render_maps_html([AttentionMap([[1.0]], [HOSTILE], [HOSTILE], HOSTILE)], HOSTILE, [])
    raw = page.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&") & set(raw)
    assert json.loads(raw)["drawings"][0]["rows"] == [HOSTILE]


def test_the_page_holds_no_address_and_lets_only_its_own_script_run() -> None:
    page = render_maps_html([FIRST], "heading", [])
    addresses = set(re.findall(r"\w+://[^\"' ]*", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not [name for _, attributes in Outline(page).elements for name in attributes if name in ("src", "href")]
    script = page.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = next(meta["content"] for meta in Outline(page).all("meta") if "http-equiv" in meta)
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"


def test_both_colour_schemes_are_styled() -> None:
    style = render_maps_html([FIRST], "heading", []).split("<style>")[1].split("</style>")[0]
    light, dark = style.rsplit("@media (prefers-color-scheme: dark)", 1)
    assert f".q50 {{ fill: {LIGHT[50]} }}" in light
    assert f".q50 {{ fill: {DARK[50]} }}" in dark


def test_a_page_of_nothing_is_refused() -> None:
    with pytest.raises(UsageError, check=has_code("no_attention_maps")):
        render_maps_html([], "heading", [])


def _data(page: str) -> Any:
    return json.loads(page.split('id="data">')[1].split("</script>")[0])
