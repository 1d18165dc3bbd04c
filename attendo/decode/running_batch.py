"""The interface of a running batch: requests join and leave it between decoding steps."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Sequence

import torch

from attendo.decode.frontier import Frontier
from attendo.decode.requests import DecodeRequest, FinishedBatch
from attendo.decode.step_hook import run_step_hook


class RunningBatch(ABC):
    """Sentences that are decoded together, one token per step. A request has a slot until it is finished."""

    _requests: list[DecodeRequest | None]  # one per slot; None: free
    _frontier: Frontier | None  # the rows of all slots; None if there are no slots

    @abstractmethod
    def step(self, waiting: "deque[DecodeRequest]") -> Iterator[FinishedBatch]:
        """Insert waiting requests into free slots, decode one token per row, and yield finished requests."""

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return any(self._requests)

    @property
    def num_free(self) -> int:
        """Number of free slots."""
        return sum(request is None for request in self._requests)

    def generate(self, requests: Sequence[DecodeRequest]) -> Iterator[FinishedBatch]:
        """Yield answers as soon as they are finished. Requests left from an abandoned call are dropped."""
        self.cancel()
        waiting = deque(requests)
        while waiting or self.busy:
            run_step_hook()
            yield from self.step(waiting)

    def stream(self, request: DecodeRequest) -> Iterator[Frontier]:
        """Yield the frontier of one request after every token. The last one is its hypotheses."""
        waiting = deque([request])
        while waiting or self.busy:
            run_step_hook()
            finished = [answers.hypotheses for answers in self.step(waiting)]
            yield from finished or (frontier for _, frontier in self.peek({request.request_id}))

    def cancel(self, request_ids: Collection[int] | None = None) -> None:
        """Drop these requests, or all requests if None, and free their slots."""
        self._requests = [
            None if request is None or request_ids is None or request.request_id in request_ids else request
            for request in self._requests
        ]

    def peek(self, request_ids: Collection[int]) -> Iterator[tuple[DecodeRequest, Frontier]]:
        """Yield the current frontier of each of these requests. This synchronises a GPU."""
        for slot, request in enumerate(self._requests):
            if request is not None and request.request_id in request_ids and self._frontier is not None:
                sentence = torch.tensor([slot], device=self._frontier.ids.device)
                yield request, self._frontier.select_sentences(sentence).cpu()
