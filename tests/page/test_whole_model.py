"""The home view: the whole model with the numbers of the server, followed, opened, played, in both languages."""

from typing import Any

import pytest
from page_server import TEXT, Visit, wait_until

TARGET = "小 猫 坐 着"
SMALL = {"target": TARGET}


def read_distribution(view: Any) -> list[tuple[int, str]]:
    rows = view.locator(".distribution li")
    return [
        (int(rows.nth(n).get_attribute("data-token")), rows.nth(n).locator(".number").inner_text())
        for n in range(rows.count())
    ]


def as_percent(share: float) -> str:
    if 0 < share < 0.001:
        return "< 0.01 %" if share < 1e-4 else f"{100 * share:.2f} %"
    return f"{100 * share:.1f} %"


@pytest.mark.short(1)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_both_stacks_and_the_distribution_are_those_of_the_server(visit: Any, lang: str) -> None:
    view = visit.open("home", **SMALL, step=1, lang=lang)
    answer = visit.request("/forward", target=TARGET)
    boxes = view.locator("[data-box]").evaluate_all("all => all.map((each) => each.dataset.box)")
    assert boxes[0] == "source.tokens"
    assert boxes[-1] == "output.probabilities"
    assert boxes.index("memory") < boxes.index("target.tokens") < boxes.index("decoder.0.cross")
    pieces = view.locator("[data-stack=encoder] .chip").all_inner_texts()
    assert pieces == answer["source"]["pieces"]
    read = view.locator("[data-stack=decoder] .chips[data-kind=read] .chip").all_inner_texts()
    predicted = view.locator(".chips[data-kind=predicted] .chip").all_inner_texts()
    assert read[1:] == predicted[:-1]  # the shift by one
    found = read_distribution(view)
    expected = [(each["id"], as_percent(each["probability"])) for each in answer["steps"][1]["top"]]
    assert found[: len(expected) - 1] == expected[:-1]
    visit.page.locator("#home-after").click()
    assert wait_until(lambda: read_distribution(view)[0][0] == answer["steps"][2]["top"][0]["id"])


def test_generating_hides_later_tokens_and_training_shows_all(visit: Any) -> None:
    view = visit.open("home", **SMALL, step=1)
    future = view.locator("[data-stack=decoder] .chip.future")
    count = len(TARGET.split()) + 1
    assert future.count() == 2 * (count - 2)
    queries = view.locator('[data-box="decoder.0.self"] .shape')
    assert queries.inner_text().startswith("Q [2, 1,")
    visit.page.locator("#teacher-true").check(force=True)
    assert wait_until(lambda: future.count() == 0)
    assert queries.inner_text().startswith(f"Q [2, {count},")
    assert "teacher=true" in visit.page.evaluate("location.hash")


@pytest.mark.short(1)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_boxes_open_in_place_with_numbers_of_the_calculator(visit: Any, lang: str) -> None:
    view = visit.open("home", **SMALL, lang=lang)
    page = visit.page
    page.locator('[id="box-decoder.1.cross"]').click()
    panel = view.locator('[data-box="decoder.1.cross"] module-panel')
    panel.locator("heat-map").wait_for()
    assert panel.locator(".chain li").count() == 9  # Q, K, V, QKᵀ, S, mask, softmax, mixture, output
    calculation = visit.request("/calculation", target=TARGET, operation="decoder.1.cross.weights", head=0)
    labels = [
        f"chain-decoder.1.cross.{each}" for each in ("queries", "keys", "products", "scores", "masked", "weights")
    ]
    for label in labels:
        assert panel.locator(f'[id="{label}"] canvas').count() == 1, label
    shown = panel.locator("heat-map").evaluate("map => [...map.data.values]")
    columns = calculation["columns"]["count"]
    assert len(shown) == columns * calculation["rows"]["count"]
    for row in range(0, len(shown), columns):
        assert sum(shown[row : row + columns]) == pytest.approx(1, abs=1e-5)
    panel.locator('[id="chain-decoder.1.cross.products"]').click()
    assert wait_until(lambda: panel.locator('[aria-current="true"]').get_attribute("id").endswith("products"))
    assert panel.locator(".story table").count() >= 1
    page.locator('[id="head-decoder.1.cross.1"]').click()
    assert wait_until(lambda: panel.locator("select").input_value() == "1")
    page.locator('[id="box-decoder.0.feed_forward"]').click()
    view.locator('[data-box="decoder.0.feed_forward"] module-panel heat-map').wait_for()
    assert view.locator("module-panel").count() == 1
    page.locator('[id="box-decoder.0.feed_forward"]').click()
    assert wait_until(lambda: view.locator("module-panel").count() == 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "box",
    [
        "source.tokens",
        "source.embedding",
        "target.positions",
        "encoder.0.self.norm",
        "output.logits",
        "output.probabilities",
    ],
)
def test_every_kind_of_box_opens(visit: Any, box: str) -> None:
    view = visit.open("home", **SMALL, module=box)
    panel = view.locator("module-panel")
    panel.locator("heat-map").wait_for()
    assert panel.locator(".complaint").count() == 0
    panel.locator("#to-calculator").click()
    visit.wait_drawn("calculator")


def test_play_goes_through_the_boxes_and_then_to_the_next_token(visit: Any) -> None:
    view = visit.open("home", **SMALL)
    page = visit.page
    order: list[str] = []
    count = page.evaluate("document.querySelector('view-home').sequence().length")
    for _ in range(count):
        page.locator("#box-after").click()
        order.append(view.locator(".lit").get_attribute("data-box"))
    assert order == page.evaluate("document.querySelector('view-home').sequence().map((box) => box.id)")
    page.locator("#box-after").click()
    assert wait_until(lambda: "step=1" in page.evaluate("location.hash"))
    # The encoder is not computed again.
    assert view.locator(".lit").get_attribute("data-box") == "target.tokens"
    page.locator("#home-play").click()
    assert wait_until(lambda: view.locator(".lit").get_attribute("data-box") != "target.tokens")
    page.locator("#home-play").click()
    assert "Play" in page.locator("#home-play").inner_text()


@pytest.mark.short(1)
@pytest.mark.parametrize("lang", ["en", "zh"])
def test_token_is_followed_by_pointer_and_by_keyboard(visit: Any, lang: str) -> None:
    view = visit.open("home", **SMALL, lang=lang)
    page = visit.page
    view.locator('[id="read-encoder-2"]').hover()
    assert wait_until(lambda: view.locator("[data-stack=encoder].held").count() == 1)
    assert view.locator("[data-stack=encoder] > .lane").evaluate("lane => lane.style.getPropertyValue('--at')") == "2"
    assert "‖x‖" in view.locator(".caption").inner_text()
    looking = view.locator('[data-box="encoder.0.self"] .looking')
    assert looking.inner_text().startswith(view.locator('[id="read-encoder-2"]').inner_text())
    page.mouse.move(0, 0)
    view.locator('[id="read-encoder-0"]').focus()
    page.keyboard.press("ArrowRight")
    assert wait_until(
        lambda: view.locator("[data-stack=encoder] > .lane").evaluate("s => s.style.getPropertyValue('--at')") == "1"
    )
    page.keyboard.press("Enter")
    assert wait_until(lambda: "follow=encoder.1" in page.evaluate("location.hash"))
    assert view.locator('[id="read-encoder-1"]').get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("width", [1440, 390])
def test_every_token_is_named_in_full(visit: Any, width: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    for text, upright in (("the cat", False), ("a fascinating cat saw the cat saw the cat", True)):
        view = visit.open("home", **SMALL, text=text)
        upright_stack = view.locator("[data-stack=encoder].upright")
        assert wait_until(lambda found=upright_stack, upright=upright: found.count() == upright)
        cut = "all => all.filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.textContent)"
        assert view.locator("[data-stack=encoder] .chip span").evaluate_all(cut) == []


def test_edited_parts_are_drawn_as_off(visit: Any) -> None:
    view = visit.open("home", **SMALL, heads="decoder.0.cross.1=0", edits="off:decoder.1.feed_forward")
    assert view.locator('[data-box="decoder.1.feed_forward"].off').count() == 1
    assert view.locator(".head.off").evaluate_all("all => all.map((each) => each.id)") == ["head-decoder.0.cross.1"]


@pytest.mark.short(1)
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_nothing_is_wider_than_the_page(visit: Any, width: int) -> None:
    visit.page.set_viewport_size({"width": width, "height": 900})
    view = visit.open("home", **SMALL, module="decoder.0.self")
    view.locator("module-panel heat-map").wait_for()
    assert visit.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_training_step_and_language_keep_the_view(fresh_page: Any, address: str) -> None:
    visit = Visit(fresh_page, address)
    view = visit.open("home", text=TEXT, checkpoint="step-00000010")
    answer = view.locator(".distribution li").first.inner_text()
    visit.open("home", text=TEXT)
    assert view.locator(".distribution li").first.inner_text() != answer
    fresh_page.click("#language")
    assert wait_until(lambda: "编码器" in view.locator("[data-stack=encoder] h3").inner_text())
    assert visit.problems() == []
