"""P6: a lost connection or a long text is reported with a way to continue."""

from collections.abc import Iterator
from typing import Any

import pytest
from page_server import Serving, Visit, serving
from stub_server import Stub


@pytest.fixture(scope="module")
def stub() -> Stub:
    return Stub()


@pytest.fixture(scope="module")
def stub_address(stub: Stub) -> Iterator[str]:
    with serving(stub.app) as server:
        yield server.address


def test_broken_stream_is_reported_with_a_retry(fresh_page: Any, stub: Stub, stub_address: str) -> None:
    visit = Visit(fresh_page, stub_address)
    fresh_page.locator(".output .whole, .output:has-text('answer')").first.wait_for()
    stub.breaks = 1
    visit.open()
    error_box = fresh_page.locator("translate-bar .complaint")
    error_box.wait_for()
    assert "server" in error_box.inner_text()
    assert fresh_page.locator(".output").inner_text() == "whole"
    error_box.locator(".retry").click()
    fresh_page.wait_for_function("() => document.querySelector('.output').textContent === 'whole answer'")
    assert fresh_page.locator(".complaint").count() == 0


@pytest.mark.slow
def test_view_recovers_after_a_server_restart(fresh_page: Any, stub: Stub) -> None:
    server = Serving(stub.app)
    visit = Visit(fresh_page, server.address)
    visit.open(lang="zh")
    server.stop()
    fresh_page.fill("#source", "another text")
    fresh_page.click("#translate")
    fresh_page.locator("view-alignment .complaint").wait_for()
    assert "服务器" in fresh_page.locator("view-alignment .complaint").inner_text()
    with serving(stub.app, server.port):
        fresh_page.locator("view-alignment .retry").click()
        fresh_page.locator("view-alignment heat-map").wait_for()


@pytest.mark.slow
def test_long_text_offers_a_choice(fresh_page: Any, stub: Stub, stub_address: str) -> None:
    stub.max_words = 256
    Visit(fresh_page, stub_address).open(text=" ".join(["word"] * 512))
    error_box = fresh_page.locator("view-alignment .complaint")
    error_box.wait_for()
    error_box.get_by_text("first 256 tokens").click()
    fresh_page.locator("view-alignment heat-map").wait_for()
    assert len(fresh_page.input_value("#source").split()) == 256


def test_empty_text_asks_for_a_sentence(visit: Any) -> None:
    found = visit.open(text="")
    assert "Write a sentence" in found.locator(".complaint").inner_text()


def test_invalid_address_still_draws_the_view(visit: Any) -> None:
    visit.open("heads", pins="cross.99.99,x", show="?", beam="many", badge="<b>", prefix="{", nothing="1")
    assert visit.page.locator("map-grid").count() == 1
