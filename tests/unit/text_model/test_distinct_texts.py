"""Hypotheses with different texts."""

from varied_models import pieces_model

SOURCE = "the small cat ran home"


def test_hypotheses_have_distinct_texts_by_default() -> None:
    model = pieces_model()
    (all_results,) = model.generate([SOURCE], beam=12, n_best=12, max_length=4, distinct=False)
    texts = [each.text for each in all_results.hypotheses]
    assert len({*texts}) < len(texts)  # the same text from other pieces
    (distinct,) = model.generate([SOURCE], beam=12, n_best=12, max_length=4)
    assert [each.text for each in distinct.hypotheses] == [*dict.fromkeys(texts)]
    # The best of equal texts is kept, and other texts follow.
    best = {each.text: each.ids for each in reversed(all_results.hypotheses)}
    assert [each.ids for each in distinct.hypotheses] == [*map(best.__getitem__, dict.fromkeys(texts))]
    (first,) = model.generate([SOURCE], beam=12, n_best=5, max_length=4)
    assert [each.ids for each in first.hypotheses] == [each.ids for each in distinct.hypotheses[:5]]


def test_presets_and_samples_may_repeat_a_text() -> None:
    model = pieces_model()
    (theirs,) = model.generate([SOURCE], preset="hf", beam=12, n_best=12, max_length=4)
    assert len(theirs.hypotheses) == 12
    (samples,) = model.generate(["the"], sample=True, temperature=0.01, n_best=5, max_length=2)
    assert len(samples.hypotheses) == 5
