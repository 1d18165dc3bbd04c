"""attendo as one of the systems that are compared."""

import copy
from collections.abc import Callable
from typing import Any

import torch

from attendo.decode.beam import Beam
from attendo.decode.engines import CachedEngine, Engine, FastEngine
from attendo.decode.frontier import Frontier
from attendo.decode.layout import laid_out
from attendo.decode.requests import Request
from attendo.decode.rules import Forbid, LeastLength
from attendo.decode.search import Strategy
from attendo.decode.strategies import Greedy
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape
from attendo.recipes.bench.work import DTYPES, Precision, Work
from attendo.text import BOS, EOS, PAD

Ids = list[list[int]]
RULES = (Forbid(), LeastLength())
_ALL_AT_ONCE = 1 << 40  # positions: the work says which sentences go together


def answering(engine: Engine, work: Work) -> Callable[[], Ids]:
    """The one place that knows how attendo is asked: a call that gives the best answer to each source.

    What need not be done anew for every answer belongs before the call, which alone is timed.
    """
    strategy: Strategy = Greedy() if work.beam == 1 else Beam(work.beam)
    groups = [
        [Request(number, tuple(work.sources[number]), work.most, work.least) for number in group]
        for group in work.batches()
    ]

    def answer() -> Ids:
        answers: dict[int, list[int]] = {}
        with kernels_for_any_shape():
            for group in groups:
                found = engine.answers(group, strategy, RULES)
                answers |= {request.number: _best(hypotheses) for request, hypotheses in found}
        return [answers[n] for n in range(len(work.sources))]

    return answer


class Ours:
    """A copy of the network, so that its own precision and place stay as they are."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device) -> None:
        self.name = f"attendo {precision}"
        made = copy.deepcopy(network).to(device, DTYPES[precision]).eval()
        self._engine: Engine
        if device.type == "cuda":
            self._engine = FastEngine(made, _ALL_AT_ONCE, compiled=True)
        else:
            self._engine = CachedEngine(laid_out(made), _ALL_AT_ONCE)

    def prepare(self, work: Work) -> Callable[[], Ids]:
        return answering(self._engine, work)

    def ids(self, said: Any) -> Ids:
        return said


def _best(hypotheses: Frontier) -> list[int]:
    return [each for each in hypotheses.ids[0].tolist() if each not in (PAD, BOS, EOS)]
