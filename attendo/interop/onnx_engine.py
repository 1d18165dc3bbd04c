"""Our search on ONNX Runtime with every core: the sentences of a batch are dealt to threads."""

from collections.abc import Iterator, Sequence
from functools import partial

from attendo.decode.frontier import Frontier
from attendo.decode.requests import Answers, Request, asked_of, begun, by_length, sources_of
from attendo.decode.search import Rule, Strategy
from attendo.decode.stride import hypotheses
from attendo.interop.at_once import at_once
from attendo.interop.onnx_network import OnnxNetwork


class OnnxEngine:
    """A step is dozens of small products. Threads that share each of them wait for each other all the time, threads
    that have sentences of their own never do; one sentence alone is all that they share products for.
    """

    def __init__(self, network: OnnxNetwork, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        """All requests, batch by batch."""
        for group in by_length(requests, self._batch_tokens // strategy.width):
            threads = min(self._network.threads, len(group))
            network = self._network if threads == 1 else self._network.in_one_thread
            shares = [group[first::threads] for first in range(threads)]  # each has as many long ones as the others
            found = at_once([partial(_found, network, share, strategy, rules) for share in shares])
            yield from (Answers(share, each) for share, each in zip(shares, found, strict=True))


def _found(network: OnnxNetwork, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Frontier:
    state = begun(network, *sources_of(requests, network.device))
    return hypotheses(network, state, asked_of(requests, network.device), strategy, rules)
