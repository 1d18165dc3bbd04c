"""P3 and P4: nothing serious for axe, and everything within reach of a keyboard."""

from typing import Any

import pytest
from page_server import VIEWS, Visit

DARK = ("alignment", "ablation")  # between them they have every kind of control


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "view", [view if view in DARK else pytest.param(view, marks=pytest.mark.slow) for view in VIEWS]
)
def test_axe_finds_nothing_serious(visit: Any, view: str) -> None:
    everything_on(visit, view)
    assert serious_for_axe(visit) == []


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "view", [each if each in DARK else pytest.param(each, marks=pytest.mark.slow) for each in VIEWS]
)
def test_colours_can_be_told_apart_in_the_dark(visit: Any, view: str) -> None:
    everything_on(visit, view)
    visit.page.emulate_media(color_scheme="dark")
    assert serious_for_axe(visit, options={"resultTypes": ["violations"], "runOnly": ["color-contrast"]}) == []


def everything_on(visit: Any, view: str) -> None:
    visit.open(view, heads="decoder.0.cross.0=0", pins="cross.0.0,cross.1.1", kind="beam", part="output")
    visit.page.locator("view-training map-grid, main :not(view-training) > h2").first.wait_for()


def serious_for_axe(visit: Any, **options: Any) -> list[Any]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(visit.page, **options).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in serious]


def tab_to(page: Any, name: str, most: int = 80) -> None:
    for _ in range(most):
        if page.evaluate("document.activeElement?.id") == name:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"#{name} was not reached by the Tab key")


def test_a_person_without_a_mouse_translates_looks_and_intervenes(fresh_page: Any, address: str) -> None:
    """On a page of its own: on another the Tab key goes on from where the test before has left the focus."""
    page, visit = fresh_page, Visit(fresh_page, address)
    visit.open()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to(page, "source")
    page.keyboard.press("Control+A")
    page.keyboard.type("the cat sat")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => location.hash.includes('the+cat+sat')")
    tab_to(page, "tab-heads")
    page.keyboard.press("Enter")
    visit.drawn("heads")
    tab_to(page, "grid")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert "pins=cross.1.1" in page.evaluate("location.hash")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert visit.troubles() == []


@pytest.mark.short(1)
@pytest.mark.parametrize("view", ["training", "alignment"])
def test_on_a_telephone_the_tab_of_the_view_is_in_sight(visit: Any, view: str) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 800})
    visit.open(view)
    box = visit.page.locator(f"#tab-{view}").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


@pytest.mark.slow
def test_arrow_keys_walk_through_maps_tokens_bars_and_the_tree(visit: Any) -> None:
    page = visit.page
    view = visit.open()
    view.locator(".map-box").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert view.locator("heat-map").evaluate("map => map.chosen") == {"row": 1, "column": 0}
    view.locator(".stage .token").first.focus()
    page.keyboard.press("ArrowRight")
    assert (
        page.evaluate("document.activeElement.textContent") == visit.ask("/trace", target=None)["source"]["pieces"][1]
    )
    view = visit.open("steps")
    view.locator(".bars button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    view.locator(".token.forced").first.wait_for()
    view = visit.open("tree", kind="beam")
    view.locator(".node").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "1"


def test_a_control_keeps_the_focus_when_its_view_is_drawn_again(visit: Any) -> None:
    page = visit.page
    visit.open("mask")
    page.focus("#mask_head")
    page.select_option("#mask_head", "1")
    visit.drawn("mask")
    assert page.evaluate("document.activeElement.id") == "mask_head"
