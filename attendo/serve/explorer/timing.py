"""How long each sub-layer takes, measured with the network's own parts on what the run gave them."""

import time
from collections.abc import Callable

import torch
from torch import Tensor

from attendo.model.transformer import Transformer
from attendo.nn.attention import KeysValues, MultiHeadAttention
from attendo.nn.blocks import DecoderBlock, EncoderBlock
from attendo.nn.masks import Mask
from attendo.nn.positions import Rotation
from attendo.text_model.networks import evaluating
from attendo.text_model.trace import Trace

REPEATS = 3  # the quickest counts: anything else on the machine only adds


@torch.inference_mode()
def sub_layer_seconds(network: Transformer, trace: Trace) -> dict[str, float]:
    """By the place of each sub-layer; `output` is the product that gives the logits."""
    assert network.source is not None
    found: dict[str, float] = {}

    def given(place: str) -> Tensor:
        """What a sub-layer was given: with pre-norm the normalised vectors."""
        pre_norm = network.config.norm == "pre"
        vectors = trace[f"{place}.norm"] if pre_norm else trace[f"{place}.residual"] - trace[f"{place}.output"]
        return vectors[None].to(network.output.weight)

    def measure(place: str, work: Callable[[], object]) -> None:
        found[place] = min(_seconds(work, network.device) for _ in range(REPEATS))

    with evaluating(network):
        x, y = given("encoder.0.self"), given("decoder.0.self")
        turns = network.source.positions.rotation(x, 0), network.target.positions.rotation(y, 0)
        memory = trace["encoder.output"][None].to(network.output.weight)
        for n, block in enumerate(network.encoder):
            assert isinstance(block, EncoderBlock)
            place = f"encoder.{n}.self"
            measure(place, _look(block.self_attention, given(place), Mask(), turns[0]))
            _feed(measure, f"encoder.{n}.feed_forward", block, given)
        for n, block in enumerate(network.decoder):
            assert isinstance(block, DecoderBlock)
            assert block.cross_attention is not None  # a text model has a source
            place = f"decoder.{n}.self"
            mask = Mask(causal=trace.masked and y.size(1) > 1)
            measure(place, _look(block.self_attention, given(place), mask, turns[1]))
            # The keys and values of the memory are made once a sentence, and counted here.
            measure(f"decoder.{n}.cross", _look_at(block.cross_attention, given(f"decoder.{n}.cross"), memory))
            _feed(measure, f"decoder.{n}.feed_forward", block, given)
        last = trace["decoder.output"][None].to(network.output.weight)
        measure("output", lambda: network.output(last))
    return found


def _look(part: MultiHeadAttention, x: Tensor, mask: Mask, rotation: Rotation | None) -> Callable[[], object]:
    def work() -> object:
        queries, kv = part.queries_keys_values(x, rotation)
        return part(queries, kv, mask)

    return work


def _look_at(part: MultiHeadAttention, x: Tensor, memory: Tensor) -> Callable[[], object]:
    def work() -> object:
        kv: KeysValues = part.keys_values(memory)
        return part(part.queries(x), kv, Mask())

    return work


def _feed(
    measure: Callable[[str, Callable[[], object]], None],
    place: str,
    block: EncoderBlock | DecoderBlock,
    given: Callable[[str], Tensor],
) -> None:
    vectors = given(place)
    measure(place, lambda: block.feed_forward(vectors))


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - begin
