"""Names of Marian's parameters for attendo's, without the tables of tokens."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from attendo.model.config import ModelConfig

OUTPUT_BIAS = "decoder_ff_logit_out_b"
OUTPUT_WEIGHT, OLD_OUTPUT_WEIGHT = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"  # [V, D]; very old: [D, V]
SHARED_TABLE, SOURCE_TABLE, TARGET_TABLE = "Wemb", "encoder_Wemb", "decoder_Wemb"
_ATTENTIONS = {"self_attention": "self", "cross_attention": "context"}
_NORMS = {
    "self_residual.normalise": "self_Wo",
    "cross_residual.normalise": "context_Wo",
    "feed_forward_residual.normalise": "ffn_ffn",
}
_RECURRENCE = {"recurrence.candidate.weight": "W", "recurrence.forget.weight": "Wf", "recurrence.forget.bias": "bf"}
_FEED_FORWARD = {"feed_forward.expand": "1", "feed_forward.contract": "2"}
_STACK_NORMS = {
    "source.norm": ("encoder_emb", "_pre"),
    "target.norm": ("decoder_emb", "_pre"),
    "encoder_norm": ("encoder_top", ""),
    "decoder_norm": ("decoder_top", ""),
}


@dataclass(frozen=True)
class MarianParameters:
    """Marian's names for one of attendo's parameters, in the order in which they are concatenated.

    Marian stores matrices as [in, out], attendo as [out, in].
    """

    names: tuple[str, ...]
    is_matrix: bool


def marian_parameters(name: str, config: ModelConfig) -> MarianParameters:
    """Return Marian's names for a parameter of a block or of a norm."""
    module, _, kind = name.rpartition(".")
    if module in _STACK_NORMS:
        prefix, suffix = _STACK_NORMS[module]
        return MarianParameters((_norm_name(prefix, suffix, kind, config),), is_matrix=False)
    block = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)", module)
    assert block is not None, name
    layer, part = f"{block[1]}_l{int(block[2]) + 1}", block[3]
    is_matrix = kind == "weight"
    if part in _NORMS:
        suffix = "_pre" if config.norm == "pre" else ""
        norm = _NORMS[part]
        if config.autoregression == "ssru" and block[1] == "decoder" and part == "self_residual.normalise":
            norm = "rnn" if config.norm == "pre" else "rnn_ffn"
        return MarianParameters((_norm_name(f"{layer}_{norm}", suffix, kind, config),), is_matrix=False)
    if (recurrent := _RECURRENCE.get(f"{part}.{kind}")) is not None:
        return MarianParameters((f"{layer}_rnn_{recurrent}",), is_matrix)
    letter = "W" if is_matrix else "b"
    if part in _FEED_FORWARD:
        return MarianParameters((f"{layer}_ffn_{letter}{_FEED_FORWARD[part]}",), is_matrix)
    attention, _, projection = part.partition(".")
    suffixes = "qkv" if projection == "project" else "o"
    return MarianParameters(tuple(f"{layer}_{_ATTENTIONS[attention]}_{letter}{each}" for each in suffixes), is_matrix)


def block_parameters(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of all of attendo's parameters but the tables, without a network that would need memory."""
    width, inner = config.d_model, config.d_ff
    stacks = {"encoder": (config.num_encoder_layers, 1), "decoder": (config.num_decoder_layers, 2)}
    norms = [f"{stack}_norm" for stack in stacks if config.has_final_norm]
    norms += [f"{side}.norm" for side in ("source", "target") if config.embedding_norm]
    for stack, (depth, attentions) in stacks.items():
        for block in (f"{stack}.{number}" for number in range(depth)):
            for attention, norm in list(zip(_ATTENTIONS, _NORMS, strict=False))[:attentions]:
                if config.autoregression == "ssru" and (stack, attention) == ("decoder", "self_attention"):
                    yield f"{block}.recurrence.candidate.weight", (width, width)
                    yield from _linear(f"{block}.recurrence.forget", width, width)
                    norms.append(f"{block}.{norm}")
                    continue
                yield from _linear(f"{block}.{attention}.project", 3 * width, width)
                yield from _linear(f"{block}.{attention}.output", width, width)
                norms.append(f"{block}.{norm}")
            yield from _linear(f"{block}.feed_forward.expand", inner, width)
            yield from _linear(f"{block}.feed_forward.contract", width, inner)
            norms.append(f"{block}.feed_forward_residual.normalise")
    for norm in norms:
        for kind in ("weight", "bias") if config.norm_kind == "layer" else ("weight",):
            yield f"{norm}.{kind}", (width,)


def _linear(name: str, out: int, width: int) -> list[tuple[str, tuple[int, ...]]]:
    return [(f"{name}.weight", (out, width)), (f"{name}.bias", (out,))]


def _norm_name(prefix: str, suffix: str, kind: str, config: ModelConfig) -> str:
    norm = "ln" if config.norm_kind == "layer" else "rms"
    return f"{prefix}_{norm}_{'scale' if kind == 'weight' else 'bias'}{suffix}"
