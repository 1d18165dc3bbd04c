"""Hypotheses with different texts."""

from lively import pieces_model

SOURCE = "the small cat ran home"


def test_no_text_comes_twice_unless_asked_for() -> None:
    model = pieces_model()
    (every,) = model.generate([SOURCE], beam=12, n_best=12, max_length=4, distinct=False)
    texts = [each.text for each in every.hypotheses]
    assert len({*texts}) < len(texts)  # the same text, cut into other pieces
    (found,) = model.generate([SOURCE], beam=12, n_best=12, max_length=4)
    assert [each.text for each in found.hypotheses] == [*dict.fromkeys(texts)]
    # Of equal texts the best stays, and others take the free places.
    best = {each.text: each.ids for each in reversed(every.hypotheses)}
    assert [each.ids for each in found.hypotheses] == [*map(best.__getitem__, dict.fromkeys(texts))]
    (first,) = model.generate([SOURCE], beam=12, n_best=5, max_length=4)
    assert [each.ids for each in first.hypotheses] == [each.ids for each in found.hypotheses[:5]]


def test_other_systems_keep_their_meaning_and_samples_are_what_was_drawn() -> None:
    model = pieces_model()
    (theirs,) = model.generate([SOURCE], preset="hf", beam=12, n_best=12, max_length=4)
    assert len(theirs.hypotheses) == 12
    (drawn,) = model.generate(["the"], sample=True, temperature=0.01, n_best=5, max_length=2)
    assert len(drawn.hypotheses) == 5
