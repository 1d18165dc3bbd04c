"""Network configuration, validated on creation."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from attendo.errors import UsageError, shorten
from attendo.settings import Settings, suggest_name

ModelKind = Literal["autoregressive", "masked", "ctc", "graph"]

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]

# Named sizes. All other settings keep their defaults. `base` and `big` have the paper's sizes. `paper` is its base
# model, with post-norm and one table for source, target and logits. The others use pre-norm and tie only the target and
# the logits.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"d_model": 128, "num_heads": 4, "d_ff": 512, "num_encoder_layers": 2, "num_decoder_layers": 2},
    "small": {"d_model": 256, "num_heads": 4, "d_ff": 1024, "num_encoder_layers": 3, "num_decoder_layers": 3},
    "base": {"d_model": 512, "num_heads": 8, "d_ff": 2048, "num_encoder_layers": 6, "num_decoder_layers": 6},
    "big": {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3},
}
PRESETS["paper"] = {**PRESETS["base"], "norm": "post", "tie": "all"}


DEFAULT_UPSAMPLE = {"ctc": 3, "graph": 8}  # decoder positions per source token
# A network that predicts all tokens at once begins with equal vectors at all positions. So positions must be added to
# them. The canvas of ctc and graph is several times as long as the source, which learned positions would limit.
_POSITIONS_OF_KINDS = {
    "masked": ("sinusoidal", "learned"),
    "ctc": ("sinusoidal",),
    "graph": ("sinusoidal",),
}


class ModelConfig(Settings):
    """The configuration of a network. The defaults are the paper's base model, but with pre-norm and a separate source
    table.
    """

    vocab_size: Count | None = Field(None, description="vocabulary size of source and target; sets the next two")
    source_vocab_size: Count | None = Field(None, description="vocabulary size of the encoder")
    target_vocab_size: Count | None = Field(None, description="vocabulary size of the decoder")

    d_model: Count = Field(512, description="width of embeddings and layers")
    num_heads: Count = Field(8, description="attention heads per sub-layer")
    num_kv_heads: Count | None = Field(
        None, description="heads of keys and values, shared by groups of heads of queries (GQA); default: num_heads"
    )
    qk_norm: bool = Field(False, description="RMSNorm of the queries and keys of each head")
    merged_attention: bool = Field(
        False, description="the decoder reads source and target with one softmax in self-attention; no cross-attention"
    )
    sliding_window: Count | None = Field(
        None, description="tokens that layers with a sliding window see; the encoder's are on both sides; default: all"
    )
    sliding_window_pattern: Count = Field(
        6, description="of this many layers, the last has full attention and the others have a sliding window"
    )
    d_ff: Count = Field(2048, description="inner width of the feed-forward network")
    num_encoder_layers: Annotated[int, Field(ge=0)] = Field(
        6,
        description="encoder layers; 0 makes a decoder-only network: a language model, or with prefix_lm a translator",
    )
    num_decoder_layers: Count = Field(6, description="decoder layers")
    d_key: Count | None = Field(None, description="width of a head's queries and keys; default: d_model / num_heads")
    d_value: Count | None = Field(None, description="width of a head's values; default: d_model / num_heads")

    autoregression: Literal["attention", "ssru"] = Field(
        "attention",
        description="how the decoder reads its own tokens: self-attention, or a recurrence as in Firefox's models",
    )
    prefix_lm: bool = Field(
        False,
        description="decoder-only network for pairs, which reads source and target as one row; no encoder layers",
    )
    kind: ModelKind = Field(
        "autoregressive",
        description="autoregressive: one token after the other; masked, ctc and graph predict all tokens at once",
    )
    upsample: Count | None = Field(
        None, description="decoder positions per source token; ctc: 3, graph: 8; masked has a length head instead"
    )
    canvas: Literal["mask", "copy"] = Field(
        "mask", description="decoder input of ctc and graph: a trained vector, or that plus the encoder's states"
    )

    dropout: Share = Field(0.1, description="dropout after the embedding and on each sub-layer's output")
    attention_dropout: Share | None = Field(None, description="dropout on attention weights; default: dropout")
    activation_dropout: Share | None = Field(
        None, description="dropout inside the feed-forward network; default: dropout"
    )

    norm: Literal["pre", "post", "sandwich"] = Field(
        "pre", description="normalise before a sub-layer, after the residual sum, or before and after a sub-layer"
    )
    norm_kind: Literal["layer", "rms"] = Field(
        "layer", description="LayerNorm, or RMSNorm, which has no mean and no bias"
    )
    norm_epsilon: Annotated[float, Field(gt=0)] = Field(
        1e-5, description="added to the variance before the square root"
    )
    final_norm: bool | None = Field(None, description="normalise after each stack; default: only with pre-norm")
    final_dropout: bool = Field(False, description="dropout on each stack's output too")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu", "swiglu", "geglu", "geglu_tanh", "reglu"] = Field(
        "relu",
        description="activation of the feed-forward network; swiglu, geglu, geglu_tanh and reglu add a gate matrix",
    )
    linear_bias: bool = Field(True, description="biases in the projections of attention and in feed-forward networks")
    attention_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="factor of the attention scores; default: 1 / the square root of d_key"
    )

    positions: Literal["sinusoidal", "learned", "rotary", "relative", "none"] = Field(
        "sinusoidal",
        description="position encoding; rotary rotates queries and keys, relative adds a bias per distance to scores",
    )
    position_layout: Literal["interleaved", "halves", "fairseq"] = Field(
        "interleaved", description="order of sines and cosines; fairseq: halves with other frequencies"
    )
    rope_theta: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(
        10_000.0, description="base of the frequencies of rotary positions"
    )
    rope_local_theta: Annotated[float, Field(gt=1, allow_inf_nan=False)] | None = Field(
        None, description="base of the frequencies in layers with a sliding window; default: rope_theta"
    )
    rope_scaling: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1.0, description="divisor of rotary positions, for longer texts; not in layers with a sliding window"
    )
    # float32 holds every integer up to 2^24, so neighbouring positions stay different.
    position_offset: Annotated[int, Field(ge=0, le=2**24)] = Field(0, description="number of the first position")
    max_length: Count = Field(1024, description="maximum sequence length of learned positions")
    # Half of the buckets belong to each direction. Half of those hold one distance each.
    relative_buckets: Annotated[int, Field(ge=4)] = Field(
        32, description="groups of distances, each with one bias, of relative positions"
    )
    relative_max_distance: Annotated[int, Field(ge=2, le=2**16)] = Field(
        128, description="distances from this one on share a bias of relative positions"
    )
    relative_bias: Literal["shared", "per_layer"] = Field(
        "shared", description="biases of relative positions: one set per stack, or one per layer"
    )

    tie: Literal["none", "output", "inputs", "all"] = Field(
        "output",
        description="output: logits use the target embedding; inputs: source and target share one table; "
        "all: source, target and logits share it",
    )
    scale_embedding: bool = Field(True, description="multiply embeddings by the square root of d_model")
    embedding_norm: bool = Field(False, description="normalise the sum of embedding and position")
    output_bias: bool = Field(False, description="add a bias to the logits; without linear_bias it is not trained")
    output_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        1.0, description="factor of the vectors that the output layer reads"
    )
    logit_softcap: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="bound c of the logits, which become c tanh(logits / c)"
    )

    @classmethod
    def preset(cls, name: str, /, **changes: Any) -> Self:
        """Return a named size with other settings changed: `ModelConfig.preset("base", vocab_size=8000)`."""
        if name not in PRESETS:
            raise UsageError(
                "unknown_preset", preset=name, suggestion=suggest_name(name, list(PRESETS)), presets=", ".join(PRESETS)
            )
        no_encoder = {"num_encoder_layers": 0} if changes.get("prefix_lm") else {}
        return cls(**{**PRESETS[name], **no_encoder, **changes})

    @property
    def decoder_only(self) -> bool:
        """Whether the network has no encoder and no cross-attention."""
        return self.num_encoder_layers == 0

    @property
    def continues_text(self) -> bool:
        """Whether the network is a language model: decoder-only, without a source."""
        return self.decoder_only and not self.prefix_lm

    @property
    def joins_source(self) -> bool:
        """Whether the decoder's self-attention also reads the source."""
        return self.prefix_lm or self.merged_attention

    @property
    def has_cross(self) -> bool:
        """Whether the decoder has cross-attention."""
        return not (self.decoder_only or self.merged_attention)

    @property
    def shares_kv_heads(self) -> bool:
        """Whether several heads of queries share a head of keys and values."""
        return self.num_kv_heads not in (None, self.num_heads)

    @property
    def gemma_settings(self) -> dict[str, object]:
        """The settings of Gemma's networks that differ from the default. Few formats can hold them."""
        found = {name: getattr(self, name) for name in _GEMMA_SETTINGS}
        found["num_kv_heads"] = self.num_kv_heads if self.shares_kv_heads else None
        return {name: value for name, value in found.items() if value != type(self).model_fields[name].default}

    @property
    def suits_fp16(self) -> bool:
        """Whether fp16 holds all numbers of the network. Vectors of T5 and Gemma models exceed 65,504."""
        return self.positions != "relative" and self.norm != "sandwich"

    def check_fp16(self) -> None:
        """Raise UsageError if fp16 does not suit the network."""
        if not self.suits_fp16:
            is_sandwich = self.norm == "sandwich"
            raise UsageError("fp16_with_sandwich_norm" if is_sandwich else "fp16_with_relative_positions")

    @property
    def ties_inputs(self) -> bool:
        """Whether source and target share one embedding table."""
        return self.tie in ("inputs", "all")

    @property
    def ties_output(self) -> bool:
        """Whether the logits use the target's embedding table."""
        return self.tie in ("output", "all")

    @property
    def has_final_norm(self) -> bool:
        return self.norm != "post" if self.final_norm is None else self.final_norm

    @model_validator(mode="before")
    @classmethod
    def _fill_vocabularies(cls, values: dict[str, Any]) -> dict[str, Any]:
        if values.get("prefix_lm"):
            values = {"num_encoder_layers": 0, **values}
        both = values.get("vocab_size")
        if both is None:
            return values
        one_sided = values.get("num_encoder_layers") == 0 and not values.get("prefix_lm")
        sides = ("target_vocab_size",) if one_sided else VOCABULARIES
        for side in sides:
            if values.get(side) not in (None, both):
                raise UsageError(
                    "vocabulary_sizes_conflict", size=shorten(both), option=side, value=shorten(values[side])
                )
        return {**values, **dict.fromkeys(sides, both)}

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.vocab_size is not None:  # unset the derived sizes, so that `replace` derives them again
            self.model_fields_set.difference_update(VOCABULARIES)
        if self.target_vocab_size is None or (self.source_vocab_size is None and not self.continues_text):
            raise UsageError("vocabulary_size_missing")
        if self.continues_text and self.source_vocab_size is not None:
            raise UsageError("decoder_only_source_vocabulary")
        self._check_prefix_lm()
        if self.d_model % self.num_heads and (self.d_key is None or self.d_value is None):
            raise UsageError("d_model_not_divisible", d_model=self.d_model, num_heads=self.num_heads)
        self._check_positions()
        self._check_attention()
        if self.kind != "autoregressive" and self.decoder_only:
            raise UsageError("parallel_needs_encoder", kind=self.kind)
        for name in ("upsample", "canvas"):
            if self.kind not in ("ctc", "graph") and getattr(self, name) != type(self).model_fields[name].default:
                raise UsageError("canvas_setting_unused", option=name, kind=self.kind)
        if self.autoregression == "ssru":
            self._check_ssru()
        if self.tie == "inputs" and self.decoder_only:
            raise UsageError("tied_inputs_without_encoder")
        if self.ties_inputs and not self.continues_text and self.source_vocab_size != self.target_vocab_size:
            raise UsageError(
                "tied_vocabulary_not_joint",
                tie=self.tie,
                source_size=self.source_vocab_size,
                target_size=self.target_vocab_size,
            )
        return self

    def _check_attention(self) -> None:
        """Reject settings of attention that conflict or have no effect."""
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise UsageError("kv_heads_not_divisor", num_heads=self.num_heads, num_kv_heads=self.num_kv_heads)
        for name in ("sliding_window_pattern", "rope_local_theta"):
            if self.sliding_window is None and getattr(self, name) != type(self).model_fields[name].default:
                raise UsageError("setting_without_effect", option=name, other="sliding_window")
        no_window = "prefix_lm" if self.prefix_lm else "kind" if self.kind != "autoregressive" else None
        no_merge = "num_encoder_layers" if self.decoder_only else no_window
        for name, other in (("sliding_window", no_window), ("merged_attention", no_merge)):
            if getattr(self, name) and other is not None:
                raise UsageError("attention_setting_conflict", option=name, other=other, value=getattr(self, other))

    def _check_positions(self) -> None:
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise UsageError("sinusoidal_d_model_odd", d_model=self.d_model)
        if self.positions == "rotary" and self.head_width % 2:
            raise UsageError("rotary_head_width_odd", head_width=self.head_width)
        for name, kinds in _POSITION_SETTINGS.items():
            if self.positions not in kinds and getattr(self, name) != type(self).model_fields[name].default:
                raise UsageError("position_setting_unused", option=name, positions=self.positions)
        if self.positions not in _POSITIONS_OF_KINDS.get(self.kind, (self.positions,)):
            known = " or ".join(_POSITIONS_OF_KINDS[self.kind])
            raise UsageError("positions_unsuitable_for_kind", kind=self.kind, positions=self.positions, known=known)
        if self.relative_buckets % 2:
            raise UsageError("relative_buckets_odd", buckets=self.relative_buckets)
        if self.positions == "relative" and self.relative_max_distance <= self.relative_buckets // 2:
            raise UsageError(
                "relative_max_distance_small", distance=self.relative_max_distance, buckets=self.relative_buckets
            )

    def _check_prefix_lm(self) -> None:
        if not self.prefix_lm:
            return
        if not self.decoder_only:
            raise UsageError("prefix_lm_with_encoder", layers=self.num_encoder_layers)
        if self.source_vocab_size != self.target_vocab_size:
            raise UsageError(
                "prefix_lm_vocabulary_not_joint", source_size=self.source_vocab_size, target_size=self.target_vocab_size
            )

    def _check_ssru(self) -> None:
        """Reject settings of the decoder's self-attention, and networks that need it."""
        reasons = {
            "kind": self.kind if self.kind != "autoregressive" else None,
            "num_encoder_layers": 0 if self.decoder_only else None,
            "positions": self.positions if self.positions in ("rotary", "relative") else None,
            "d_key": self.d_key,
            "d_value": self.d_value,
            "num_kv_heads": self.num_kv_heads,
            "qk_norm": self.qk_norm or None,
            "merged_attention": self.merged_attention or None,
            "sliding_window": self.sliding_window,
        }
        for name, value in reasons.items():
            if value is not None:
                raise UsageError("ssru_setting_conflict", option=name, value=value)

    @property
    def head_width(self) -> int:
        return self.d_key or self.d_model // self.num_heads


_POSITION_SETTINGS = {
    "max_length": ("learned",),
    "position_offset": ("sinusoidal", "learned"),
    "position_layout": ("sinusoidal",),
    "rope_theta": ("rotary",),
    "rope_local_theta": ("rotary",),
    "rope_scaling": ("rotary",),
    "relative_buckets": ("relative",),
    "relative_max_distance": ("relative",),
    "relative_bias": ("relative",),
}
_GEMMA_SETTINGS = (
    *("num_kv_heads", "qk_norm", "merged_attention", "sliding_window"),
    *("rope_theta", "rope_scaling", "logit_softcap"),
)
VOCABULARIES = ("source_vocab_size", "target_vocab_size")
