"""The slider over all views: checkpoints of a run, played, read ahead, in the address, with one answer held."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from page_server import PATIENCE_MS, TEXT, Visit, finished_run, random_model, serving, wait_until

from attendo.model_folder import save_model
from attendo.serve.app import create_app
from attendo.serve.settings import ServeSettings

STEPS = (0, 3, 9, 27)
NAMES = [f"step-{step:08d}" for step in STEPS]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A run with weights-only checkpoints."""
    folder: Path = tmp_path_factory.mktemp("steps")
    run = finished_run(folder)
    for step in STEPS:
        save_model(folder / "weights" / f"step-{step:08d}", random_model(20 + step).stored_model, torch.float16)
    seconds = dict.fromkeys(("deadline_seconds", "max_queue_seconds", "watchdog_seconds", "body_timeout"), 600.0)
    with serving(create_app([run], ServeSettings(**seconds, header_timeout=600.0))) as server:
        yield server.address


def go_to(page: Any, position: int) -> None:
    page.locator("#checkpoint").fill(str(position))


def shown_weights(page: Any) -> list[float]:
    return [float(each) for each in page.locator("view-alignment heat-map").evaluate("map => [...map.data.values]")]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_each_position_shows_the_weights_of_its_step(visit: Any, language: str, width: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    visit.open(lang=language)
    target = visit.request("/answer")["hypotheses"][0]["text"]
    final = "final model" if language == "en" else "最终模型"
    assert page.locator(".timeline .counter").inner_text() == final
    for position, step in enumerate(STEPS):
        go_to(page, position)
        visit.wait_drawn("alignment")
        trace = visit.request("/trace", checkpoint=NAMES[position], target=target)
        assert wait_until(
            lambda trace=trace: (
                page.locator("view-alignment .note").first.text_content() is not None
                and page.evaluate("document.querySelector('view-alignment').data?.answer.log_probability")
                == trace["log_probability"]
            )
        )
        words = f"step {step}" if language == "en" else f"第 {step} 步"
        assert page.locator(".timeline .counter").inner_text() == words
        assert page.locator("#checkpoint").get_attribute("aria-valuetext") == words
        assert f"checkpoint={NAMES[position]}" in page.evaluate("location.hash")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    go_to(page, len(STEPS))
    assert wait_until(lambda: "checkpoint" not in page.evaluate("location.hash"))


def test_each_step_may_show_its_own_answer(visit: Any) -> None:
    page = visit.page
    visit.open(checkpoint=NAMES[1])
    shown = "document.querySelector('view-alignment').data?.answer.text"
    final, own = (visit.request("/answer", checkpoint=each)["hypotheses"][0]["text"] for each in (None, NAMES[1]))
    assert final != own
    assert wait_until(lambda: page.evaluate(shown) == final)
    assert wait_until(lambda: page.locator(".output .whole").count() == 1)
    assert page.locator(".output .whole").text_content() == own, "the answer above is the checkpoint's own"
    page.locator("#hold").click()
    assert wait_until(lambda: page.evaluate(shown) == own)
    assert "hold=false" in page.evaluate("location.hash")
    page.fill("#target", "a b")
    page.press("#target", "Tab")
    assert wait_until(lambda: page.evaluate(shown) == "a b")


def test_keys_move_the_slider_and_keep_the_focus(visit: Any) -> None:
    page = visit.page
    visit.open("heads")
    page.focus("#checkpoint")
    for key, expected in (("Home", 0), ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", len(STEPS))):
        page.keyboard.press(key)
        visit.wait_drawn("heads")
        assert page.evaluate("[document.activeElement.id, Number(document.activeElement.value)]") == [
            "checkpoint",
            expected,
        ]


def test_play_shows_every_step_and_stops_at_the_final_model(visit: Any) -> None:
    page = visit.page
    visit.open("heads")
    seen = page.evaluate_handle("[]")
    page.evaluate(
        """seen => { const view = document.querySelector('view-heads'), draw = view.draw.bind(view);
        view.draw = () => { draw(); seen.push(new URLSearchParams(location.hash.slice(1)).get('checkpoint')); }; }""",
        seen,
    )
    page.click("#timeline-play")
    assert page.locator("#timeline-play").inner_text() == "Pause"
    assert wait_until(lambda: page.locator("#timeline-play").inner_text() == "Play")
    drawn = list(seen.json_value())
    assert list(dict.fromkeys(drawn)) == [*NAMES, None]
    page.click("#timeline-play")
    page.click("#timeline-play")
    assert page.locator("#timeline-play").inner_text() == "Play"


@pytest.mark.parametrize("view", ["alignment", "steps", "calculator"])
def test_steps_that_were_read_ahead_need_no_request(visit: Any, view: str) -> None:
    page = visit.page
    visit.open(view)
    page.focus("#checkpoint")
    page.wait_for_function(f"() => document.querySelector('training-step').ready.size === {len(NAMES) + 1}")
    requests: list[str] = []

    def note(request: Any) -> None:
        if "/api/" in request.url and not request.url.endswith("/distribution"):
            requests.append(request.url)

    page.on("request", note)
    for position in (0, 3, 1, 2, 4):
        go_to(page, position)
        visit.wait_drawn(view)
    page.remove_listener("request", note)
    assert requests == []


def test_another_sentence_is_read_ahead_anew(visit: Any) -> None:
    page = visit.page
    visit.open()
    page.focus("#checkpoint")
    ready = "document.querySelector('training-step').ready.size"
    page.wait_for_function(f"() => {ready} === {len(NAMES) + 1}")
    page.fill("#source", "the cat sat")
    page.click("#translate")
    assert wait_until(lambda: page.evaluate(ready) == 0)
    go_to(page, 1)
    expected = visit.request("/answer", text="the cat sat")["hypotheses"][0]["text"]
    shown = "document.querySelector('view-alignment').data?.answer.text"
    assert wait_until(lambda: page.evaluate(shown) == expected), "the answer of the final model to the new sentence"


def test_the_page_does_not_move_while_steps_change(visit: Any) -> None:
    page = visit.page
    visit.open("heads")
    page.set_viewport_size({"width": 1024, "height": 400})
    page.evaluate("scrollTo(0, 500)")
    assert wait_until(lambda: page.evaluate("scrollY") > 300)
    place = "document.querySelector('view-heads').getBoundingClientRect().top"
    before = page.evaluate(place)
    for position in (0, 1, 2):
        page.evaluate(
            "at => { const s = document.getElementById('checkpoint'); s.value = at; "
            "s.dispatchEvent(new Event('input', { bubbles: true })); }",
            str(position),
        )
        visit.wait_drawn("heads")
    # The answer above the view may have more lines at another step. The page then scrolls by their height.
    assert wait_until(lambda: abs(page.evaluate(place) - before) <= 2)
    above = "document.querySelector('.strange').getBoundingClientRect().height"
    page.evaluate("document.querySelector('.strange').style.height = '64px'")
    assert wait_until(lambda: page.evaluate(above) == 64)
    assert wait_until(lambda: abs(page.evaluate(place) - before) <= 2)


def test_the_training_view_has_the_same_list(visit: Any) -> None:
    page = visit.page
    view = visit.open("training", checkpoint=NAMES[2])
    view.locator("map-grid").wait_for()
    assert view.locator("map-grid").evaluate("grid => grid.data.columns") == len(NAMES) + 1
    assert view.locator("section h3").last.inner_text().startswith("step 9")
    go_to(page, 0)
    assert wait_until(lambda: view.locator("section h3").last.inner_text().startswith("step 0"))
    corner = view.locator("map-grid").evaluate("grid => grid.corner(0, 3)")
    page.locator("#film").click(position={"x": corner["x"] + 9, "y": corner["y"] + 9})
    assert wait_until(lambda: page.locator("#checkpoint").input_value() == "3")
    assert wait_until(lambda: view.locator("section h3").last.inner_text().startswith("step 27"))


def test_a_run_without_them_offers_its_checkpoints_and_a_model_alone_no_slider(browser: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    for spec, expected in ((run, 2), (type(run)("alone", run.model), None)):
        with serving(create_app([spec], ServeSettings())) as server:
            page = browser.new_context().new_page()
            page.set_default_timeout(PATIENCE_MS)
            visit = Visit(page, server.address)
            visit.open("alignment", text=TEXT)
            if expected is None:
                assert page.locator("#checkpoint").count() == 0
            else:
                assert page.locator("#checkpoint").get_attribute("max") == str(expected)
            page.context.close()
