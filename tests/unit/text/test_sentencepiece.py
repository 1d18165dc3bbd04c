"""SentencePiece: training, byte fallback, line breaks, and errors for invalid sizes."""

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


def test_a_size_larger_than_the_text_allows_is_reduced(tokenizer: SentencePiece) -> None:
    assert tokenizer.vocab_size == 320
    assert 320 < SentencePiece.train(TEXTS, 100_000).vocab_size < 1000


def test_a_size_too_small_raises_an_error_with_a_valid_minimum() -> None:
    with pytest.raises(UsageError, check=has_code("vocabulary_below_character_count", size=100, minimum="284")):
        SentencePiece.train(TEXTS, 100)
    assert SentencePiece.train(TEXTS, 284).vocab_size == 284


@pytest.mark.parametrize("size", [0, -1, 2**40])
def test_a_size_out_of_range_is_rejected(size: int) -> None:
    with pytest.raises(UsageError, check=has_code("vocabulary_size_out_of_range", size=size)):
        SentencePiece.train(TEXTS, size)


def test_an_unknown_kind_is_rejected() -> None:
    wrong: Any = "wordpiece"
    with pytest.raises(UsageError, check=has_code("subword_kind_unknown", kind="wordpiece")):
        SentencePiece.train(TEXTS, 300, wrong)


@pytest.mark.parametrize("texts", [[], [""], [" \n "], ["▁▅"]])
def test_no_text_raises_data_error(texts: list[str]) -> None:
    with pytest.raises(DataError, check=has_code("tokenizer_training_text_empty")):
        SentencePiece.train(texts, 300)


@pytest.mark.parametrize("text", ["xy" * 40_000, "x▅y", "x▁y", "x\ny"])
def test_long_lines_and_reserved_characters_can_be_trained_on(text: str) -> None:
    tokenizer = SentencePiece.train([text], 300)
    assert "".join(tokenizer.pieces(tokenizer.encode("xy"))) == "xy"


def test_frequent_words_are_one_piece(tokenizer: SentencePiece) -> None:
    assert tokenizer.pieces([BOS, *tokenizer.encode("the cat  "), UNK, EOS, PAD]) == [
        *("<s>", "the", "cat", "␣", "␣", "<unk>", "</s>", "<pad>")
    ]


def test_unseen_characters_become_bytes(tokenizer: SentencePiece) -> None:
    assert tokenizer.pieces(tokenizer.encode("é")) == ["␣", "<0xC3>", "<0xA9>"]
    assert tokenizer.unknown("é 漢字 ▁ 👩 \x00") == []


def test_line_breaks_become_spaces_in_encode_and_decode(tokenizer: SentencePiece) -> None:
    assert tokenizer.encode("the\ncat\r") == tokenizer.encode("the cat ")
    byte_pieces = tokenizer.pieces(range(tokenizer.vocab_size))
    breaks = [byte_pieces.index("<0x0A>"), byte_pieces.index("<0x0D>")]
    assert tokenizer.decode([*tokenizer.encode("the"), *breaks, *tokenizer.encode("cat")]) == "the   cat"


def test_a_space_marker_in_the_text_is_not_a_space(tokenizer: SentencePiece) -> None:
    assert tokenizer.encode("the▁cat") != tokenizer.encode("the cat")
    assert tokenizer.decode(tokenizer.encode("▁the▁ cat▁")) == "▁the▁ cat▁"


def test_control_ids_are_left_out_of_text(tokenizer: SentencePiece) -> None:
    assert tokenizer.decode([BOS, *tokenizer.encode("the cat"), EOS, PAD, PAD]) == "the cat"
    assert tokenizer.decode([UNK]).strip() == "⁇"


@pytest.mark.parametrize("wrong", [-1, 320])
def test_an_id_outside_the_vocabulary_raises_usage_error(tokenizer: SentencePiece, wrong: int) -> None:
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", last=319, token_id=wrong)):
        tokenizer.decode([wrong])
    with pytest.raises(UsageError, check=has_code("id_outside_vocabulary", token_id=wrong)):
        tokenizer.pieces([wrong])


def test_an_unpaired_surrogate_is_rejected(tokenizer: SentencePiece) -> None:
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
def test_a_model_trained_with_other_options_is_rejected(options: dict[str, Any], error: ErrorCheck) -> None:
    model = io.BytesIO()
    lines = iter(TEXTS)
    SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=model, vocab_size=400, hard_vocab_limit=False, minloglevel=5, **options
    )
    with pytest.raises(ModelError, check=error):
        SentencePiece(model.getvalue())


def test_an_empty_model_is_rejected() -> None:
    with pytest.raises(ModelError, check=has_code("control_ids_mismatch")):
        SentencePiece(b"")


def test_a_pickled_copy_is_the_same(tokenizer: SentencePiece) -> None:
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert copy == tokenizer
    assert copy.encode("the▁cat") == tokenizer.encode("the▁cat")


def test_sentencepiece_is_a_tokenizer(tokenizer: SentencePiece) -> None:
    assert isinstance(tokenizer, Tokenizer)
