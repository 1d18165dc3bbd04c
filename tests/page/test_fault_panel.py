"""The panel with the faults of an answer: asked when opened, marked in the text, evidence in both languages."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from page_server import TEXT, Visit, random_model, serving
from test_accessibility import serious_violations, tab_to
from tiny import parallel_model, without_source

LOOP = "a a dog"  # the random model repeats itself


@pytest.fixture(scope="module")
def checked_address() -> Iterator[str]:
    from attendo.serve.app import create_app
    from attendo.serve.scheduling.registry import ModelSpec
    from attendo.serve.settings import ServeSettings

    models = [ModelSpec("steps", random_model()), ModelSpec("masked", parallel_model("masked"))]
    seconds = dict.fromkeys(("deadline_seconds", "max_queue_seconds", "watchdog_seconds", "body_timeout"), 600.0)
    app = create_app([*models, ModelSpec("language", without_source())], ServeSettings(**seconds, header_timeout=600.0))
    with serving(app) as server:
        yield server.address


@pytest.fixture
def checked(visit_address: Callable[[str], Visit], checked_address: str) -> Iterator[Visit]:
    shared = visit_address(checked_address)
    shared.page.emulate_media(color_scheme="light")
    shared.page.set_viewport_size({"width": 1280, "height": 900})
    yield shared
    assert shared.problems() == []


def open_panel(visit: Visit, **state: Any) -> Any:
    """Open the page with the panel, and wait for the faults."""
    fields = {"view": "home", "lang": "en", "text": TEXT, "model": "steps", **state}
    visit.page.evaluate("fields => { location.hash = new URLSearchParams(fields).toString(); }", fields)
    wait_for_answer(visit, fields["model"], fields["text"])
    panel = visit.page.locator("fault-panel")
    if not panel.locator("details").evaluate("each => each.open"):
        panel.locator("summary").click()
    panel.locator("li, .note").first.wait_for()
    visit.page.wait_for_function("() => !document.querySelector('fault-panel .note')?.textContent.includes('…')")
    return panel


def wait_for_answer(visit: Visit, model: str, text: str) -> None:
    """Wait until the page shows the answer of this model to this text."""
    body = {"model": model, "text": text, "decoder": {"kind": "greedy"}}
    expected = visit.request("/answer", **body)["hypotheses"][0]["text"]
    visit.page.wait_for_function(
        """([model, text, answer]) => document.querySelector("#model")?.value === model
          && document.querySelector("#source").value === text && !document.querySelector("translate-bar.working")
          && document.querySelector("translate-bar .output")?.textContent.startsWith(answer)""",
        arg=[model, text, expected],
    )


def find_faults(visit: Visit, **body: Any) -> tuple[str, list[dict[str, Any]]]:
    """Return the answer of the server, and its faults."""
    best = visit.request("/answer", model="steps", **body)["hypotheses"][0]
    found = visit.request("/check", model="steps", target=best["text"], cut=best["cut"], **body)
    return best["text"], found["faults"]


def test_faults_are_listed_with_their_evidence(checked: Visit) -> None:
    panel = open_panel(checked, text=LOOP)
    _, faults = find_faults(checked, text=LOOP)
    assert faults
    listed = panel.locator("li").all_text_contents()
    assert len(listed) == len(faults)
    assert all(fault["evidence"] in text for fault, text in zip(faults, listed, strict=True))
    chinese = open_panel(checked, text=LOOP, lang="zh").locator("li").all_text_contents()
    assert all(fault["evidence_zh"] in text for fault, text in zip(faults, chinese, strict=True))


def test_places_of_faults_are_marked_in_the_text(checked: Visit) -> None:
    texts = (TEXT, LOOP, "I love NLP", "the dog", "saw the cat")
    marked = 0
    for text in texts:
        panel = open_panel(checked, text=text)
        answer, faults = find_faults(checked, text=text)
        parts = [each for each in faults if each["where"][1] - each["where"][0] < len(answer)]
        if not parts:
            assert panel.locator("mark").count() == 0
            continue
        assert panel.locator(".output").text_content() == answer
        covered = {n for each in parts for n in range(*each["where"])}
        shown = "".join(panel.locator("mark").all_text_contents())
        assert shown == "".join(letter for n, letter in enumerate(answer) if n in covered)
        marked += 1
    assert marked


def test_the_panel_asks_only_when_it_is_open(checked: Visit) -> None:
    panel = open_panel(checked)
    panel.locator("summary").click()
    checked.page.wait_for_function("() => !document.querySelector('fault-panel details').open")
    asked: list[str] = []
    checked.page.on("request", lambda request: asked.append(request.url))
    fields = {"view": "home", "lang": "en", "text": "the dog ran", "model": "steps"}
    checked.page.evaluate("fields => { location.hash = new URLSearchParams(fields).toString(); }", fields)
    wait_for_answer(checked, "steps", "the dog ran")
    assert not [each for each in asked if each.endswith("/check")]


def test_the_keyboard_opens_the_panel_and_axe_finds_no_problem(checked: Visit) -> None:
    open_panel(checked, text=LOOP)
    checked.page.locator("fault-panel summary").click()
    checked.page.locator("#source").focus()
    tab_to(checked.page, "faults")
    checked.page.keyboard.press("Enter")
    checked.page.locator("fault-panel li").first.wait_for()
    assert serious_violations(checked) == []
    checked.page.emulate_media(color_scheme="dark")
    assert serious_violations(checked, options={"runOnly": ["color-contrast"]}) == []


@pytest.mark.parametrize("width", [1440, 390])
def test_the_panel_fits_into_the_page(checked: Visit, width: int) -> None:
    checked.page.set_viewport_size({"width": width, "height": 844})
    open_panel(checked, text=LOOP)
    assert checked.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_model_without_likelihood_says_so_and_one_without_source_has_no_panel(checked: Visit) -> None:
    panel = open_panel(checked, model="masked")
    assert "likelihood" in " ".join(panel.locator(".note").all_text_contents())
    fields = {"view": "home", "lang": "en", "text": "the", "model": "language"}
    checked.page.evaluate("fields => { location.hash = new URLSearchParams(fields).toString(); }", fields)
    wait_for_answer(checked, "language", "the")
    assert checked.page.locator("fault-panel").count() == 0
