"""A view is exported as SVG, PNG, JSON, and as one HTML file that needs no server."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from page_server import TEXT, VIEWS, Visit


def export(page: Any, kind: str, folder: Path) -> Path:
    page.locator("details.menu").evaluate("menu => { menu.open = true; }")
    with page.expect_download() as download:
        page.click(f"#export-{kind}")
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.mark.short(1)
@pytest.mark.parametrize("view", VIEWS)
def test_view_is_exported_as_svg_and_json(visit: Any, view: str, tmp_path: Path) -> None:
    visit.open(view, pins="cross.0.0", kind="beam")
    drawing = ElementTree.parse(export(visit.page, "svg", tmp_path)).getroot()
    assert drawing.tag.endswith("svg")
    assert len(list(drawing.iter())) > 10
    content = json.loads(export(visit.page, "json", tmp_path).read_text("utf-8"))
    assert content["view"] == view
    assert content["state"]["text"] == TEXT
    assert content["data"]


def test_view_is_exported_as_png(visit: Any, tmp_path: Path) -> None:
    visit.open("heads", pins="cross.0.0")
    assert export(visit.page, "png", tmp_path).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_html_export_opens_from_disk_with_every_view(fresh_page: Any, address: str, tmp_path: Path) -> None:
    visit = Visit(fresh_page, address)
    visit.open(kind="beam")
    answer = fresh_page.locator(".output .whole")
    answer.wait_for()
    text = answer.inner_text()
    path = export(fresh_page, "html", tmp_path)
    visit.address = path.as_uri()
    fresh_page.context.set_offline(True)
    fresh_page.goto(path.as_uri())
    for view in VIEWS:
        fresh_page.click(f"#tab-{view}")
        visit.wait_drawn(view)
        assert fresh_page.locator(f"view-{view} .complaint").all_inner_texts() == []
        # Controls that need a server are not shown.
        assert (fresh_page.locator("#rank, #export-html").count(), fresh_page.locator("#reset").count()) == (
            0,
            view == "ablation",
        )
    assert answer.inner_text() == text
    fresh_page.click("#language")
    assert fresh_page.locator("#translate").inner_text() == "翻译"
    assert visit.problems() == []
