"""Compares single outputs with outputs in random batches, for every decoder and engine."""

import random
from typing import Any

import torch
from tiny import SOURCES, tiny_model

from attendo.text import EOS
from attendo.text_model import Hypothesis, Result, TextModel

WORDS = tuple(sorted({word for text in SOURCES for word in text.split()}))
MAX_LENGTH = 6

DECODERS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beam": {"beam": 3, "n_best": 3},
    "diverse": {"beam": 4, "beam_groups": 2, "n_best": 2},
    "samples": {"sample": True, "n_best": 2, "top_p": 0.9, "temperature": 1.2},
    "constrained": {"beam": 3, "constraints": ["猫"]},
    "ruled": {
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.3,
        "banned_phrases": ["NLP"],
        "prefix": "我",
        "min_length": 2,
    },
    "covered": {"beam": 2, "coverage_penalty": 0.3, "alignments": True},
    "least risk": {"mbr": "chrf", "mbr_candidates": 4},
}


def spread_model() -> TextModel:
    """A model with spread logits, so that outputs differ in length."""
    model = tiny_model(2, tie="none", num_encoder_layers=1, num_decoder_layers=1)
    with torch.no_grad():
        model.network.output.weight.mul_(3.0)
        model.network.output.weight[EOS].mul_(2.0)
    return model


def compare_batches(options: dict[str, Any], sentences: int) -> dict[str, float]:
    """The number of outputs that differ, and the largest differences of scores and attention.

    The batches alternate between engines, with a small and a large `batch_tokens`.
    """
    model, dice = spread_model(), random.Random(5)
    texts = [" ".join(dice.choices(WORDS, k=dice.randint(1, 7))) for _ in range(sentences)]
    options = {"max_length": MAX_LENGTH, **options}
    engines = ["cached"] if "constraints" in options else ["cached", "fast"]
    backends = [{"engine": engine, "batch_tokens": batch_tokens} for engine in engines for batch_tokens in (30, 4096)]
    alone = [model.generate([text], **options)[0] for text in texts]
    remaining, batched, batch_count = dice.sample(range(sentences), sentences), dict[int, Result](), 0
    while remaining:
        size = dice.choice((1, 7, sentences // 8, sentences // 4))
        batch = [remaining.pop() for _ in range(min(len(remaining), size))]
        found = model.generate([texts[n] for n in batch], **backends[batch_count % len(backends)], **options)
        batched.update(zip(batch, found, strict=True))
        batch_count += 1
    assert batch_count >= len(backends), "some backends were not used"
    pairs = [pair for n, one in enumerate(alone) for pair in zip(one.hypotheses, batched[n].hypotheses, strict=True)]
    return {
        "hypotheses": len(pairs),
        "texts": len({one.text for one, _ in pairs}),
        "different": sum(one != other and _exact_fields(one) != _exact_fields(other) for one, other in pairs),
        "score": max(abs(one.score - other.score) for one, other in pairs),
        "attention": max(_attention_difference(one, other) for one, other in pairs),
    }


def _exact_fields(each: Hypothesis) -> tuple[object, ...]:
    return each.ids, each.cut, each.constraints


def _attention_difference(one: Hypothesis, other: Hypothesis) -> float:
    if one.alignment is None or other.alignment is None or not one.ids:
        return 0.0
    return float((one.alignment.weights - other.alignment.weights).abs().max())
