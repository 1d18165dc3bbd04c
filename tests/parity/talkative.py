"""A random network whose answers differ in length, with the sources it answers, for comparisons with other systems."""

import random
from collections.abc import Sequence

import pytest
import torch

from attendo.bench.random_network import make_random_network
from attendo.model_folder import StoredModel
from attendo.nn.blocks import DecoderBlock
from attendo.text import BOS, EOS, PAD, Words
from attendo.text_model import TextModel

NAMES = [f"w{n:02}" for n in range(56)]
Found = list[tuple[tuple[int, ...], float]]  # the hypotheses of a sentence, best first: ids and score


@torch.no_grad()
def talkative_model(seed: int = 1) -> TextModel:
    """Its probabilities are flatter than a network's first ones, and eos has one like the others: so have pad and bos,
    so that it is seen what a system makes of their share.
    """
    words = Words.build([" ".join(NAMES)])
    network = make_random_network("tiny", words.vocab_size, seed)
    assert network.output.bias is not None
    network.output.bias[[PAD, BOS]] = 0.0
    network.output.bias[EOS] = 1.0
    last = network.decoder[-1]
    assert isinstance(last, DecoderBlock)
    last.feed_forward_residual.normalise.get_parameter("weight").mul_(0.25)
    return TextModel(StoredModel(network, words, words, {}, {}))


def some_texts(count: int = 60) -> list[str]:
    dice = random.Random(1)
    return [" ".join(dice.choices(NAMES, k=dice.randint(1, 9))) for _ in range(count)]


def said_by_us(model: TextModel, texts: Sequence[str], **options: object) -> list[Found]:
    return [[(each.ids, each.score) for each in result.hypotheses] for result in model.generate(texts, **options)]  # type: ignore[arg-type]


def assert_same(ours: Sequence[Found], theirs: Sequence[Found], scores: bool = True) -> None:
    """Scores to 1e-4, place by place. Of two that score the same, rounding decides which stands first: so one in a
    hundred hypotheses may be another one, if only its score is the same.
    """
    assert [len(each) for each in ours] == [len(each) for each in theirs]
    pairs = [pair for one, other in zip(ours, theirs, strict=True) for pair in zip(one, other, strict=True)]
    if scores:
        assert [score for (_, score), _ in pairs] == pytest.approx([score for _, (_, score) in pairs], abs=1e-4)
    different = sum(one != other for (one, _), (other, _) in pairs)
    assert different <= (len(pairs) // 100 if scores else 0)
