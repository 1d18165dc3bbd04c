"""The page in one file holds the answers of the server, loads nothing, and every token in it stays text."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from tiny import SIZES, parallel_model, tiny_model

import attendo
from attendo.explore.saved_page import POLICY, OpenBox, render_saved_page
from attendo.messages import Language
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Words
from attendo.text_model import TextModel

HOSTILE = "</script><img/src=x/onerror=alert(1)>&amp;"
TEXT, TARGET = "the cat sat", "猫 坐"


def read_answers(page: str) -> dict[str, Any]:
    found = re.search(r'id="recorded"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return dict(json.loads(found[1]))


def read_state(page: str) -> dict[str, list[str]]:
    found = re.search(r'data-state="([^"]*)"', page)
    assert found is not None
    return parse_qs(unescape(found[1]))


@pytest.mark.parametrize("language", ["en", "zh"])
def test_page_begins_with_the_whole_network_in_a_language(language: Language) -> None:
    page = render_saved_page(tiny_model().trace(TEXT, TARGET), language, first=OpenBox("decoder.1.cross", 1))
    state = read_state(page)
    assert state["view"] == ["home"]
    assert (state["lang"], state["text"], state["target"]) == ([language], [TEXT], [TARGET])
    assert (state["module"], state["head"]) == (["decoder.1.cross"], ["1"])


def test_answers_have_the_keys_of_the_page_and_the_numbers_of_the_trace() -> None:
    trace = tiny_model().trace(TEXT, TARGET, heads={"decoder.0.cross": {1: 0.0}})
    answers = read_answers(render_saved_page(trace, name="m"))
    heads = '"heads":{"decoder.0.cross":{"1":0}}'
    basics = f'"model":"m","checkpoint":null,"text":"{TEXT}","decoder":{{"kind":"greedy"}}'
    assert (
        answers[f'/answer {{{basics},{heads},"prefix":null,"stream":true}}'][0]["data"]["hypotheses"][0]["text"]
        == TARGET
    )
    forward = answers[f'/forward {{{basics},"target":"{TARGET}",{heads}}}']
    assert forward["loss"] == pytest.approx(trace.loss)
    place = '"operation":"decoder.1.feed_forward.inner","head":0,"row":0,"column":0'
    inner = answers[f'/calculation {{{basics},"target":"{TARGET}",{heads},{place}}}']
    assert inner["columns"]["total"] == trace["decoder.1.feed_forward.inner"].size(1)
    assert inner["rows"]["count"] == len(trace.target_pieces)


def test_tokens_stay_text() -> None:
    words = Words.build(["a b c"], symbols=[HOSTILE])
    model = TextModel(StoredModel(Transformer(ModelConfig(**SIZES, vocab_size=words.vocab_size)), words, words))
    page = render_saved_page(model.trace(f"a {HOSTILE}", f"{HOSTILE} b"), text=f"a {HOSTILE}")
    assert "<img" not in page
    (forward,) = (answer for key, answer in read_answers(page).items() if key.startswith("/forward"))
    assert HOSTILE in forward["source"]["pieces"]


def test_nothing_is_loaded() -> None:
    page = render_saved_page(tiny_model().trace(TEXT, TARGET))
    assert f'http-equiv="Content-Security-Policy" content="{POLICY}"' in page
    assert not re.search(r"""(src|href)=["'](?!data:)""", page)


def test_tokens_of_models_that_predict_all_at_once_stay_text() -> None:
    words = Words.build(["a b c"], symbols=[HOSTILE])
    for kind in ("graph", "ctc", "masked"):
        network = make_network(ModelConfig(d_model=16, num_heads=2, vocab_size=words.vocab_size, kind=kind))
        page = TextModel(network, words).trace_parallel(f"a {HOSTILE}").show().html
        assert "<img" not in page
        (answer,) = (each for key, each in read_answers(page).items() if key.startswith("/parallel"))
        assert HOSTILE in answer["source"]["pieces"]


@pytest.mark.parametrize("kind", ["graph", "ctc", "masked"])
def test_page_of_a_model_that_predicts_all_tokens_at_once_has_both_views(kind: str) -> None:
    options = {"graph": {"graph_search": "viterbi"}, "masked": {"passes": 3}, "ctc": {}}[kind]
    trace = parallel_model(kind).trace_parallel(TEXT, **options)
    page = render_saved_page(trace, name="m", beside=("other", tiny_model().trace(TEXT)))
    answers = read_answers(page)
    assert 'data-views="home,parallel"' in page
    basics = f'"model":"m","checkpoint":null,"text":"{TEXT}","decoder":{{"kind":"greedy"}},"target":null'
    search = json.dumps({"passes": options.get("passes"), "graph_search": options.get("graph_search")})
    request = f"/parallel {{{basics},{search[1:].replace(': ', ':').replace(', ', ',')}"
    assert answers[request] == json.loads(json.dumps(trace.as_json()))
    assert answers[f'/forward {{{basics},"heads":{{}}}}']["kind"] == kind
    assert {name: read_state(page).get(name) for name in options} == {k: [str(v)] for k, v in options.items()}
    assert [each["name"] for each in answers["/models null"]["models"]] == ["m", "other"]
    (steps,) = (each for key, each in answers.items() if key.startswith('/steps {"model":"other"'))
    assert [each["chosen"] for each in steps["steps"]] == list(tiny_model().trace(TEXT).target_pieces)


def read_operations(page: str) -> set[tuple[str, int, int]]:
    """Operation, head and first row of the saved calculations."""
    bodies = [json.loads(key.partition(" ")[2]) for key in read_answers(page) if key.startswith("/calculation")]
    return {(each["operation"], each["head"], each["row"]) for each in bodies}


def test_every_box_is_saved_if_there_is_room() -> None:
    sizes = {**SIZES, "num_encoder_layers": 6, "num_decoder_layers": 5}
    words = Words.build(["a b c"])
    model = TextModel(StoredModel(Transformer(ModelConfig(**sizes, vocab_size=words.vocab_size)), words, words))
    trace = model.trace("a b c " * 12, "c b a")
    page = render_saved_page(trace)
    assert '{"limit":8,"parts":{"model":[]}}' in unescape(page)
    heads = range(trace.config.num_heads)
    assert read_operations(page) >= {(f"encoder.{layer}.self.keys", head, 32) for layer in range(6) for head in heads}
    small = render_saved_page(trace, max_bytes=0)
    assert read_operations(small) < read_operations(page)
    assert {name.split(".")[1] for name, *_ in read_operations(small) if name.startswith("encoder.")} == {
        *("0", "5", "output")
    }
    assert {(head, row) for name, head, row in read_operations(small) if name.endswith("keys")} == {(0, 0)}
    left = json.loads(re.search(r'data-left-out="([^"]*)"', small)[1].replace("&quot;", '"'))  # type: ignore[index]
    layers = [*(f"encoder.{n}" for n in range(1, 5)), *(f"decoder.{n}" for n in range(1, 4))]
    assert sorted(left["parts"]["model"]) == sorted([*layers, "rows", "heads"])
    between = render_saved_page(trace, max_bytes=len(small.encode()) + 200_000)
    assert len(between.encode()) <= len(small.encode()) + 200_000
    assert read_operations(small) < read_operations(between) < read_operations(page)


def test_trace_without_an_encoder_has_a_page() -> None:
    config = ModelConfig(**{**SIZES, "num_encoder_layers": 0}, target_vocab_size=20)
    words = Words.build(["a b c"])
    config = config.model_copy(update={"target_vocab_size": words.vocab_size})
    model = TextModel(StoredModel(Transformer(config), None, words))
    page = render_saved_page(model.trace("a b", " c"), text="a b")
    (forward,) = (answer for key, answer in read_answers(page).items() if key.startswith("/forward"))
    assert forward["stacks"]["encoder"] == []
    assert len(forward["stacks"]["decoder"]) == 2


def test_notebook_shows_a_frame_with_the_page(tmp_path: Any) -> None:
    found = attendo.show(tiny_model(), TEXT, TARGET)
    frame = found._repr_html_()
    source = re.search(r'srcdoc="([^"]*)"', frame)
    assert source is not None
    assert unescape(source[1]) == found.html
    assert tiny_model().trace(TEXT, TARGET).show("zh").html.count("lang=zh") == 1
    found.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text("utf-8") == found.html


def test_a_model_folder_is_shown_as_its_model(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "model")
    shown = attendo.show(str(tmp_path / "model"), TEXT, TARGET)
    assert shown.html == attendo.show(attendo.load(tmp_path / "model"), TEXT, TARGET).html
