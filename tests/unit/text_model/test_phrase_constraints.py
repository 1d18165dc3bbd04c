"""Required and banned phrases, for every tokenization of a phrase."""

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
from tiny import SOURCES, TARGETS, tiny_model
from varied_models import bytes_model, characters_model, make_model, pieces_model, sentences, varied_model

from attendo.text import EOS, Bytes, SentencePiece, Words
from attendo.text_model import TextModel
from attendo.text_model.constraints import (
    contains,
    contains_each,
    encode_after_space,
    encode_banned_phrases,
    encode_constraints,
    encode_without_space,
    extends_last_word,
    find_phrase_ids,
)

KINDS = [varied_model, pieces_model, bytes_model, characters_model]


def most_frequent_word(texts: list[str]) -> str:
    """The most frequent word of the answers, or the most frequent character if there are no words."""
    for parts in ([{*text.split()} for text in texts], [{*text} for text in texts]):
        words = [
            word for each in parts for word in each if word.isalnum() and any(contains(text, word) for text in texts)
        ]
        if words:
            return max(sorted({*words}), key=words.count)
    raise AssertionError("these answers have nothing to ban")


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize("beam", [1, 3])
def test_a_banned_phrase_is_never_generated(make: Callable[[], TextModel], beam: int) -> None:
    model, texts = make(), sentences(6, longest=4)
    answers = [result.text for result in model.generate(texts, beam=beam, max_length=8)]
    banned = most_frequent_word(answers)
    unaffected = [text for text in answers if not contains(text, banned)]
    found = model.generate(texts, beam=beam, n_best=beam, banned_phrases=[banned], max_length=8)
    assert len(unaffected) < len(answers)
    assert not any(contains(each.text, banned) for result in found for each in result.hypotheses)
    assert [
        r.text for r, text in zip(found, answers, strict=True) if not contains(text, banned)
    ] == unaffected or beam > 1


@pytest.mark.short(2)
@pytest.mark.parametrize("make", KINDS)
def test_a_ban_covers_unusual_tokenizations(make: Callable[[], TextModel], monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = make(), sentences(6, longest=4)
    banned = most_frequent_word([result.text for result in model.generate(texts, max_length=8)])
    monkeypatch.setattr("attendo.text_model.generation.encode_banned_phrases", lambda tokenizer, phrases: ())
    found = model.generate(texts, banned_phrases=[banned], max_length=8)
    assert len(found) == len(texts)
    assert not any(contains(result.text, banned) for result in found)


def test_the_ids_of_a_phrase_are_found() -> None:
    model = pieces_model()
    sequences = encode_banned_phrases(model.target_tokenizer, ["cat"])
    assert all(model.target_tokenizer.decode(sequence).strip() == "cat" for sequence in sequences)
    by_letter = tuple(piece for letter in "cat" for piece in encode_without_space(model.target_tokenizer, letter))
    assert find_phrase_ids(model.target_tokenizer, (*by_letter, *by_letter), "catcat") == (*by_letter, *by_letter)
    assert not contains(model.target_tokenizer.decode((*by_letter, *by_letter)), "cat")


def test_a_longer_word_does_not_contain_a_shorter_one() -> None:
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


def test_chinese_phrases_are_found_with_and_without_spaces() -> None:
    words = Words.build(["那只 猫 坐下 了"])
    for phrase in ("坐下了", "坐下 了"):
        assert contains("那只 猫 坐下 了", phrase)
        assert contains("那只猫坐下了", phrase)
        assert not contains("那只 猫 坐下 去 了", phrase)
        found = find_phrase_ids(words, tuple(words.encode("那只猫坐下了")), phrase)
        assert words.decode(found) == "坐下 了"
    assert contains_each("猫 坐下 了 ， 坐下 了", ("坐下了", "坐下了", "坐下了")) == (True, True, False)
    assert not contains("a b", "ab")


def test_chinese_without_spaces_is_forced_and_scored_as_with_spaces() -> None:
    model = tiny_model()
    spaced, typed = (model.score_tokens([SOURCES[3]], [text])[0] for text in ("我 看见 小 猫", "我看见小猫"))
    assert spaced == typed
    begun, constrained = (
        model.generate([SOURCES[0]], **options)[0].text for options in ({"prefix": "我爱"}, {"constraints": ["看见小"]})
    )
    assert begun.startswith("我 爱")
    assert contains(constrained, "看见小")


def test_a_phrase_is_encoded_after_a_space_and_without_one() -> None:
    pieces = SentencePiece.train([*SOURCES, "the cat (cat)"] * 4, 330)
    assert pieces.decode([*pieces.encode("the"), *encode_after_space(pieces, "cat")]) == "the cat"
    assert pieces.decode([*pieces.encode("the"), *encode_without_space(pieces, "cat")]) == "thecat"
    words = Words.build(["the cat (cat)"])
    assert words.decode([*words.encode("the"), *encode_after_space(words, "cat")]) == "the cat"
    assert words.decode([*words.encode("the ("), *encode_without_space(words, "cat")]) == "the (cat"
    assert len(encode_banned_phrases(words, ["cat"])) == 2
    assert encode_banned_phrases(words, ["zebra"]) == ()
    assert encode_banned_phrases(Bytes(), ["猫"]) == (tuple(Bytes().encode("猫")),)


def test_the_better_of_two_tokenizations_of_a_constraint_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = (
        make_model(SentencePiece.train([text.replace(" ", "") for text in TARGETS] * 4, 330)),
        ["我爱", "狗跑回家"],
    )
    options = {"beam": 4, "constraints": ["猫"], "max_length": 8}
    both = model.generate(texts, **options)
    separate = []
    for index in (0, 1):
        only = lambda tokenizer, phrases, index=index: [encode_constraints(tokenizer, phrases)[index]]  # noqa: E731
        monkeypatch.setattr("attendo.text_model.inputs.encode_constraints", only)
        separate.append(model.generate(texts, **options))
    for found, first, second in zip(both, *separate, strict=True):
        assert (first.cut, -first.score) != (second.cut, -second.score)
        assert (found.cut, -found.score) == min((first.cut, -first.score), (second.cut, -second.score))
    assert [r.ids for r in both] != [r.ids for r in separate[0]]


def test_scripts_without_spaces_try_both_tokenizations() -> None:
    pieces = SentencePiece.train([*(text.replace(" ", "") for text in TARGETS)] * 4, 330)
    assert len(encode_constraints(pieces, ["猫"])) == 2
    assert len(encode_constraints(pieces, ["NLP"])) == 1
    model = make_model(pieces)
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


def test_an_unmet_constraint_is_reported() -> None:
    (result,) = varied_model().generate(["the cat"], beam=4, constraints=["猫", "看见 小 狗"], max_length=2)
    assert result.cut
    assert result.constraints.count(False) == 1
    (empty,) = varied_model().generate([""], beam=4, constraints=["猫", "狗"])
    assert (empty.text, empty.constraints) == ("", (False, False))


def test_n_best_does_not_change_the_best_answer() -> None:
    model, texts = varied_model(), sentences(4, longest=5)
    options: dict[str, Any] = {"beam": 4, "constraints": ["狗", "猫", "NLP"], "max_length": 2}
    all_results = model.generate(texts, n_best=4, **options)
    for count in (1, 2):
        for few, found in zip(model.generate(texts, n_best=count, **options), all_results, strict=True):
            assert few.hypotheses == found.hypotheses[:count]
    assert {result.constraints.count(False) for result in all_results} == {
        1
    }  # two of three phrases fit into two tokens


def test_each_text_may_have_its_own_constraints() -> None:
    model, texts = varied_model(), sentences(5, longest=5)
    generator = random.Random(3)
    phrases = [generator.sample(["猫", "狗 跑", "NLP", "看见"], k=generator.randint(0, 2)) for _ in texts]
    together = model.generate(texts, beam=4, constraints=phrases)
    alone = [model.generate([t], beam=4, constraints=[p])[0] for t, p in zip(texts, phrases, strict=True)]
    assert [result.ids for result in together] == [result.ids for result in alone]
    assert [len(result.constraints) for result in together] == [len(each) for each in phrases]
    plain = [(r, t) for r, t, p in zip(together, texts, phrases, strict=True) if not p]
    assert plain
    assert all(result.ids == model.generate([text], beam=4)[0].ids for result, text in plain)


def test_a_constraint_met_anyway_does_not_lower_the_score() -> None:
    model = varied_model()
    for text in sentences(3, longest=5):
        unaffected = model.generate([text], beam=4)[0]
        assert not unaffected.cut
        (met,) = model.generate([text], beam=4, constraints=[unaffected.text.split()[0]])
        assert met.score >= unaffected.score - 1e-5


@pytest.fixture(scope="module")
def german() -> TextModel:
    """Its pieces are also parts of longer words: "ein" and "er", "Mann" and "schaft"."""
    texts = ["ein Mann", "eine", "einer", "einem", "Mann schaft", "Mannschaft", "schaft ein", "(schaft)", "."] * 4
    return make_model(SentencePiece.train(texts, 310))


@pytest.mark.parametrize("phrase", ["ein", "Mann", "schaft ein", "e"])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_constraint_is_met_only_by_a_separate_word(german: TextModel, phrase: str, beam: int) -> None:
    for result in german.generate(sentences(4, longest=4), beam=beam, constraints=[phrase], max_length=24):
        assert result.constraints == (True,)
        assert re.search(rf"(?<!\w){phrase}(?!\w)", result.text)


@pytest.mark.short(1)
@pytest.mark.parametrize("make", [characters_model, bytes_model])
def test_with_space_tokens_a_constraint_is_met_by_a_separate_word(make: Callable[[], TextModel]) -> None:
    for result in make().generate(sentences(3, longest=4), beam=4, constraints=["NLP"], max_length=24):
        assert result.constraints == (True,)
        assert re.search(r"(?<![A-Za-z])NLP(?![A-Za-z])", result.text)


def test_extends_last_word_detects_word_continuations(german: TextModel) -> None:
    pieces = german.target_tokenizer
    ein = encode_after_space(pieces, "ein")
    assert extends_last_word(pieces, ein, encode_without_space(pieces, "e")[0])
    for other in (encode_after_space(pieces, "Mann")[0], pieces.encode(".")[-1], EOS):
        assert not extends_last_word(pieces, ein, other)


def test_a_ban_allows_the_phrase_inside_a_longer_word(german: TextModel) -> None:
    pieces = german.target_tokenizer
    word_ids = tuple(pieces.encode("Mannschaft"))
    for sequence in encode_banned_phrases(pieces, ["schaft"]):
        assert not any(word_ids[n : n + len(sequence)] == sequence for n in range(len(word_ids)))
    assert any(pieces.decode(sequence).endswith("schaft") for sequence in encode_banned_phrases(pieces, ["schaft"]))
    for result in german.generate(sentences(4, longest=4), beam=3, banned_phrases=["schaft", "ein"], max_length=12):
        assert not contains(result.text, "schaft")
        assert not contains(result.text, "ein")
