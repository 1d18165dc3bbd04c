"""Every view of the page names its page of the lesson and of the documentation, in both languages."""

import re
from urllib.parse import parse_qs

import build
import frame
import pytest

ROOT = build.HERE.parents[1]
PAGE = ROOT / "attendo" / "explore" / "page"
SOURCE = (PAGE / "reading.js").read_text("utf-8")


def table(name: str) -> dict[str, str]:
    found = re.search(rf"const {name} = {{(.*?)}};", SOURCE, re.DOTALL)
    assert found
    return dict(re.findall(r'(\w+): "([^"]+)"', found[1]))


def test_every_view_names_a_page_of_the_lesson() -> None:
    views = (PAGE / "views" / "all.js").read_text("utf-8")
    listed = re.search(r"VIEWS = {(.*?)}", views, re.DOTALL)
    assert listed
    assert set(re.findall(r"(\w+):", listed[1])) <= set(table("LESSON"))


@pytest.mark.parametrize("language", build.LANGUAGES)
def test_named_pages_exist(language: str) -> None:
    for name in [*table("LESSON").values(), *table("REPRESENTATIONS").values()]:
        assert (build.HERE / language / f"{name}.md").exists()
    for name in [*table("DOCUMENTATION").values(), "seeing/explore"]:
        assert (ROOT / "docs" / ("zh" if language == "zh" else "") / f"{name}.md").exists()


def test_a_view_leads_back_to_a_page_of_the_lesson_that_links_it() -> None:
    """No page links the comparison. Page 11 links the beam tree, which stands beside the steps."""
    links = {name.removesuffix(".md"): parse_qs(frame.frame_of(name)["explore"]["state"]) for name in frame.names()}
    for view, name in table("LESSON").items():
        assert links[name]["view"] == [view] or view in ("compare", "steps"), view
    for representation, name in table("REPRESENTATIONS").items():
        assert links[name]["rep"] == [representation]
