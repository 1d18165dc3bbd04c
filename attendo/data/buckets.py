"""Batches of like length under a token budget, in an order that the seed alone decides."""

import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from attendo.data.batch import Batch, Example, collate

POOL = 8192  # examples sorted by length at a time: many batches' worth, so that little is padded


def bucketed(examples: Iterable[Example], batch_tokens: int, seed: int | str, pool: int = POOL) -> Iterator[Batch]:
    """Batches of at most `batch_tokens` positions of their longer side (a longer sentence stands alone)."""
    stream = iter(examples)
    shuffler = random.Random(f"{seed} buckets")
    while waiting := list(islice(stream, pool)):
        groups = list(group_by_length(waiting, batch_tokens))
        shuffler.shuffle(groups)
        for group in groups:
            yield collate(group)


def group_by_length(examples: Sequence[Example], batch_tokens: int) -> Iterator[list[Example]]:
    """Neighbours in length together; rows times the longest row stays within the budget."""
    group: list[Example] = []
    for example in sorted(examples, key=lambda example: (example.length, len(example.source))):
        if group and (len(group) + 1) * example.length > batch_tokens:
            yield group
            group = []
        group.append(example)
    if group:
        yield group
