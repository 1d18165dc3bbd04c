"""A browser for all tests of the page. Without one, the tests are skipped with a reason."""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)
WITHOUT_BROWSER = ["test_files.py", "test_wheel.py"]
HERE = Path(__file__).parent
PACKAGES = [name for name in ("playwright", "axe_playwright_python", "fastapi", "uvicorn") if find_spec(name) is None]
if PACKAGES:
    MISSING = f"{PACKAGES[0]} is not installed: pip install playwright axe-playwright-python 'attendo[serve]'"
else:
    MISSING = "" if shutil.which("chromium") else "chromium is not on the PATH: apt install chromium"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that need no browser run without one."""
    for item in items:
        if MISSING and item.path.parent == HERE and item.path.name not in WITHOUT_BROWSER:
            item.add_marker(pytest.mark.skip(reason=f"no browser for the page: {MISSING}"))


class Shared:
    """One browser and one page per address, shared by consecutive tests of this folder."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._browser: Any = None
        self._visits: dict[str, Any] = {}

    @property
    def browser(self) -> Any:
        from page_server import PATIENCE_MS
        from playwright.sync_api import sync_playwright

        if self._browser is None:
            started = self._stack.enter_context(sync_playwright())
            self._browser = started.chromium.launch(
                executable_path=shutil.which("chromium"), args=FLAGS.split(), timeout=PATIENCE_MS
            )
            self._stack.callback(self._browser.close)
        return self._browser

    def visit(self, address: str) -> Any:
        from page_server import Visit

        if address not in self._visits:
            self._visits[address] = Visit(next(new_page(self.browser)), address)
        return self._visits[address]

    def close(self) -> None:
        self._stack.close()
        self.__init__()  # type: ignore[misc]


SHARED = Shared()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Close the browser before a test of another folder, because its event loop blocks other event loops."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path.parent != HERE:
            SHARED.close()


@pytest.fixture
def browser() -> Any:
    return SHARED.browser


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page with a small model, served as `attendo explore` does."""
    from page_server import real_app, serving

    with serving(real_app(tmp_path_factory.mktemp("run"))) as server:
        yield server.address


@pytest.fixture
def fresh_page(browser: Any) -> Iterator[Any]:
    """A page that is not shared, for tests that would affect others."""
    yield from new_page(browser)


@pytest.fixture
def visit(address: str) -> Iterator[Any]:
    """The shared page. After the test, its console has no errors and it has contacted no other host (P7)."""
    shared = SHARED.visit(address)
    shared.page.emulate_media(color_scheme="light")
    shared.page.set_viewport_size({"width": 1280, "height": 900})
    shared.console_errors.clear()
    yield shared
    assert shared.problems() == []


@pytest.fixture
def visit_address() -> Callable[[str], Any]:
    """Open the shared page of an address."""
    return SHARED.visit


def new_page(browser: Any) -> Iterator[Any]:
    from page_server import PATIENCE_MS

    context = browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-US", accept_downloads=True)
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()
