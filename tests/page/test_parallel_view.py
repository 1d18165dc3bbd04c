"""The page of models that predict all tokens at once, with an autoregressive model beside them."""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_server import PATIENCE_MS, TEXT, Visit, random_model, serving
from test_accessibility import serious_violations
from test_exports import export
from tiny import parallel_model

KINDS = ("graph", "ctc", "masked")


@pytest.fixture(scope="module")
def kinds_address() -> Iterator[str]:
    from attendo.serve.app import create_app
    from attendo.serve.scheduling.registry import ModelSpec
    from attendo.serve.settings import ServeSettings

    models = [ModelSpec(kind, parallel_model(kind, upsample=2 if kind == "graph" else None)) for kind in KINDS]
    seconds = dict.fromkeys(("deadline_seconds", "max_queue_seconds", "watchdog_seconds", "body_timeout"), 600.0)
    app = create_app([*models, ModelSpec("steps", random_model())], ServeSettings(**seconds, header_timeout=600.0))
    with serving(app) as server:
        yield server.address


@pytest.fixture
def kinds(visit_address: Callable[[str], Visit], kinds_address: str) -> Iterator[Visit]:
    shared = visit_address(kinds_address)
    shared.page.emulate_media(color_scheme="light")
    shared.page.set_viewport_size({"width": 1280, "height": 900})
    yield shared
    assert shared.problems() == []


def open_kind(visit: Visit, kind: str, /, **state: Any) -> Any:
    """Open the page with a model, and wait until its view has its data."""
    fields = {"view": "parallel", "lang": "en", "text": TEXT, "model": kind, **state}
    visit.page.evaluate("fields => { location.hash = new URLSearchParams(fields).toString(); }", fields)
    visit.page.wait_for_function("name => document.querySelector('#model')?.value === name", arg=kind)
    view = visit.wait_drawn("parallel" if fields["view"] != "home" else "home")
    if fields["view"] == "home":
        return view
    view.locator(".card").first.wait_for(timeout=PATIENCE_MS)
    return view


def test_a_beam_chosen_for_another_model_is_not_requested(kinds: Visit) -> None:
    open_kind(kinds, "masked")
    with kinds.page.expect_request("**/answer") as asked:
        open_kind(kinds, "ctc", kind="beam")
    assert asked.value.post_data_json["decoder"] == {"kind": "greedy"}
    kinds.page.locator(".output .whole").first.wait_for(timeout=PATIENCE_MS)


def test_a_graph_is_drawn_with_its_chosen_path(kinds: Visit) -> None:
    view = open_kind(kinds, "graph")
    trace = kinds.request("/parallel", model="graph")
    path = [each for each in trace["vertices"] if each["chosen"]]
    marks = view.locator(".vertex.chosen")
    assert marks.count() == len(path)
    assert view.locator(".vertex.chosen .piece").all_text_contents() == ["start", *trace["predicted"]["pieces"], "end"]
    lefts = view.locator(".vertex").evaluate_all("all => all.map((each) => each.getBoundingClientRect().left)")
    assert lefts == sorted(lefts)
    assert view.locator(".link.chosen").count() == len(path) - 1
    first = marks.nth(1)
    first.hover()
    assert f"Position {path[1]['position']}, visited by" in view.locator(".readout").inner_text()


def test_arrow_keys_move_between_vertices_and_along_the_path(kinds: Visit) -> None:
    view = open_kind(kinds, "graph")
    vertices = kinds.request("/parallel", model="graph")["vertices"]
    shown = [each for each in vertices if each["chosen"] or each["pass_probability"] >= 0.01]
    view.locator(".vertex").first.focus()
    kinds.page.keyboard.press("ArrowRight")
    assert f"Position {shown[1]['position']}," in view.locator(".readout").inner_text()
    kinds.page.keyboard.press("ArrowLeft")
    kinds.page.keyboard.press("ArrowDown")
    chosen = next(each for each in shown[1:] if each["chosen"])
    assert f"Position {chosen['position']}," in view.locator(".readout").inner_text()


def test_every_pass_is_a_row_of_coloured_tokens(kinds: Visit) -> None:
    view = open_kind(kinds, "masked", passes=4)
    trace = kinds.request("/parallel", model="masked", passes=4)
    rows = view.locator(".passes tbody tr")
    assert rows.count() == 4
    for n, tokens in enumerate(trace["passes"]):
        cells = rows.nth(n).locator("td")
        assert [each.split("\n")[0] for each in cells.all_inner_texts()] == [each["piece"] for each in tokens]
        assert cells.evaluate_all("all => all.map((each) => each.classList.contains('again'))") == [
            each["predicted"] for each in tokens
        ]
    view.locator("#passes").fill("2")
    view.locator("#passes").press("Enter")
    kinds.page.wait_for_function("() => document.querySelectorAll('.passes tbody tr').length === 2")


def test_the_ctc_strip_has_every_position_and_the_merged_answer(kinds: Visit) -> None:
    view = open_kind(kinds, "ctc")
    trace = kinds.request("/parallel", model="ctc")
    assert view.locator(".tile").count() == len(trace["positions"])
    assert view.locator(".tile.blank").count() == sum(each["blank"] for each in trace["positions"])
    merged = [each for each in view.locator(".runs b").all_inner_texts() if each]
    assert merged == trace["predicted"]["pieces"]


def test_the_steps_of_an_autoregressive_model_stand_beside(kinds: Visit) -> None:
    view = open_kind(kinds, "ctc")
    steps = kinds.request("/steps", model="steps", prefix=[])
    rows = view.locator(".card").last.locator("tbody tr")
    assert rows.locator("th").all_inner_texts() == [each["chosen"] for each in steps["steps"]]
    assert steps["text"] in view.locator(".card").last.inner_text()


def test_views_of_autoregressive_models_are_hidden_and_come_back(kinds: Visit) -> None:
    open_kind(kinds, "graph")
    assert kinds.page.locator(".tabs button").all_inner_texts() == ["Whole model", "All at once", "Training"]
    assert kinds.page.locator("#kind-beam").count() == 0
    kinds.page.select_option("#model", "steps")
    kinds.wait_drawn("home")
    assert kinds.page.locator("#tab-parallel").count() == 0
    assert kinds.page.locator("#tab-alignment").count() == 1
    kinds.page.select_option("#model", "masked")
    kinds.page.locator("#tab-parallel").click()
    kinds.wait_drawn("parallel")
    kinds.page.click("#tab-training")
    kinds.wait_drawn("training")


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_serious_violation_in_the_view(kinds: Visit, kind: str) -> None:
    open_kind(kinds, kind)
    assert serious_violations(kinds) == []
    kinds.page.emulate_media(color_scheme="dark")
    assert serious_violations(kinds, options={"resultTypes": ["violations"], "runOnly": ["color-contrast"]}) == []


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_wider_than_a_phone(kinds: Visit, kind: str) -> None:
    open_kind(kinds, kind)
    kinds.page.set_viewport_size({"width": 390, "height": 800})
    assert kinds.page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("kind", KINDS)
def test_the_view_is_exported(kinds: Visit, kind: str, tmp_path: Path) -> None:
    open_kind(kinds, kind)
    drawing = ElementTree.parse(export(kinds.page, "svg", tmp_path)).getroot()
    assert len(list(drawing.iter())) > 10
    content = json.loads(export(kinds.page, "json", tmp_path).read_text("utf-8"))
    assert (content["view"], content["data"]["kind"]) == ("parallel", kind)


@pytest.mark.slow
def test_the_saved_page_has_the_view(kinds: Visit, fresh_page: Any, tmp_path: Path) -> None:
    open_kind(kinds, "graph")
    path = export(kinds.page, "html", tmp_path)
    fresh_page.context.set_offline(True)
    saved = Visit(fresh_page, "about:blank")
    fresh_page.goto(path.as_uri())
    assert saved.wait_drawn("parallel").locator(".vertex.chosen").count() > 1
    assert fresh_page.locator(".complaint").all_inner_texts() == []
    assert saved.problems() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_network_is_drawn_with_its_last_pass(kinds: Visit, kind: str) -> None:
    view = open_kind(kinds, kind, view="home")
    view.locator(".distribution li").first.wait_for(timeout=PATIENCE_MS)
    answer = kinds.request("/forward", model=kind)
    assert view.locator(".chips[data-kind=predicted] .chip").all_inner_texts() == [
        each or "·" for each in answer["target"]["predicted"]
    ]
    assert view.locator("#teacher-false").count() == 0
    kinds.page.locator('[id="box-decoder.0.self"]').click()
    view.locator("module-panel heat-map").wait_for()
    assert view.locator("module-panel .complaint").count() == 0
