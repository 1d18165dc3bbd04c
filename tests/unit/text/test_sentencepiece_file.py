"""Our reader of SentencePiece files agrees with the sentencepiece library."""

from typing import Any

import pytest
from error_codes import has_code
from sentencepiece import SentencePieceProcessor

from attendo.errors import ModelError
from attendo.text import SentencePiece
from attendo.text.sentencepiece import PieceType, iter_pieces, read_model_type

TEXTS = ["the cat sat on the mat", "你喜欢猫吗？"] * 3


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_equal_those_of_the_library(kind: Any) -> None:
    model = SentencePiece.train(TEXTS, 300, kind, ["<x>", "猫"]).model
    processor = SentencePieceProcessor(model_proto=model)
    rows = list(iter_pieces(model))
    assert [row.text for row in rows] == [processor.id_to_piece(each) for each in range(processor.vocab_size())]
    assert [row.score for row in rows] == [processor.get_score(each) for each in range(processor.vocab_size())]
    assert [row.type for row in rows[:7]] == [
        *(PieceType.CONTROL, PieceType.UNKNOWN, PieceType.CONTROL, PieceType.CONTROL),
        *(PieceType.USER_DEFINED, PieceType.USER_DEFINED, PieceType.BYTE),
    ]
    assert {row.type for row in rows[6:262]} == {PieceType.BYTE}
    assert {row.type for row in rows[262:]} == {PieceType.NORMAL}
    assert read_model_type(model) == kind


def test_a_model_without_a_type_is_unigram() -> None:
    assert read_model_type(b"") == "unigram"


@pytest.mark.parametrize("content", [b"\x0a\x05ab", b"\x0a", b"\x0a\xff", b"\x0b", b"\x0d\x00"])
def test_invalid_content_raises_model_error(content: bytes) -> None:
    with pytest.raises(ModelError, check=has_code("not_a_sentencepiece_model")):
        list(iter_pieces(content))
