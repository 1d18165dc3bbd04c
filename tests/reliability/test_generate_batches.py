"""D1: a sentence has the same answer alone and in any batch, whatever the decoder."""

import pytest
from random_batches import DECODERS, compared


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
def test_D1_200_sentences_alone_and_in_random_batches(decoder: str) -> None:
    check(decoder, sentences=200)


@pytest.mark.short(2)
@pytest.mark.parametrize("decoder", DECODERS)
def test_D1_32_sentences_alone_and_in_random_batches(decoder: str) -> None:
    check(decoder, sentences=32)


def check(decoder: str, sentences: int) -> None:
    found = compared(DECODERS[decoder], sentences)
    assert found["hypotheses"] >= sentences
    assert found["texts"] > 5
    assert found["different"] == 0
    assert found["score"] < 1e-5
    assert found["attention"] < 1e-5


def test_D1_all_ways_to_decode_are_compared() -> None:
    assert len(DECODERS) == 8
