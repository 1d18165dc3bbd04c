"""Texts are split into sentences. Sources that are too long raise an error or are truncated."""

from dataclasses import replace
from typing import Any

import pytest
from error_codes import has_code
from tiny import tiny_model
from varied_models import varied_model

from attendo.errors import UsageError
from attendo.text_model import TextModel, TooLongError
from attendo.text_model.results import result_to_dict
from attendo.text_model.sentence_splitting import join_texts, split_sentences


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
def test_sentences_end_at_sentence_punctuation(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


@pytest.mark.parametrize("text", ["." * 5000, "a." * 2500, "。" * 5000, "! " * 2500, '."' * 2500])
def test_splitting_loses_no_character(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["The cat sat.", "It ran."], "The cat sat. It ran."),
        (["猫坐着。", "狗跑了。"], "猫坐着。狗跑了。"),
        (["猫 坐 着", "狗 跑"], "猫 坐 着 狗 跑"),
        (["a", "", "b"], "a b"),
        ([], ""),
    ],
)
def test_answers_are_joined_by_the_rules_of_their_script(texts: list[str], joined: str) -> None:
    assert join_texts(texts) == joined


def test_a_source_that_is_too_long_raises_an_error_with_its_position() -> None:
    with pytest.raises(
        TooLongError,
        check=has_code(
            "text_exceeds_model_limit", text=has_code("text_position", position=2, total=2), tokens=4, limit=3
        ),
    ) as caught:
        tiny_model().generate(["the cat", "a dog ran home"], max_source=3)
    assert caught.value.number == 1


def test_a_short_text_of_several_sentences_is_also_split() -> None:
    model = varied_model()
    one, several = model.generate(["the cat", "the cat. a dog. I love NLP"], split=True)
    assert (one.joined, one.sentences) == (False, ())
    assert several.joined
    assert [each.ids for each in several.sentences] == [
        each.ids for each in model.generate(["the cat.", "a dog.", "I love NLP"])
    ]
    assert several.text == join_texts([each.text for each in several.sentences])
    assert several.ids == sum((each.ids for each in several.sentences), ())
    assert several.log_probability == pytest.approx(sum(each.log_probability for each in several.sentences))
    assert several.cut == any(each.cut for each in several.sentences)
    assert several.score == pytest.approx(several.log_probability / several.best.parts.tokens)


TEXT = "the cat. a dog! I love NLP"
SINGLE = {"trained_on": {"counted": 100, "with_end": 0.9, "several_sentences": 0.03}}


@pytest.mark.short(3)
@pytest.mark.parametrize(
    ("about", "splits"),
    [
        ({}, None),
        (SINGLE, True),
        ({**SINGLE, "task": "translation"}, True),
        ({**SINGLE, "task": "summarization"}, False),
        ({**SINGLE, "task": "conversation"}, False),
        ({"trained_on": {**SINGLE["trained_on"], "several_sentences": 0.3}}, False),
        ({"trained_on": {**SINGLE["trained_on"], "with_end": 0.0}}, None),
    ],
)
def test_models_trained_on_single_sentences_split_by_default(about: dict[str, Any], splits: bool | None) -> None:
    model = make_model(about)
    assert model.reads_single_sentences is splits
    (by_default,), (unsplit,), (split,) = (model.generate([TEXT], split=each) for each in (None, False, True))
    assert not unsplit.joined
    assert len(split.sentences) == 3
    assert by_default == (split if splits else unsplit)


def test_without_statistics_the_sample_decides_about_splitting() -> None:
    stored = varied_model().stored_model
    for source, splits in (("the cat.", True), ("the cat", None), ("the cat. a dog.", False)):
        assert TextModel(replace(stored, sample=[(source, "猫")] * 20)).reads_single_sentences is splits
    assert TextModel(replace(stored, sample=[("the cat.", "猫")] * 5)).reads_single_sentences is None


def test_line_breaks_of_a_text_are_kept() -> None:
    model = make_model(SINGLE)
    (found,) = model.generate(["the cat.\n\na dog. I love NLP\n"])
    first, second, third = (each.text for each in found.sentences)
    assert found.text == f"{first}\n\n{join_texts([second, third])}"


def test_n_best_answers_combine_the_hypotheses_of_the_sentences() -> None:
    model = varied_model()
    (found,) = model.generate(["the cat. a dog."], split=True, beam=4, n_best=3)
    assert found.text == model.generate(["the cat. a dog."], split=True, beam=4)[0].text
    first, second = ([each.text for each in part.hypotheses] for part in found.sentences)
    texts = [each.text for each in found.hypotheses]
    assert texts[0] == join_texts([first[0], second[0]])
    assert texts[1] in (join_texts([first[0], second[1]]), join_texts([first[1], second[0]]))
    assert len({*texts}) == 3


def test_alignments_of_the_sentences_are_joined() -> None:
    model = varied_model()
    (found,) = model.generate(["the cat. a dog."], split=True, alignments=True)
    one, other = (each.alignment for each in found.sentences)
    assert found.alignment is not None
    assert found.alignment.weights.shape == (len(found.ids), found.source_tokens + 1)
    sources, targets = one.weights.size(1) - 1, one.weights.size(0)
    shifted = tuple((source + sources, target + targets) for source, target in other.links)
    assert found.alignment.links == one.links + shifted


def test_a_prefix_begins_the_answer_to_the_first_sentence() -> None:
    model = varied_model()
    (found,) = model.generate(["the cat. a dog."], split=True, prefix="我 爱")
    assert found.text.startswith("我 爱")
    assert found.sentences[1].ids == model.generate(["a dog."])[0].ids
    with pytest.raises(UsageError, check=has_code("prefix_split_conflict")):
        model.generate(["the cat. a dog."], split=True, prefix="我。爱")


def test_a_text_with_constraints_is_not_split_and_reports_it() -> None:
    model = make_model(SINGLE)
    one, several = model.generate(["the cat.", "the cat. a dog."], beam=3, constraints=["猫"])
    assert (one.unsplit, several.unsplit, several.joined) == (0, 2, False)
    assert result_to_dict(several, all_hypotheses=False)["unsplit"] == 2


def make_model(about: dict[str, Any]) -> TextModel:
    return TextModel(replace(varied_model().stored_model, about=about))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No. I did not. See No. 5.", ["No.", "I did not.", "See No. 5."]),
        ("She is 5. He is 6.", ["She is 5.", "He is 6."]),
        ("Am 5. Mai kam er. 1. Go in.", ["Am 5. Mai kam er.", "1. Go in."]),
        ("It was my wife and I. We left.", ["It was my wife and I.", "We left."]),
        ("Pears, apples, etc. We ate them etc. and left.", ["Pears, apples, etc.", "We ate them etc. and left."]),
    ],
)
def test_an_abbreviation_ends_a_sentence_depending_on_the_next_word(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


def test_split_sentences_fit_learned_positions() -> None:
    model = tiny_model(positions="learned", max_length=5)
    assert len(model.generate(["the cat. a dog. I love NLP"], split=True)[0].sentences) == 3


def test_a_sentence_that_is_too_long_raises_an_error_that_quotes_it() -> None:
    with pytest.raises(
        UsageError,
        check=has_code(
            "sentence_exceeds_model_limit",
            sentence="'a dog ran home now.'",
            text=has_code("text_position", position=1, total=1),
            tokens=6,
        ),
    ):
        tiny_model().generate(["the cat. a dog ran home now. I saw"], split=True, max_source=4)


def test_a_long_source_can_be_truncated_and_the_result_reports_it() -> None:
    model = tiny_model()
    long, short = model.generate(["the cat saw a dog", "the cat"], max_source=3, long_source="truncate")
    assert (long.source_left_out, long.source_tokens) == (2, 3)
    assert (short.source_left_out, short.source_tokens) == (0, 2)
    assert long.ids == model.generate(["the cat saw"])[0].ids
    results = model.generate(
        ["the cat saw a dog", "the cat saw", "the cat saw me"], max_source=3, long_source="truncate"
    )
    assert [each.source_left_out for each in results] == [2, 0, 1]
    assert {each.ids for each in results} == {long.ids}
    assert result_to_dict(long, all_hypotheses=False)["source_left_out"] == 2
    assert "source_left_out" not in result_to_dict(short, all_hypotheses=False)


def test_score_truncates_sources_as_generate_does() -> None:
    truncating = tiny_model()
    truncating.generation = truncating.generation.replace(max_source=3, long_source="truncate")
    (scored,) = truncating.score(["the cat saw a dog"], ["I love"])
    (alone,) = tiny_model().score(["the cat saw"], ["I love"])
    assert scored == pytest.approx(alone)
