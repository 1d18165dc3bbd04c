"""D1: a sentence has the same answer alone and in any batch, whatever the decoder."""

import pytest
from random_batches import DECODERS, compared

QUICK = ("greedy",)  # the others take five seconds and more for 200 sentences


@pytest.mark.parametrize(
    "decoder", [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in DECODERS]
)
def test_D1_200_sentences_alone_and_in_random_batches(decoder: str) -> None:
    check(decoder, sentences=200)


@pytest.mark.parametrize("decoder", [each for each in DECODERS if each not in QUICK])
def test_D1_60_sentences_alone_and_in_random_batches(decoder: str) -> None:
    check(decoder, sentences=60)


def check(decoder: str, sentences: int) -> None:
    found = compared(DECODERS[decoder], sentences)
    assert found["hypotheses"] >= sentences
    assert found["texts"] > 5
    assert found["different"] == 0
    assert found["score"] < 1e-5
    assert found["attention"] < 1e-5


def test_D1_all_ways_to_decode_are_compared() -> None:
    assert len(DECODERS) == 8
    assert set(QUICK) < set(DECODERS)
