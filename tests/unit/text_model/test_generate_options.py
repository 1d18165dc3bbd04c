"""Options of generate take effect, or raise an error that names the incompatible ones."""

import math
from typing import Any

import pytest
from error_codes import has_code
from tiny import tiny_model
from varied_models import sentences, varied_model

from attendo.errors import UsageError


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"top_k": 3}, ["top_k", "sample"]),
        ({"temperature": 0.5, "beam": 3}, ["temperature", "sample"]),
        ({"seed": 7}, ["seed", "sample"]),
        ({"stop": "first"}, ["stop", "beam"]),
        ({"stop": "first", "sample": True}, ["stop", "beam"]),
        ({"patience": 2.0, "beam": 3}, ["patience", "settled"]),
        ({"diversity_penalty": 0.3, "beam": 4}, ["diversity_penalty", "beam_groups"]),
        ({"beam": 4, "beam_groups": 2, "stop": "first", "patience": 2.0}, ["beam_groups", "patience"]),
        ({"sample": True, "beam_groups": 2, "beam": 2}, ["sample", "beam_groups"]),
        ({"sample": True, "constraints": ["猫"]}, ["constraints", "sample"]),
        ({"beam": 4, "beam_groups": 2, "constraints": ["猫"]}, ["constraints", "beam_groups"]),
        ({"constraints": ["猫"], "banned_phrases": ["猫"]}, ["constraint '猫'", "banned phrase '猫'"]),
        ({"prefix": "我 爱", "banned_phrases": ["爱"]}, ["prefix '我 爱'", "banned phrase '爱'"]),
        ({"min_length": 5, "max_length": 4}, ["min_length 5", "max_length 4"]),
        ({"max_length": 3, "max_length_factor": 9.0}, ["max_length", "max_length_factor", "3"]),
        ({"max_length": 3, "max_length_extra": 9}, ["max_length", "max_length_extra", "3"]),
        ({"min_length": 3, "min_length_extra": 9}, ["min_length", "min_length_extra", "3"]),
        ({"min_length": 3, "min_length_factor": 2.0}, ["min_length", "min_length_factor", "3"]),
        ({"max_length": 3, "min_length_factor": 2.0}, ["max_length", "min_length_factor"]),
        ({"max_length": 3, "min_length_extra": 9}, ["max_length 3", "min_length_extra 9"]),
        ({"normalise": "none", "length_penalty": 2.0}, ["length_penalty 2.0", "normalise none"]),
        ({"compile": True, "engine": "cached"}, ["compile", "cached", "fast"]),
        ({"compile": True, "engine": "textbook"}, ["compile", "textbook", "fast"]),
        ({"compile": True}, ["compile", "cached", "CPU"]),
        ({"beam": 1_001}, ["beam", "1000", "1001"]),
        ({"beam": 2, "length_penalty": 400.0}, ["length_penalty", "10", "400.0"]),
        ({"beam": 2, "length_penalty": -10.5}, ["length_penalty", "-10", "-10.5"]),
        ({"word_penalty": 1e300}, ["word_penalty", "1000000", "1e+300"]),
        ({"beam": 2, "beam_groups": 2, "diversity_penalty": 1e300}, ["diversity_penalty", "1000000", "1e+300"]),
        ({"coverage_penalty": 1e300}, ["coverage_penalty", "1000000", "1e+300"]),
        ({"repetition_penalty": 1e-300}, ["repetition_penalty", "1e-06", "1e-300"]),
        ({"sample": True, "temperature": 1e-46}, ["temperature", "1e-06", "1e-46"]),
        ({"sample": True, "temperature": 1e300}, ["temperature", "1000000", "1e+300"]),
        ({"sample": True, "top_p": 1e-300}, ["top_p", "1e-06", "1e-300"]),
        ({"sample": True, "n_best": 10_001}, ["n_best", "10000", "10001"]),
        ({"mbr": "chrf", "mbr_candidates": 1_001}, ["mbr_candidates", "1000", "1001"]),
        ({"max_length_factor": 1e300}, ["max_length_factor", "100", "1e+300"]),
        ({"min_length_factor": 1e300}, ["min_length_factor", "100", "1e+300"]),
        ({"max_length_extra": 10**20}, ["max_length_extra", "20000", f"{10**20}"]),
        ({"max_length": 10**9}, ["max_length", "20,000", f"{10**9}"]),
        ({"min_length": 10**9}, ["min_length", "20,000", f"{10**9}"]),
        ({"beam": 1_000, "stop": "first", "patience": 11.0}, ["beam", "patience", "10,000", "11.0"]),
        ({"prefix": "我 爱 NLP", "max_length": 2}, ["prefix has 3 tokens", "max_length 2"]),
        ({"split": True, "constraints": ["猫"]}, ["constraints", "split"]),
        ({"mbr_candidates": 4}, ["mbr_candidates", "mbr"]),
        ({"mbr": "chrf", "beam": 3, "mbr_candidates": 4}, ["mbr_candidates", "beam 3"]),
        ({"mbr": "chrf", "mbr_candidates": 4, "n_best": 5}, ["n_best", "mbr_candidates (4)"]),
        ({"constraints": ["猫"], "engine": "fast"}, ["constraints", "fast"]),
        ({"coverage_penalty": 0.2, "engine": "textbook"}, ["coverage_penalty", "textbook"]),
        ({"beem": 4}, ["beem", "beam"]),
        ({"prefixes": "a"}, ["prefixes", "prefix"]),
        ({"prefix": ["我", "爱"]}, ["2 prefixes", "1 texts"]),
        ({"constraints": [["猫"], ["狗"]]}, ["2", "1 texts"]),
        ({"constraints": "猫"}, ["constraints", "['猫']"]),
        ({"banned_phrases": "猫"}, ["banned_phrases", "['猫']"]),
        ({"banned_phrases": [" "]}, ["banned_phrases", "' '"]),
        ({"constraints": ["zebra"]}, ["constraint 'zebra'", "vocabulary"]),
        ({"prefix": "我 zebra"}, ["prefix", "'zebra'"]),
    ],
)
def test_invalid_options_raise_an_error_that_names_them(options: dict[str, Any], names: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        tiny_model().generate(["the cat"], **options)
    for name in names:
        assert name in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"normalise": kind, "length_penalty": value}
            for kind in ("average", "gnmt", "reward")
            for value in (-10, 10)
        ),
        {"normalise": "none", "word_penalty": 1e6},
        {"beam_groups": 2, "diversity_penalty": 1e6},
        {"coverage_penalty": 1e6},
        {"repetition_penalty": 1e6},
        {"repetition_penalty": 1e-6, "repetition_of": "logits"},
        {"beam": 1, "sample": True, "temperature": 1e6},
        {"beam": 1, "sample": True, "typical_p": 1e-6},
    ],
    ids=str,
)
def test_options_at_their_bounds_give_finite_scores(options: dict[str, Any]) -> None:
    (result,) = varied_model().generate(["the cat"], **{"beam": 2, "max_length": 3, **options})
    assert math.isfinite(result.score)
    assert result.ids or not result.cut


@pytest.mark.parametrize("name", ["temperature", "top_p"])
def test_the_smallest_temperature_and_top_p_equal_greedy(name: str) -> None:
    model, texts = varied_model(), sentences(4)
    samples = model.generate(texts, sample=True, **{name: 1e-6})
    assert [result.ids for result in samples] == [result.ids for result in model.generate(texts)]


def test_none_equals_an_omitted_option() -> None:
    model, texts = tiny_model(), sentences(3)
    all_none = dict.fromkeys(("beam", "sample", "prefix", "constraints", "banned_phrases", "min_length", "stop", "mbr"))
    assert model.generate(texts, **all_none) == model.generate(texts)


def test_invalid_options_are_rejected_without_texts() -> None:
    with pytest.raises(UsageError, check=has_code("sampling_option_without_sample", option="top_k")):
        tiny_model().generate([], top_k=3)


@pytest.mark.short(1)
@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"sample": True}])
def test_answers_start_with_their_prefix(options: dict[str, Any]) -> None:
    model, texts = varied_model(), sentences(6, longest=5)
    for result in model.generate(texts, prefix="我 看见", **options):
        assert result.text.startswith("我 看见")
    prefixes = ["我", "", "猫 坐", "NLP", "狗", "家 了"]
    each = model.generate(texts, prefix=prefixes, **options)
    assert all(result.text.startswith(prefix) for result, prefix in zip(each, prefixes, strict=True))
    if not options.get("sample"):
        assert each[1].ids == model.generate([texts[1]], **options)[0].ids
        for text, prefix, result in zip(texts, prefixes, each, strict=True):
            assert result.ids == model.generate([text], prefix=prefix, **options)[0].ids


def test_a_complete_answer_as_prefix_keeps_its_log_probability() -> None:
    model, texts = varied_model(), sentences(10)
    ended = [(text, each) for text, each in zip(texts, model.generate(texts), strict=True) if not each.cut]
    known = [(text, each) for text, each in ended if each.text and "⁇" not in each.text]
    assert len(known) > 2
    for text, result in known:
        again = model.generate([text], prefix=result.text)[0]
        assert again.ids == result.ids
        assert again.log_probability == pytest.approx(result.log_probability, abs=1e-4)


@pytest.mark.parametrize("options", [{}, {"beam": 3}])
def test_answers_have_the_minimum_length(options: dict[str, Any]) -> None:
    model, texts = varied_model(), sentences(8, longest=6)
    assert any(len(result.ids) < 7 for result in model.generate(texts, **options))
    assert all(len(result.ids) >= 7 for result in model.generate(texts, min_length=7, **options))
    by_factor = model.generate(texts, min_length_factor=1.0, min_length_extra=2, **options)
    for text, result in zip(texts, by_factor, strict=True):
        assert len(result.ids) >= len(text.split()) + 2


def test_minimum_length_and_prefix_extend_the_limit() -> None:
    (result,) = varied_model().generate(["cat"], min_length=40)
    assert len(result.ids) >= 40
    prefix = " ".join(["猫"] * 30)
    (result,) = varied_model().generate(["cat"], prefix=prefix)
    assert result.text.startswith(prefix)


@pytest.mark.parametrize("options", [{"min_length_factor": 20.0}, {"min_length_extra": 50}])
def test_a_minimum_length_above_the_limit_raises_the_limit(options: dict[str, Any]) -> None:
    (result,) = varied_model().generate(["the cat"], max_length_extra=2, **options)
    assert len(result.ids) >= 40
