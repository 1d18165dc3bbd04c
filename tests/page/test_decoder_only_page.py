"""Decoder-only models in every view: a language model, and a prefix LM whose row begins with the source."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from page_server import TEXT, VIEWS, serving, wait_until
from tiny import SIZES, SOURCES, TARGETS

from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model_folder import StoredModel
from attendo.serve.app import create_app
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text import EOS, Words
from attendo.text_model import TextModel

SHOWN = tuple(view for view in VIEWS if view != "training")  # these models have no run


def decoder_only_model(**changes: Any) -> TextModel:
    words = Words.build((*SOURCES, *TARGETS))
    settings = {**SIZES, "num_encoder_layers": 0, "tie": "none", "vocab_size": words.vocab_size, "output_bias": True}
    network = make_network(ModelConfig(**{**settings, **changes}), torch.Generator().manual_seed(3))
    with torch.no_grad():
        network.output.weight.mul_(3.0)
        network.output.bias[:EOS] = -30.0
    return TextModel(StoredModel(network, words, words, {"max_length_extra": 5}, {}, [(TEXT, TARGETS[0])]))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    seconds = dict.fromkeys(("deadline_seconds", "max_queue_seconds", "watchdog_seconds", "body_timeout"), 600.0)
    models = [ModelSpec("storyteller", decoder_only_model()), ModelSpec("prefix", decoder_only_model(prefix_lm=True))]
    with serving(create_app(models, ServeSettings(**seconds, header_timeout=600.0))) as server:
        yield server.address


def given(model: str) -> int:
    """The tokens of the row before the first prediction."""
    return len(TEXT.split()) + (model == "prefix")


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("model", ["storyteller", "prefix"])
def test_every_view_is_drawn(visit: Any, model: str, width: int, language: str) -> None:
    page = visit.page
    page.set_viewport_size({"width": width, "height": 900})
    for view in SHOWN:
        opened = visit.open(view, model=model, lang=language)
        assert opened.locator(".complaint").count() == 0, view
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), view
        words = opened.inner_text()
        assert "undefined" not in words, view
        assert "NaN" not in words, view
    assert visit.problems() == []


@pytest.mark.parametrize("model", ["storyteller", "prefix"])
def test_home_has_a_lane_for_every_token_of_the_row(visit: Any, model: str) -> None:
    page, trace = visit.page, visit.request("/trace", model=model)
    view = visit.open("home", model=model)
    assert view.locator("[data-stack]").count() == 1
    chips = view.locator(".chips[data-kind=read] .chip")
    assert [each.strip() for each in chips.all_inner_texts()] == trace["target"]["read"]
    assert view.locator(".chips[data-kind=read] .chip.now").get_attribute("data-lane") == str(given(model))
    view.locator("#predicted-decoder-1").click()
    assert wait_until(lambda: view.locator(".chip.now").first.get_attribute("data-lane") == str(given(model) + 1))
    shown = view.locator(".distribution .chosen").get_attribute("data-token")
    assert shown == str(trace["tokens"][1]["id"])
    view.locator("#box-output\\.logits").click()
    view.locator("module-panel:not([aria-busy]) .story h4").wait_for()
    assert wait_until(lambda: trace["target"]["predicted"][1] in view.locator(".story h4").inner_text())
    view.locator("#box-decoder\\.0\\.self").click()
    view.locator("module-panel:not([aria-busy]) .story h4").wait_for()
    assert wait_until(lambda: f"[{trace['target']['predicted'][1]}," in view.locator(".story h4").inner_text())
    assert page.evaluate("document.querySelector('#panel-map').data.rows") == len(trace["target"]["read"])


@pytest.mark.parametrize("model", ["storyteller", "prefix"])
def test_alignment_looks_from_the_predictions_to_the_source(visit: Any, model: str) -> None:
    trace = visit.request("/trace", model=model)
    view = visit.open("alignment", model=model)
    assert visit.page.evaluate("location.hash").find("site=to_source") > 0
    rows, columns = (view.locator("heat-map").evaluate(f"map => map.data.{name}Labels") for name in ("row", "column"))
    assert (rows, columns) == (trace["target"]["predicted"], trace["source"]["pieces"])
    assert view.locator("#site option").count() == 2
    view.locator("#show").select_option("rollout")
    values = trace["rollout"]["values"]
    assert wait_until(
        lambda: view.locator("heat-map").evaluate("map => [...map.data.values]") == pytest.approx(values, abs=1e-5)
    )
    view.locator("#site").select_option("decoder_self")
    assert wait_until(lambda: view.locator("heat-map").evaluate("map => map.data.rowLabels") == trace["target"]["rows"])


@pytest.mark.parametrize("model", ["storyteller", "prefix"])
def test_steps_show_the_attention_to_the_whole_row(visit: Any, model: str) -> None:
    view = visit.open("steps", model=model, step=1)
    answer = visit.request("/steps", model=model)
    weights = view.locator("ol.weights[data-site=decoder_self] li")
    assert weights.count() == given(model) + 2
    assert view.locator("ol.weights").count() == 1
    names = [each.strip() for each in weights.locator(".name").all_inner_texts()]
    assert names == answer["steps"][1]["read"]
    total = sum(float(each.get_attribute("data-weight")) for each in weights.all())
    assert total == pytest.approx(1, abs=0.01)


def test_padding_is_offered_where_there_is_a_source(visit: Any) -> None:
    for model, count in (("storyteller", 0), ("prefix", 1)):
        view = visit.open("mask", model=model)
        assert view.locator("#beside").count() == count
        assert view.locator("#mask_site option").count() == 1
    view.locator("#double").click()
    assert wait_until(lambda: view.locator("#map-causal").evaluate("map => map.data.columnLabels").count("<pad>") == 5)


def test_a_head_is_switched_off_in_every_view(visit: Any) -> None:
    state = {"model": "prefix", "heads": "decoder.1.self.0=0"}
    view = visit.open("alignment", **state)
    assert "L1·H0" in view.locator(".off-label").inner_text()
    view = visit.open("home", **state)
    assert view.locator("#head-decoder\\.1\\.self\\.0").evaluate("head => head.classList.contains('off')")


def test_another_model_gets_its_own_attention(visit: Any) -> None:
    visit.open("alignment", model="prefix")
    assert "site=to_source" in visit.page.evaluate("location.hash")
    visit.open("alignment", model="storyteller", site="encoder_self", mask_site="cross", edit_site="cross")
    assert wait_until(lambda: "site=to_source" in visit.page.evaluate("location.hash"))
    assert "cross" not in visit.page.evaluate("location.hash")


def test_the_tour_asks_about_the_attention_that_the_model_has(visit: Any) -> None:
    page = visit.page
    visit.open("home", model="storyteller", tour=1)
    count = int(page.locator("page-tour h2").inner_text().split(" of ")[1].split(":")[0])
    assert count == 7  # without the encoder, the word order and the checkpoints
    visit.open("ablation", model="storyteller", tour=6)
    assert "source" not in page.locator("page-tour .question").inner_text()
    page.click("#guess-0")
    page.locator("page-tour .guesses .right").wait_for()
    hidden = {str(head): 0 for head in range(2)}
    answers = visit.request("/ablate", model="storyteller", heads={"decoder.1.self": hidden})
    stays = answers["before"]["text"] == answers["after"]["text"]
    assert ("stays" in page.locator("page-tour .guesses .right").inner_text()) == stays


def test_the_output_of_a_language_model_is_no_translation_in_chinese(visit: Any) -> None:
    for model, word, other in (("storyteller", "续写", "译文"), ("prefix", "译文", "续写")):
        visit.open("steps", model=model, lang="zh")
        words = visit.page.locator("body").inner_text()
        assert word in words
        assert other not in words
