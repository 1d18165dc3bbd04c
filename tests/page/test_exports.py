"""What is seen leaves the page as SVG, PNG, JSON, and as one file that needs no server."""

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from page_server import TEXT, VIEWS, Visit


def exported(page: Any, kind: str, folder: Path) -> Path:
    page.locator("details.menu").evaluate("menu => { menu.open = true; }")
    with page.expect_download() as download:
        page.click(f"#export-{kind}")
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    return path


@pytest.mark.short(1)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_exported_as_picture_and_data(visit: Any, view: str, tmp_path: Path) -> None:
    visit.open(view, pins="cross.0.0", kind="beam")
    drawing = ElementTree.parse(exported(visit.page, "svg", tmp_path)).getroot()
    assert drawing.tag.endswith("svg")
    assert len(list(drawing.iter())) > 10
    told = json.loads(exported(visit.page, "json", tmp_path).read_text("utf-8"))
    assert told["view"] == view
    assert told["state"]["text"] == TEXT
    assert told["data"]


def test_a_picture_can_be_png_too(visit: Any, tmp_path: Path) -> None:
    visit.open("heads", pins="cross.0.0")
    assert exported(visit.page, "png", tmp_path).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_one_file_opens_from_disk_and_shows_every_view(fresh_page: Any, address: str, tmp_path: Path) -> None:
    visit = Visit(fresh_page, address)
    visit.open(kind="beam")
    answer = fresh_page.locator(".output .whole")
    answer.wait_for()
    text = answer.inner_text()
    path = exported(fresh_page, "html", tmp_path)
    visit.address = path.as_uri()
    fresh_page.context.set_offline(True)
    fresh_page.goto(path.as_uri())
    for view in VIEWS:
        if view != "alignment":
            fresh_page.click(f"#tab-{view}")
        visit.drawn(view)
        assert fresh_page.locator(f"view-{view} .complaint").all_inner_texts() == []
        # Nothing is offered that only a server could do.
        assert (fresh_page.locator("#rank, #export-html").count(), fresh_page.locator("#reset").count()) == (
            0,
            view == "ablation",
        )
    assert answer.inner_text() == text
    fresh_page.click("#language")
    assert fresh_page.locator("#translate").inner_text() == "翻译"
    assert visit.troubles() == []
