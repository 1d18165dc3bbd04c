"""attendo as one of the systems that are compared."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from attendo.decode.beam import Beam
from attendo.decode.engines import CachedEngine, Engine, FastEngine
from attendo.decode.requests import Answers, Request
from attendo.decode.rules import Forbid, LeastLength
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape
from attendo.nn.bf16 import settle_bf16
from attendo.recipes.bench.work import DTYPES, Precision, Work

Ids = list[list[int]]
RULES = (Forbid(), LeastLength())
ALL_AT_ONCE = 1 << 40  # positions: the work says which sentences go together


def answering(engine: Engine, work: Work) -> Callable[[], Ids]:
    """The one place that knows how attendo is asked: a call that gives the best answer to each source.

    What need not be done anew for every answer belongs before the call, which alone is timed.
    """
    # As the others have it, a limit counts eos, and its last token may be any.
    strategy: Strategy = Greedy(free_end=True) if work.beam == 1 else Beam(work.beam, stop="first", free_end=True)
    groups = [
        [Request(number, tuple(work.sources[number]), work.most - 1, work.least) for number in group]
        for group in work.batches()
    ]

    def answer() -> Ids:
        answers: dict[int, list[int]] = {}
        with kernels_for_any_shape():
            for group in groups:
                found = engine.answers(group, strategy, RULES)
                answers |= {number: ids for some in found for number, ids in _best(some)}
        return [answers[n] for n in range(len(work.sources))]

    return answer


class Ours:
    """A copy of the network, so that its own precision and place stay as they are."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device) -> None:
        self.name = f"attendo {precision}"
        settle_bf16(device, DTYPES[precision])
        self._network = copy.deepcopy(network).to(device, DTYPES[precision]).eval()

    def prepare(self, work: Work) -> Callable[[], Ids]:
        if self._network.device.type != "cuda":
            return answering(CachedEngine(self._network, ALL_AT_ONCE), work)
        engine = FastEngine(self._network, ALL_AT_ONCE, compiled=True, most=work.batch)
        return answering(engine, replace(work, batch=len(work.sources)))  # those that wait take the places of others

    def ids(self, said: Any) -> Ids:
        return said


def _best(answers: Answers) -> Iterator[tuple[int, list[int]]]:
    """The number of each request, and the ids of the first of its hypotheses, which is the best."""
    found = answers.hypotheses
    words = found.length - (found.ended & ~found.cut).long()  # without eos
    best = (each[:: found.width].tolist() for each in (found.ids, words))
    for request, ids, count in zip(answers.requests, *best, strict=True):
        yield request.number, ids[1 : 1 + count]  # behind bos
