"""SentencePiece: training, bytes, line breaks, and the messages for sizes that cannot be."""

import io
import pickle
from typing import Any

import pytest
from error_codes import ErrorCheck, has_code
from sentencepiece import SentencePieceTrainer

from attendo.errors import DataError, ModelError, UsageError
from attendo.text import BOS, EOS, PAD, UNK, SentencePiece, Tokenizer

TEXTS = ["the cat sat on the mat", "I love natural language processing", "你喜欢猫吗？"] * 3


@pytest.fixture(scope="module")
def tokenizer() -> SentencePiece:
    return SentencePiece.train(TEXTS, size=320)


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_twice_gives_the_same_bytes(kind: Any) -> None:
    assert SentencePiece.train(TEXTS, 285, kind) == SentencePiece.train(iter(TEXTS), 285, kind)


def test_bpe_and_unigram_differ() -> None:
    assert SentencePiece.train(TEXTS, 285, "bpe") != SentencePiece.train(TEXTS, 285, "unigram")


def test_training_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    SentencePiece.train(TEXTS, 300)
    assert capfd.readouterr() == ("", "")


def test_a_size_beyond_the_text_gives_what_there_is(tokenizer: SentencePiece) -> None:
    assert tokenizer.vocab_size == 320
    assert 320 < SentencePiece.train(TEXTS, 100_000).vocab_size < 1000


def test_a_size_too_small_names_the_least_and_the_least_works() -> None:
    with pytest.raises(UsageError, check=has_code("vocabulary_below_character_count", size=100, minimum="284")):
        SentencePiece.train(TEXTS, 100)
    assert SentencePiece.train(TEXTS, 284).vocab_size == 284


@pytest.mark.parametrize("size", [0, -1, 2**40])
def test_an_impossible_size_is_named(size: int) -> None:
    with pytest.raises(UsageError, check=has_code("vocabulary_size_out_of_range", size=size)):
        SentencePiece.train(TEXTS, size)


def test_an_unknown_kind_is_named() -> None:
    wrong: Any = "wordpiece"
    with pytest.raises(UsageError, check=has_code("subword_kind_unknown", kind="wordpiece")):
        SentencePiece.train(TEXTS, 300, wrong)


@pytest.mark.parametrize("texts", [[], [""], [" \n "], ["▁▅"]])
def test_no_text_is_an_error(texts: list[str]) -> None:
    with pytest.raises(DataError, check=has_code("tokenizer_training_text_empty")):
        SentencePiece.train(texts, 300)


@pytest.mark.parametrize("text", ["xy" * 40_000, "x▅y", "x▁y", "x\ny"])
def test_long_lines_and_lines_with_reserved_signs_are_learnt_from(text: str) -> None:
    tokenizer = SentencePiece.train([text], 300)
    assert "".join(tokenizer.pieces(tokenizer.encode("xy"))) == "xy"


def test_words_seen_often_are_one_piece(tokenizer: SentencePiece) -> None:
    assert tokenizer.pieces([BOS, *tokenizer.encode("the cat  "), UNK, EOS, PAD]) == [
        *("<s>", "the", "cat", "␣", "␣", "<unk>", "</s>", "<pad>")
    ]


def test_characters_never_seen_become_bytes_and_nothing_is_unknown(tokenizer: SentencePiece) -> None:
    assert tokenizer.pieces(tokenizer.encode("é")) == ["␣", "<0xC3>", "<0xA9>"]
    assert tokenizer.unknown("é 漢字 ▁ 👩 \x00") == []


def test_line_breaks_become_spaces_on_the_way_in_and_on_the_way_out(tokenizer: SentencePiece) -> None:
    assert tokenizer.encode("the\ncat\r") == tokenizer.encode("the cat ")
    byte_pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    breaks = [byte_pieces.index("<0x0A>"), byte_pieces.index("<0x0D>")]
    assert tokenizer.decode([*tokenizer.encode("the"), *breaks, *tokenizer.encode("cat")]) == "the   cat"


def test_a_mark_in_the_text_is_not_a_space(tokenizer: SentencePiece) -> None:
    assert tokenizer.encode("the▁cat") != tokenizer.encode("the cat")
    assert tokenizer.decode(tokenizer.encode("▁the▁ cat▁")) == "▁the▁ cat▁"


def test_control_ids_are_left_out_of_text(tokenizer: SentencePiece) -> None:
    assert tokenizer.decode([BOS, *tokenizer.encode("the cat"), EOS, PAD, PAD]) == "the cat"
    assert tokenizer.decode([UNK]).strip() == "⁇"


@pytest.mark.parametrize("wrong", [-1, 320])
def test_an_id_outside_the_vocabulary_is_named(tokenizer: SentencePiece, wrong: int) -> None:
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", last=319, token_id=wrong)):
        tokenizer.decode([wrong])
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", token_id=wrong)):
        tokenizer.pieces([wrong])


def test_half_a_surrogate_pair_is_named(tokenizer: SentencePiece) -> None:
    with pytest.raises(UsageError, check=has_code("text_unpaired_surrogate")):
        tokenizer.encode("a\ud800")
    with pytest.raises(DataError, check=has_code("training_text_unpaired_surrogate")):
        SentencePiece.train(["a\ud800"], 300)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"byte_fallback": True}, has_code("control_ids_mismatch")),
        ({"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}, has_code("sentencepiece_byte_pieces_missing")),
    ],
)
def test_a_model_made_with_other_options_is_refused(options: dict[str, Any], error: ErrorCheck) -> None:
    model = io.BytesIO()
    lines = iter(TEXTS)
    SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=400, hard_vocab_limit=False, minloglevel=5, **options
    )
    with pytest.raises(ModelError, check=error):
        SentencePiece(model.getvalue())


def test_an_empty_model_is_refused() -> None:
    with pytest.raises(ModelError, check=has_code("control_ids_mismatch")):
        SentencePiece(b"")


def test_a_pickled_copy_is_the_same(tokenizer: SentencePiece) -> None:
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy == tokenizer
    assert copy.encode("the▁cat") == tokenizer.encode("the▁cat")


def test_it_is_a_tokenizer(tokenizer: SentencePiece) -> None:
    assert isinstance(tokenizer, Tokenizer)
