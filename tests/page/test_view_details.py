"""Marks, scales, hints and notices of the views."""

from typing import Any

import pytest
from page_server import wait_until

UNCACHED_TEXT = "the small dog sat home"  # used by no other test: the page may cache responses
BUSY_ERROR = {"code": "busy", "message": "too many requests wait", "message_zh": "等待的请求太多"}


@pytest.mark.slow
def test_forced_tokens_stay_marked_in_the_decoder_input(visit: Any) -> None:
    view = visit.open("steps", step=1)
    view.locator(".bars button:not(.chosen)").first.click()
    view.locator(".branches .token.forced").wait_for()
    visit.page.evaluate("location.hash = location.hash.replace('step=1', 'step=2')")
    read = view.locator(".tokens.small .token")
    visit.page.wait_for_function("() => document.querySelectorAll('.tokens.small .token').length === 3")
    assert [each.split()[-1] for each in read.evaluate_all("all => all.map((each) => each.className)")] == [
        *("still", "still", "forced")
    ]
    assert read.nth(2).get_attribute("title") == "forced"


@pytest.mark.slow
def test_unknown_token_is_rejected_and_the_view_stays(visit: Any) -> None:
    view = visit.open("steps", step=1)
    answer = view.locator(".tokens").first.inner_text()
    view.locator("#other-piece").fill("nobody")
    view.locator("#force").click()
    error_box = view.locator(".complaint")
    error_box.wait_for()
    assert "nobody" in error_box.inner_text()
    assert view.locator(".tokens").first.inner_text() == answer
    assert view.locator("#other-piece").input_value() == "nobody"
    assert "prefix" not in visit.page.evaluate("location.hash")
    view.locator("#other-piece").fill("了")
    view.locator("#force").click()
    view.locator(".token.forced").first.wait_for()
    assert view.locator(".complaint").count() == 0
    assert view.locator("#other-piece").input_value() == ""
    visit.ignore_errors("status of 4")


@pytest.mark.slow
def test_busy_error_offers_a_retry(visit: Any) -> None:
    visit.open()
    visit.page.route("**/api/v1/operations", lambda route: route.fulfill(status=429, json={"error": BUSY_ERROR}))
    try:
        visit.page.evaluate("fields => { location.hash = fields; }", f"view=calculator&lang=zh&text={UNCACHED_TEXT}")
        error_box = visit.page.locator("view-calculator .complaint")
        error_box.wait_for()
        assert "等待的请求太多" in error_box.inner_text()
    finally:
        visit.page.unroute_all()
    error_box.locator(".retry").click()
    visit.page.locator("view-calculator .story table").first.wait_for()
    visit.ignore_errors("status of 429")


@pytest.mark.slow
def test_unknown_words_are_shown_with_unk(visit: Any) -> None:
    view = visit.open(text="I saw zebra and yak", target="猫 zebra")
    lines = view.locator(".stage .tokens")
    assert lines.nth(0).locator(".token").all_inner_texts() == [
        *("I", "saw", "zebra <unk>", "and <unk>", "yak <unk>", "</s>")
    ]
    assert lines.nth(1).locator(".token").all_inner_texts() == ["猫", "zebra <unk>", "</s>"]
    assert view.locator("heat-map").evaluate("map => map.data.columnLabels")[2] == "zebra <unk>"
    visit.open(text="yak saw yak")
    assert visit.page.get_by_text("Not in the vocabulary: ").inner_text() == "Not in the vocabulary: yak"
    view = visit.open(site="decoder_self", text="I saw zebra", target="猫 zebra")
    assert view.locator("heat-map").evaluate("map => map.data.columnLabels") == ["<s>", "猫", "zebra <unk>"]


@pytest.mark.slow
def test_map_of_a_long_text_keeps_readable_proportions(visit: Any) -> None:
    view = visit.open(text=" ".join(["cat"] * 100), target="猫 坐")
    layout = view.locator("heat-map").evaluate("map => map.layout")
    assert layout["wide"] < 9
    assert layout["high"] >= 16
    columns = view.locator("heat-map").evaluate("map => map.scene.items.filter((each) => each.turn).length")
    assert 10 < columns < 101  # not every column has a label
    view = visit.open(text="cat", target=" ".join(["猫"] * 100))
    layout = view.locator("heat-map").evaluate("map => map.layout")
    assert layout["height"] < 1100
    assert layout["high"] < layout["wide"]


def test_hover_finds_the_cell_of_a_map_that_is_not_square(visit: Any) -> None:
    view = visit.open(text=" ".join(["cat"] * 100), target="猫 坐")
    layout = view.locator("heat-map").evaluate("map => map.layout")
    across, down = layout["left"] + 40.5 * layout["wide"], layout["top"] + 1.5 * layout["high"]
    view.locator("heat-map .map-box").hover(position={"x": across, "y": down})
    assert view.locator("heat-map").evaluate("map => map.chosen") == {"row": 1, "column": 40}
    assert "坐" in view.locator("heat-map .readout").inner_text()


@pytest.mark.slow
def test_steps_chart_has_both_scales_and_the_tokens(visit: Any) -> None:
    view = visit.open("steps")
    steps = visit.request("/steps", prefix=[])["steps"]
    largest = max(step["entropy"] for step in steps)
    assert view.locator(".spark-scale").first.locator("span").all_inner_texts() == [f"{largest:.2f}", "0"]
    assert view.locator(".spark-scale.of-end span").all_inner_texts() == ["100 %", "0 %"]
    assert view.locator(".spark-steps span").all_inner_texts() == [step["chosen"] for step in steps]
    assert view.locator(".spark-steps .now").inner_text() == steps[0]["chosen"]


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("number(-0.0001)", "0.000"),
        ("number(-0.004, 2)", "0.00"),
        ("number(-0.006, 2)", "−0.01"),
        ("number(0)", "0.000"),
        ("number(null)", "–"),
        ("signed(-0.0001)", "0.000"),
        ("signed(0.0001)", "0.000"),
        ("signed(0.5, 1)", "+0.5"),
        ("signed(-0.5, 1)", "−0.5"),
    ],
)
def test_rounded_zero_has_no_sign(visit: Any, call: str, shown: str) -> None:
    assert visit.page.evaluate(f"import('/page/dom.js').then(({{ number, signed }}) => {call})") == shown


@pytest.mark.slow
def test_tree_wider_than_the_page_shows_a_scroll_hint(visit: Any) -> None:
    view = visit.open("tree", kind="beam", max_length=4)
    hint = view.locator(".scrolls")
    assert hint.is_hidden()
    visit.page.set_viewport_size({"width": 400, "height": 800})
    hint.wait_for(state="visible")
    assert "sideways" in hint.inner_text()
    assert visit.page.locator(".tree-scroll").evaluate("box => box.scrollWidth > box.clientWidth")


def test_truncated_outputs_are_marked_in_comparisons(visit: Any) -> None:
    view = visit.open("compare", versus="decoders", max_length=2)
    assert [each.strip() for each in view.locator(".output .cut").all_inner_texts()] == ["cut at the length limit"] * 2
    view = visit.open("compare", versus="decoders")
    assert view.locator(".output .cut").count() == 0
    view = visit.open("ablation", heads="decoder.0.cross.0=0", max_length=2)
    assert view.locator(".output .cut").count() == 1


def test_missing_model_and_checkpoint_are_named(visit: Any) -> None:
    page = visit.page
    visit.open(model="gone <b>", checkpoint="step-00000099")
    notices = page.locator(".strange .notice")
    assert notices.nth(0).inner_text().startswith("The model “gone <b>” does not exist: run is shown instead.")
    assert "step-00000099" in notices.nth(1).inner_text()
    page.click("#language")
    assert wait_until(lambda: "没有名为“gone <b>”的模型" in notices.nth(0).inner_text())
    page.click("#drop-model")
    page.click("#drop-checkpoint")
    visit.wait_drawn("alignment")
    assert wait_until(lambda: (notices.count(), page.locator(".complaint").count()) == (0, 0))
    assert "gone" not in page.evaluate("location.hash")
    visit.ignore_errors("status of 4")
