"""The tour: ten stations, each with a question before its view, in both languages and at three widths."""

from typing import Any

import pytest
from page_server import VIEWS, wait_until
from test_accessibility import serious_violations

SHOWN = ["home", "calculator", "heads", "alignment", "mask", "steps", "tree", "ablation", "representations", "heads"]


def is_veiled(page: Any) -> bool:
    return bool(page.evaluate("document.getElementById('main').inert"))


def guess(page: Any, number: int) -> str:
    """Guess, wait for the answer and return it."""
    page.click(f"#guess-{number}")
    page.locator("page-tour .guesses .right").wait_for()
    return str(page.locator("page-tour .guesses .right").inner_text())


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("lang", "width"),
    [
        ("en", 1440),
        pytest.param("zh", 390, marks=pytest.mark.slow),
        pytest.param("zh", 1024, marks=pytest.mark.slow),
        pytest.param("en", 390, marks=pytest.mark.slow),
    ],
)
def test_ten_stations_show_their_view_after_the_guess(visit: Any, lang: str, width: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    visit.open("home", lang=lang)
    page.click("#tour")
    views = []
    for number in range(1, 11):
        page.locator("page-tour h2", has_text=f" {number} ").wait_for()
        assert is_veiled(page), "the view is hidden before the guess"
        guess(page, 0)
        assert not is_veiled(page)
        page.locator("main h2").wait_for()
        views.append(page.locator("main").evaluate("main => main.firstElementChild.constructor.name.toLowerCase()"))
        told = page.locator("page-tour [role=status]").inner_text()
        assert any("\u4e00" <= sign <= "\u9fff" for sign in told) == (lang == "zh")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, "nothing is wider than the page"
        if number < 10:
            page.click("#tour-next")
    assert views == SHOWN
    assert set(SHOWN) <= set(VIEWS)
    page.click("#tour-leave")
    assert wait_until(lambda: page.locator("page-tour section").count() == 0)
    assert not is_veiled(page)


def test_answers_of_the_mask_and_of_switched_off_heads_are_measured(visit: Any) -> None:
    page = visit.page
    visit.open("home", tour=5)
    mask = visit.request("/mask", site="decoder_self", layer=0, head=0)
    change = mask["loss_unmasked"] - mask["loss_usual"]
    assert abs(change) > 0.001
    assert ("falls" in guess(page, 2)) == (change < 0)
    assert "✗" in page.locator("#guess-2").inner_text()
    visit.open("ablation", tour=8, heads="decoder.1.cross.0=0,decoder.1.cross.1=0")
    ablation = visit.request("/ablate", heads={"decoder.1.cross": {"0": 0, "1": 0}})
    stays = ablation["before"]["text"] == ablation["after"]["text"]
    assert ("stays" in guess(page, 0)) == stays


def test_the_tour_is_used_by_keyboard_and_has_no_serious_violation(visit: Any) -> None:
    page = visit.page
    visit.open("home")
    page.focus("#tour")
    page.keyboard.press("Enter")
    page.locator("#guess-0").wait_for()
    assert serious_violations(visit) == []
    page.focus("#guess-1")
    page.keyboard.press("Enter")
    page.locator("page-tour .guesses .right").wait_for()
    assert wait_until(lambda: page.evaluate("document.activeElement.id") == "tour-next")
    assert serious_violations(visit) == []
    page.keyboard.press("Enter")
    page.locator("page-tour h2", has_text=" 2 ").wait_for()
    page.go_back()
    page.locator("page-tour h2", has_text=" 1 ").wait_for()


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("number", [2, 10])
def test_a_permalink_to_a_station_opens_at_its_question(visit: Any, width: int, number: int) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 844})
    visit.open(SHOWN[number - 1], tour=number, **({"checkpoint": "step-00000010"} if number == 10 else {}))
    page.locator("main h2").wait_for()
    top = "document.querySelector('page-tour').getBoundingClientRect().top"
    end = (
        "scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 1"  # as far as a page scrolls
    )
    assert wait_until(lambda: page.evaluate(f"{top} < 120 || {end}"))
    page.mouse.move(width / 2, 400)
    page.mouse.wheel(0, -300)  # from now on the reader decides where the page is
    assert wait_until(lambda: page.evaluate(top) > 100)
    page.evaluate(
        "document.getElementById('main').append(Object.assign(document.createElement('p'), { textContent: 'x' }))"
    )
    page.wait_for_timeout(200)
    assert page.evaluate(top) > 100
