"""The page at three widths: long sentences, many heads, phones and touch."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from page_server import TEXT, serving, wait_until
from test_exports import export
from tiny import SIZES, SOURCES, TARGETS

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.serve.app import create_app
from attendo.serve.scheduling.registry import ModelSpec
from attendo.text import Words
from attendo.text_model import TextModel

LONG = " ".join(["the small cat saw a dog and ran home"] * 4)
WIDTHS = (1440, 1024, 390)
HEADS = 8


@pytest.fixture(scope="module")
def many_heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a page with a model of 8 heads, long sample sentences and validation scores."""
    source, target = Words.build(SOURCES), Words.build(TARGETS)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size, "tie": "none"}
    config = ModelConfig(**{**SIZES, **sizes, "num_heads": HEADS, "d_model": 8 * HEADS, "d_key": None, "d_value": None})
    network = Transformer(config, torch.Generator().manual_seed(3))
    sample = [(f"{LONG} {n}", "猫") for n in range(4)]
    model = TextModel(StoredModel(network, source, target, {"max_length_extra": 3}, {"valid_loss": 0.1}, sample))
    with serving(create_app([ModelSpec("wide", model)])) as server:
        yield server.address


@pytest.fixture
def phone(browser: Any, address: str) -> Iterator[Any]:
    """A page on a phone with a touch screen."""
    context = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True, locale="en-US")
    page = context.new_page()
    yield page
    context.close()


def open_on_phone(page: Any, address: str, view: str, **state: Any) -> Any:
    fields = "&".join(f"{name}={value}" for name, value in {"view": view, "lang": "en", "text": TEXT, **state}.items())
    page.goto("about:blank")
    page.goto(f"{address}#{fields}")
    page.locator(f"view-{view}:not([aria-busy]) h2").wait_for()
    return page.locator(f"view-{view}")


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("width", WIDTHS)
def test_long_samples_and_texts_fit(browser: Any, many_heads: str, visit_address: Any, width: int, lang: str) -> None:
    visit = visit_address(many_heads)
    visit.page.set_viewport_size({"width": width, "height": 900})
    for view in ("alignment", "heads", "ablation"):
        visit.open(view, lang=lang, text=LONG)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        sides = visit.page.locator(".translate .side")
        boxes = [sides.nth(n).bounding_box() for n in range(2)]
        if width > 760:
            assert abs(boxes[0]["width"] - boxes[1]["width"]) < 2


def test_wrapping_tokens_stand_in_two_columns(visit: Any) -> None:
    """No curve runs behind a token: all curves lie between the two columns or lines."""
    for text, upright in ((TEXT, False), (LONG, True)):
        view = visit.open(text=text, specials="true")
        stage = view.locator(".stage")
        assert wait_until(lambda stage=stage, upright=upright: ("upright" in stage.get_attribute("class")) is upright)
        assert wait_until(lambda view=view: view.locator(".curves path").count() > 0)
        boxes = stage.locator(".token").evaluate_all(
            "all => all.map((each) => { const {left, right, top, bottom} = each.getBoundingClientRect();"
            " return {left, right, top, bottom}; })"
        )
        for curve in view.locator(".curves path").evaluate_all(
            "all => all.map((each) => { const length = each.getTotalLength(), box = each.ownerSVGElement"
            ".getBoundingClientRect(); return [0.02, 0.25, 0.5, 0.75, 0.98].map((share) => { const point ="
            " each.getPointAtLength(share * length); return [point.x + box.left, point.y + box.top]; }); })"
        ):
            for x, y in curve:
                assert not any(
                    box["left"] + 1 < x < box["right"] - 1 and box["top"] + 1 < y < box["bottom"] - 1 for box in boxes
                )


@pytest.mark.parametrize("width", WIDTHS)
def test_all_heads_are_in_sight_in_ablation(visit_address: Any, many_heads: str, width: int) -> None:
    visit = visit_address(many_heads)
    visit.page.set_viewport_size({"width": width, "height": 900})
    view = visit.open("ablation")
    for n in range(3):
        grid = view.locator("map-grid").nth(n)
        assert wait_until(lambda grid=grid: grid.evaluate("grid => Boolean(grid.layout)"))
        assert grid.evaluate("grid => grid.layout.width <= grid.clientWidth")


def test_heads_show_their_tokens_and_fill_the_card(visit: Any) -> None:
    view = visit.open("heads")
    grid = view.locator("map-grid")
    assert wait_until(lambda: grid.evaluate("grid => grid.layout.width > 0.8 * grid.clientWidth"))
    labels = grid.evaluate("grid => grid.labels().map((item) => item.content)")
    assert labels.count("small") == 4  # two layers of two heads
    view = visit.open("heads", text=LONG)
    layout = view.locator("map-grid").evaluate("grid => grid.layout")
    assert layout["width"] <= view.locator("map-grid").bounding_box()["width"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_tree_names_its_numbers_and_marks_ended_hypotheses(visit: Any, lang: str) -> None:
    view = visit.open("tree", kind="beam", lang=lang)
    note = view.locator(".card .note").first.inner_text()
    assert "log P" in note
    assert ("score" if lang == "en" else "得分") in note
    steps = visit.request("/tree", decoder={"kind": "beam", "beam": 4, "n_best": 4, "length_penalty": 1})["steps"]
    ended = sum(node["reason"] in ("ended", "limit") for step in steps for node in step)
    assert ended > 0
    assert view.locator(".node.ended").count() == ended
    assert view.locator(".node.ended.cut").count() == 0
    assert view.locator(".legend .ended").count() == 1


def test_tree_boxes_hold_their_tokens(visit: Any) -> None:
    view = visit.open("tree", kind="beam")
    shown = view.locator(".node .piece").all_text_contents()
    assert not any("…" in each for each in shown)
    for n in range(min(8, view.locator(".node").count())):
        node = view.locator(".node").nth(n)
        piece, score = (node.locator(name).bounding_box() for name in (".piece", ".score"))
        assert piece["x"] + piece["width"] <= score["x"]


def test_phone_folds_its_controls(phone: Any, address: str) -> None:
    open_on_phone(phone, address, "alignment")
    assert phone.locator("#kind-greedy").is_hidden()
    assert phone.locator("view-alignment h2").bounding_box()["y"] < 800
    phone.tap("#settings")
    phone.locator("#kind-beam").wait_for()
    phone.locator("#kind-beam").check()
    assert wait_until(lambda: phone.locator("#beam").is_visible())


def test_tap_on_a_map_tells_its_cell(phone: Any, address: str) -> None:
    view = open_on_phone(phone, address, "alignment")
    layout = view.locator("heat-map").evaluate("map => map.layout")
    spot = {"x": layout["left"] + 1.5 * layout["wide"], "y": layout["top"] + 0.5 * layout["high"]}
    view.locator("heat-map .map-box").tap(position=spot)
    assert wait_until(lambda: "saw" in view.locator("heat-map .readout").inner_text())
    view.locator(".stage .token").nth(1).tap()
    assert wait_until(lambda: "saw" in view.locator(".readout").first.inner_text())
    view = open_on_phone(phone, address, "calculator", operation="decoder.0.cross.scores")
    layout = view.locator("#result").evaluate("map => map.layout")
    spot = {"x": layout["left"] + 1.5 * layout["wide"], "y": layout["top"] + 0.5 * layout["high"]}
    view.locator("#result .map-box").tap(position=spot)
    assert wait_until(lambda: view.locator(".story .value").get_attribute("data-cell") == "0,1")


def test_tables_fit_a_phone(phone: Any, address: str) -> None:
    view = open_on_phone(phone, address, "tree", kind="beam")
    table = view.locator(".table-scroll").last
    assert table.evaluate("box => box.scrollWidth <= box.clientWidth")
    for name in ("ablation", "alignment"):
        view = open_on_phone(phone, address, name)
        assert phone.evaluate("document.documentElement.scrollWidth") <= 390
        for table in view.locator("table:visible").all():
            assert table.bounding_box()["width"] <= 390, f"{name}: {table.get_attribute('class')}"


def test_unfamiliar_sentences_have_a_warning(visit_address: Any, many_heads: str) -> None:
    visit = visit_address(many_heads)
    visit.open(text="the zebra sat")
    warning = visit.page.locator(".warning")
    assert "Not in the vocabulary: zebra" in warning.inner_text()
    assert "mean probability of" in warning.inner_text()  # of a network that is not trained
    assert "longer" not in warning.inner_text()
    visit.open(text=f"{LONG} {LONG}", lang="zh")
    assert wait_until(lambda: "样例" in warning.inner_text())


def test_exports_name_model_layer_and_head(visit: Any, tmp_path: Path) -> None:
    visit.open(show="head", layer=1, head=1, checkpoint="step-00000010", heads="decoder.0.cross.0=0")
    path = export(visit.page, "svg", tmp_path)
    for part in ("run", "step-00000010", "alignment", "Layer-1", "Head-1"):
        assert part in path.name
    drawing = path.read_text("utf-8")
    assert "run · step-00000010 · Alignment · Cross, Layer 1, Head 1 · decoder.0.cross.0=0" in drawing
    path = export(visit.page, "json", tmp_path)
    content = json.loads(path.read_text("utf-8"))
    assert (content["model"], content["checkpoint"]) == ("run", "step-00000010")
    assert "Layer 1, Head 1" in content["shows"]
    visit.open("calculator", operation="encoder.1.self.weights", head=1, lang="zh")
    path = export(visit.page, "json", tmp_path)
    assert "编码器" in path.name
    assert json.loads(path.read_text("utf-8"))["data"]["operation"] == "encoder.1.self.weights"
