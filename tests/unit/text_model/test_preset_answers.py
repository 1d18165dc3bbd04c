"""Answers with presets of other systems are the same in every batch, on every engine, and as a stream."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from varied_models import sentences, varied_model

from attendo.errors import UsageError
from attendo.text import EOS
from attendo.text_model import TextModel
from attendo.text_model.inputs import SourceEncoder

CASES: list[dict[str, Any]] = [
    {"preset": "fairseq", "beam": 3, "n_best": 3, "max_length": 5},
    {"preset": "hf", "beam": 3, "n_best": 3, "max_length": 5},
    {"preset": "hf", "max_length": 5},
    {"preset": "hf", "sample": True, "repetition_penalty": 1.5, "max_length": 5},
    {"preset": "ctranslate2", "max_length": 5},
    {"preset": "ctranslate2", "beam": 3, "n_best": 2, "length_penalty": 0.0, "max_length": 5},
    {"preset": "marian", "beam": 4, "n_best": 3, "max_length": 5},
]


@pytest.fixture(scope="module")
def model() -> TextModel:
    return varied_model()


@pytest.mark.short(2)
@pytest.mark.parametrize("options", CASES, ids=str)
def test_answers_are_the_same_alone_in_a_batch_and_on_every_engine(model: TextModel, options: dict[str, Any]) -> None:
    texts = sentences(3)
    together = model.generate(texts, **options)
    expected = [[(each.ids, each.cut) for each in result.hypotheses] for result in together]
    alone = [model.generate([text], **options)[0] for text in texts]
    for engine in ("textbook", "cached", "fast"):
        others = alone if engine == "cached" else model.generate(texts, engine=engine, **options)
        assert [[(each.ids, each.cut) for each in result.hypotheses] for result in others] == expected
        for one, other in zip(together, others, strict=True):
            assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.short(3)
@pytest.mark.parametrize("options", CASES, ids=str)
def test_a_stream_joined_is_the_answer(model: TextModel, options: dict[str, Any]) -> None:
    alone = {name: value for name, value in options.items() if name != "n_best"}
    texts = sentences(2)
    for text, result in zip(texts, model.generate(texts, **alone), strict=True):
        assert "".join(model.stream(text, **alone)) == result.text


@pytest.mark.parametrize("options", CASES, ids=str)
def test_the_search_tree_contains_the_answers(model: TextModel, options: dict[str, Any]) -> None:
    text = sentences(1)[0]
    (tree,) = model.search_tree(text, **options)
    final = {tuple(token for token in tree.ids(node) if token != EOS) for node in tree.final_nodes}
    assert final >= {each.ids for each in model.generate([text], **options)[0].hypotheses}


@pytest.mark.parametrize("options", [each for each in CASES if "sample" not in each], ids=str)
def test_the_score_follows_from_its_parts(model: TextModel, options: dict[str, Any]) -> None:
    exponent = options.get("length_penalty", 0.0 if options["preset"] == "marian" else 1.0)
    for result in model.generate(sentences(5), **options):
        parts = result.best.parts
        assert parts.tokens == len(result.ids) + result.best.has_end
        assert result.score == pytest.approx((parts.log_probability + parts.penalty) / parts.tokens**exponent, abs=1e-5)
        assert parts.penalty == 0 or options["preset"] == "ctranslate2"


@pytest.mark.parametrize(
    ("options", "tokens", "cut"),
    [
        ({"preset": "marian"}, 12, True),  # 3 times the source with its EOS
        ({"preset": "marian", "max_length_factor": 2.0}, 8, True),
        ({"preset": "hf"}, 20, True),
        ({"preset": "hf", "max_length": 9, "beam": 3}, 9, True),
        ({"preset": "ctranslate2", "max_length": 9}, 9, True),
        ({"preset": "fairseq", "max_length": 9}, 9, True),  # and a forced EOS
        ({"preset": "fairseq", "max_length_factor": 2.0, "max_length_extra": 3}, 9, True),
    ],
)
def test_an_answer_without_eos_has_the_length_limit_of_the_preset(
    model: TextModel, options: dict[str, Any], tokens: int, cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def require_full_length(self: SourceEncoder, *sizes: int) -> tuple[int, int]:
        limit, _ = limits(self, *sizes)
        return limit, limit + int(self._config.at_limit == "any")

    limits = SourceEncoder._limits
    monkeypatch.setattr(SourceEncoder, "_limits", require_full_length)
    (result,) = model.generate(["the cat sat"], **options)
    assert (len(result.ids), result.cut) == (tokens, cut)


@pytest.mark.parametrize("options", [{"preset": "fairseq", "beam": 3, "n_best": 3}, {"at_limit": "force_eos"}], ids=str)
def test_a_forced_eos_is_reported_and_counts_in_the_score(model: TextModel, options: dict[str, Any]) -> None:
    texts = sentences(6)
    results = model.generate(texts, max_length=2, **options)
    pairs = [(text, each) for text, result in zip(texts, results, strict=True) for each in result.hypotheses]
    assert {each.cut for _, each in pairs} == {True, False}
    for text, each in pairs:
        assert each.cut == each.end_forced == (len(each.ids) == 2)
        assert each.has_end
        assert each.log_probability == pytest.approx(model.score([text], [each.text])[0], abs=1e-4)
    assert all(one.score >= other.score for one, other in pairwise(results[0].hypotheses))  # ranked as ended


def test_a_trace_of_an_answer_with_forced_eos_has_the_eos(model: TextModel) -> None:
    ending = TextModel(
        replace(model.stored_model, generation={"at_limit": "force_eos", "max_length_factor": 0, "max_length_extra": 1})
    )
    (best,) = ending.generate(["the cat sat"])[0].hypotheses
    assert (best.cut, ending.trace("the cat sat").target_ids) == (True, (*best.ids, EOS))


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"preset": "moses"}, ["moses", "marian"]),
        ({"prest": "hf"}, ["prest", "preset"]),
        ({"preset": "hf", "beam": 4, "beam_groups": 2}, ["beam_groups (2)", "at_limit any"]),
        ({"preset": "marian", "constraints": ["猫"], "at_limit": "truncate"}, ["constraints", "shrinking"]),
        ({"preset": "ctranslate2", "constraints": ["猫"]}, ["constraints", "at_limit any"]),
        ({"preset": "ctranslate2", "length_penalty": 0.0, "patience": 2.0}, ["patience", "leader"]),
        ({"repetition_of": "logits"}, ["repetition_of", "repetition_penalty"]),
        ({"preset": "marian", "beam": 3, "n_best": 4}, ["n_best", "beam (3)"]),
    ],
)
def test_incompatible_options_raise_an_error_that_names_them(
    model: TextModel, options: dict[str, Any], names: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        model.generate(["the cat"], **options)
    for name in names:
        assert name in str(caught.value)


def test_constraints_and_groups_work_with_a_forced_eos(model: TextModel) -> None:
    (result,) = model.generate(["the cat"], preset="fairseq", constraints=["看见 小"], max_length=6)
    assert "看见 小" in result.text
    assert (result.cut, result.best.has_end) == (True, True)
    (result,) = model.generate(["the cat"], preset="fairseq", beam=4, beam_groups=2, n_best=4, max_length=6)
    assert len(result.hypotheses) == 4
    assert all(each.has_end for each in result.hypotheses)
