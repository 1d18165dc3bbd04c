"""Pipelines say what they did not read, and what came to no end: in the result, and by a warning."""

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


def warned(pipe: Any, inputs: Any, **options: Any) -> tuple[list[Any], list[str]]:
    """What it tells, and what it warns of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        told = pipe(inputs, **options)
    assert all(each.category is IncompleteWarning and each.filename == __file__ for each in caught)
    return told, [str(each.message) for each in caught]


def test_what_is_whole_has_nothing_to_be_told() -> None:
    model = continuing()
    assert warned(attendo.pipeline("text-generation", model), TEXTS[0])[1] == []
    told, said = warned(attendo.pipeline("translation", answering()), [TEXTS[1]], beam=4)
    assert (told[0].keys(), said) == ({"translation_text"}, [])


@pytest.mark.parametrize("task", ["translation", "summarization", "text2text-generation"])
def test_a_source_that_was_cut_is_told(task: str) -> None:
    pipe = attendo.pipeline(task, answering(), max_source=2, long_source="truncate", beam=4, max_length=3)
    told, said = warned(pipe, [TEXTS[0], "cat", TEXTS[1]])
    assert [each.get("source_left_out") for each in told] == [1, None, 1]
    problem = message("source_tokens_left_out", count=2)
    assert said == [message("incomplete_texts", count=2, total=3, problem=problem, field="source_left_out")]
    problem = message("source_tokens_left_out", count=1)
    assert message("incomplete_text", problem=problem, field="source_left_out") in warned(pipe, TEXTS[0])[1]


def test_an_answer_that_was_cut_is_told_and_warned_of_where_nobody_asked_for_it() -> None:
    pipe = attendo.pipeline("translation", answering())
    told, said = warned(pipe, TEXTS)
    assert [each.get("cut", False) for each in told] == [each.cut for each in answering().generate(TEXTS)] == [True] * 4
    problem = message("output_cut_at_limit")
    assert said == [message("incomplete_texts", count=4, total=4, problem=problem, field="cut")]
    for limit in ("max_length", "max_new_tokens"):
        told, said = warned(pipe, TEXTS[0], **{limit: 2})
        assert (told[0]["cut"], said) == (True, [])


def test_each_of_several_answers_says_it_of_itself() -> None:
    found = answering().generate(TEXTS[2:3], beam=4, n_best=4)[0].hypotheses
    told, _ = warned(attendo.pipeline("translation", answering()), TEXTS[2], num_beams=4, num_return_sequences=4)
    assert [each.get("cut", False) for each in told] == [each.cut for each in found]
    assert {each.cut for each in found} == {True, False}


def test_what_the_vocabulary_does_not_have_is_told_once() -> None:
    told, said = warned(attendo.pipeline("text-generation", continuing()), ["日 cat", "日本 cat", "cat"])
    assert [each[0].get("unknown") for each in told] == [["日"], ["日", "本"], None]
    problem = message("text_not_in_vocabulary", parts="'日', '本'")
    assert said == [message("incomplete_texts", count=2, total=3, problem=problem, field="unknown")]


def test_constraints_that_are_not_met_are_told() -> None:
    options = {"constraints": ["猫", "狗"], "beam": 2, "max_length": 1}
    told, said = warned(attendo.pipeline("translation", answering()), TEXTS[0], **options)
    assert told[0]["constraints"] == list(answering().generate(TEXTS[:1], **options)[0].constraints)
    assert said == [message("incomplete_text", problem=message("constraints_not_met"), field="constraints")]


def test_a_conversation_tells_it_beside_its_messages() -> None:
    model: TextModel = answering(True, task="conversation")
    told, said = warned(attendo.pipeline("conversational", model), [{"role": "user", "content": "the cat sat"}])
    assert told[0]["cut"] is True
    assert len(said) == 1
