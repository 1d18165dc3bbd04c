"""A few real pairs through the network, without leaving a trace in the run."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.data.batch import Batch, Example, collate
from attendo.data.stream import BatchStream
from attendo.model.transformer import Transformer
from attendo.text import EOS, PAD
from attendo.train.learner import Learner

PAIRS = 4
TOKENS = 24  # of a side at most: what is wrong shows on the beginning of a sentence, and a large network stays quick
SPARE = 4  # positions that a check may add to the longest side, control token included
_BATCHES = 8  # looked through for as many pairs with different sources


@contextmanager
def undisturbed(learner: Learner) -> Iterator[None]:
    """Whatever is drawn or switched inside, the run goes on as if nothing had been."""
    training = learner.network.training
    with torch.random.fork_rng([learner.device] if learner.device.type == "cuda" else []):
        try:
            yield
        finally:
            learner.network.train(training)


def some_batches(stream: BatchStream) -> list[Batch]:
    """Its first ones."""
    with closing(stream.batches()) as batches:
        return [placed.batch for placed in islice(batches, _BATCHES)]


def few_pairs(batches: Sequence[Batch], network: Transformer) -> list[Example]:
    """The beginnings of a few long pairs with different sources."""
    config = network.config
    most = min(TOKENS, max(1, config.max_length - SPARE)) if config.positions == "learned" else TOKENS
    found: dict[tuple[int, ...], Example] = {}
    for batch in batches:
        for source, target in zip(batch.source_ids.tolist(), batch.labels.tolist(), strict=True):
            pair = Example(_plain(source)[:most], _plain(target)[:most])
            found.setdefault(tuple(pair.source or pair.target), pair)
    return sorted(found.values(), key=lambda pair: -len(pair.source) - len(pair.target))[:PAIRS]


def batch_of(pairs: Sequence[Example], network: Transformer) -> Batch:
    """Side by side; without their sources, where the network reads none."""
    batch = collate(pairs)
    if not network.decoder_only:
        return batch
    return replace(batch, source_ids=batch.source_ids[:, :0], source_mask=None, source_tokens=0)


@torch.no_grad()
def logits_of(learner: Learner, batch: Batch) -> Float[Tensor, "B T V"]:
    """In the run's precision, on its device."""
    batch = batch.to(learner.device)
    with learner.autocast():
        logits: Tensor = learner.network(batch.source_ids, batch.target_ids, batch.source_mask)
    return logits.float()


def _plain(ids: Sequence[int]) -> list[int]:
    return [each for each in ids if each not in (PAD, EOS)]
