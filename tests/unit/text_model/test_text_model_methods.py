"""Other methods of a text model: alternatives, search trees, ensembles, MBR, alignments."""

from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import tiny_model
from varied_models import pieces_model, sentences, varied_model

from attendo.errors import UsageError
from attendo.metrics.pairwise import pairwise_chrf
from attendo.text_model import TextModel


def test_alternatives_are_the_most_probable_next_words() -> None:
    model = varied_model()
    alternatives = model.alternatives("the cat sat", "我 爱", count=4)
    assert len({each.word for each in alternatives}) == 4
    assert [each.log_probability for each in alternatives] == sorted(
        (each.log_probability for each in alternatives), reverse=True
    )
    for each in alternatives:
        assert each.result.text.startswith(f"我 爱 {each.word}".rstrip())
        token = model.score_tokens(["the cat sat"], [f"我 爱 {each.word}".rstrip()])[0].log_probabilities[2]
        if "⁇" not in each.word:
            assert each.log_probability == pytest.approx(token, abs=1e-4)


def test_the_first_alternative_is_the_answer() -> None:
    model = varied_model()
    for text in sentences(4):
        assert model.alternatives(text, count=2)[0].result.ids == model.generate([text])[0].ids


def test_alternatives_of_subwords_are_different_words() -> None:
    alternatives = pieces_model().alternatives("the cat", count=5, max_length=8)
    assert len({each.word for each in alternatives}) == len(alternatives) > 1


@pytest.mark.parametrize(("text", "count"), [("", 3), ("the cat", 0)])
def test_alternatives_of_an_empty_text_or_count_zero_are_rejected(text: str, count: int) -> None:
    with pytest.raises(UsageError, check=has_code("alternatives_request_invalid")):
        varied_model().alternatives(text, count=count)


@pytest.mark.short(1)
@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"beam": 4, "beam_groups": 2}])
def test_a_search_tree_ends_in_the_answer(options: dict[str, int]) -> None:
    model = varied_model()
    for text in sentences(2):
        options = {"max_length": 7, **options}
        result, trees = model.generate([text], **options)[0], model.search_tree(text, **options)
        assert [(tree.sentence, tree.group) for tree in trees] == [(0, n) for n in range(options.get("beam_groups", 1))]
        answers = [tuple(tree.ids(node)) for tree in trees for node in tree.final_nodes]
        assert result.ids in [ids if result.cut else ids[:-1] for ids in answers]


def test_a_model_ensembled_with_itself_gives_its_own_answers() -> None:
    model, texts = varied_model(), ["", *sentences(8)]
    both = model.ensemble([model])
    for options in ({}, {"beam": 3}):
        alone, together = model.generate(texts, **options), both.generate(texts, **options)
        assert [result.ids for result in together] == [result.ids for result in alone]
        assert [result.score for result in together] == pytest.approx([result.score for result in alone], abs=1e-5)
    assert both.score(["the cat"], ["猫 坐"]) == pytest.approx(model.score(["the cat"], ["猫 坐"]), abs=1e-5)


def test_an_ensemble_uses_the_mean_of_the_probabilities() -> None:
    one, other = varied_model(seed=2), varied_model(seed=3, num_decoder_layers=1)
    both = one.ensemble([other], weights=[3, 1])
    ended = [(text, result) for text in sentences(4) for result in both.generate([text]) if not result.cut]
    assert len(ended) == 3
    for text, result in ended:
        each = [model.score_tokens([text], [result.text])[0] for model in (one, other)]
        first, second = (torch.tensor(scored.log_probabilities).exp() for scored in each)
        assert result.log_probability == pytest.approx(float((0.75 * first + 0.25 * second).log().sum()), abs=1e-4)
        assert both.score([text], [result.text])[0] == pytest.approx(result.log_probability, abs=1e-4)
    assert both.generate(["the cat"], alignments=True)[0].alignment is not None
    assert "".join(both.stream("the cat", beam=2)) == both.generate(["the cat"], beam=2)[0].text


def test_models_with_other_tokenizers_cannot_form_an_ensemble() -> None:
    with pytest.raises(UsageError, check=has_code("ensemble_tokenizer_mismatch", position=2, side="source")):
        tiny_model().ensemble([pieces_model()])


def test_an_ensemble_cannot_be_saved_or_traced(tmp_path: object) -> None:
    both = tiny_model().ensemble([tiny_model(1)])
    with pytest.raises(UsageError, check=has_code("ensemble_not_saveable", count=2)):
        both.save(str(tmp_path))
    with pytest.raises(UsageError, check=has_code("ensemble_not_traceable", count=2)):
        both.trace("the cat")
    with pytest.raises(UsageError, check=has_code("textbook_engine_conflict", feature="an ensemble")):
        both.generate(["the cat"], engine="textbook")
    with pytest.raises(UsageError, check=has_code("coverage_penalty_conflict", feature="an ensemble")):
        both.generate(["the cat"], coverage_penalty=0.1)


@pytest.mark.short(1)
@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"sample": True, "n_best": 2}])
def test_D1_an_ensemble_gives_the_same_answers_on_the_fast_engine(options: dict[str, Any]) -> None:
    both = varied_model(seed=2).ensemble([varied_model(seed=3, num_decoder_layers=1)])
    cached, fast = (both.generate(sentences(9), engine=engine, **options) for engine in ("cached", "fast"))
    assert [[each.ids for each in result.hypotheses] for result in cached] == [
        [each.ids for each in result.hypotheses] for result in fast
    ]


def test_D1_coverage_is_the_same_on_the_fast_engine() -> None:
    model = varied_model()
    runs = (model.generate(sentences(9), beam=3, coverage_penalty=0.7, engine=each) for each in ("cached", "fast"))
    cached, fast = ([(result.text, result.best.parts.coverage) for result in results] for results in runs)
    assert [text for text, _ in cached] == [text for text, _ in fast]
    assert [part for _, part in cached] == pytest.approx([part for _, part in fast], abs=1e-4)


@pytest.mark.parametrize("options", [{"mbr_candidates": 12}, {"beam": 5}])
def test_mbr_returns_the_candidate_with_the_highest_utility(options: dict[str, int]) -> None:
    model, text = varied_model(), "the small cat sat home"
    result = model.generate([text], mbr="chrf", n_best=5, **options)[0]
    utilities = [each.utility for each in result.hypotheses]
    assert utilities == sorted(utilities, key=lambda each: -(each or 0))
    assert len({each.text for each in result.hypotheses}) == len(result.hypotheses)
    if "beam" not in options:
        samples = model.generate([text], sample=True, n_best=12)[0].hypotheses
        expected = pairwise_chrf([result.text], [each.text for each in samples]).mean()
        assert result.best.utility == pytest.approx(expected)
        assert all(pairwise_chrf([each.text], [other.text for other in samples]).mean() <= expected for each in samples)


def test_alignments_are_the_attention_of_the_last_layer() -> None:
    model, texts = varied_model(), ["", *sentences(5)]
    for text, result in zip(texts, model.generate(texts, beam=3, n_best=2, alignments=True), strict=True):
        for each in result.hypotheses:
            assert each.alignment is not None
            source = model.source_tokenizer.encode(text)
            assert each.alignment.weights.shape == (len(each.ids), len(source) + 1 if text else 1)
            assert all(link[0] < len(source) and link[1] < len(each.ids) for link in each.alignment.links)
        if text and "⁇" not in result.text:
            trace = model.trace(text, result.text)
            assert result.alignment is not None
            expected = trace.cross[-1].mean(dim=0)[: len(result.ids)]
            torch.testing.assert_close(result.alignment.weights, expected, atol=1e-5, rtol=0)


def test_links_omit_tokens_aligned_to_eos() -> None:
    from attendo.text_model import Alignment

    alignment = Alignment(torch.tensor([[0.1, 0.8, 0.1], [0.2, 0.1, 0.7], [0.5, 0.4, 0.1]]))
    assert alignment.links == ((1, 0), (0, 2))
    assert str(alignment) == "1-0 0-2"


def test_coverage_is_a_part_of_the_score() -> None:
    model: TextModel = varied_model()
    results = model.generate(sentences(4), beam=3, n_best=3, coverage_penalty=0.5, max_length=3)
    assert any(result.best.parts.coverage < 0 for result in results)
    for result in results:
        for each in result.hypotheses:
            assert each.parts.coverage <= 0
            assert each.score == pytest.approx(each.log_probability / each.parts.tokens + each.parts.coverage)


@pytest.mark.parametrize("options", [{}, {"beam": 3}])
def test_no_repeat_ngram_size_prevents_repetition(options: dict[str, int]) -> None:
    for result in varied_model().generate(sentences(8), no_repeat_ngram_size=2, **options):
        pairs = list(zip(result.ids, result.ids[1:], strict=False))
        assert len(pairs) == len({*pairs})
