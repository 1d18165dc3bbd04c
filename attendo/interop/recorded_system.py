"""Outputs of a system on the sources of a certificate, and a system whose weights are no longer in memory.

An import is compared with its original. With both in memory, the comparison would need twice the weights in float32.
So attendo's network runs first. What its output layer reads is kept, and its other weights are dropped.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attendo.interop.certificate import ComparedSystem, SystemOutput
from attendo.interop.compared_systems import TorchSystem
from attendo.model.transformer import Transformer

BEAMS = (1, 4)
IdPair = tuple[Sequence[int], Sequence[int]]  # source and target
_BATCH_SENTENCES = 32  # sentences of similar length in one call, with one limit
_MAX_OUTPUT_LENGTH = 256


@dataclass(frozen=True)
class TimedOutputs:
    """Outputs in the order of the sources, and the seconds they took."""

    outputs: list[SystemOutput]
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens with eos."""
        return sum(len(each.ids) + 1 for each in self.outputs) / self.seconds


@dataclass(frozen=True)
class RecordedSystem:
    """What attendo's network answered. The output layer is the only one that is still in memory."""

    name: str
    found: Mapping[int, TimedOutputs]  # by beam size
    output: nn.Module
    states: Mapping[tuple[tuple[int, ...], tuple[int, ...]], Tensor]  # what the output layer reads, by pair

    @torch.no_grad()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor:
        logits: Tensor = self.output(self.states[tuple(source), tuple(target)])
        return logits


def record_system(
    network: Transformer,
    preset_name: str,
    sources: Sequence[Sequence[int]],
    pairs: Sequence[IdPair],
    target_prefix: Sequence[int] = (),
) -> RecordedSystem:
    """Generate for all sources, read all pairs, and drop the weights of the network except the output layer's."""
    system = TorchSystem(network, preset_name, target_prefix)
    found = {beam: generate_all(system, sources, beam) for beam in BEAMS}
    targets = [each.ids for each in found[1].outputs]
    states, latest = {}, list[Tensor]()
    hook = network.output.register_forward_pre_hook(lambda _, given: latest.append(given[0]))
    try:
        for source, target in (*zip(sources, targets, strict=True), *pairs):
            latest.clear()
            system.logits(source, target)
            states[tuple(source), tuple(target)] = latest[-1][0, len(target_prefix) :].clone()
    finally:
        hook.remove()
    _drop_weights(network)
    return RecordedSystem(system.name, found, network.output, states)


def generate_all(system: ComparedSystem, sources: Sequence[Sequence[int]], beam: int) -> TimedOutputs:
    """Generate in batches of sources of similar length."""
    system.generate([min(sources, key=len)], beam, 2)  # warm-up
    answers: dict[int, SystemOutput] = {}
    begin = time.perf_counter()
    for group, limit in _group_sources(sources):
        outputs = system.generate([sources[number] for number in group], beam, limit)
        answers |= dict(zip(group, outputs, strict=True))
    seconds = time.perf_counter() - begin
    return TimedOutputs([answers[number] for number in range(len(sources))], seconds)


def _group_sources(sources: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], int]]:
    """Yield indices of sources of similar length, with the limit of their outputs in tokens."""
    order = sorted(range(len(sources)), key=lambda number: len(sources[number]))
    for begin in range(0, len(order), _BATCH_SENTENCES):
        group = order[begin : begin + _BATCH_SENTENCES]
        yield group, min(_MAX_OUTPUT_LENGTH, 10 + 3 * len(sources[group[-1]]) // 2)


def _drop_weights(network: Transformer) -> None:
    """Replace all weights, except those of the output layer, by one zero. Their shapes stay, so they can be loaded."""
    kept = {id(weight) for weight in network.output.parameters()}
    for weight in network.parameters():
        if id(weight) not in kept:
            weight.data = weight.new_zeros(()).expand(weight.shape)
