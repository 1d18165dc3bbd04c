"""A random network with answers of different lengths, its sources, and comparisons with other systems."""

import random
from collections.abc import Sequence

import pytest
import torch

from attendo.bench.random_network import make_random_network
from attendo.model_folder import StoredModel
from attendo.nn.blocks import DecoderBlock
from attendo.text import BOS, EOS, PAD, Words
from attendo.text_model import TextModel

WORDS = [f"w{n:02}" for n in range(56)]
Hypotheses = list[tuple[tuple[int, ...], float]]  # the hypotheses of a sentence, best first: ids and score


@torch.no_grad()
def random_text_model(seed: int = 1) -> TextModel:
    """Its probabilities are flatter than those of a new network, and EOS is as likely as other tokens. So are PAD and
    BOS, which shows how a system treats their probability.
    """
    words = Words.build([" ".join(WORDS)])
    network = make_random_network("tiny", words.vocab_size, seed)
    assert network.output.bias is not None
    network.output.bias[[PAD, BOS]] = 0.0
    network.output.bias[EOS] = 1.0
    last = network.decoder[-1]
    assert isinstance(last, DecoderBlock)
    last.feed_forward_residual.normalise.get_parameter("weight").mul_(0.25)
    return TextModel(StoredModel(network, words, words, {}, {}))


def random_texts(count: int = 60) -> list[str]:
    rng = random.Random(1)
    return [" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(count)]


def our_hypotheses(model: TextModel, texts: Sequence[str], **options: object) -> list[Hypotheses]:
    return [[(each.ids, each.score) for each in result.hypotheses] for result in model.generate(texts, **options)]  # type: ignore[arg-type]


def assert_same(ours: Sequence[Hypotheses], theirs: Sequence[Hypotheses], scores: bool = True) -> None:
    """Compare scores by rank, within 1e-4. Rounding decides the order of equal scores. So one in a hundred
    hypotheses may differ, if its score is the same.
    """
    assert [len(each) for each in ours] == [len(each) for each in theirs]
    pairs = [pair for one, other in zip(ours, theirs, strict=True) for pair in zip(one, other, strict=True)]
    if scores:
        assert [score for (_, score), _ in pairs] == pytest.approx([score for _, (_, score) in pairs], abs=1e-4)
    different = sum(one != other for (one, _), (other, _) in pairs)
    assert different <= (len(pairs) // 100 if scores else 0)
