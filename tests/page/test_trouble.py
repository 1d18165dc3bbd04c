"""P6, and texts that are too long: what goes wrong is said, and there is a way on."""

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


def test_a_server_that_dies_in_the_middle_is_told_and_can_be_asked_again(
    fresh_page: Any, stub: Stub, stub_address: str
) -> None:
    visit = Visit(fresh_page, stub_address)
    fresh_page.locator(".output .whole, .output:has-text('answer')").first.wait_for()
    stub.breaks = 1
    visit.open()
    complaint = fresh_page.locator("translate-bar .complaint")
    complaint.wait_for()
    assert "server" in complaint.inner_text()
    assert fresh_page.locator(".output").inner_text() == "whole"
    complaint.locator(".retry").click()
    fresh_page.wait_for_function("() => document.querySelector('.output').textContent === 'whole answer'")
    assert fresh_page.locator(".complaint").count() == 0


@pytest.mark.slow
def test_a_view_survives_a_server_that_is_gone_and_comes_back(fresh_page: Any, stub: Stub) -> None:
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
def test_a_text_that_is_too_long_gets_a_choice_not_a_hang(fresh_page: Any, stub: Stub, stub_address: str) -> None:
    stub.most = 256
    Visit(fresh_page, stub_address).open(text=" ".join(["word"] * 512))
    complaint = fresh_page.locator("view-alignment .complaint")
    complaint.wait_for()
    complaint.get_by_text("first 256 tokens").click()
    fresh_page.locator("view-alignment heat-map").wait_for()
    assert len(fresh_page.input_value("#source").split()) == 256


def test_no_text_asks_for_one(visit: Any) -> None:
    found = visit.open(text="")
    assert "Write a sentence" in found.locator(".complaint").inner_text()


def test_nonsense_in_the_address_is_left_aside(visit: Any) -> None:
    visit.open("heads", pins="cross.99.99,x", show="?", beam="many", badge="<b>", prefix="{", nothing="1")
    assert visit.page.locator("map-grid").count() == 1
