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
    that have sentences of their own never do. They share products for one sentence alone, and for the last of them that
    is at work: answers differ in length, and whoever else uses a core slows down the thread that has it.
    """

    def __init__(self, network: OnnxNetwork, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        """All requests, batch by batch."""
        for group in by_length(requests, self._batch_tokens // strategy.width):
            threads = min(self._network.threads, len(group))
            shares = [group[first::threads] for first in range(threads)]  # each has as many long ones as the others
            found = self._found(shares, strategy, rules)
            yield from (Answers(share, each) for share, each in zip(shares, found, strict=True))

    def _found(self, shares: list[list[Request]], strategy: Strategy, rules: Sequence[Rule]) -> list[Frontier]:
        network, ended = self._network, list[int]()
        if len(shares) > 1:
            network = network.in_one_thread_until(lambda: len(ended) == len(shares) - 1)

        def found(requests: list[Request]) -> Frontier:
            state = begun(network, *sources_of(requests, network.device))
            frontier = hypotheses(network, state, asked_of(requests, network.device), strategy, rules)
            ended.append(len(requests))
            return frontier

        return at_once([partial(found, share) for share in shares])
