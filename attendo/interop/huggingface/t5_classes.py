"""T5 and umT5 as classes that hold an attendo network with relative positions, and conversion of the weights.

Scales that T5 does not have become part of the weights: queries take the scale of the scores, the input table the scale
of the embedding, the output table the scale of the output.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attendo.errors import MessagePart, ModelError
from attendo.interop.errors import find_gemma_settings, join_reasons, unmet_conditions
from attendo.interop.huggingface.model_classes import (
    HFModelClass,
    Permutations,
    control_tokens,
    identity_permutations,
    suppress_tokens,
)
from attendo.interop.huggingface.read_t5 import t5_names
from attendo.interop.huggingface.read_weights import DECODER, ENCODER, OUTPUT, SHARED
from attendo.interop.huggingface.t5_settings import ACTIVATIONS
from attendo.interop.huggingface.vocabulary import SUPPRESS_BIAS, VocabularyPermutation
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.text import BOS, PAD

_PROJECTIONS = {activation: name for name, activation in reversed(ACTIVATIONS.items())}


@dataclass(frozen=True)
class T5ModelClass(HFModelClass):
    """T5 if all layers share the biases of positions, umT5 if each layer has its own."""

    def incompatibilities(self, config: ModelConfig) -> list[MessagePart]:
        """Return the reasons why the class cannot hold this network; empty if it can."""
        if config.decoder_only:
            return [MessagePart("encoder_missing")]
        key, value = (each or config.d_model // config.num_heads for each in (config.d_key, config.d_value))
        reasons = unmet_conditions(
            {
                _setting("positions", config.positions, "relative"): config.positions == "relative",
                _setting("norm", config.norm, "pre"): config.norm == "pre",
                _setting("norm_kind", config.norm_kind, "rms"): config.norm_kind == "rms",
                MessagePart("final_norm_missing"): config.has_final_norm,
                MessagePart("embedding_norm_unsupported"): not config.embedding_norm,
                _setting("tie", config.tie, "inputs or all"): config.ties_inputs,
                _setting("linear_bias", config.linear_bias, False): not config.linear_bias,
                _setting("activation", config.activation, ", ".join(_PROJECTIONS)): config.activation in _PROJECTIONS,
                _setting("d_value", value, key): key == value,
            }
        )
        return [*reasons, *find_gemma_settings(config)]

    def network_incompatibilities(self, network: Transformer, orders: Permutations) -> list[MessagePart]:
        """Return the incompatibilities of the configuration and of the weights."""
        reasons, bias = self.incompatibilities(network.config), network.output.bias
        used = [number for number in range(orders[1].size) if number not in (BOS, PAD)]
        if bias is not None and bool(bias[used].any()):
            reasons.append(MessagePart("output_bias_unsupported"))
        return reasons

    def build(self, network: Transformer, max_length: int = 1024, orders: Permutations | None = None) -> Any:
        """Return a model in evaluation mode with the same logits. Sequences have no longest length."""
        orders = orders or identity_permutations(network.config)
        if reasons := self.network_incompatibilities(network, orders):
            raise ModelError("transformers_network_unsupported", model=self.display_name, reasons=join_reasons(reasons))
        import transformers
        from transformers import GenerationConfig

        model_class, order = getattr(transformers, self.name), orders[1]
        scaled = _shares_output(network, order)
        with torch.random.fork_rng(devices=[]):  # initial weights are discarded; keep the caller's random state
            model = model_class(model_class.config_class(**_config_settings(network.config, order)))
        if not scaled:
            model.lm_head.weight = nn.Parameter(torch.empty_like(model.lm_head.weight))
        model.load_state_dict(dict(_name_weights(network, order)))
        # transformers 4 reads only the first, transformers 5 the second if it is there, or else the first.
        model.config.tie_word_embeddings = scaled
        if self is not UMT5:
            model.config.scale_decoder_outputs = scaled
        model.generation_config = GenerationConfig(**control_tokens(order), suppress_tokens=suppress_tokens(order))
        return model.eval()


T5 = T5ModelClass("T5ForConditionalGeneration", "a T5 model", norm="pre", bias=False)
UMT5 = T5ModelClass("UMT5ForConditionalGeneration", "a umT5 model", norm="pre", bias=False)


def bos_is_suppressed(network: Transformer) -> bool:
    """Return True if attendo's bos is a copy of the original's start token, as after an import."""
    return network.output.bias is not None and network.output.bias[BOS].item() <= SUPPRESS_BIAS


def _setting(name: str, value: object, expected: object) -> MessagePart:
    return MessagePart("setting_differs", name=name, value=value, expected=expected)


def _config_settings(config: ModelConfig, order: VocabularyPermutation) -> dict[str, Any]:
    return {
        "vocab_size": order.their_size,
        "d_model": config.d_model,
        "d_kv": config.head_width,
        "d_ff": config.d_ff,
        "num_layers": config.num_encoder_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "num_heads": config.num_heads,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": config.relative_max_distance,
        "dropout_rate": config.dropout,
        "layer_norm_epsilon": config.norm_epsilon,
        "feed_forward_proj": _PROJECTIONS[config.activation],
        **control_tokens(order),
    }


def _shares_output(network: Transformer, order: VocabularyPermutation) -> bool:
    """Return True if one table serves inputs and output, with T5's scale of the output."""
    config, table = network.config, network.target.tokens.weight
    if not config.ties_output or not math.isclose(_output_factor(network), config.d_model**-0.5, rel_tol=1e-6):
        return False
    # If bos shares a row with another token, the table is read with bos as an input and with the other as an output.
    return all(bool(torch.equal(table[BOS], table[each])) for each in _row_sharers(order))


def _output_factor(network: Transformer) -> float:
    """Return the scale of the output, relative to that of the input table."""
    return network.config.output_scale / network.target.scale


def _row_sharers(order: VocabularyPermutation) -> list[int]:
    return [number for number, row in enumerate(order.rows) if row == order.rows[BOS] and number != BOS]


def _name_weights(network: Transformer, order: VocabularyPermutation) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight under its transformers name. A shared table has several names."""
    config = network.config
    others = frozenset(_row_sharers(order)) if BOS in order.copies else frozenset[int]()
    # Of two tokens with one row, the input reads bos: padding is masked, and a MADLAD source has no unk of its own.
    inputs = VocabularyPermutation(order.rows, (order.copies - {BOS}) | others) if others == {PAD} else order
    table = inputs.table_to_theirs(network.target.tokens.weight) * network.target.scale
    yield from ((name, table) for name in (SHARED, ENCODER, DECODER))
    shares = _shares_output(network, order)
    yield OUTPUT, table if shares else order.table_to_theirs(network.output.weight) * config.output_scale
    for name, weight in network.named_parameters():
        if name.startswith(("source.tokens.", "target.tokens.", "output.")):
            continue
        names = t5_names(name, config)
        if name.endswith("positions.table"):
            yield from zip(names, weight.unbind(0), strict=True)
            continue
        for each, part in zip(names, weight.chunk(len(names)), strict=True):
            yield each, part * _query_factor(config) if each.endswith("Attention.q.weight") else part


def _query_factor(config: ModelConfig) -> float:
    return config.head_width**-0.5 if config.attention_scale is None else config.attention_scale
