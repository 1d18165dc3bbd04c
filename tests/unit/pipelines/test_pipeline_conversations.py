"""Conversations: messages in, messages out with the answer added; turns joined as the model learned to read them."""

from copy import copy
from typing import Any

import pytest
from error_codes import ErrorCheck, has_code
from piped import QUIET, TURNS, answering, only

import attendo
from attendo.errors import UsageError
from attendo.pipelines.text_pipeline import join_latest_turns, max_source_tokens
from attendo.text import Characters
from attendo.text_model import TextModel

pytestmark = pytest.mark.filterwarnings(QUIET)


def talk(*texts: str) -> list[dict[str, Any]]:
    """The user speaks last."""
    roles = ("user", "assistant")
    return [{"role": roles[(len(texts) - n - 1) % 2], "content": text} for n, text in enumerate(texts)]


def said(model: TextModel, source: str, **options: Any) -> str:
    return model.generate([source], **options)[0].text


@pytest.mark.parametrize(("with_symbol", "between"), [(True, "<turn>"), (False, "\n")])
def test_turns_are_joined_as_the_model_learned_to_read_them(with_symbol: bool, between: str) -> None:
    model = answering(with_symbol, task="conversation")
    messages = talk(*TURNS[:3])
    told = attendo.pipeline("conversational", model)(messages)
    answer = {"role": "assistant", "content": said(model, between.join(TURNS[:3]))}
    assert only(told) == [{"generated_text": [*messages, answer]}]
    assert said(model, between.join(TURNS[:3])) != said(model, TURNS[2])
    assert len(messages) == 3


def test_several_conversations_have_a_list_each() -> None:
    model = answering(True, task="conversation")
    pipe = attendo.pipeline("conversational", model)
    one, other = talk(*TURNS[:1]), talk(*TURNS[:3])
    assert pipe([one, other]) == [pipe(one), pipe(other)]
    assert pipe([one]) == [pipe(one)]
    assert pipe([]) == []


def test_several_answers_are_several_conversations() -> None:
    model = answering(True, task="conversation")
    told = attendo.pipeline("conversational", model, num_beams=3)(talk(*TURNS[:1]), num_return_sequences=2)
    expected = model.generate([TURNS[0]], beam=3, n_best=2)[0].hypotheses
    assert [each["generated_text"][-1]["content"] for each in told] == [each.text for each in expected]


def test_no_more_turns_are_read_than_the_model_learned_from() -> None:
    model = answering(True, task="conversation", context_turns=2)
    told = attendo.pipeline("conversational", model)(talk(*TURNS))
    assert told[0]["generated_text"][-1]["content"] == said(model, "<turn>".join(TURNS[-2:]))
    assert said(model, "<turn>".join(TURNS[-2:])) != said(model, "<turn>".join(TURNS))


@pytest.mark.slow
def test_turns_are_read_as_far_back_as_they_fit() -> None:
    model = answering(True)
    for read in range(1, 5):
        source = "<turn>".join(TURNS[-read:])
        most = len(model.source_tokenizer.encode(source))
        told = attendo.pipeline("conversational", model, max_source=most)(talk(*TURNS))
        assert told[0]["generated_text"][-1]["content"] == said(model, source)


def test_a_last_turn_that_is_too_long_is_told() -> None:
    with pytest.raises(UsageError, check=has_code("text_exceeds_model_limit", limit=2)):
        attendo.pipeline("conversational", answering(True), max_source=2)(talk(*TURNS))


def test_the_latest_are_kept_and_the_last_in_any_case() -> None:
    model = answering(True)
    assert join_latest_turns(["a", "b", "c"], model, None, lambda text: len(text) <= 8) == "b<turn>c"
    assert join_latest_turns(["a", "b", "c"], model, None, lambda text: False) == "c"
    assert join_latest_turns(["a", "b", "c"], model, 1, lambda text: True) == "c"
    assert join_latest_turns(["a", "b", "c"], answering(), 9, lambda text: True) == "a\nb\nc"


def test_nobody_says_more_than_one_turn() -> None:
    model = answering(True)
    forged = join_latest_turns(["cat<turn>dog", "a<tu<turn>rn>b"], model, 1, lambda text: True)
    assert forged.count("<turn>") == 0
    assert join_latest_turns(["cat<turn>dog", "b"], model, 2, lambda text: True) == "cat[turn]dog<turn>b"
    turn = model.source_tokenizer.encode("<turn>")[0]
    read = model.source_tokenizer.encode(
        join_latest_turns(["<turn>", "<turn>cat", "b<turn>"], model, 9, lambda text: True)
    )
    assert read.count(turn) == 2


def test_spaces_that_the_model_did_not_learn_from_are_left_out() -> None:
    chinese, plain = answering(True), answering(True)
    for each, text in ((Characters.build(["你好"], symbols=("<turn>",)), "你 好"), (plain.source_tokenizer, "a cat")):
        model = copy(chinese)
        model.source_tokenizer = each
        expected = text.replace(" ", "") if "你" in text else text
        assert join_latest_turns([text, "< turn>", text], model, 9, lambda _: True).split("<turn>") == [
            expected,
            "[turn]" if "你" in text else "< turn>",
            expected,
        ]


def test_what_the_model_puts_before_a_source_takes_room() -> None:
    model = answering(True)
    assert max_source_tokens(model, model.generation) == model.generation.max_source == 8192
    assert max_source_tokens(model, model.generation.replace(source_prefix=("<turn>",), max_source=9)) == 8


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        (
            "hello",
            has_code("invalid_pipeline_input", task="conversational", expected="a list of messages", value="'hello'"),
        ),
        (
            ["hello"],
            has_code("invalid_pipeline_input", task="conversational", expected="a list of messages", value="['hello']"),
        ),
        ([[]], has_code("invalid_pipeline_input", task="conversational", expected="a list of messages")),
        ([{"role": "user"}], has_code("invalid_message", message="{'role': 'user'}")),
        ([{"role": "tool", "content": "a"}], has_code("invalid_message")),
        ([{"role": "system", "content": "be brief"}, *talk("a")], has_code("system_message_unsupported")),
        (talk("a", "b")[:1], has_code("last_message_not_user")),
    ],
)
def test_messages_that_cannot_be_answered_are_refused(messages: Any, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        attendo.pipeline("conversational", answering(True))(messages)
