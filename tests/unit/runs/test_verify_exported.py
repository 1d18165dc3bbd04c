"""Verification of an exported model whose answers depend on the batch."""

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


class BatchDependentModel:
    """A tiny model that changes the answer or score of a batch of one, or reports a wrong score."""

    def __init__(self, other_text: str = "", score_offset: float = 0.0, score_error: float = 0.0) -> None:
        self._model = tiny_model(output_bias=True)
        self._model.network.output.bias.data[EOS] = 2.0  # some answers end
        self._other_text, self._score_offset, self._score_error = other_text, score_offset, score_error
        self.backend = SimpleNamespace(name="onnx")
        self.target_tokenizer = self._model.target_tokenizer

    def generate(self, texts: Sequence[str], **options: Any) -> list[Result]:
        if options.get("sample"):
            raise UsageError("settings_invalid", faults="it cannot draw")
        results = self._model.generate(texts, **options, max_length=4)
        return [self._change_result(each) for each in results] if len(texts) == 1 else results

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> list[ScoredTarget]:
        scored = ((each, each.log_probabilities) for each in self._model.score_tokens(sources, targets))
        return [replace(each, log_probabilities=(first + self._score_error, *rest)) for each, (first, *rest) in scored]

    def _change_result(self, result: Result) -> Result:
        parts = replace(result.best.parts, log_probability=result.log_probability + self._score_offset)
        ids = (*result.ids, 9) if self._other_text else result.ids
        best = replace(result.best, parts=parts, ids=ids, text=self._other_text or result.text)
        return replace(result, hypotheses=(best, *result.hypotheses[1:]))


def compare(**changes: Any) -> dict[tuple[str, str], Any]:
    model: Any = BatchDependentModel(**changes)
    return {(each.path, each.what): each for each in verify_exported(model, [*TEXTS, " "])}


ALONE, SCORE = ("onnx, batches of 1", "greedy"), ("the score of an answer", "greedy")


def test_equal_answers_agree_and_unsupported_options_are_skipped() -> None:
    comparisons = compare()
    assert all(each.equal for each in comparisons.values())
    assert [*comparisons] == [(f"onnx, batches of {n}", what) for what in ("greedy", "beam 4") for n in (1, 7)] + [
        SCORE
    ]
    assert comparisons[ALONE].count == len(TEXTS)


def test_another_answer_is_reported_with_an_example() -> None:
    comparisons = compare(other_text="quite another", score_offset=-3.0)
    assert not comparisons[ALONE].equal
    assert (comparisons[ALONE].different, comparisons[ALONE].ties) == (len(TEXTS), 0)
    assert comparisons[ALONE].example.startswith("'回' and ")
    assert comparisons["onnx, batches of 7", "greedy"].equal


@pytest.mark.slow
def test_another_answer_with_the_same_score_is_a_tie() -> None:
    assert compare(other_text="quite another")[ALONE].equal


@pytest.mark.slow
def test_another_score_is_a_difference() -> None:
    comparison = compare(score_offset=0.25)[ALONE]
    assert not comparison.equal
    assert (comparison.different, comparison.largest) == (0, pytest.approx(0.25))


@pytest.mark.slow
def test_a_wrong_reported_score_is_a_difference() -> None:
    comparison = compare(score_error=0.5)[SCORE]
    assert comparison.count > 0
    assert comparison.largest == pytest.approx(0.5, abs=1e-4)
    assert not comparison.equal


@pytest.mark.slow
def test_scores_of_truncated_answers_exclude_eos() -> None:
    model: Any = BatchDependentModel()
    model._model.network.output.bias.data[EOS] = -50.0  # no answer ends
    (comparison,) = [each for each in verify_exported(model, TEXTS) if each.path == SCORE[0]]
    assert comparison.equal
    assert comparison.count > 0


@pytest.mark.slow
def test_all_hypotheses_are_compared() -> None:
    class WorseAlone(BatchDependentModel):
        def _change_result(self, result: Result) -> Result:
            last = replace(
                result.hypotheses[-1], ids=(9, 9, 9), parts=replace(result.best.parts, log_probability=-99.0)
            )
            return replace(result, hypotheses=(*result.hypotheses[:-1], last))

    model: Any = WorseAlone()
    comparisons = {(each.path, each.what): each for each in verify_exported(model, TEXTS)}
    assert not comparisons["onnx, batches of 1", "beam 4"].equal


def test_no_sentences_is_a_usage_error() -> None:
    model: Any = BatchDependentModel()
    with pytest.raises(UsageError, check=has_code("no_sentence_to_verify")):
        list(verify_exported(model, ["", " "]))
