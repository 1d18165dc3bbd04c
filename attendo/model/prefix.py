"""A decoder-only network for pairs: a prefix LM over one row of source and target (Raffel et al. 2020, section 3.2.1).

    row        source EOS BOS target
    source     sees the whole source, in both directions
    target     sees the whole source, and the target up to itself

The source does not see the target, so its keys and values are computed once per sentence, like the memory of an
encoder. Every layer then attends to [source ; target so far] with one softmax. Positions restart at the target: they
do not depend on the length of the source, and learned positions need only the longer side. A trained segment vector
distinguishes the sides. Relative positions have a bias within a side, and none between the target and the source, as
the cross-attention of an encoder–decoder has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.decoder_state import DecoderState, Memory
from attendo.model.transformer import Transformer, check_mask
from attendo.nn.attention import KeysValues, Tap
from attendo.nn.blocks import DecoderBlock
from attendo.nn.masks import Mask, layer_masks, padding_mask
from attendo.nn.positions import Start


@dataclass(frozen=True)
class PrefixMemory(Memory):
    """The keys and values of the source in every layer. `states` are the inputs of the last layer."""

    layers: tuple[KeysValues, ...] = ()

    def select(self, sentences: Int[Tensor, " N"]) -> "PrefixMemory":
        kept = super().select(sentences)
        return PrefixMemory(kept.states, kept.mask, tuple(kv.select(sentences) for kv in self.layers))


def name_source_site(config: ModelConfig) -> str:
    """Return the last attention site that reads the source."""
    return f"decoder.{config.num_decoder_layers - 1}.{'self' if config.joins_source else 'cross'}"


def select_source_weights(
    weights: Float[Tensor, "B H T P"], source_width: int, config: ModelConfig
) -> Float[Tensor, "B H T S"]:
    """Return the attention to the source. If one softmax is over source and target, it is made to sum to 1."""
    if not config.joins_source:
        return weights
    source = weights[..., :source_width]
    return source / source.sum(-1, keepdim=True).clamp(min=torch.finfo(source.dtype).tiny)


class PrefixTransformer(Transformer):
    """A prefix LM with the interface of an encoder–decoder. Source and target share one table and all layers."""

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config, generator)
        self.segments = nn.Parameter(torch.empty(2, config.d_model))  # of the source, of the target
        nn.init.normal_(self.segments, std=config.d_model**-0.5, generator=generator)

    def encode(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None, tap: Tap | None = None
    ) -> PrefixMemory:
        """Read the source. A tap gets the attention of the source to itself, [B, H, S, S], at every layer."""
        check_mask(source_mask, source_ids)
        x = self.target(source_ids, 0, self.segments[0])
        mask, positions = padding_mask(source_mask), self.target.positions
        rotation, biases = positions.rotation(x, 0), positions.biases(x, 0, x.size(1))
        *blocks, last = self._blocks()
        masks = layer_masks(mask, biases, len(self.decoder))
        layers: list[KeysValues] = []
        for block, each in zip(blocks, masks, strict=False):
            x, kv = block(x, None, each, None, Mask(), rotation, tap)
            layers.append(kv)
        # The target reads only the keys and values of the last layer. A tap also sees its attention.
        layers.append(last.self_keys_values(x, rotation))
        if tap is not None:
            last(x, None, masks[-1], None, Mask(), rotation, tap)
        return PrefixMemory(x, source_mask, tuple(layers))

    def start(self, memory: Memory | None = None) -> DecoderState:
        if not isinstance(memory, PrefixMemory):
            raise UsageError("encoder_source_missing")
        # Every step reads them. They are views of wider projections, which are slow to read.
        layers = memory.layers if torch.is_grad_enabled() else [kv.map(Tensor.contiguous) for kv in memory.layers]
        return DecoderState(tuple(layers), memory.mask)

    def _blocks(self) -> Sequence[DecoderBlock]:
        return tuple(self.decoder)  # type: ignore[arg-type]

    def _embed_target(self, ids: Int[Tensor, "B T"], start: Start) -> Float[Tensor, "B T D"]:
        embedded: Tensor = self.target(ids, start, self.segments[1])
        return embedded
