"""Grouping of pieces into words, and the ids of the pieces in a prefix."""

import pytest
from tiny import SOURCES, TARGETS

from attendo.serve.explorer.pieces import group_words, resolve_prefix_ids
from attendo.serve.http.errors import ApiError
from attendo.text import BOS, EOS, Bytes, Characters, SentencePiece, Tokenizer, Words


@pytest.fixture(scope="module")
def subwords() -> SentencePiece:
    return SentencePiece.train([*SOURCES, *TARGETS, "the cat scattered"] * 4, 330)


def join_words(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    pieces = tokenizer.pieces(ids)
    groups = group_words(tokenizer, ids)
    assert [position for group in groups for position in group] == list(range(len(ids)))
    return ["".join(pieces[position] for position in group).removeprefix("␣") for group in groups]


def test_pieces_between_spaces_form_a_word(subwords: SentencePiece) -> None:
    ids = [*subwords.encode("the cats scattered homewards"), EOS]
    assert len(ids) > 5
    assert join_words(subwords, ids) == ["the", "cats", "scattered", "homewards", "</s>"]
    assert join_words(subwords, [BOS, *ids])[0] == "<s>"


def test_characters_without_spaces_form_their_own_words(subwords: SentencePiece) -> None:
    ids = subwords.encode("我看见猫了 cat")
    groups = join_words(subwords, ids)
    assert groups[-1] == "cat"
    assert len(groups) >= 3


def test_bytes_of_a_word_are_grouped() -> None:
    tokenizer = Bytes()
    groups = group_words(tokenizer, tokenizer.encode("né à"))
    assert [len(group) for group in groups] == [3, 1 + 2]


@pytest.mark.parametrize("tokenizer", [Words.build(SOURCES), Characters.build(SOURCES)])
def test_words_and_characters_are_not_grouped(tokenizer: Tokenizer) -> None:
    ids = [*tokenizer.encode("the cat sat."), EOS]
    assert group_words(tokenizer, ids) == [[position] for position in range(len(ids))]


def test_ambiguous_pieces_resolve_to_the_most_probable_id(subwords: SentencePiece) -> None:
    labels = subwords.pieces(range(subwords.vocab_size))
    same = next(name for name in labels if labels.count(name) > 1)
    candidates = [token for token, name in enumerate(labels) if name == same]
    for expected in candidates:
        likely = [0.0 if token == expected else -5.0 for token in range(subwords.vocab_size)]
        assert resolve_prefix_ids([same], subwords, lambda _, likely=likely: likely) == (expected,)


def test_a_prefix_may_have_ids_and_end_with_eos(subwords: SentencePiece) -> None:
    assert resolve_prefix_ids([9, EOS], subwords, lambda _: []) == (9, EOS)
    assert resolve_prefix_ids([9, "</s>"], subwords, lambda _: []) == (9, EOS)
    with pytest.raises(ApiError, match="unknown_piece"):
        resolve_prefix_ids(["no such piece"], subwords, lambda _: [])
