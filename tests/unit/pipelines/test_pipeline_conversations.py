"""Conversational pipelines: messages in, messages with the answer out, turns joined as in the training data."""

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


def make_messages(*texts: str) -> list[dict[str, Any]]:
    """Messages of alternating roles; the last one is from the user."""
    roles = ("user", "assistant")
    return [{"role": roles[(len(texts) - n - 1) % 2], "content": text} for n, text in enumerate(texts)]


def generate_text(model: TextModel, source: str, **options: Any) -> str:
    return model.generate([source], **options)[0].text


@pytest.mark.parametrize(("with_symbol", "between"), [(True, "<turn>"), (False, "\n")])
def test_turns_are_joined_as_in_the_training_data(with_symbol: bool, between: str) -> None:
    model = answering(with_symbol, task="conversation")
    messages = make_messages(*TURNS[:3])
    output = attendo.pipeline("conversational", model)(messages)
    answer = {"role": "assistant", "content": generate_text(model, between.join(TURNS[:3]))}
    assert only(output) == [{"generated_text": [*messages, answer]}]
    assert generate_text(model, between.join(TURNS[:3])) != generate_text(model, TURNS[2])
    assert len(messages) == 3


def test_several_conversations_have_a_list_each() -> None:
    model = answering(True, task="conversation")
    pipe = attendo.pipeline("conversational", model)
    one, other = make_messages(*TURNS[:1]), make_messages(*TURNS[:3])
    assert pipe([one, other]) == [pipe(one), pipe(other)]
    assert pipe([one]) == [pipe(one)]
    assert pipe([]) == []


def test_several_answers_are_several_conversations() -> None:
    model = answering(True, task="conversation")
    output = attendo.pipeline("conversational", model, num_beams=3)(make_messages(*TURNS[:1]), num_return_sequences=2)
    expected = model.generate([TURNS[0]], beam=3, n_best=2)[0].hypotheses
    assert [each["generated_text"][-1]["content"] for each in output] == [each.text for each in expected]


def test_context_turns_limits_the_turns() -> None:
    model = answering(True, task="conversation", context_turns=2)
    output = attendo.pipeline("conversational", model)(make_messages(*TURNS))
    assert output[0]["generated_text"][-1]["content"] == generate_text(model, "<turn>".join(TURNS[-2:]))
    assert generate_text(model, "<turn>".join(TURNS[-2:])) != generate_text(model, "<turn>".join(TURNS))


@pytest.mark.slow
def test_as_many_turns_as_fit_are_used() -> None:
    model = answering(True)
    for count in range(1, 5):
        source = "<turn>".join(TURNS[-count:])
        max_source = len(model.source_tokenizer.encode(source))
        output = attendo.pipeline("conversational", model, max_source=max_source)(make_messages(*TURNS))
        assert output[0]["generated_text"][-1]["content"] == generate_text(model, source)


def test_a_last_turn_that_is_too_long_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("text_exceeds_model_limit", limit=2)):
        attendo.pipeline("conversational", answering(True), max_source=2)(make_messages(*TURNS))


def test_the_latest_turns_are_kept_and_always_the_last() -> None:
    model = answering(True)
    assert join_latest_turns(["a", "b", "c"], model, None, lambda text: len(text) <= 8) == "b<turn>c"
    assert join_latest_turns(["a", "b", "c"], model, None, lambda text: False) == "c"
    assert join_latest_turns(["a", "b", "c"], model, 1, lambda text: True) == "c"
    assert join_latest_turns(["a", "b", "c"], answering(), 9, lambda text: True) == "a\nb\nc"


def test_a_turn_symbol_inside_a_message_is_escaped() -> None:
    model = answering(True)
    joined = join_latest_turns(["cat<turn>dog", "a<tu<turn>rn>b"], model, 1, lambda text: True)
    assert joined.count("<turn>") == 0
    assert join_latest_turns(["cat<turn>dog", "b"], model, 2, lambda text: True) == "cat[turn]dog<turn>b"
    turn = model.source_tokenizer.encode("<turn>")[0]
    ids = model.source_tokenizer.encode(
        join_latest_turns(["<turn>", "<turn>cat", "b<turn>"], model, 9, lambda text: True)
    )
    assert ids.count(turn) == 2


def test_spaces_are_removed_for_a_tokenizer_without_spaces() -> None:
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


def test_source_prefix_symbols_reduce_the_source_limit() -> None:
    model = answering(True)
    assert max_source_tokens(model, model.generation) == model.generation.max_source == 8192
    assert max_source_tokens(model, model.generation.replace(source_prefix=("<turn>",), max_source=9)) == 8
    assert max_source_tokens(model, model.generation.replace(source_suffix=("<turn>",), max_source=9)) == 8


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
        ([{"role": "system", "content": "be brief"}, *make_messages("a")], has_code("system_message_unsupported")),
        (make_messages("a", "b")[:1], has_code("last_message_not_user")),
    ],
)
def test_invalid_messages_are_rejected(messages: Any, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        attendo.pipeline("conversational", answering(True))(messages)
