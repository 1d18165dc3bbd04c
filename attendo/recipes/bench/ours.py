"""attendo as one of the systems that are compared."""

import copy
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.data.batch import collate_sources
from attendo.decode.beam import Beam
from attendo.decode.frontier import NOTHING, Asked, Frontier
from attendo.decode.search import Strategy, search
from attendo.decode.strategies import Greedy
from attendo.model.transformer import Transformer
from attendo.nn.attention import kernels_for_any_shape
from attendo.recipes.bench.work import DTYPES, Precision, Work
from attendo.text import BOS, EOS, PAD

Ids = list[list[int]]


def answering(network: Transformer, work: Work) -> Callable[[], Ids]:
    """The one place that knows how attendo is asked: a call that gives the best answer to each source.

    What need not be done anew for every answer belongs before the call, which alone is timed.
    """
    strategy: Strategy = Greedy() if work.beam == 1 else Beam(work.beam)
    groups = work.batches()

    def answer() -> Ids:
        answers: dict[int, list[int]] = {}
        for group in groups:
            answers |= zip(group, _answered(network, [work.sources[n] for n in group], work, strategy), strict=True)
        return [answers[n] for n in range(len(work.sources))]

    return answer


class Ours:
    """A copy of the network, so that its own precision and place stay as they are."""

    def __init__(self, network: Transformer, precision: Precision, device: torch.device) -> None:
        self.name = f"attendo {precision}"
        self._network = copy.deepcopy(network).to(device, DTYPES[precision]).eval()

    def prepare(self, work: Work) -> Callable[[], Ids]:
        return answering(self._network, work)

    def ids(self, said: Any) -> Ids:
        return said


@torch.inference_mode()
def _answered(network: Transformer, sources: Sequence[Sequence[int]], work: Work, strategy: Strategy) -> Ids:
    ids, mask = collate_sources(sources)
    device = network.output.weight.device
    asked = Asked.of(torch.full((len(sources),), work.most, device=device), work.least)
    with kernels_for_any_shape():
        memory = network.encode(ids.to(device), None if mask is None else mask.to(device))
        told = search(network, network.start(memory), asked, strategy, [_forbid])
        # Where the length is forced, nobody asks whether eos would come behind the last token.
        last = deque(islice(told, work.most if work.forced else None), maxlen=1).pop()
    return _best(last if work.forced else last.hypotheses)


def _forbid(log_probs: Float[Tensor, "R V"], frontier: Frontier) -> Float[Tensor, "R V"]:
    """Never pad or bos, and no eos while there are too few tokens."""
    log_probs = log_probs.clone()
    log_probs[:, [PAD, BOS]] = NOTHING
    log_probs[:, EOS] = log_probs[:, EOS].masked_fill(frontier.length < frontier.asked.least, NOTHING)
    return log_probs


def _best(frontier: Frontier) -> Ids:
    """Of each sentence the first row."""
    return [[each for each in row if each not in (PAD, BOS, EOS)] for row in frontier.ids[:: frontier.width].tolist()]
