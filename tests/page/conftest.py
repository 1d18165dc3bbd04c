"""A browser for all tests of the page, or a clear word why there is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
COLLECTED = ["test_files.py", "test_wheel.py"]

try:
    import playwright.sync_api as playwright
    from axe_playwright_python.sync_playwright import Axe  # noqa: F401
    from fastapi import FastAPI  # noqa: F401

    MISSING = "" if shutil.which("chromium") else "chromium is not on the PATH: apt install chromium"
except ModuleNotFoundError as error:
    MISSING = f"{error.name} is not installed: pip install playwright axe-playwright-python 'attendo[serve]'"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need no browser run without one."""
    for item in items:
        if MISSING and item.path.parent == Path(__file__).parent and item.path.name not in COLLECTED:
            item.add_marker(pytest.mark.skip(reason=f"the page cannot be looked at: {MISSING}"))


@pytest.fixture(scope="module")  # its event loop stands in the way of tests that have one of their own
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS.split())
        yield found
        found.close()


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the page on a small model, served as `attendo explore` does."""
    from page_server import real_app, serving

    with serving(real_app(tmp_path_factory.mktemp("run"))) as server:
        yield server.address


@pytest.fixture
def fresh_page(browser: Any) -> Iterator[Any]:
    """For what would trouble other tests."""
    yield from opened(browser)


@pytest.fixture(scope="module")
def shared_visit(browser: Any, address: str) -> Iterator[Any]:
    from page_server import Visit

    for page in opened(browser):
        yield Visit(page, address)


@pytest.fixture
def visit(shared_visit: Any) -> Iterator[Any]:
    """The page; afterwards its console is clean and it has asked nobody else (P7)."""
    shared_visit.page.emulate_media(color_scheme="light")
    shared_visit.page.set_viewport_size({"width": 1280, "height": 900})
    shared_visit.complaints.clear()
    yield shared_visit
    assert shared_visit.troubles() == []


def opened(browser: Any) -> Iterator[Any]:
    from page_server import PATIENCE_MS

    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US", accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()
