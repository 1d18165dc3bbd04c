"""X4: hostile text from the server stays text: no dialog, no new element, no violation of the CSP."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hostile_server import FAILS, hostile_app
from hostile_texts import PAYLOADS
from page_server import PATIENCE_MS, Visit, serving

HARMLESS = "harmless"
REPORTS = """
window.reports = [];
document.addEventListener("securitypolicyviolation", (event) => window.reports.push(event.violatedDirective));
"""
# All elements in order with the names of their attributes: injected HTML would add one. The attributes of the selected
# option are excluded, because they change with the selection.
ELEMENTS = """
() => [...document.querySelectorAll("*")].map((each) => [each.localName, ...each.getAttributeNames().sort()]
  .filter((name) => name !== "selected" && name !== "checked").join(" "))
"""
# True if the page shows this text and has finished drawing.
DRAWN = """
([view, place, text]) => [...document.querySelectorAll(place)].some((each) => each.textContent === text)
  && document.querySelector(`view-${view}:not([aria-busy]) h2`) && !document.querySelector("translate-bar.working")
"""
EVENTUALLY_EQUAL = f"""
async (expected) => {{
  for (const begin = performance.now(); performance.now() - begin < {PATIENCE_MS}; ) {{
    if (({ELEMENTS})().join() === expected.join()) return true;
    await new Promise(requestAnimationFrame);
  }}
  return false;
}}
"""
SETTLED_MS = 400  # time for elements that are drawn a frame later


class WatchedPage(Visit):
    """A page that records dialogs and violations of the CSP."""

    def __init__(self, page: Any, address: str) -> None:
        self.dialogs: list[str] = []
        page.on("dialog", lambda dialog: self.dialogs.append(dialog.message) or dialog.dismiss())
        page.add_init_script(REPORTS)
        super().__init__(page, address)

    def show(self, view: str, selector: str, shown: str, **fields: str) -> None:
        """Open this state of the page and wait until `selector` has this text."""
        state = {"view": view, "lang": "en", **fields}
        self.page.evaluate("fields => { location.hash = new URLSearchParams(fields).toString(); }", state)
        self.page.wait_for_function(DRAWN, arg=[view, selector, shown])

    def stable_elements(self) -> list[str]:
        """Its elements, after they have stopped changing."""
        before, found = None, list(self.page.evaluate(ELEMENTS))
        while found != before:
            self.page.wait_for_timeout(SETTLED_MS)
            before, found = found, list(self.page.evaluate(ELEMENTS))
        return found

    def has_elements(self, expected: list[str]) -> bool:
        """Whether it has exactly these elements, now or a few frames later."""
        return bool(self.page.evaluate(EVENTUALLY_EQUAL, expected))

    def texts(self, *selectors: str) -> list[str]:
        return list(
            self.page.evaluate("places => places.map((each) => document.querySelector(each).textContent)", selectors)
        )

    def effects(self) -> list[str]:
        """Everything a hostile text has caused. An error response also appears in the console and is expected."""
        self.page.wait_for_timeout(SETTLED_MS)
        errors = [each for each in self.problems() if "status of 400" not in each]
        return [*errors, *self.dialogs, *self.page.evaluate("window.reports")]


@pytest.fixture(scope="module")
def hostile_address() -> Iterator[str]:
    with serving(hostile_app((HARMLESS, *PAYLOADS))) as server:
        yield server.address


@pytest.fixture
def watched_page(fresh_page: Any, hostile_address: str) -> WatchedPage:
    return WatchedPage(fresh_page, hostile_address)


@pytest.fixture(params=[PAYLOADS[::30], pytest.param(PAYLOADS, marks=pytest.mark.slow)], ids=["some", "all of them"])
def payloads(request: pytest.FixtureRequest) -> Sequence[str]:
    return tuple(request.param)


def test_there_are_at_least_40_payloads() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 40


def test_hostile_outputs_pieces_and_model_names_stay_text(watched_page: WatchedPage, payloads: Sequence[str]) -> None:
    """The same text is the source, each piece, the output, the alternatives, the model and its languages."""
    selector = ".output .whole"
    watched_page.show("alignment", selector, HARMLESS, text=HARMLESS, model=HARMLESS)
    expected = watched_page.stable_elements()
    for text in payloads:
        watched_page.show("alignment", selector, text, text=text, model=text)
        assert watched_page.has_elements(expected), text
        model, facts = watched_page.texts("#model option:checked", "header .facts")
        assert (model, facts.split(" · 1 ")[0]) == (text, f"{text} → {text}")
    assert watched_page.effects() == []


@pytest.mark.slow
def test_hostile_errors_and_choices_stay_text(watched_page: WatchedPage, payloads: Sequence[str]) -> None:
    selector = "view-alignment .complaint > p"
    watched_page.show("alignment", selector, HARMLESS, text=f"{FAILS}{HARMLESS}")
    expected = watched_page.stable_elements()
    for text in payloads:
        watched_page.show("alignment", selector, text, text=f"{FAILS}{text}")
        assert watched_page.has_elements(expected), text
        assert watched_page.texts("view-alignment .sentences summary", "view-alignment .sentences li") == [text, text]
    assert watched_page.effects() == []


@pytest.mark.slow
def test_hostile_metric_names_stay_text(watched_page: WatchedPage, payloads: Sequence[str]) -> None:
    """All names are shown at once; then each curve is drawn."""
    selector, fields = "view-training .card h3", {"text": HARMLESS, "model": HARMLESS}
    watched_page.show("training", selector, HARMLESS, curve=HARMLESS, **fields)
    expected = watched_page.stable_elements()
    assert set(PAYLOADS) <= set(watched_page.page.locator("view-training .controls label").all_text_contents())
    for text in payloads:
        watched_page.show("training", selector, text, curve=text, **fields)
        assert watched_page.has_elements(expected), text
    assert watched_page.effects() == []
