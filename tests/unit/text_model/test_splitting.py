"""Sources that are too long: an error that names them, or sentence by sentence."""

import pytest
from lively import lively_model
from tiny import tiny_model

from attendo.errors import UsageError
from attendo.text_model import TooLongError
from attendo.text_model.plain import plain_result
from attendo.text_model.splitting import joined, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat sat. The dog ran!  Who?", ["The cat sat.", "The dog ran!", "Who?"]),
        ("你好。再见！“走吗？”他问。", ["你好。", "再见！", "“走吗？”", "他问。"]),
        ("Mr. Smith paid 3.50 to Dr. Who. He left.", ["Mr. Smith paid 3.50 to Dr. Who.", "He left."]),
        ("J. S. Bach. He wrote.", ["J. S. Bach.", "He wrote."]),
        ('"Stop!" he said. (Really.) Yes', ['"Stop!"', "he said.", "(Really.)", "Yes"]),
        ("Wait... what?! No", ["Wait...", "what?!", "No"]),
        ("هل تراه؟ نعم.", ["هل تراه؟", "نعم."]),
        ("यह है। वह है।", ["यह है।", "वह है।"]),
        ("no end", ["no end"]),
        ("a.b.c", ["a.b.c"]),
        ("  ", []),
        ("。。。", ["。。。"]),
    ],
)
def test_sentences_end_where_people_end_them(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize("text", ["." * 5000, "a." * 2500, "。" * 5000, "! " * 2500, '."' * 2500])
def test_no_text_loses_a_character(text: str) -> None:
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("texts", "whole"),
    [
        (["The cat sat.", "It ran."], "The cat sat. It ran."),
        (["猫坐着。", "狗跑了。"], "猫坐着。狗跑了。"),
        (["猫 坐 着", "狗 跑"], "猫 坐 着 狗 跑"),
        (["a", "", "b"], "a b"),
        ([], ""),
    ],
)
def test_answers_are_joined_as_their_script_has_it(texts: list[str], whole: str) -> None:
    assert joined(texts) == whole


def test_a_source_that_is_too_long_is_named() -> None:
    with pytest.raises(TooLongError, match="text 2 of 2 has 4 tokens; the model reads at most 3: split it") as refused:
        tiny_model().generate(["the cat", "a dog ran home"], max_source=3)
    assert refused.value.number == 1


def test_a_text_is_split_only_where_it_is_too_long() -> None:
    model = lively_model()
    short, long = model.generate(["the cat. a dog", "the cat. a dog. I love NLP"], split=True, max_source=5)
    assert short.sentences == ()
    assert [each.ids for each in long.sentences] == [
        each.ids for each in model.generate(["the cat.", "a dog.", "I love NLP"])
    ]
    assert long.text == joined([each.text for each in long.sentences])
    assert long.ids == sum((each.ids for each in long.sentences), ())
    assert long.log_probability == pytest.approx(sum(each.log_probability for each in long.sentences))
    assert long.cut == any(each.cut for each in long.sentences)
    assert long.score == pytest.approx(long.log_probability / long.best.parts.tokens)


def test_learned_positions_are_a_limit_too() -> None:
    model = tiny_model(positions="learned", max_length=5)
    assert len(model.generate(["the cat. a dog. I love NLP"], split=True)[0].sentences) == 3


def test_a_sentence_that_is_too_long_alone_is_shown() -> None:
    with pytest.raises(UsageError, match=r"text 1 of 1: the sentence 'a dog ran home now\.' alone has 6 tokens"):
        tiny_model().generate(["the cat. a dog ran home now. I saw"], split=True, max_source=4)


def test_of_a_source_that_is_too_long_the_first_tokens_can_be_read_and_the_result_says_so() -> None:
    model = tiny_model()
    long, short = model.generate(["the cat saw a dog", "the cat"], max_source=3, long_source="cut")
    assert (long.source_left_out, long.source_tokens) == (2, 3)
    assert (short.source_left_out, short.source_tokens) == (0, 2)
    assert long.ids == model.generate(["the cat saw"])[0].ids
    alike = model.generate(["the cat saw a dog", "the cat saw", "the cat saw me"], max_source=3, long_source="cut")
    assert [each.source_left_out for each in alike] == [2, 0, 1]
    assert {each.ids for each in alike} == {long.ids}
    assert plain_result(long, several=False)["source_left_out"] == 2
    assert "source_left_out" not in plain_result(short, several=False)


def test_what_is_scored_is_read_as_what_is_answered() -> None:
    cut = tiny_model()
    cut.generation = cut.generation.replace(max_source=3, long_source="cut")
    (scored,) = cut.score(["the cat saw a dog"], ["I love"])
    (alone,) = tiny_model().score(["the cat saw"], ["I love"])
    assert scored == pytest.approx(alone)
