"""The Transformer: encode a source once, then step through a target.

`forward` is `encode`, `start` and one `step` over the whole target. Generation calls the same `step` column by column.
Training and generation therefore share one code path.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attendo.errors import UsageError
from attendo.model.config import ModelConfig
from attendo.model.decoder_state import CacheState, DecoderState, Memory, StaticCacheState
from attendo.model.initialise import initialise
from attendo.nn.attention import KeysValues, Tap
from attendo.nn.blocks import BlockShape, DecoderBlock, EncoderBlock
from attendo.nn.masks import Mask, SlidingWindow, layer_masks, padding_mask
from attendo.nn.positions import (
    LearnedPositions,
    NoPositions,
    RelativePositions,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    Start,
)

StateT = TypeVar("StateT", bound=CacheState)


class Embedding(nn.Module):
    """Token vectors, scaled by √d_model, with positions added: the first layer's input."""

    def __init__(self, vocab_size: int, config: ModelConfig, norm: nn.Module | None, is_source: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)
        self.positions = _make_positions(config, is_source)
        self.window = _make_window(config, is_source)
        self.norm = norm
        self.scale = math.sqrt(config.d_model) if config.scale_embedding else 1.0
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self, ids: Int[Tensor, "B T"], start: Start, segment: Float[Tensor, " D"] | None = None
    ) -> Float[Tensor, "B T D"]:
        """Embed ids from position `start` on. `segment` is added to all of them."""
        _check_ids(ids, self.tokens.num_embeddings)
        x = self.positions.add(self.tokens(ids) * self.scale, start)
        x = x if segment is None else x + segment
        return self.dropout(x if self.norm is None else self.norm(x))


@dataclass(frozen=True)
class LayerContext:
    """What the self-attention of a layer needs: the mask of its keys, and the rotation of queries and keys."""

    mask: Mask
    rotation: Rotation | None


def layer_contexts(
    embedding: Embedding, x: Float[Tensor, "B T D"], state: CacheState, mask: Mask, layers: int
) -> list[LayerContext]:
    """Return the context of every layer that reads these embedded columns. `mask` is that of `state.read`."""
    positions, window = embedding.positions, embedding.window
    biases, rotation = state.position_biases(positions, x), positions.rotation(x, state.length)
    contexts = [LayerContext(each, rotation) for each in layer_masks(mask, biases, layers)]
    if window is None:
        return contexts
    rotation = positions.rotation(x, state.length, is_local=True)
    limited = layer_masks(state.limit_to_window(mask, window, x), biases, layers)
    sliding = [LayerContext(each, rotation) for each in limited]
    return [sliding[n] if window.slides(n) else contexts[n] for n in range(layers)]


class Transformer(nn.Module):
    """The network of `config`, initialised with `generator` (or torch's default generator)."""

    def __init__(self, config: ModelConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        shape = _block_shape(config)
        norm = shape.make_norm if config.embedding_norm else lambda: None
        final_norm = shape.make_norm if config.has_final_norm else nn.Identity
        with_memory = not config.decoder_only

        self.source: Embedding | None = None
        if config.source_vocab_size is not None and with_memory:
            self.source = Embedding(config.source_vocab_size, config, norm(), is_source=True)
        assert config.target_vocab_size is not None  # ModelConfig guarantees it
        self.target = Embedding(config.target_vocab_size, config, norm())
        self.encoder = nn.ModuleList(EncoderBlock(shape, f"encoder.{n}") for n in range(config.num_encoder_layers))
        self.encoder_norm = final_norm() if with_memory else nn.Identity()
        self.decoder = nn.ModuleList(
            DecoderBlock(shape, f"decoder.{n}", with_memory) for n in range(config.num_decoder_layers)
        )
        self.decoder_norm = final_norm()
        self.final_dropout = nn.Dropout(config.dropout) if config.final_dropout else None
        self.output = nn.Linear(config.d_model, config.target_vocab_size, bias=config.output_bias)
        if not config.linear_bias and self.output.bias is not None:
            self.output.bias.requires_grad_(False)  # T5 has no bias there, so a trained one could not be exported

        if config.ties_inputs and self.source is not None:
            self.source.tokens.weight = self.target.tokens.weight
        if config.ties_output:
            self.output.weight = self.target.tokens.weight
        initialise(self, config, generator)

    def forward(
        self,
        source_ids: Int[Tensor, "B S"] | None,
        target_ids: Int[Tensor, "R T"],
        source_mask: Bool[Tensor, "B S"] | None = None,
        target_mask: Bool[Tensor, "R T"] | None = None,
        tap: Tap | None = None,
    ) -> Float[Tensor, "R T V"]:
        """Return the logits of the token after each target token. A language model requires None as the source.

        Masks are True at tokens and False at padding. Targets padded on the right need no mask. If there are more
        targets than sources, an equal number of adjacent targets shares each source.
        """
        memory = None if source_ids is None else self.encode(source_ids, source_mask, tap)
        logits, _ = self.step(target_ids, self.start(memory), target_mask, tap)
        return logits

    def encode(
        self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None, tap: Tap | None = None
    ) -> Memory:
        """Encode the source. A language model accepts only sources without tokens, and returns empty memory."""
        if self.source is None:
            if source_ids.size(1):
                raise UsageError("decoder_only_source_given")
            return Memory(self.output.weight.new_empty(source_ids.size(0), 0, self.config.d_model), None)
        check_mask(source_mask, source_ids)
        x = self.source(source_ids, 0)
        blocks: Sequence[EncoderBlock] = self.encoder  # type: ignore[assignment]
        contexts = layer_contexts(self.source, x, DecoderState((), None), padding_mask(source_mask), len(blocks))
        for block, context in zip(blocks, contexts, strict=True):
            x = block(x, context.mask, context.rotation, tap)
        x = self.encoder_norm(x)
        return Memory(x if self.final_dropout is None else self.final_dropout(x), source_mask)

    def start(self, memory: Memory | None = None) -> DecoderState:
        """Return the state before the first step."""
        if memory is None:
            if not self.continues_text:
                raise UsageError("encoder_source_missing")
            return DecoderState((), None)
        if self.config.decoder_only:
            if memory.states.size(1):
                raise UsageError("decoder_only_memory_given")
            return DecoderState(tuple(self._allocate_keys_values(memory.states.size(0), 0) for _ in self.decoder), None)
        blocks: Sequence[DecoderBlock] = self.decoder  # type: ignore[assignment]
        kv = [block.memory_keys_values(memory.states) for block in blocks]
        if self.config.merged_attention and not torch.is_grad_enabled():
            kv = [each.map(Tensor.contiguous) for each in kv]  # every step reads them, and views are slow to read
        return DecoderState(tuple(kv), memory.mask)

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> StaticCacheState:
        """Return an empty state of fixed size for `sentences` sentences of `width` rows each."""
        source_width = 0 if self.continues_text else source_width
        memory = tuple(self._allocate_keys_values(sentences, source_width) for _ in self.decoder)
        is_token = torch.ones(sentences, source_width, dtype=torch.bool, device=self.device)
        storage = [self._allocate_keys_values(sentences * width, capacity) for _ in self.decoder]
        state = StaticCacheState.empty(DecoderState(memory, is_token), storage, reorderable=width > 1)
        # The kernel for one query neither joins a source nor shares heads, so others run.
        return replace(state, reads_unused=self.config.joins_source or self.config.shares_kv_heads)

    @property
    def device(self) -> torch.device:
        return self.output.weight.device

    @property
    def decoder_only(self) -> bool:
        """Whether it has no encoder. It may still have a source: see `continues_text`."""
        return self.config.decoder_only

    @property
    def continues_text(self) -> bool:
        """Whether it is a language model, which has no source."""
        return self.config.continues_text

    def step(
        self, ids: Int[Tensor, "B T"], state: StateT, mask: Bool[Tensor, "B T"] | None = None, tap: Tap | None = None
    ) -> tuple[Float[Tensor, "B T V"], StateT]:
        """Read more of the target. Return the logits after each new token, and the new state.

        If there are more rows than memories, an equal number of adjacent rows shares each memory.
        """
        check_mask(mask, ids)
        x = self._embed_target(ids, state.length)
        state, self_mask = state.read(ids, mask)
        x, state = self._decode(x, state, self_mask, tap)
        return self.compute_logits(x), state

    def compute_logits(self, vectors: Float[Tensor, "*B D"]) -> Float[Tensor, "*B V"]:
        """Return the logits of what the output layer reads."""
        logits: Tensor = self.output(vectors)
        cap = self.config.logit_softcap
        return logits if cap is None else cap * (logits / cap).tanh()

    def _embed_target(self, ids: Int[Tensor, "B T"], start: Start) -> Float[Tensor, "B T D"]:
        embedded: Tensor = self.target(ids, start)
        return embedded

    def _decode(
        self, x: Float[Tensor, "B T D"], state: StateT, mask: Mask, tap: Tap | None
    ) -> tuple[Float[Tensor, "B T D"], StateT]:
        memory_mask = padding_mask(state.memory_mask)
        blocks: Sequence[DecoderBlock] = self.decoder  # type: ignore[assignment]
        contexts = layer_contexts(self.target, x, state, mask, len(blocks))
        past: list[Any] = []
        for n, (block, context) in enumerate(zip(blocks, contexts, strict=True)):
            memory = state.memory[n] if state.memory else None
            x, kv = block(x, state.layer_cache(n), context.mask, memory, memory_mask, context.rotation, tap)
            past.append(kv)
        return self._finish(x), state.with_cache(past)

    def _finish(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Return what the output layer reads."""
        x = self.decoder_norm(x)
        if self.final_dropout is not None:
            x = self.final_dropout(x)
        return x if self.config.output_scale == 1 else x * self.config.output_scale

    def _allocate_keys_values(self, rows: int, positions: int) -> KeysValues:
        """Allocate zero-filled keys and values."""
        shape, like = _block_shape(self.config), self.output.weight
        heads = shape.num_kv_heads or shape.num_heads
        keys, values = (
            torch.zeros(rows, heads, positions, width, dtype=like.dtype, device=like.device)
            for width in (shape.d_key, shape.d_value)
        )
        return KeysValues(keys, values)


def _block_shape(config: ModelConfig) -> BlockShape:
    width = config.d_model // config.num_heads
    return BlockShape(
        d_model=config.d_model,
        num_heads=config.num_heads,
        d_ff=config.d_ff,
        activation=config.activation,
        norm=config.norm,
        norm_kind=config.norm_kind,
        norm_epsilon=config.norm_epsilon,
        dropout=config.dropout,
        attention_dropout=config.dropout if config.attention_dropout is None else config.attention_dropout,
        activation_dropout=config.dropout if config.activation_dropout is None else config.activation_dropout,
        d_key=config.d_key or width,
        d_value=config.d_value or width,
        linear_bias=config.linear_bias,
        attention_scale=config.attention_scale,
        recurrent=config.autoregression == "ssru",
        num_kv_heads=config.num_kv_heads,
        qk_norm=config.qk_norm,
        merged=config.merged_attention,
    )


def _make_positions(config: ModelConfig, is_source: bool) -> NoPositions:
    match config.positions:
        case "sinusoidal":
            return SinusoidalPositions(config.position_layout, config.position_offset)
        case "learned":
            return LearnedPositions(config.max_length, config.d_model, config.position_offset)
        case "rotary":
            return RotaryPositions(config.head_width, config.rope_theta, config.rope_local_theta, config.rope_scaling)
        case "relative":
            layers = config.num_encoder_layers if is_source else config.num_decoder_layers
            return RelativePositions(
                config.num_heads,
                layers if config.relative_bias == "per_layer" else 1,
                config.relative_buckets,
                config.relative_max_distance,
                two_sided=is_source or config.prefix_lm,
            )
        case "none":
            return NoPositions()


def _make_window(config: ModelConfig, is_source: bool) -> SlidingWindow | None:
    size = config.sliding_window
    return None if size is None else SlidingWindow(size, config.sliding_window_pattern, two_sided=is_source)


def _check_ids(ids: Int[Tensor, "B T"], vocab_size: int) -> None:
    """Raise UsageError for ids outside the vocabulary.

    Skipped on a GPU, where the check would synchronise, and for fake tensors, which have no values.
    """
    if torch.compiler.is_compiling() or ids.device.type != "cpu" or type(ids) is not Tensor or ids.numel() == 0:
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise UsageError("token_id_outside_vocabulary", token_id=wrong, size=vocab_size, last=vocab_size - 1)


def check_mask(mask: Tensor | None, ids: Int[Tensor, "B T"]) -> None:
    """Raise UsageError for a mask of another shape or dtype. PyTorch would silently broadcast or add it."""
    if mask is not None and (mask.dtype != torch.bool or mask.shape != ids.shape):
        kind = str(mask.dtype).removeprefix("torch.")
        raise UsageError("mask_shape_or_dtype_invalid", expected=list(ids.shape), dtype=kind, found=list(mask.shape))
