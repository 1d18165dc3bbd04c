"""X4: whatever a server says, in whatever place, stays text: no dialog, no element, no report of the policy."""

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
# Every element in its order, with the names of its attributes: what a text has made of itself would be one more. Left
# out is what moves with a choice among options that are the same for all texts.
ELEMENTS = """
() => [...document.querySelectorAll("*")].map((each) => [each.localName, ...each.getAttributeNames().sort()]
  .filter((name) => name !== "selected" && name !== "checked").join(" "))
"""
# The page was drawn for this text, and is at rest.
DRAWN = """
([view, place, text]) => [...document.querySelectorAll(place)].some((each) => each.textContent === text)
  && document.querySelector(`view-${view}:not([aria-busy]) h2`) && !document.querySelector("translate-bar.working")
"""
LATER = f"""
async (expected) => {{
  for (const begin = performance.now(); performance.now() - begin < {PATIENCE_MS}; ) {{
    if (({ELEMENTS})().join() === expected.join()) return true;
    await new Promise(requestAnimationFrame);
  }}
  return false;
}}
"""
SETTLED_MS = 400  # what is drawn a frame later is there, too


class Watched(Visit):
    """A page with everything that a hostile text could have done."""

    def __init__(self, page: Any, address: str) -> None:
        self.dialogs: list[str] = []
        page.on("dialog", lambda dialog: self.dialogs.append(dialog.message) or dialog.dismiss())
        page.add_init_script(REPORTS)
        super().__init__(page, address)

    def show(self, view: str, place: str, said: str, **fields: str) -> None:
        """The page in that state, where `place` says this."""
        state = {"view": view, "lang": "en", **fields}
        self.page.evaluate("fields => { location.hash = new URLSearchParams(fields).toString(); }", state)
        self.page.wait_for_function(DRAWN, arg=[view, place, said])

    def settled(self) -> list[str]:
        """Its elements, once they stay the same."""
        before, found = None, list(self.page.evaluate(ELEMENTS))
        while found != before:
            self.page.wait_for_timeout(SETTLED_MS)
            before, found = found, list(self.page.evaluate(ELEMENTS))
        return found

    def has(self, expected: list[str]) -> bool:
        """Whether it has these elements and no other, now or a few frames later."""
        return bool(self.page.evaluate(LATER, expected))

    def says(self, *places: str) -> list[str]:
        return list(
            self.page.evaluate("places => places.map((each) => document.querySelector(each).textContent)", places)
        )

    def harm(self) -> list[str]:
        """An error that the page shows is also one in the console; that is no harm."""
        self.page.wait_for_timeout(SETTLED_MS)
        told = [each for each in self.troubles() if "status of 400" not in each]
        return [*told, *self.dialogs, *self.page.evaluate("window.reports")]


@pytest.fixture(scope="module")
def hostile_address() -> Iterator[str]:
    with serving(hostile_app((HARMLESS, *PAYLOADS))) as server:
        yield server.address


@pytest.fixture
def watched(fresh_page: Any, hostile_address: str) -> Watched:
    return Watched(fresh_page, hostile_address)


@pytest.fixture(params=[PAYLOADS[::30], pytest.param(PAYLOADS, marks=pytest.mark.slow)], ids=["some", "all of them"])
def payloads(request: pytest.FixtureRequest) -> Sequence[str]:
    return tuple(request.param)


def test_there_are_enough_of_them() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 40


def test_a_text_an_answer_pieces_and_the_names_of_a_model_stay_text(watched: Watched, payloads: Sequence[str]) -> None:
    """One text is the source, each of its pieces, the answer, other answers, the model and its languages."""
    place = ".output .whole"
    watched.show("alignment", place, HARMLESS, text=HARMLESS, model=HARMLESS)
    expected = watched.settled()
    for text in payloads:
        watched.show("alignment", place, text, text=text, model=text)
        assert watched.has(expected), text
        model, facts = watched.says("#model option:checked", "header .facts")
        assert (model, facts.split(" · 1 ")[0]) == (text, f"{text} → {text}")
    assert watched.harm() == []


@pytest.mark.slow
def test_an_error_and_what_may_be_done_about_it_stay_text(watched: Watched, payloads: Sequence[str]) -> None:
    place = "view-alignment .complaint > p"
    watched.show("alignment", place, HARMLESS, text=f"{FAILS}{HARMLESS}")
    expected = watched.settled()
    for text in payloads:
        watched.show("alignment", place, text, text=f"{FAILS}{text}")
        assert watched.has(expected), text
        assert watched.says("view-alignment .sentences summary", "view-alignment .sentences li") == [text, text]
    assert watched.harm() == []


@pytest.mark.slow
def test_the_names_of_metrics_stay_text(watched: Watched, payloads: Sequence[str]) -> None:
    """All of them are there at once; each is then the one that is drawn."""
    place, fields = "view-training .card h3", {"text": HARMLESS, "model": HARMLESS}
    watched.show("training", place, HARMLESS, curve=HARMLESS, **fields)
    expected = watched.settled()
    assert set(PAYLOADS) <= set(watched.page.locator("view-training .controls label").all_text_contents())
    for text in payloads:
        watched.show("training", place, text, curve=text, **fields)
        assert watched.has(expected), text
    assert watched.harm() == []
