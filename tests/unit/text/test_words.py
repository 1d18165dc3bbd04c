"""Words: how text is split, encoded and displayed."""

import pytest
from error_codes import has_code

from attendo.errors import DataError, UsageError
from attendo.text import BOS, EOS, PAD, UNK, Tokenizer, Words

ENGLISH = "Do you like cats?"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Do you like cats?", [" Do", " you", " like", " cats", "?"]),
        ("你 喜欢 猫 吗 ？", [" 你", " 喜欢", " 猫", " 吗", " ？"]),
        ("don't 'quote' it’s", [" don't", " '", "quote", "'", " it’s"]),
        ("a  b\tc", [" a", " ", " b", "\t", "c"]),
        (" a ", [" ", " a", " "]),
        ("नमस्ते दुनिया", [" नमस्ते", " दुनिया"]),
        ("می\u200cخواهم", [" می\u200cخواهم"]),
        ("cafe\u0301!", [" cafe\u0301", "!"]),
        ("I ❤\ufe0f it", [" I", " ❤\ufe0f", " it"]),
        ("</s>", [" <", "/", "s", ">"]),
        ("a▁b ▁", [" a", "▁", "b", " ▁"]),
        ("", []),
    ],
)
def test_text_is_split_before_spaces_and_around_punctuation(text: str, pieces: list[str]) -> None:
    assert Words.split(text) == pieces


def test_ids_follow_frequency_and_then_the_text() -> None:
    words = Words.build(["b a c", "c b", "c"])
    assert words.pieces(range(words.vocab_size)) == ["<pad>", "<unk>", "<s>", "</s>", "␣", "c", "b", "a"]


def test_the_order_of_lines_does_not_matter() -> None:
    assert Words.build(["x y", "z"]) == Words.build(["z", "x y"])


def test_limit_counts_control_pieces_and_keeps_the_most_frequent() -> None:
    words = Words.build(["b a c", "c b", "c"], max_size=7)
    assert words.vocab_size == 7
    assert words.unknown("a b c") == ["a"]


def test_a_word_has_one_id_at_any_position() -> None:
    words = Words.build(["cat dog"])
    assert words.encode("dog cat") == words.encode("cat dog")[::-1]


def test_an_unknown_word_decodes_to_a_placeholder() -> None:
    words = Words.build([ENGLISH])
    ids = words.encode("Do you like dogs?")
    assert ids[3] == UNK
    assert words.decode(ids) == "Do you like ⁇?"
    assert words.unknown("Do you like dogs or\ncats?") == ["dogs", "or", "\n", "cats"]


def test_control_ids_are_in_pieces_but_not_in_text() -> None:
    words = Words.build([ENGLISH])
    ids = [BOS, *words.encode(ENGLISH), EOS, PAD]
    assert words.decode(ids) == ENGLISH
    assert words.pieces(ids) == ["<s>", "Do", "you", "like", "cats", "?", "</s>", "<pad>"]


def test_white_space_is_visible_in_pieces() -> None:
    words = Words.build(["a\tb"])
    assert words.pieces(words.encode("a  \ta")) == ["a", "␣", "␣", "\\t", "<unk>"]


def test_decode_keeps_punctuation_at_the_start() -> None:
    words = Words.build([ENGLISH])
    assert words.decode(words.encode(ENGLISH)[-1:]) == "?"


@pytest.mark.parametrize("wrong", [-1, 10])
def test_an_id_outside_the_vocabulary_raises_usage_error(wrong: int) -> None:
    words = Words.build([ENGLISH])
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", last=9, token_id=wrong)):
        words.decode([4, wrong])
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", token_id=wrong)):
        words.pieces([wrong])


@pytest.mark.parametrize("texts", [[], [""]])
def test_no_text_raises_data_error(texts: list[str]) -> None:
    with pytest.raises(DataError, check=has_code("vocabulary_text_empty")):
        Words.build(texts)


def test_an_unpaired_surrogate_fails_to_build_and_encodes_to_unk() -> None:
    with pytest.raises(DataError, check=has_code("piece_unpaired_surrogate")):
        Words.build(["a \ud800"])
    assert Words.build(["a"]).encode("a \ud800") == [5, UNK]


def test_a_size_without_room_for_a_word_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("vocabulary_too_small", size=5, minimum=6)):
        Words.build([ENGLISH], max_size=5)


def test_words_are_a_tokenizer() -> None:
    assert isinstance(Words.build([ENGLISH]), Tokenizer)


CHINESE = Words.build(
    ["那只 猫 坐下 了", "我 爱 NLP", "他 来 了 吗 ？", "雨 停 了 ， 我 回 家", "那 是 一 本 书", "只 有 猫"]
)


@pytest.mark.parametrize(
    ("typed", "spaced"),
    [
        ("那只猫坐下了", "那只 猫 坐下 了"),
        ("那只猫 坐下了", "那只 猫 坐下 了"),
        ("我爱NLP", "我 爱 NLP"),
        ("他来了吗？", "他 来 了 吗 ？"),
        ("雨停了，我回家", "雨 停 了 ， 我 回 家"),
        ("那是一本书", "那 是 一 本 书"),
        ("猫", "猫"),
    ],
)
def test_chinese_without_spaces_has_the_ids_of_the_spaced_text(typed: str, spaced: str) -> None:
    ids = CHINESE.encode(typed)
    assert UNK not in ids
    assert ids == CHINESE.encode(spaced)
    assert CHINESE.decode(ids) == spaced
    assert CHINESE.unknown(typed) == []


def test_unknown_chinese_between_known_words_is_one_piece() -> None:
    ids = CHINESE.encode("那只大象坐下了")
    assert CHINESE.pieces(ids) == ["那只", "<unk>", "坐下", "了"]
    assert CHINESE.unknown("那只大象坐下了") == ["大象"]
    assert CHINESE.unknown("大象") == ["大象"]
    assert CHINESE.encode("大象") == [UNK]


def test_a_run_that_is_in_the_vocabulary_is_not_split() -> None:
    words = Words.build(["坐 下 了", "坐下了"])
    assert len(words.encode("坐下了")) == 1


def test_words_of_scripts_with_spaces_are_not_split() -> None:
    words = Words.build(["the re", "他"])
    assert words.encode("there") == [UNK]
    assert words.unknown("there他re") == ["there"]
    assert words.pieces(words.encode("there他re")) == ["<unk>", "他", "re"]


def test_a_mark_of_text_with_spaces_keeps_its_own_piece() -> None:
    words = Words.build(["a .", "b"])
    assert words.encode("b.") == [*words.encode("b"), UNK]
