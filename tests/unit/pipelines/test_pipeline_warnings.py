"""Pipelines report truncated sources and cut answers, in the result and with a warning."""

import warnings
from typing import Any

import pytest
from error_codes import message
from piped import answering, continuing
from tiny import SOURCES

import attendo
from attendo.pipelines.text_pipeline import IncompleteWarning
from attendo.text_model import TextModel

TEXTS = list(SOURCES)


def run_with_warnings(pipe: Any, inputs: Any, **options: Any) -> tuple[list[Any], list[str]]:
    """The output and the texts of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = pipe(inputs, **options)
    assert all(each.category is IncompleteWarning and each.filename == __file__ for each in caught)
    return output, [str(each.message) for each in caught]


def test_complete_answers_cause_no_warning() -> None:
    model = continuing()
    assert run_with_warnings(attendo.pipeline("text-generation", model), TEXTS[0])[1] == []
    output, messages = run_with_warnings(attendo.pipeline("translation", answering()), [TEXTS[1]], beam=4)
    assert (output[0].keys(), messages) == ({"translation_text"}, [])


@pytest.mark.parametrize("task", ["translation", "summarization", "text2text-generation"])
def test_a_truncated_source_is_reported(task: str) -> None:
    pipe = attendo.pipeline(task, answering(), max_source=2, long_source="truncate", beam=4, max_length=3)
    output, messages = run_with_warnings(pipe, [TEXTS[0], "cat", TEXTS[1]])
    assert [each.get("source_left_out") for each in output] == [1, None, 1]
    problem = message("source_tokens_left_out", count=2)
    assert messages == [message("incomplete_texts", count=2, total=3, problem=problem, field="source_left_out")]
    problem = message("source_tokens_left_out", count=1)
    assert message("incomplete_text", problem=problem, field="source_left_out") in run_with_warnings(pipe, TEXTS[0])[1]


def test_a_cut_answer_is_reported_and_warned_about_without_a_limit() -> None:
    pipe = attendo.pipeline("translation", answering())
    output, messages = run_with_warnings(pipe, TEXTS)
    assert (
        [each.get("cut", False) for each in output] == [each.cut for each in answering().generate(TEXTS)] == [True] * 4
    )
    problem = message("output_cut_at_limit")
    assert messages == [message("incomplete_texts", count=4, total=4, problem=problem, field="cut")]
    for limit in ("max_length", "max_new_tokens"):
        output, messages = run_with_warnings(pipe, TEXTS[0], **{limit: 2})
        assert (output[0]["cut"], messages) == (True, [])


def test_each_of_several_answers_reports_its_own_cut() -> None:
    found = answering().generate(TEXTS[2:3], beam=4, n_best=4)[0].hypotheses
    output, _ = run_with_warnings(
        attendo.pipeline("translation", answering()), TEXTS[2], num_beams=4, num_return_sequences=4
    )
    assert [each.get("cut", False) for each in output] == [each.cut for each in found]
    assert {each.cut for each in found} == {True, False}


def test_unknown_characters_are_reported_in_one_warning() -> None:
    output, messages = run_with_warnings(
        attendo.pipeline("text-generation", continuing()), ["日 cat", "日本 cat", "cat"]
    )
    assert [each[0].get("unknown") for each in output] == [["日"], ["日", "本"], None]
    problem = message("text_not_in_vocabulary", parts="'日', '本'")
    assert messages == [message("incomplete_texts", count=2, total=3, problem=problem, field="unknown")]


def test_unmet_constraints_are_reported() -> None:
    options = {"constraints": ["猫", "狗"], "beam": 2, "max_length": 1}
    output, messages = run_with_warnings(attendo.pipeline("translation", answering()), TEXTS[0], **options)
    assert output[0]["constraints"] == list(answering().generate(TEXTS[:1], **options)[0].constraints)
    assert messages == [message("incomplete_text", problem=message("constraints_not_met"), field="constraints")]


def test_a_conversation_reports_a_cut_answer() -> None:
    model: TextModel = answering(True, task="conversation")
    output, messages = run_with_warnings(
        attendo.pipeline("conversational", model), [{"role": "user", "content": "the cat sat"}]
    )
    assert output[0]["cut"] is True
    assert len(messages) == 1
