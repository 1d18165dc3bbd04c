"""Links of words become links of tokens, in every tokenizer."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from tiny import SOURCES, TARGETS

from attendo import keyed_random
from attendo.data.batch import RaggedArray
from attendo.data.token_links import TokenLinker, TokenWords, flatten_links, unflatten_links
from attendo.text import UNK, Bytes, Characters, SentencePiece, Tokenizer, Words
from attendo.text.bpe_dropout import BPEDropout
from attendo.text_model.alignment import word_indices
from attendo.text_model.token_words import map_tokens_to_words

TEXTS = [*SOURCES, *TARGETS, "the cats, sat? don't!", "猫 坐 着 。 好"]
BPE = SentencePiece.train(TEXTS * 4, 330)
TOKENIZERS: list[Tokenizer] = [BPE, Characters.build(TEXTS), Bytes(), Words.build(TEXTS)]
Link = tuple[int, int]


def random_text(dice: random.Random) -> str:
    words = [word for text in TEXTS for word in text.split()]
    return (" " * dice.randint(1, 2)).join(dice.choice(words) for _ in range(dice.randint(1, 8)))


def words_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return map_tokens_to_words(tokenizer, text, text.split(), "a text")


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda each: str(each.kind))
def test_the_word_of_each_token_is_that_of_the_decoded_text(tokenizer: Tokenizer) -> None:
    dice = random.Random(1)
    texts = [random_text(dice) for _ in range(40)]
    ids = tokenizer.encode_many(texts)
    words = TokenWords.of(tokenizer)
    found, start = words.word_of_each_token(RaggedArray.from_lists(ids)), 0
    for text, each in zip(texts, ids, strict=True):
        assert tuple(found[start : start + len(each)].tolist()) == word_indices(tokenizer, each), text
        start += len(each)
    assert words.count_words(RaggedArray.from_lists(ids)).tolist() == [len(text.split()) for text in texts]


def test_unknown_words_and_empty_sequences_are_counted() -> None:
    words = Words.build(["a b"])
    ids = [words.encode("a zzz b"), [], words.encode("zzz")]
    assert UNK in ids[0]
    assert TokenWords.of(words).count_words(RaggedArray.from_lists(ids)).tolist() == [3, 0, 1]


def test_bpe_dropout_keeps_the_words() -> None:
    ids = RaggedArray.from_lists(BPE.encode_many(TEXTS))
    keys = keyed_random.make_keys(1, np.arange(len(TEXTS), dtype=np.uint64))
    other = RaggedArray(*BPEDropout(BPE, 0.5)(ids.ids, ids.offsets, keys, keyed_random.make_keys(1, "round", 0)))
    assert len(other.ids) > len(ids.ids)
    assert TokenWords.of(BPE).count_words(other).tolist() == [len(text.split()) for text in TEXTS]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda each: str(each.kind))
def test_links_of_tokens_are_those_of_their_words(tokenizer: Tokenizer) -> None:
    """The expected links come from loops over the words of the decoded texts."""
    dice, pairs, links = random.Random(2), [], []
    for _ in range(12):
        source, target = random_text(dice), random_text(dice)
        sizes = len(source.split()), len(target.split())
        pairs.append((source, target))
        links.append(frozenset((dice.randrange(sizes[0]), dice.randrange(sizes[1])) for _ in range(dice.randint(0, 6))))
    sides = [RaggedArray.from_lists(tokenizer.encode_many([pair[side] for pair in pairs])) for side in (0, 1)]
    found = TokenLinker.of(tokenizer, tokenizer).link(sides[0], sides[1], flatten_links(links))
    assert found.shape == (12, sides[1].lengths.max() + 1, sides[0].lengths.max() + 1)
    for row, (source, target) in enumerate(pairs):
        expected = expect_links(tokenizer, source, target, links[row])
        assert {(s, t) for t, s in found[row].nonzero().tolist()} == expected


def expect_links(tokenizer: Tokenizer, source: str, target: str, links: frozenset[Link]) -> set[Link]:
    if not links:
        return set()
    left, right = words_of(tokenizer, source), words_of(tokenizer, target)
    marks = [is_mark(tokenizer, tokenizer.encode(text)) for text in (source, target)]
    expected: set[Link] = set()
    for t in range(len(right)):
        near = {s for s in range(len(left)) if (left[s], right[t]) in links}
        alike = {s for s in near if marks[0][s] == marks[1][t]}
        expected |= {(s, t) for s in alike or near or {len(left)}}  # no link: EOS
    return expected | {(len(left), len(right))}


def is_mark(tokenizer: Tokenizer, ids: Sequence[int]) -> list[bool]:
    texts = [tokenizer.decode([each]).strip() for each in ids]
    return [bool(text) and set(text) <= set(",?!.'。") for text in texts]


def test_attached_punctuation_is_linked_with_punctuation() -> None:
    words = Words.build(["the book?", "书 ？"])
    source, target = RaggedArray.from_lists([words.encode("book?")]), RaggedArray.from_lists([words.encode("书 ？")])
    found = TokenLinker.of(words, words).link(source, target, flatten_links([{(0, 0), (0, 1)}]))
    assert found[0].tolist() == [[True, False, False], [False, True, False], [False, False, True]]


def test_links_beyond_a_cut_source_are_left_out() -> None:
    words = Words.build(["a b c"])
    short, target = RaggedArray.from_lists([words.encode("a b")]), RaggedArray.from_lists([words.encode("a b c")])
    found = TokenLinker.of(words, words).link(short, target, flatten_links([{(0, 0), (2, 2)}]))
    assert found[0].nonzero().tolist() == [[0, 0], [1, 2], [2, 2], [3, 2]]


def test_links_are_flattened_and_back() -> None:
    flat = flatten_links([{(3, 1), (0, 2)}, set()])
    assert [unflatten_links(flat[row]) for row in range(2)] == [[(0, 2), (3, 1)], []]
