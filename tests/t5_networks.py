"""Networks of the T5 family with random weights, and the same weights by other names in transformers."""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn

from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.transformer import Transformer

T5Kind = Literal["t5", "t5_1_1", "umt5"]
KINDS: tuple[T5Kind, ...] = ("t5", "t5_1_1", "umt5")
_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "d_model": 32,
    "d_key": 8,
    "d_value": 8,
    "d_ff": 48,
    "num_heads": 6,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
}
_COMMON: dict[str, Any] = {
    "norm_kind": "rms",
    "norm_epsilon": 1e-6,
    "positions": "relative",
    "scale_embedding": False,
    "linear_bias": False,
    "attention_scale": 1.0,
    "final_dropout": True,
    "dropout": 0.0,
}
_OF_KIND: dict[T5Kind, dict[str, Any]] = {
    "t5": {"activation": "relu", "tie": "all", "output_scale": 32**-0.5},
    "t5_1_1": {"activation": "geglu_tanh", "tie": "inputs"},
    "umt5": {"activation": "geglu_tanh", "tie": "inputs", "relative_bias": "per_layer"},
}


def t5_config(kind: T5Kind, **changes: Any) -> ModelConfig:
    return ModelConfig(**{**_SIZES, **_COMMON, **_OF_KIND[kind], **changes})


@torch.no_grad()
def t5_network(kind: T5Kind, seed: int = 0, **changes: Any) -> Transformer:
    """A network whose biases differ visibly between buckets, layers and heads."""
    generator = torch.Generator().manual_seed(seed)
    network = make_network(t5_config(kind, **changes), generator).eval()
    for name, parameter in network.named_parameters():
        if name.endswith("positions.table"):
            parameter.normal_(std=1.5, generator=generator)
        elif parameter.dim() == 1:
            parameter.uniform_(0.5, 1.5, generator=generator)
    return network


def transformers_twin(network: Transformer, kind: T5Kind) -> nn.Module:
    """The network of transformers with the same weights."""
    import transformers

    family = "UMT5" if kind == "umt5" else "T5"
    config = network.config
    settings = getattr(transformers, f"{family}Config")(
        vocab_size=config.target_vocab_size,
        d_model=config.d_model,
        d_kv=config.d_key,
        d_ff=config.d_ff,
        num_layers=config.num_encoder_layers,
        num_decoder_layers=config.num_decoder_layers,
        num_heads=config.num_heads,
        relative_attention_num_buckets=config.relative_buckets,
        relative_attention_max_distance=config.relative_max_distance,
        layer_norm_epsilon=config.norm_epsilon,
        dropout_rate=0.0,
        feed_forward_proj="relu" if kind == "t5" else "gated-gelu",
        decoder_start_token_id=0,
    )
    twin: nn.Module = getattr(transformers, f"{family}ForConditionalGeneration")(settings).eval()
    if kind != "t5":  # transformers ties the output to the table, whatever the settings are
        twin.lm_head.weight = nn.Parameter(torch.empty_like(twin.lm_head.weight))
        twin.config.tie_word_embeddings = twin.config.scale_decoder_outputs = False
    weights = dict(_their_weights(network))
    left = {name for name in twin.state_dict() if name not in weights}
    assert left <= {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"}
    twin.load_state_dict(weights, strict=False)
    return twin


def _their_weights(network: Transformer) -> Iterator[tuple[str, Tensor]]:
    yield "shared.weight", network.target.tokens.weight
    if not network.config.ties_output:
        yield "lm_head.weight", network.output.weight
    for stack, blocks, norm, embedding in (
        ("encoder", network.encoder, network.encoder_norm, network.source),
        ("decoder", network.decoder, network.decoder_norm, network.target),
    ):
        yield f"{stack}.final_layer_norm.weight", norm.weight  # type: ignore[misc]
        for n, table in enumerate(embedding.positions.table):  # type: ignore[union-attr,arg-type]
            yield f"{stack}.block.{n}.layer.0.SelfAttention.relative_attention_bias.weight", table
        for n, block in enumerate(blocks):
            attentions = [("SelfAttention", block.self_attention, block.self_residual)]
            if stack == "decoder":
                attentions.append(("EncDecAttention", block.cross_attention, block.cross_residual))
            for number, (name, attention, residual) in enumerate(attentions):
                site = f"{stack}.block.{n}.layer.{number}"
                parts = attention.project.weight.chunk(3)
                for letter, weight in zip("qkvo", (*parts, attention.output.weight), strict=True):
                    yield f"{site}.{name}.{letter}.weight", weight
                yield f"{site}.layer_norm.weight", residual.normalise.weight
            site = f"{stack}.block.{n}.layer.{len(attentions)}"
            expand = block.feed_forward.expand.weight
            names = ("wi",) if network.config.activation == "relu" else ("wi_0", "wi_1")
            for name, weight in zip(names, expand.chunk(len(names)), strict=True):
                yield f"{site}.DenseReluDense.{name}.weight", weight
            yield f"{site}.DenseReluDense.wo.weight", block.feed_forward.contract.weight
            yield f"{site}.layer_norm.weight", block.feed_forward_residual.normalise.weight
