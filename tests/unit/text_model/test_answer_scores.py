"""The score of an answer equals the score of its text. Samples do not depend on the batch."""

from typing import Any

import pytest
from varied_models import sentences, varied_model

from attendo.text_model import Hypothesis, TextModel

DECODERS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"beam": 3, "n_best": 3},
    "diverse": {"beam": 4, "beam_groups": 2, "n_best": 2},
    "samples": {"sample": True, "n_best": 2},
    "constrained": {"beam": 3, "constraints": ["猫"]},
    "ruled": {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "banned_phrases": ["NLP"], "prefix": "我"},
}


@pytest.mark.short(2)
@pytest.mark.parametrize("name", DECODERS)
def test_D3_scoring_an_answer_gives_its_log_probability(name: str) -> None:
    model, texts = varied_model(), sentences(10)
    results = model.generate(texts, **DECODERS[name])
    pairs = [(text, each) for text, result in zip(texts, results, strict=True) for each in result.hypotheses]
    same = [(text, each) for text, each in pairs if not each.cut and _encodes_to_its_ids(model, each)]
    assert len(same) > 3
    scores = model.score([text for text, _ in same], [each.text for _, each in same])
    assert scores == pytest.approx([each.log_probability for _, each in same], abs=1e-4)
    scored = model.score_tokens([same[0][0]], [same[0][1].text])[0]
    assert scored.pieces == (*same[0][1].pieces, "</s>")
    assert scored.log_probability == pytest.approx(sum(scored.log_probabilities))


def test_scores_are_the_same_alone_and_in_batches() -> None:
    model, texts = varied_model(), sentences(60)
    answers = [result.text for result in model.generate(texts, max_length=9)]
    alone = [model.score([text], [answer])[0] for text, answer in zip(texts[:15], answers, strict=False)]
    assert model.score(texts, answers)[:15] == pytest.approx(alone, abs=1e-4)
    assert model.score([], []) == []


def test_equal_texts_of_a_batch_have_equal_samples() -> None:
    model, texts = varied_model(), sentences(6)
    first, *_, last = model.generate([texts[0], *texts, texts[0]], sample=True, n_best=3)
    assert first == last
    alone = model.generate([texts[0]], sample=True, n_best=3)[0]
    assert [each.text for each in first.hypotheses] == [each.text for each in alone.hypotheses]
    scores = [[each.log_probability for each in result.hypotheses] for result in (first, alone)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def _encodes_to_its_ids(model: TextModel, each: Hypothesis) -> bool:
    return model.target_tokenizer.encode(each.text) == list(each.ids)
