"""Phrases that must be said, and phrases that must not, in every way a tokenizer can write them."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from lively import bytes_model, characters_model, lively_model, model_of, pieces_model, sentences
from tiny import SOURCES, TARGETS

from attendo.text import EOS, Bytes, SentencePiece, Words
from attendo.text_model import TextModel
from attendo.text_model.constraints import (
    banned_token_sequences,
    contains,
    contains_each,
    encode_after_space,
    encode_without_space,
    extends_last_word,
    find_phrase_ids,
    required_token_sequences,
)

KINDS = [lively_model, pieces_model, bytes_model, characters_model]


def frequent(texts: list[str]) -> str:
    """A word that stands in several answers, or a sign where there are no words."""
    for parts in ([{*text.split()} for text in texts], [{*text} for text in texts]):
        words = [
            word for each in parts for word in each if word.isalnum() and any(contains(text, word) for text in texts)
        ]
        if words:
            return max(sorted({*words}), key=words.count)
    raise AssertionError("these answers have nothing to ban")


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("beam", [1, 3])
def test_what_is_banned_is_never_said(make: Callable[[], TextModel], beam: int) -> None:
    model, texts = make(), sentences(6, longest=4)
    answers = [result.text for result in model.generate(texts, beam=beam, max_length=8)]
    banned = frequent(answers)
    free = [text for text in answers if not contains(text, banned)]
    found = model.generate(texts, beam=beam, n_best=beam, banned_phrases=[banned], max_length=8)
    assert len(free) < len(answers)
    assert not any(contains(each.text, banned) for result in found for each in result.hypotheses)
    assert [r.text for r, text in zip(found, answers, strict=True) if not contains(text, banned)] == free or beam > 1


@pytest.mark.short(2)
@pytest.mark.parametrize("make", KINDS)
def test_a_ban_is_kept_also_where_a_phrase_is_written_as_no_tokenizer_would(
    make: Callable[[], TextModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, texts = make(), sentences(6, longest=4)
    banned = frequent([result.text for result in model.generate(texts, max_length=8)])
    expected = [result.text for result in model.generate(texts, banned_phrases=[banned], max_length=8)]
    monkeypatch.setattr("attendo.text_model.generation.banned_token_sequences", lambda tokenizer, phrases: ())
    found = model.generate(texts, banned_phrases=[banned], max_length=8)
    assert not any(contains(result.text, banned) for result in found)
    assert len(found) == len(expected)


def test_the_ids_that_wrote_a_phrase_are_found() -> None:
    model = pieces_model()
    ways = banned_token_sequences(model.target_tokenizer, ["cat"])
    assert all(model.target_tokenizer.decode(way).strip() == "cat" for way in ways)
    spelled = tuple(piece for letter in "cat" for piece in encode_without_space(model.target_tokenizer, letter))
    assert find_phrase_ids(model.target_tokenizer, (*spelled, *spelled), "catcat") == (*spelled, *spelled)
    assert not contains(model.target_tokenizer.decode((*spelled, *spelled)), "cat")


def test_a_longer_word_does_not_hold_a_shorter_one() -> None:
    assert contains("the cat sat", "cat")
    assert contains("a cat", "cat")
    assert contains("(cat)", "cat")
    assert not contains("scattered cats", "cat")
    assert not contains("scattered", "cat")
    assert contains("这只猫坐下了", "猫")
    assert contains("C++ is", "C++")
    assert contains("我爱NLP处理", "NLP")
    assert contains_each("einer kleinen", ("ein",)) == (False,)
    assert contains_each("ein einer ein", ("ein", "ein", "ein")) == (True, True, False)
    assert contains_each("猫 狗 猫", ("猫", "猫", "猫", "狗")) == (True, True, False, True)


def test_a_phrase_is_written_behind_a_space_or_inside() -> None:
    pieces = SentencePiece.train([*SOURCES, "the cat (cat)"] * 4, 330)
    assert pieces.decode([*pieces.encode("the"), *encode_after_space(pieces, "cat")]) == "the cat"
    assert pieces.decode([*pieces.encode("the"), *encode_without_space(pieces, "cat")]) == "thecat"
    words = Words.build(["the cat (cat)"])
    assert words.decode([*words.encode("the"), *encode_after_space(words, "cat")]) == "the cat"
    assert words.decode([*words.encode("the ("), *encode_without_space(words, "cat")]) == "the (cat"
    assert len(banned_token_sequences(words, ["cat"])) == 2
    assert banned_token_sequences(words, ["zebra"]) == ()
    assert banned_token_sequences(Bytes(), ["猫"]) == (tuple(Bytes().encode("猫")),)


def test_of_two_ways_to_write_what_must_be_said_the_better_answer_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = (
        model_of(SentencePiece.train([text.replace(" ", "") for text in TARGETS] * 4, 330)),
        ["我爱", "狗跑回家"],
    )
    options = {"beam": 4, "constraints": ["猫"], "max_length": 8}
    both = model.generate(texts, **options)
    one_way = []
    for way in (0, 1):
        only = lambda tokenizer, phrases, way=way: [required_token_sequences(tokenizer, phrases)[way]]  # noqa: E731
        monkeypatch.setattr("attendo.text_model.inputs.required_token_sequences", only)
        one_way.append(model.generate(texts, **options))
    for found, first, second in zip(both, *one_way, strict=True):
        assert (first.cut, -first.score) != (second.cut, -second.score)
        assert (found.cut, -found.score) == min((first.cut, -first.score), (second.cut, -second.score))
    assert [r.ids for r in both] != [r.ids for r in one_way[0]]


def test_in_scripts_without_spaces_both_ways_are_tried() -> None:
    pieces = SentencePiece.train([*(text.replace(" ", "") for text in TARGETS)] * 4, 330)
    assert len(required_token_sequences(pieces, ["猫"])) == 2
    assert len(required_token_sequences(pieces, ["NLP"])) == 1
    model = model_of(pieces)
    for result in model.generate(["我爱", "猫坐着"], beam=4, constraints=["狗跑", "猫"]):
        assert result.constraints == (True, True)
        assert "狗跑" in result.text
        assert "猫" in result.text


@pytest.mark.short(2)
@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("beam", [1, 5])
def test_constraints_are_met(make: Callable[[], TextModel], beam: int) -> None:
    model, texts = make(), sentences(3, longest=4)
    for result in model.generate(texts, beam=beam, n_best=1, constraints=["猫", "看见 小"], max_length=18):
        assert result.constraints == (True, True)
        assert "猫" in result.text
        assert "看见 小" in result.text


def test_a_constraint_without_room_is_told() -> None:
    (result,) = lively_model().generate(["the cat"], beam=4, constraints=["猫", "看见 小 狗"], max_length=2)
    assert result.cut
    assert result.constraints.count(False) == 1
    (nothing,) = lively_model().generate([""], beam=4, constraints=["猫", "狗"])
    assert (nothing.text, nothing.constraints) == ("", (False, False))


def test_the_best_answer_is_the_same_however_many_are_asked_for() -> None:
    model, texts = lively_model(), sentences(4, longest=5)
    asked: dict[str, Any] = {"beam": 4, "constraints": ["狗", "猫", "NLP"], "max_length": 2}
    all_of_them = model.generate(texts, n_best=4, **asked)
    for count in (1, 2):
        for few, found in zip(model.generate(texts, n_best=count, **asked), all_of_them, strict=True):
            assert few.hypotheses == found.hypotheses[:count]
    assert {result.constraints.count(False) for result in all_of_them} == {1}  # as few as there is room for


def test_each_text_may_have_constraints_of_its_own_alone_and_in_a_batch() -> None:
    model, texts = lively_model(), sentences(5, longest=5)
    dice = random.Random(3)
    phrases = [dice.sample(["猫", "狗 跑", "NLP", "看见"], k=dice.randint(0, 2)) for _ in texts]
    together = model.generate(texts, beam=4, constraints=phrases)
    alone = [model.generate([t], beam=4, constraints=[p])[0] for t, p in zip(texts, phrases, strict=True)]
    assert [result.ids for result in together] == [result.ids for result in alone]
    assert [len(result.constraints) for result in together] == [len(each) for each in phrases]
    plain = [(r, t) for r, t, p in zip(together, texts, phrases, strict=True) if not p]
    assert plain
    assert all(result.ids == model.generate([text], beam=4)[0].ids for result, text in plain)


def test_a_constraint_that_would_be_said_anyway_changes_nothing() -> None:
    model = lively_model()
    for text in sentences(3, longest=5):
        free = model.generate([text], beam=4)[0]
        if free.text and not free.cut:
            assert model.generate([text], beam=4, constraints=[free.text.split()[0]])[0].score >= free.score - 1e-5


@pytest.fixture(scope="module")
def german() -> TextModel:
    """Its pieces begin longer words and end them: "ein" and "er", "Mann" and "schaft"."""
    texts = ["ein Mann", "eine", "einer", "einem", "Mann schaft", "Mannschaft", "schaft ein", "(schaft)", "."] * 4
    return model_of(SentencePiece.train(texts, 310))


@pytest.mark.parametrize("phrase", ["ein", "Mann", "schaft ein", "e"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_constraint_is_met_by_a_word_of_its_own_and_not_inside_a_longer_one(
    german: TextModel, phrase: str, beam: int
) -> None:
    for result in german.generate(sentences(4, longest=4), beam=beam, constraints=[phrase], max_length=24):
        assert result.constraints == (True,)
        assert re.search(rf"(?<!\w){phrase}(?!\w)", result.text)


@pytest.mark.short(1)
@pytest.mark.parametrize("make", [characters_model, bytes_model])
def test_where_a_space_is_a_token_a_word_begins_behind_it_or_at_the_beginning(make: Callable[[], TextModel]) -> None:
    for result in make().generate(sentences(3, longest=4), beam=4, constraints=["NLP"], max_length=24):
        assert result.constraints == (True,)
        assert re.search(r"(?<![A-Za-z])NLP(?![A-Za-z])", result.text)


def test_a_token_goes_on_with_a_word_or_begins_another(german: TextModel) -> None:
    pieces = german.target_tokenizer
    ein = encode_after_space(pieces, "ein")
    assert extends_last_word(pieces, ein, encode_without_space(pieces, "e")[0])
    for other in (encode_after_space(pieces, "Mann")[0], pieces.encode(".")[-1], EOS):
        assert not extends_last_word(pieces, ein, other)


def test_a_ban_leaves_open_what_stands_inside_a_longer_word(german: TextModel) -> None:
    pieces = german.target_tokenizer
    whole = tuple(pieces.encode("Mannschaft"))
    for way in banned_token_sequences(pieces, ["schaft"]):
        assert not any(whole[n : n + len(way)] == way for n in range(len(whole)))
    assert any(pieces.decode(way).endswith("schaft") for way in banned_token_sequences(pieces, ["schaft"]))
    for result in german.generate(sentences(4, longest=4), beam=3, banned_phrases=["schaft", "ein"], max_length=12):
        assert not contains(result.text, "schaft")
        assert not contains(result.text, "ein")
