"""P3 and P4: axe finds no serious problem, and the keyboard reaches every control."""

from typing import Any

import pytest
from page_server import VIEWS, Visit

DARK = ("alignment", "ablation")  # together they have every kind of control


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "view", [view if view in DARK else pytest.param(view, marks=pytest.mark.slow) for view in VIEWS]
)
def test_axe_finds_no_serious_violation(visit: Any, view: str) -> None:
    open_with_all_marks(visit, view)
    assert serious_violations(visit) == []


@pytest.mark.short(1)
@pytest.mark.parametrize(
    "view", [each if each in DARK else pytest.param(each, marks=pytest.mark.slow) for each in VIEWS]
)
def test_dark_mode_has_enough_contrast(visit: Any, view: str) -> None:
    open_with_all_marks(visit, view)
    visit.page.emulate_media(color_scheme="dark")
    assert serious_violations(visit, options={"resultTypes": ["violations"], "runOnly": ["color-contrast"]}) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_on_every_colour_of_a_map_has_enough_contrast(visit: Any, scheme: str) -> None:
    """WCAG 2 asks for 4.5. axe only sees the values that a view happens to show."""
    visit.page.emulate_media(color_scheme=scheme)
    shown = visit.page.evaluate("""async () => {
      const { colourOf, inkOn } = await import("/page/colour.js");
      const values = Array.from({ length: 256 }, (_, n) => n / 255), signs = values.map((value) => 2 * value - 1);
      return Object.entries({ weights: values, signs }).flatMap(([scale, all]) =>
        all.map((value) => [scale, value, colourOf(value, scale), inkOn(value, scale)]));
    }""")
    assert len(shown) == 512
    low = [(scale, value) for scale, value, colour, ink in shown if contrast(colour, ink) < 4.5]
    assert low == []


def contrast(first: str, second: str) -> float:
    """The contrast of two colours by WCAG 2, as `rgb(r,g,b)` or `#rrggbb`."""
    darker, lighter = sorted((luminance(first), luminance(second)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    if colour.startswith("#"):
        levels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    else:
        levels = [int(level) / 255 for level in colour.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [level / 12.92 if level <= 0.04045 else ((level + 0.055) / 1.055) ** 2.4 for level in levels]
    return sum(weight * level for weight, level in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def open_with_all_marks(visit: Any, view: str) -> None:
    visit.open(view, heads="decoder.0.cross.0=0", pins="cross.0.0,cross.1.1", kind="beam", part="output")
    visit.page.locator("view-training map-grid, main :not(view-training) > h2").first.wait_for()


def serious_violations(visit: Any, **options: Any) -> list[Any]:
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(visit.page, **options).response["violations"]
    serious = [each for each in found if each["impact"] in ("serious", "critical")]
    return [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in serious]


def tab_to(page: Any, name: str, max_presses: int = 80) -> None:
    for _ in range(max_presses):
        if page.evaluate("document.activeElement?.id") == name:
            return
        page.keyboard.press("Tab")
    pytest.fail(f"#{name} was not reached by the Tab key")


def test_keyboard_alone_translates_and_pins_a_head(fresh_page: Any, address: str) -> None:
    """On a new page: on the shared one, the Tab key starts from the focus of the previous test."""
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
    visit.wait_drawn("heads")
    tab_to(page, "grid")
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert "pins=cross.1.1" in page.evaluate("location.hash")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    assert visit.problems() == []


@pytest.mark.short(1)
@pytest.mark.parametrize("view", ["training", "alignment"])
def test_tab_of_the_view_is_visible_on_a_phone(visit: Any, view: str) -> None:
    visit.page.set_viewport_size({"width": 390, "height": 800})
    visit.open(view)
    box = visit.page.locator(f"#tab-{view}").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


@pytest.mark.slow
def test_arrow_keys_move_in_maps_tokens_bars_and_tree(visit: Any) -> None:
    page = visit.page
    view = visit.open()
    view.locator(".map-box").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert view.locator("heat-map").evaluate("map => map.chosen") == {"row": 1, "column": 0}
    view.locator(".stage .token").first.focus()
    page.keyboard.press("ArrowRight")
    assert (
        page.evaluate("document.activeElement.textContent")
        == visit.request("/trace", target=None)["source"]["pieces"][1]
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


def test_control_keeps_the_focus_when_its_view_is_redrawn(visit: Any) -> None:
    page = visit.page
    visit.open("mask")
    page.focus("#mask_head")
    page.select_option("#mask_head", "1")
    visit.wait_drawn("mask")
    assert page.evaluate("document.activeElement.id") == "mask_head"
