"""What is told of an exported model whose answers depend on what is asked beside them."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from error_codes import has_code
from tiny import SOURCES, tiny_model

from attendo.errors import UsageError
from attendo.runs.verify import verify_exported
from attendo.text import EOS
from attendo.text_model import Result, ScoredTarget

TEXTS = SOURCES * 3


class Changing:
    """Answers as a tiny model does; what is asked alone has another answer, or another score, or is told wrongly."""

    def __init__(self, alone: str = "", apart: float = 0.0, told_wrongly: float = 0.0) -> None:
        self._model = tiny_model(output_bias=True)
        self._model.network.output.bias.data[EOS] = 2.0  # so that some answers end
        self._alone, self._apart, self._told_wrongly = alone, apart, told_wrongly
        self.backend = SimpleNamespace(name="onnx")
        self.target_tokenizer = self._model.target_tokenizer

    def generate(self, texts: Sequence[str], **options: Any) -> list[Result]:
        if options.get("sample"):
            raise UsageError("settings_invalid", faults="it cannot draw")
        results = self._model.generate(texts, **options, max_length=4)
        return [self._changed(each) for each in results] if len(texts) == 1 else results

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> list[ScoredTarget]:
        found = ((each, each.log_probabilities) for each in self._model.score_tokens(sources, targets))
        return [replace(each, log_probabilities=(first + self._told_wrongly, *rest)) for each, (first, *rest) in found]

    def _changed(self, result: Result) -> Result:
        parts = replace(result.best.parts, log_probability=result.log_probability + self._apart)
        ids = (*result.ids, 9) if self._alone else result.ids
        best = replace(result.best, parts=parts, ids=ids, text=self._alone or result.text)
        return replace(result, hypotheses=(best, *result.hypotheses[1:]))


def found(**changes: Any) -> dict[tuple[str, str], Any]:
    model: Any = Changing(**changes)
    return {(each.path, each.what): each for each in verify_exported(model, [*TEXTS, " "])}


ALONE, SCORE = ("onnx, batches of 1", "greedy"), ("the score of an answer", "greedy")


def test_the_same_is_told_as_the_same_and_what_it_cannot_do_is_left_out() -> None:
    told = found()
    assert all(each.equal for each in told.values())
    assert [*told] == [(f"onnx, batches of {n}", what) for what in ("greedy", "beam 4") for n in (1, 7)] + [SCORE]
    assert told[ALONE].count == len(TEXTS)


def test_another_answer_is_told_with_an_example() -> None:
    told = found(alone="quite another", apart=-3.0)
    assert not told[ALONE].equal
    assert (told[ALONE].different, told[ALONE].ties) == (len(TEXTS), 0)
    assert told[ALONE].example.startswith("'回' and ")
    assert told["onnx, batches of 7", "greedy"].equal


@pytest.mark.slow
def test_another_answer_that_is_as_good_is_a_tie() -> None:
    assert found(alone="quite another")[ALONE].equal


@pytest.mark.slow
def test_another_score_is_told() -> None:
    told = found(apart=0.25)[ALONE]
    assert not told.equal
    assert (told.different, told.largest) == (0, pytest.approx(0.25))


@pytest.mark.slow
def test_a_score_that_is_not_that_of_the_answer_is_told() -> None:
    told = found(told_wrongly=0.5)[SCORE]
    assert told.count > 0
    assert told.largest == pytest.approx(0.5, abs=1e-4)
    assert not told.equal


@pytest.mark.slow
def test_scores_of_answers_that_were_cut_are_compared_without_an_end() -> None:
    model: Any = Changing()
    model._model.network.output.bias.data[EOS] = -50.0  # none ends
    (told,) = [each for each in verify_exported(model, TEXTS) if each.path == SCORE[0]]
    assert told.equal
    assert told.count > 0


@pytest.mark.slow
def test_a_hypothesis_that_is_not_the_best_is_compared_too() -> None:
    class WorseAlone(Changing):
        def _changed(self, result: Result) -> Result:
            last = replace(
                result.hypotheses[-1], ids=(9, 9, 9), parts=replace(result.best.parts, log_probability=-99.0)
            )
            return replace(result, hypotheses=(*result.hypotheses[:-1], last))

    model: Any = WorseAlone()
    told = {(each.path, each.what): each for each in verify_exported(model, TEXTS)}
    assert not told["onnx, batches of 1", "beam 4"].equal


def test_without_sentences_there_is_nothing_to_verify() -> None:
    model: Any = Changing()
    with pytest.raises(UsageError, check=has_code("no_sentence_to_verify")):
        list(verify_exported(model, ["", " "]))
