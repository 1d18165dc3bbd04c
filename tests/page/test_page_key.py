"""The page asks for the API key of a server and sends it with every request."""

from collections.abc import Iterator
from typing import Any

import pytest
from page_server import Visit, real_app, serving, wait_until

KEY = "s3cret-key"


@pytest.fixture(scope="module")
def locked_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(real_app(tmp_path_factory.mktemp("run"), keys=(KEY,))) as server:
        yield server.address


def test_page_asks_for_the_key_and_keeps_it_for_the_tab(fresh_page: Any, locked_address: str) -> None:
    from axe_playwright_python.sync_playwright import Axe

    visit = Visit(fresh_page, locked_address)
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
    assert wait_until(lambda: dialog.count() == 0)
    fresh_page.reload()
    visit.wait_drawn("heads")
    assert dialog.count() == 0
    assert KEY not in fresh_page.evaluate("location.href + JSON.stringify(localStorage)")
    assert {each for each in visit.problems() if "401" not in each} == set()


@pytest.mark.slow
def test_cancelled_key_dialog_shows_an_error_and_a_retry(fresh_page: Any, locked_address: str) -> None:
    visit = Visit(fresh_page, locked_address, lang="zh")
    fresh_page.locator("dialog.key").wait_for()
    assert "密钥" in fresh_page.locator("#key-title").inner_text()
    fresh_page.keyboard.press("Escape")
    error_box = fresh_page.locator("main .complaint")
    error_box.wait_for()
    assert "密钥" in error_box.inner_text()
    error_box.locator(".retry").click()
    fresh_page.fill("#key", "有 空格")
    fresh_page.keyboard.press("Enter")
    assert fresh_page.locator("dialog.key").count() == 1
    fresh_page.fill("#key", KEY)
    fresh_page.keyboard.press("Enter")
    visit.wait_drawn("alignment")
