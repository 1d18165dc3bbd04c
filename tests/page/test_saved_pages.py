"""Pages in one file, opened from disk without a server: every box has its numbers or says that they are left out."""

from pathlib import Path
from typing import Any

import pytest
from page_server import TEXT, Visit, random_model, wait_until
from test_accessibility import serious_violations
from tiny import SIZES, parallel_model, prefix_model, without_source

import attendo
from attendo.explore.saved_page import render_saved_page
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Words
from attendo.text_model import TextModel

KINDS = ("graph", "ctc", "masked")
# Opens every box and every head. Returns the ids of those that say something else than numbers.
OPEN_ALL = """async () => {
  const figure = document.querySelector("network-figure"), failed = [];
  const drawn = async () => {
    const panel = () => document.querySelector("module-panel");
    while (!panel() || panel().ariaBusy || !panel().querySelector("heat-map, .complaint, .left-out"))
      await new Promise((resolve) => setTimeout(resolve, 30));
    return panel();
  };
  for (const { id } of [...figure.querySelectorAll("button.box-name, button.head")]) {
    document.getElementById(id).click();
    const panel = await drawn();
    if (panel.querySelector(".complaint, .left-out")) failed.push(id);
    if (id.startsWith("box-")) document.getElementById(id).click();
  }
  return failed;
}"""


def open_file(page: Any, path: Path, lang: str) -> Visit:
    """Open a file without a network."""
    page.context.set_offline(True)
    visit = Visit(page, "about:blank")
    page.goto(path.as_uri())
    page.locator("network-figure .distribution li").first.wait_for()
    assert page.locator("#home-play").inner_text() == ("▶ Play" if lang == "en" else "▶ 播放")
    return visit


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_saved_page_opens_every_box_without_a_server(fresh_page: Any, tmp_path: Path, lang: str) -> None:
    """From disk, and in the frame of a notebook, which has no address of its own."""
    page = attendo.show(random_model(), TEXT, language=lang)
    page.save(tmp_path / "saved.html")
    (tmp_path / "notebook.html").write_text(f"<!doctype html>{page._repr_html_()}", "utf-8")
    visit = open_file(fresh_page, tmp_path / "saved.html", lang)
    assert fresh_page.evaluate(OPEN_ALL) == []
    assert not fresh_page.locator("nav.tabs").is_visible()
    fresh_page.goto((tmp_path / "notebook.html").as_uri())
    frame = fresh_page.frame_locator("iframe")
    frame.locator("network-figure .distribution li").first.wait_for()
    frame.locator("#home-after").click()
    assert wait_until(lambda: "2" in frame.locator(".player .of").last.inner_text())
    assert visit.problems() == []


def test_an_address_changes_a_part_of_the_saved_state(fresh_page: Any, tmp_path: Path) -> None:
    trace = random_model().trace(TEXT, heads={"decoder.0.cross": {0: 0.0}})
    (tmp_path / "saved.html").write_text(render_saved_page(trace), "utf-8")
    visit = Visit(fresh_page, "about:blank")
    fresh_page.goto(f"{(tmp_path / 'saved.html').as_uri()}#lang=zh&step=1")
    fresh_page.locator("network-figure .distribution li").first.wait_for()
    assert fresh_page.locator("#home-play").inner_text() == "▶ 播放"
    assert "2" in fresh_page.locator(".player .of").last.inner_text()
    assert fresh_page.locator(".head.off").count() == 1
    fresh_page.evaluate("location.hash = '#lang=en&view=home'")
    assert wait_until(lambda: fresh_page.locator("#home-play").inner_text() == "▶ Play")
    fresh_page.reload()
    fresh_page.locator("network-figure .distribution li").first.wait_for()
    assert fresh_page.locator("#home-play").inner_text() == "▶ Play"
    assert fresh_page.locator(".head.off").count() == 1
    assert visit.problems() == []


@pytest.mark.parametrize("model", [without_source(), prefix_model(2)], ids=["language model", "prefix LM"])
def test_saved_page_of_a_decoder_only_model(fresh_page: Any, tmp_path: Path, model: TextModel) -> None:
    trace = model.trace(TEXT, " the dog")
    (tmp_path / "saved.html").write_text(render_saved_page(trace), "utf-8")
    visit = open_file(fresh_page, tmp_path / "saved.html", "en")
    lanes = fresh_page.locator(".chips[data-kind=read] .chip").all_inner_texts()
    assert [each.strip() for each in lanes] == list(trace.read_pieces)
    assert fresh_page.evaluate(OPEN_ALL) == []
    assert visit.problems() == []


@pytest.mark.parametrize("lang", ["en", "zh"])
@pytest.mark.parametrize("kind", KINDS)
def test_page_of_a_model_that_predicts_all_tokens_at_once(
    fresh_page: Any, tmp_path: Path, kind: str, lang: str
) -> None:
    options = {"masked": {"passes": 3}, "graph": {"graph_search": "viterbi"}, "ctc": {}}[kind]
    trace = parallel_model(kind).trace_parallel(TEXT, **options)
    (tmp_path / "saved.html").write_text(render_saved_page(trace, lang), "utf-8")
    visit = open_file(fresh_page, tmp_path / "saved.html", lang)
    chips = fresh_page.locator(".chips[data-kind=predicted] .chip")
    if kind == "masked":
        assert chips.all_inner_texts() == list(trace.target_pieces)
    assert fresh_page.evaluate(OPEN_ALL) == []
    fresh_page.locator("#tab-parallel").click()
    view = visit.wait_drawn("parallel")
    assert view.locator(".facts dd").first.inner_text() == trace.text
    if kind == "masked":
        assert view.locator(".passes tbody tr").count() == 3
    assert view.locator("select, input").count() == view.locator(".complaint").count() == 0
    assert "--beside" in view.inner_text()
    assert serious_violations(visit) == []
    fresh_page.set_viewport_size({"width": 390, "height": 800})
    assert fresh_page.evaluate("document.documentElement.scrollWidth") <= 390
    assert visit.problems() == []


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_page_has_the_whole_network_of_the_model_beside(fresh_page: Any, tmp_path: Path, lang: str) -> None:
    other = random_model().trace(TEXT)
    page = render_saved_page(parallel_model("ctc").trace_parallel(TEXT), lang, beside=("steps", other))
    (tmp_path / "saved.html").write_text(page, "utf-8")
    visit = open_file(fresh_page, tmp_path / "saved.html", lang)
    fresh_page.locator("#tab-parallel").click()
    rows = visit.wait_drawn("parallel").locator(".card").last.locator("tbody tr")
    assert rows.locator("th").all_inner_texts() == list(other.target_pieces)
    fresh_page.select_option("#model", "steps")
    home = visit.wait_drawn("home")
    assert wait_until(
        lambda: home.locator(".chips[data-kind=predicted] .chip").all_inner_texts() == list(other.target_pieces)
    )
    assert fresh_page.evaluate(OPEN_ALL) == []
    assert visit.problems() == []


@pytest.mark.parametrize(("lang", "layers"), [("en", "encoder layers 1, 2, 3, 4"), ("zh", "编码器第 1、2、3、4 层")])
def test_boxes_that_are_left_out_say_so(fresh_page: Any, tmp_path: Path, lang: Any, layers: str) -> None:
    words = Words.build(["a b c"])
    sizes = {**SIZES, "num_encoder_layers": 6, "vocab_size": words.vocab_size}
    model = TextModel(StoredModel(Transformer(ModelConfig(**sizes)), words, words))
    trace = model.trace("a b c " * 12, "c b a")
    (tmp_path / "saved.html").write_text(render_saved_page(trace, lang, max_bytes=0), "utf-8")
    visit = open_file(fresh_page, tmp_path / "saved.html", lang)
    fresh_page.locator("#unfolded").click()
    fresh_page.locator('[id="box-encoder.2.feed_forward"]').click()
    note = fresh_page.locator("module-panel .left-out")
    assert layers in note.inner_text()
    fresh_page.locator('[id="head-encoder.0.self.1"]').click()
    fresh_page.locator('[id="chain-encoder.0.self.keys"]').click()
    heads = "head 0 only" if lang == "en" else "只保存了头 0"
    assert wait_until(lambda: heads in note.inner_text())
    fresh_page.locator("#read-encoder-34").click()
    rows = "first 32 tokens" if lang == "en" else "前 32 个词元"
    fresh_page.locator('[id="box-encoder.0.feed_forward"]').click()
    assert wait_until(lambda: rows in note.inner_text())
    assert fresh_page.locator(".complaint").count() == 0
    assert visit.problems() == []


def test_canvases_far_from_the_window_are_painted_when_it_comes_near(fresh_page: Any, tmp_path: Path) -> None:
    words = Words.build(["a b c"])
    sizes = {**SIZES, "num_encoder_layers": 10, "num_decoder_layers": 10, "vocab_size": words.vocab_size}
    model = TextModel(StoredModel(Transformer(ModelConfig(**sizes)), words, words))
    (tmp_path / "saved.html").write_text(render_saved_page(model.trace("a b c", "c b a"), max_bytes=0), "utf-8")
    visit = open_file(fresh_page, tmp_path / "saved.html", "en")
    fresh_page.locator("#unfolded").click()
    canvases = fresh_page.locator("network-figure canvas")
    painted = fresh_page.locator("network-figure canvas[width]")
    assert wait_until(lambda: painted.count() > 10)
    assert painted.count() < canvases.count()
    last = fresh_page.locator('[data-box="encoder.0.self"] canvas').first
    assert last.get_attribute("width") is None
    last.scroll_into_view_if_needed()
    assert wait_until(lambda: last.get_attribute("width") is not None)
    assert painted.count() < canvases.count()
    fresh_page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert wait_until(lambda: painted.count() == canvases.count())
    assert visit.problems() == []
