"""Phrases keep the links of their parts, for any word order of the two languages."""

from random import Random

import pytest

from attendo.demo_task.lexicon import CLASSES, Matches, nouns
from attendo.demo_task.noun_phrases import a, several, that, the, those
from attendo.demo_task.phrase import name_combination, phrase, weave
from attendo.demo_task.words import adjective, article, verb, with_ed, with_ing, with_s

BOOK, CAT = nouns("book cat")


def test_parts_keep_their_links_when_the_orders_differ() -> None:
    when, what = phrase("last night", "昨晚"), phrase("a book", "一 书")
    woven = weave("read {what} {when}", "{when} {what}", when=when, what=what)
    assert woven.english == ("read", "a", "book", "last", "night")
    assert woven.chinese == ("昨晚", "一", "书")
    assert woven.links == ((1, 1), (2, 2), (3, 0), (4, 0))


def test_words_with_the_same_mark_are_linked_and_others_are_not() -> None:
    woven = weave("did¹ you² go ?", "你² 去 了¹ 吗¹ ？")
    assert woven.links == ((0, 2), (0, 3), (1, 0))


def test_a_phrase_used_twice_is_linked_at_each_position() -> None:
    me = phrase("I", "我")
    assert weave("{one} and {two}", "{two} {one}", one=me, two=me).links == ((0, 1), (2, 0))


def test_a_part_missing_on_one_side_is_an_error() -> None:
    with pytest.raises(KeyError):
        weave("{who}", "我", who=phrase("I", "我"))


def test_combinations_are_named_by_sorted_heads() -> None:
    inner = weave(
        "{how} {what}", "{how} {what}", joins="how+what", how=phrase("red", "红色 的"), what=phrase("cup", "杯子")
    )
    outer = weave("{verb} {inner}", "{verb} {inner}", verb=phrase("buy", "买"), inner=inner)
    assert outer.combinations == (name_combination("cup", "red"),) == ("cup+red",)


def test_a_part_without_a_head_makes_no_combination() -> None:
    watch = verb("watch", "看", nouns("film"))
    assert weave("{verb} {what}", "{verb} {what}", joins="verb+what", verb=watch.base, what=BOOK.one).combinations == ()


def test_determiners_and_numbers_take_the_measure_word_of_the_noun() -> None:
    assert the(CAT).chinese == ("这只", "猫")
    assert that(BOOK).chinese == ("那本", "书")
    assert those(BOOK).chinese == ("那些", "书")
    assert a(BOOK, adjective("old older", "旧")).english == ("an", "old", "book")
    three = several(phrase("three", "三"), BOOK)
    assert (three.english, three.chinese, three.links) == (
        ("three", "books"),
        ("三", "本", "书"),
        ((0, 0), (1, 1), (1, 2)),
    )


def test_long_adjectives_take_the_particle_and_short_ones_do_not() -> None:
    assert adjective("big bigger", "大").before.chinese == ("大",)
    assert adjective("beautiful", "漂亮").before.chinese == ("漂亮", "的")
    assert adjective("beautiful", "漂亮").comparative.english == ("more", "beautiful")


@pytest.mark.parametrize(
    ("base", "third", "past", "ing"),
    [
        ("watch", "watches", "watched", "watching"),
        ("study", "studies", "studied", "studying"),
        ("like", "likes", "liked", "liking"),
        ("chat", "chats", "chatted", "chatting"),
        ("play", "plays", "played", "playing"),
        ("open", "opens", "opened", "opening"),
    ],
)
def test_regular_verbs_take_regular_endings(base: str, third: str, past: str, ing: str) -> None:
    assert (with_s(base), with_ed(base), with_ing(base)) == (third, past, ing)


def test_verbs_inflect_their_first_word() -> None:
    look = verb("look-for", "找")
    assert look.third.english == ("looks", "for")
    assert look.past.chinese == ("找", "了")
    assert look.past_in_clause.chinese == look.base.chinese == ("找",)
    assert verb("eat ate eaten", "吃").participle.english == ("eaten",)


def test_articles_follow_the_sound_of_the_next_word() -> None:
    assert (article("apple"), article("book")) == ("an", "a")


def test_no_noun_is_in_two_classes() -> None:
    names = [noun.name for members in CLASSES.values() for noun in members]
    assert len(names) == len(set(names))


def test_matches_sample_a_word_with_one_noun_often_enough() -> None:
    everything, one = verb("see saw", "看见", nouns("goods")), verb("watch", "看", nouns("film"))
    matches, rng = Matches((everything, one)), Random(1)
    sampled = [matches.sample(rng) for _ in range(1000)]
    assert all(noun in word.nouns for word, noun in sampled)
    assert 150 < sum(word is one for word, _ in sampled) < 500
