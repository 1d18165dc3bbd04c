"""Engines: the same network and the same search, carried out in different ways. Requests in, hypotheses out.

textbook    no cache, explicit attention: slow, and plain enough to be believed
cached      keys and values grow column by column; sentences that are done leave the batch
fast        shapes that never change, sentences that take each other's places; recorded on a GPU, compiled if asked
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch

from attendo.decode.frontier import Frontier
from attendo.decode.requests import Request, asked_of, by_length, sources_of
from attendo.decode.search import Rule, Strategy, search
from attendo.decode.slots import Slots, SlotSizes
from attendo.decode.textbook import Textbook
from attendo.model.transformer import Transformer

_WIDTHS = (16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)  # of sources and answers in slots; then by the 1024
_SLOTS_KEPT = 8  # recorded batches that wait for more of their kind


@runtime_checkable
class Engine(Protocol):
    """Answers in any order, each as soon as it is known."""

    def answers(
        self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[tuple[Request, Frontier]]:
        """Each request with the hypotheses of its sentence, on the CPU."""


class TextbookEngine:
    def __init__(self, network: Transformer, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def answers(
        self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[tuple[Request, Frontier]]:
        textbook, device = Textbook(self._network), self._network.output.weight.device
        for group in by_length(requests, self._batch_tokens // strategy.width):
            with torch.no_grad():
                state = textbook.start(*sources_of(group, device))
            last = deque(search(textbook, state, asked_of(group, device), strategy, rules), maxlen=1).pop()
            yield from _one_by_one(group, last)


class CachedEngine:
    """`padding` more columns than a batch needs change nothing: whoever doubts it can ask for them."""

    def __init__(self, network: Transformer, batch_tokens: int, padding: int = 0) -> None:
        self._network, self._batch_tokens, self._padding = network, batch_tokens, padding

    def answers(
        self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[tuple[Request, Frontier]]:
        network, device = self._network, self._network.output.weight.device
        for group in by_length(requests, self._batch_tokens // strategy.width):
            ids, mask = sources_of(group, device, len(group[0].source) + 1 + self._padding)
            all_alike = len(group[-1].source) + 1 == ids.size(1)
            with torch.no_grad():
                state = network.start(network.encode(ids, None if all_alike else mask))
            last = deque(search(network, state, asked_of(group, device), strategy, rules), maxlen=1).pop()
            yield from _one_by_one(group, last)


class FastEngine:
    """Batches of slots are kept for the next requests: recording and compiling them takes longer than many answers."""

    def __init__(self, network: Transformer, batch_tokens: int, compiled: bool = False) -> None:
        self._network, self._batch_tokens, self._compiled = network, batch_tokens, compiled
        self._kept: dict[Hashable, Slots] = {}

    def answers(
        self, requests: Sequence[Request], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[tuple[Request, Frontier]]:
        for source_width, group in _by_width(requests):
            capacity = _rounded(max(request.limit for request in group) + 2)
            prefix_width = max(len(request.prefix) for request in group)
            most = max(1, self._batch_tokens // (source_width * strategy.width))
            count = min(most, 1 << (len(group) - 1).bit_length())
            slots = self._slots(strategy, tuple(rules), SlotSizes(count, source_width, capacity, prefix_width))
            yield from slots.answers(group)

    def _slots(self, strategy: Strategy, rules: tuple[Rule, ...], sizes: SlotSizes) -> Slots:
        key = (strategy, rules, sizes)
        slots = self._kept.pop(key, None) or Slots(self._network, strategy, rules, sizes, self._compiled)
        self._kept[key] = slots  # behind all others: the first is the one that was not asked for longest
        if len(self._kept) > _SLOTS_KEPT:
            del self._kept[next(iter(self._kept))]
        return slots


def _one_by_one(group: Sequence[Request], last: Frontier) -> Iterator[tuple[Request, Frontier]]:
    hypotheses = last.hypotheses.cpu()
    for number, request in enumerate(group):
        yield request, hypotheses.keep(torch.tensor([number]))


def _by_width(requests: Sequence[Request]) -> Iterator[tuple[int, list[Request]]]:
    """Of like source length, the longest first."""
    groups: dict[int, list[Request]] = {}
    for request in sorted(requests, key=lambda each: (-len(each.source), -each.limit)):
        groups.setdefault(_rounded(len(request.source) + 1), []).append(request)
    yield from groups.items()


def _rounded(width: int) -> int:
    return next((each for each in _WIDTHS if each >= width), -(-width // _WIDTHS[-1]) * _WIDTHS[-1])
