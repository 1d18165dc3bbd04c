"""A server that wants a key: the page asks for it, and brings it from then on."""

from collections.abc import Iterator
from typing import Any

import pytest
from page_server import Visit, real_app, serving, soon

KEY = "s3cret-key"


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(real_app(tmp_path_factory.mktemp("run"), keys=(KEY,))) as server:
        yield server.address


def test_the_page_asks_for_the_key_until_it_is_right_and_keeps_it_for_the_tab(fresh_page: Any, locked: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    visit = Visit(fresh_page, locked)
    dialog = fresh_page.locator("dialog.key")
    dialog.wait_for()
    assert fresh_page.evaluate("document.activeElement.id") == "key"
    found = Axe().run(fresh_page).response["violations"]
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []
    fresh_page.keyboard.type("wrong")
    fresh_page.keyboard.press("Enter")
    fresh_page.locator("#key-wrong").wait_for()
    fresh_page.fill("#key", KEY)
    fresh_page.keyboard.press("Enter")
    visit.open("heads")
    assert soon(lambda: dialog.count() == 0)
    fresh_page.reload()
    visit.drawn("heads")
    assert dialog.count() == 0
    assert KEY not in fresh_page.evaluate("location.href + JSON.stringify(localStorage)")
    assert {each for each in visit.troubles() if "401" not in each} == set()


@pytest.mark.slow
def test_whoever_gives_no_key_is_told_and_can_try_again_in_chinese(fresh_page: Any, locked: str) -> None:
    visit = Visit(fresh_page, f"{locked}#lang=zh")
    visit.address = locked
    fresh_page.locator("dialog.key").wait_for()
    assert "密钥" in fresh_page.locator("#key-title").inner_text()
    fresh_page.keyboard.press("Escape")
    complaint = fresh_page.locator("main .complaint")
    complaint.wait_for()
    assert "密钥" in complaint.inner_text()
    complaint.locator(".retry").click()
    fresh_page.fill("#key", "有 空格")
    fresh_page.keyboard.press("Enter")
    assert fresh_page.locator("dialog.key").count() == 1
    fresh_page.fill("#key", KEY)
    fresh_page.keyboard.press("Enter")
    visit.drawn("alignment")
