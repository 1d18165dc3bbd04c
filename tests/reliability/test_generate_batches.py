"""D1: a sentence has the same output alone and in any batch, for every decoder."""

import pytest
from random_batches import DECODERS, compare_batches


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
def test_D1_200_sentences_match_in_random_batches(decoder: str) -> None:
    check(decoder, sentences=200)


@pytest.mark.short(2)
@pytest.mark.parametrize("decoder", DECODERS)
def test_D1_32_sentences_match_in_random_batches(decoder: str) -> None:
    check(decoder, sentences=32)


def check(decoder: str, sentences: int) -> None:
    found = compare_batches(DECODERS[decoder], sentences)
    assert found["hypotheses"] >= sentences
    assert found["texts"] > 5
    assert found["different"] == 0
    assert found["score"] < 1e-5
    assert found["attention"] < 1e-5
