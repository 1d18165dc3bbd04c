"""P1: the main tasks of the page, from start to end in a browser."""

import re
from typing import Any
from urllib.parse import parse_qs

import pytest
from page_server import PATIENCE_MS, TEXT, VIEWS, Visit, wait_until

HOSTILE = "<img src=x onerror=alert(1)>"


def state(page: Any) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(page.evaluate("location.hash.slice(1)")).items()}


def click_map(page: Any, grid: str, column: int) -> None:
    """Click the map of this column in the first row."""
    page.wait_for_function("grid => document.querySelector(grid).closest('map-grid').layout", arg=grid)
    corner = page.locator(grid).evaluate("(box, n) => box.closest('map-grid').corner(0, n)", column)
    page.locator(grid).click(position={"x": corner["x"] + 9, "y": corner["y"] + 9})


@pytest.mark.short(4)
@pytest.mark.parametrize("view", VIEWS)
def test_view_opens_in_chinese_in_dark_mode_and_on_a_phone(visit: Any, view: str) -> None:
    visit.page.emulate_media(color_scheme="dark")
    found = visit.open(view, lang="zh")
    assert visit.page.locator(".complaint").count() == 0
    assert any("\u4e00" <= sign <= "\u9fff" for sign in found.locator("h2").inner_text())
    assert visit.page.evaluate("document.documentElement.lang") == "zh-CN"
    assert wait_until(lambda: visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
    visit.page.set_viewport_size({"width": 390, "height": 800})
    assert wait_until(
        lambda: visit.page.evaluate("innerWidth === 390 && document.documentElement.scrollWidth <= innerWidth")
    )


def test_translation_updates_the_address_and_back_button(visit: Any) -> None:
    page = visit.page
    visit.open()
    page.fill("#source", "the cat sat")
    page.click("#translate")
    page.locator(".output .whole").wait_for()
    answer = visit.request("/answer", text="the cat sat")["hypotheses"][0]
    assert page.locator(".output .whole").text_content() == answer["text"]
    assert state(page)["text"] == "the cat sat"
    page.go_back()
    page.wait_for_function("text => document.getElementById('source').value === text", arg=TEXT)


def test_beam_shows_other_hypotheses_and_sampling_has_settings(visit: Any) -> None:
    page = visit.page
    visit.open(kind="beam")
    page.locator(".others summary").click()
    other = page.locator(".others li button").first
    text = other.text_content()
    other.click()
    visit.wait_drawn("alignment")
    assert wait_until(lambda: state(page).get("target") == text)
    page.locator("#kind-sample").click()
    page.fill("#temperature", "0.5")
    page.press("#temperature", "Tab")
    assert wait_until(lambda: state(page).get("temperature") == "0.5")


def test_hovering_a_token_highlights_the_other_side(visit: Any) -> None:
    page = visit.page
    view = visit.open()
    lines = view.locator(".stage .tokens")
    pieces = len(visit.request("/trace", target=None)["source"]["pieces"])

    def highlighted_tokens(pointed: int, other: int) -> int:
        # Move the pointer away first: layout changes may move a token from under a pointer at rest.
        page.mouse.move(0, 0)
        lines.nth(pointed).locator(".token").first.hover()
        return int(lines.nth(other).locator(".token[style*=background]").count())

    assert wait_until(lambda: highlighted_tokens(1, 0) == pieces)
    assert wait_until(lambda: highlighted_tokens(0, 1) > 0)
    assert wait_until(lambda: page.locator(".curves path").count() > 0)


@pytest.mark.slow
def test_words_specials_layers_and_heads_change_the_map(visit: Any) -> None:
    page = visit.page
    view = visit.open()
    rows = view.locator("heat-map").evaluate("map => map.data.rows")
    page.locator("#specials").click()
    assert wait_until(lambda: view.locator("heat-map").evaluate("map => map.data.rows") < rows)
    page.locator("#words").click()
    for show in ("max", "rollout", "head"):
        page.select_option("#show", show)
    page.select_option("#head", "1")
    assert wait_until(lambda: state(page).get("head") == "1")


@pytest.mark.slow
def test_two_heads_are_pinned_and_unpinned(visit: Any) -> None:
    page = visit.page
    view = visit.open("heads")
    for column in (0, 1):
        click_map(page, "#grid", column)
    assert wait_until(lambda: view.locator("heat-map").count() == 2)
    assert state(page)["pins"] == "cross.0.0,cross.0.1"
    view.get_by_label("Unpin A").click()
    assert wait_until(lambda: view.locator("heat-map").count() == 1)


def test_forced_token_changes_the_rest_and_can_be_removed(visit: Any) -> None:
    page = visit.page
    view = visit.open("steps", step=1)
    before = view.locator("button.token").all_inner_texts()
    view.locator(".bars button:not(.chosen)").first.click()
    view.locator(".branches .token.forced").first.wait_for()
    forced = view.locator(".branches button.token").all_inner_texts()
    assert view.locator(".branches .token.forced").all_inner_texts() == [forced[1]], "only the forced token is marked"
    assert (forced[0], forced[1] == before[1]) == (before[0], False)
    page.click("#free")
    page.wait_for_function("() => !document.querySelector('.token.forced')")


@pytest.mark.slow
def test_steps_play_and_pause(visit: Any) -> None:
    page = visit.page
    visit.open("steps")
    page.click("#play")
    page.wait_for_function("() => document.getElementById('step').value === '1'")
    page.click("#play")
    assert wait_until(lambda: page.locator("#play").inner_text() == "Play")


def test_pruned_hypothesis_shows_its_path_and_reason(visit: Any) -> None:
    view = visit.open("tree", kind="beam")

    def hover_text() -> str:
        visit.page.mouse.move(0, 0)  # as above: the node may have moved from under the pointer
        view.locator(".node.cut").first.hover()
        return str(view.locator(".readout").inner_text())

    assert wait_until(lambda: "cut" in hover_text() and view.locator(".node.path").count() >= 1)
    view.locator("#cuts").click()
    assert wait_until(lambda: view.locator(".node.cut:not(.best)").count() == 0)


def test_mask_can_be_switched_off(visit: Any) -> None:
    view = visit.open("mask")
    assert view.locator(".figures .now strong").get_attribute("data-number") == "loss"
    view.locator("#mask_off").click()
    assert wait_until(lambda: view.locator(".figures .now strong").get_attribute("data-number") == "lossOff")


def test_heads_are_switched_off_scaled_and_ranked(visit: Any) -> None:
    page = visit.page
    view = visit.open("ablation")
    click_map(page, "#grid-cross", 0)
    view.locator(".mark.off").first.wait_for()
    assert state(page)["heads"] == "decoder.0.cross.0=0"
    page.locator("[id='scale-decoder.0.cross.0']").fill("0.5")
    page.wait_for_function("() => location.hash.includes('0.cross.0%3D0.5')")
    page.click("#rank")
    page.wait_for_function("() => document.querySelectorAll('.ranked li').length === 12")
    assert "12" in view.locator(".ranking [role=status]").inner_text()
    page.click("#reset")
    page.wait_for_function("() => !location.hash.includes('heads')")


def test_checkpoints_decoders_and_sources_are_compared(visit: Any) -> None:
    page = visit.page
    view = visit.open("compare")
    assert view.locator("heat-map").count() == 3
    page.locator("#versus-decoders").click()
    page.locator("select#other option[value=sample]").wait_for(state="attached")
    page.locator("#versus-sources").click()
    page.fill("input#other", "a dog ran home")
    page.press("input#other", "Tab")
    page.wait_for_function("() => location.hash.includes('other=a+dog+ran+home')")
    visit.wait_drawn("compare")
    assert wait_until(lambda: view.locator("heat-map").count() >= 2)


def test_training_shows_curves_and_attention_of_checkpoints(visit: Any) -> None:
    page = visit.page
    view = visit.open("training")
    view.locator("map-grid").wait_for()
    assert view.locator("map-grid").evaluate("grid => grid.data.columns") == 3
    page.locator("#curve-bleu").click()
    view.locator("canvas[aria-label*=BLEU]").wait_for()


def test_language_and_theme_can_be_switched(visit: Any) -> None:
    page = visit.page
    visit.open()
    page.click("#language")
    assert wait_until(lambda: page.locator("#translate").inner_text() == "翻译")
    page.click("#theme")
    page.click("#theme")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 20, 23)"
    page.click("#theme")


@pytest.mark.parametrize("views", [VIEWS[::3], pytest.param(VIEWS, marks=pytest.mark.slow)], ids=["some", "all"])
def test_hostile_tokens_stay_text_in_every_view(fresh_page: Any, address: str, views: tuple[str, ...]) -> None:
    """Every response of the server is changed: some words of both languages become HTML."""
    dialogs: list[str] = []

    def change(route: Any) -> None:
        response = route.fetch(timeout=PATIENCE_MS)
        route.fulfill(response=response, body=re.sub("cat|猫|小", HOSTILE, response.text()))

    fresh_page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    fresh_page.route("**/api/v1/**", change)
    visit = Visit(fresh_page, address)
    for view in views:
        found = visit.open(view, kind="beam", pins="cross.0.0", row="decoder.0.self C3")
        assert fresh_page.locator("img").count() == 0
        if view in ("alignment", "steps", "tree"):
            assert HOSTILE in found.text_content()
    fresh_page.unroute_all(behavior="ignoreErrors")
    assert dialogs == []
    assert visit.problems() == []
