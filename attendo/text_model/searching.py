"""The plain search, for whatever the engines of single networks do not do: ensembles, coverage, looking on."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from attendo.decode.coverage import Covered, Covering
from attendo.decode.frontier import Frontier
from attendo.decode.requests import Request, asked_of, by_length, sources_of
from attendo.decode.search import Rule, Strategy, search
from attendo.errors import UsageError
from attendo.model.transformer import Transformer
from attendo.text_model.networks import Reader


class SearchEngine:
    """An engine that can also be watched. `covered`: attention to the source is kept count of."""

    def __init__(self, reader: Reader, device: torch.device, batch_tokens: int, covered: bool = False) -> None:
        self._reader, self._device, self._batch_tokens = reader, device, batch_tokens
        self._covering: Covering | None = None
        if covered:
            if not isinstance(reader, Transformer):
                raise UsageError("coverage_penalty and an ensemble exclude each other: take a single model, or 0")
            self._covering = Covering(reader)

    def answers(
        self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[tuple[Request, Frontier]]:
        """Each request with the hypotheses of its sentence, on the CPU."""
        for group in by_length(requests, self._batch_tokens // strategy.width):
            last = deque(self.frontiers(group, strategy, rules), maxlen=1).pop()
            hypotheses = last.hypotheses.cpu()
            for place, request in enumerate(group):
                yield request, hypotheses.keep(torch.tensor([place]))

    def frontiers(self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]) -> Iterator[Frontier]:
        """All sentences together, after every token."""
        ids, mask = sources_of(requests, self._device)
        all_alike = len({len(request.source) for request in requests}) == 1
        with torch.inference_mode():
            state: Any = self._reader.start(self._reader.encode(ids, None if all_alike else mask))
            if self._covering is not None:
                state = Covered.nothing(state, mask, strategy.width)
        return search(self._covering or self._reader, state, asked_of(requests, self._device), strategy, rules)
