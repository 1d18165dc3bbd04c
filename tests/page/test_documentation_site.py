"""`make docs`: the documentation as a web site, which opens from disk, in both languages, with search."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from page_server import TEXT, VIEWS, random_model
from playwright.sync_api import Browser, Page

import attendo

pytest.importorskip("sphinx", reason="the documentation site needs pip install 'attendo[docs]'")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. A warning, such as a page that no README links or a link to a missing page, fails the build."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "html").mkdir()
    attendo.show(random_model(), TEXT).save(folder / "html" / "live.html")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir"]
    done = subprocess.run(
        [*command, str(folder / "doctrees"), str(ROOT / "docs"), str(folder / "html")],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    yield context.new_page()
    context.close()


def test_pages_open_from_disk_and_load_nothing_from_the_network(site: Path, page: Page) -> None:
    loaded: list[str] = []
    page.on("request", lambda request: loaded.append(request.url))
    for name in ("index.html", "README.html", "lesson/zh/03-attention.html", "benchmarks.html"):
        page.goto((site / name).as_uri())
    assert len(loaded) > 10
    assert [url for url in loaded if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize(
    ("query", "expected"),
    [("beam search", "decoding/greedy-and-beam.html"), ("交叉注意力", "lesson/zh/06-cross-attention.html")],
)
def test_search_finds_pages_in_both_languages(site: Path, page: Page, query: str, expected: str) -> None:
    page.goto(f"{(site / 'search.html').as_uri()}?q={query}")
    page.locator(f"#search-results a[href^='{expected}']").first.wait_for()


@pytest.mark.parametrize(("name", "own", "other"), [("en", "/en/", "/zh/"), ("zh", "/zh/", "/en/")])
def test_contents_have_the_language_of_the_page(site: Path, page: Page, name: str, own: str, other: str) -> None:
    page.goto((site / f"lesson/{name}/03-attention.html").as_uri())
    links = page.locator(".sidebar-tree a").evaluate_all("links => links.map((link) => link.href)")
    assert any(own in link for link in links)
    assert not any(other in link for link in links)
    assert page.locator("html").get_attribute("lang") == {"en": "en", "zh": "zh-CN"}[name]


def test_formulas_are_mathml(site: Path, page: Page) -> None:
    page.goto((site / "lesson/en/03-attention.html").as_uri())
    assert page.locator("math msqrt").count() > 0
    assert "$" not in page.locator("article p").first.inner_text()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_views_of_the_live_page_link_the_site(site: Path, page: Page, language: str) -> None:
    page.goto(f"{(site / 'live.html').as_uri()}#lang={language}")
    page.locator("network-figure .distribution li").first.wait_for()
    for view in VIEWS:
        names = page.evaluate(
            "async (view) => [...(await import('reading.js')).reading(view).querySelectorAll('a')].map((a) => a.href)",
            view,
        )
        assert len(names) == 2
        assert all(Path(urlsplit(name).path).is_file() for name in names), names
        assert all("/zh/" in name for name in names) == (language == "zh")
    with page.expect_popup() as opened:
        page.locator("view-home .reading a").first.click()
    assert opened.value.locator("article h1").inner_text()
