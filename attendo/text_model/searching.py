"""The plain search, for whatever the engines of single networks do not do: ensembles, coverage, looking on."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from attendo.decode.coverage import Covered, Covering
from attendo.decode.frontier import Frontier
from attendo.decode.reading_ahead import read_ahead
from attendo.decode.requests import Answers, Request, asked_of, begun, by_length, sources_of
from attendo.decode.search import Network, Rule, Strategy, search


class SearchEngine:
    """An engine that can also be watched."""

    def __init__(self, network: Network, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def answers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Answers]:
        """All requests, batch by batch."""
        for group in by_length(requests, self._batch_tokens // strategy.width):
            last = deque(self.frontiers(group, strategy, rules), maxlen=1).pop()
            yield Answers(group, last.hypotheses.cpu())

    def frontiers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Frontier]:
        """All sentences together, after every token."""
        network, device = self._network, self._network.device
        ids, mask = sources_of(requests, device)
        frontier = strategy.start(asked_of(requests, device))
        all_alike = len({len(request.source) for request in requests}) == 1
        with torch.inference_mode():
            state: Any = begun(network, ids, None if all_alike else mask)
            state, frontier = read_ahead(network, state, frontier, strategy, rules, alike=True)
            if isinstance(network, Covering):
                state = Covered.nothing(state, mask, strategy.width)
        return search(network, state, frontier, strategy, rules)
