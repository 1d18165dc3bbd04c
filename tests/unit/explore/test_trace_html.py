"""The page of a trace is one file that loads nothing, and every token in it stays text."""

import base64
import hashlib
import json
import re

import pytest
import torch
from tiny import SIZES, tiny_model

from attendo.explore.formulas.catalogue import CATALOGUE
from attendo.explore.trace_html import render_trace_html
from attendo.messages import Language
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Words
from attendo.text_model import TextModel

HOSTILE = "</script><img/src=x/onerror=alert(1)>&amp;"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_page_has_both_languages_and_starts_in_one(language: Language) -> None:
    text = render_trace_html(tiny_model().trace("the cat sat", "猫 坐"), language)
    assert f'<html lang="{language}" data-language="{language}">' in text
    for formula in CATALOGUE.values():
        if formula.numbers is not None:
            assert all(f'<span lang="{each}">' in text for each in ("en", "zh"))
    assert text.count('<span lang="en">') == text.count('<span lang="zh">')


def test_every_tensor_is_on_the_page_with_its_formula() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐")
    text = render_trace_html(trace)
    for name in trace:
        assert f"<code>{name}</code>" in text
    assert "[3, 16]·[16, 16] + [16] → [3, 16] → [2, 3, 8]" in text


def test_maps_have_the_weights() -> None:
    trace = tiny_model().trace("the cat sat", "猫 坐")
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', render_trace_html(trace))
    assert found is not None
    site = json.loads(found[1])["sites"]["decoder.1.cross"]
    assert (site["rows"], site["columns"]) == (["猫", "坐", "</s>"], ["the", "cat", "sat", "</s>"])
    weights = torch.frombuffer(bytearray(base64.b64decode(site["weights"])), dtype=torch.uint8).view(site["shape"])
    torch.testing.assert_close(weights / 255, trace.cross[1], atol=0.002, rtol=0)


def test_tokens_stay_text() -> None:
    words = Words.build(["a b c"], symbols=[HOSTILE])
    model = TextModel(StoredModel(Transformer(ModelConfig(**SIZES, vocab_size=words.vocab_size)), words, words))
    text = render_trace_html(model.trace(f"a {HOSTILE}", f"{HOSTILE} b"), facts=[(HOSTILE, HOSTILE)])
    assert "<img" not in text
    assert "<bdi>&lt;/script&gt;&lt;img/src=x/onerror=alert(1)&gt;&amp;amp;</bdi>" in text
    assert text.count("<script") == text.count("</script>") == 2
    data = text.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&") & set(data)
    assert HOSTILE in json.loads(data)["sites"]["decoder.0.cross"]["rows"]


def test_nothing_is_loaded_and_only_this_script_runs() -> None:
    text = render_trace_html(tiny_model().trace("the cat sat", "猫 坐"))
    assert not re.search(r"(src|href)=|https?://|url\(", text)
    script = text.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
