"""Model classes of transformers that can hold an attendo network, and conversion of the weights to their names."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from attendo.errors import MessagePart, ModelError
from attendo.interop.errors import find_gemma_settings, join_reasons, unmet_conditions
from attendo.interop.huggingface.read_bart import UNUSED_POSITIONS
from attendo.interop.huggingface.read_weights import DECODER, ENCODER, OUTPUT, OUTPUT_BIAS, SHARED, bart_names
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, identity_permutation
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.nn.feedforward import GATED
from attendo.text import BOS, EOS, PAD

EPSILON = 1e-5  # of every norm in transformers; these configs have no setting for it
Permutations = tuple[VocabularyPermutation, VocabularyPermutation]  # of source and target
# Weights that read and that write the residual stream. The order of its components is arbitrary.
_TABLES = ("embed_tokens.weight", SHARED, OUTPUT)
_INPUT_WEIGHTS = (*_TABLES, "q_proj.weight", "k_proj.weight", "v_proj.weight")
_OUTPUT_WEIGHTS = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias", "layer_norm.weight", "layer_norm.bias")


@dataclass(frozen=True)
class HFModelClass:
    """A model class of transformers. Pre-norm classes have a final norm after each stack."""

    name: str
    display_name: str  # in error messages
    norm: Literal["pre", "post"]
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"
    layouts: tuple[str, ...] = ("halves", "interleaved")  # supported sinusoid layouts; components can be permuted
    offset: int | None = 0  # of positions; None: pad id + 1
    embedding_norm: bool = False
    bias: bool = True  # on the logits
    one_vocabulary: bool = True

    def incompatibilities(self, config: ModelConfig) -> list[MessagePart]:
        """Return the reasons why the class cannot hold this network; empty if it can."""
        if config.decoder_only:
            return [MessagePart("encoder_missing")]
        source, target, pre = config.source_vocab_size, config.target_vocab_size, self.norm == "pre"
        same_size = source == target or not self.one_vocabulary
        reasons = unmet_conditions(
            {
                _setting("norm", config.norm, self.norm): config.norm == self.norm,
                MessagePart("final_norm_missing" if pre else "final_norm_unsupported"): config.has_final_norm == pre,
                MessagePart(
                    "embedding_norm_missing" if self.embedding_norm else "embedding_norm_unsupported"
                ): config.embedding_norm == self.embedding_norm,
                MessagePart("recurrent_decoder"): config.autoregression == "attention",
                MessagePart("vocabulary_sizes_differ", source=source, target=target): same_size,
                **self._position_checks(config),
                **_block_checks(config),
            }
        )
        return [*reasons, *find_gemma_settings(config)]

    def network_incompatibilities(self, network: Transformer, orders: Permutations) -> list[MessagePart]:
        """Return the incompatibilities of the configuration and of the weights."""
        output_bias = network.output.bias
        free = self.bias or output_bias is None or not bool(orders[1].table_to_theirs(output_bias).any())
        return [*self.incompatibilities(network.config), *([] if free else [MessagePart("output_bias_unsupported")])]

    def build(self, network: Transformer, max_length: int = 1024, orders: Permutations | None = None) -> Any:
        """Return a model in evaluation mode with the same logits, for sequences of at most `max_length` tokens.

        It starts from attendo's bos, ends at eos and suppresses pad and bos, as `TextModel` does. Its ids are
        attendo's, unless `orders` permute them.
        """
        orders = orders or identity_permutations(network.config)
        if reasons := self.network_incompatibilities(network, orders):
            raise ModelError("transformers_network_unsupported", model=self.display_name, reasons=join_reasons(reasons))
        import transformers

        config = network.config
        learned = config.positions == "learned"
        settings = config_settings(config, config.max_length if learned else max_length, orders[1])
        model_class = getattr(transformers, self.name)
        configuration = model_class.config_class(**self._vocabulary_settings(config, orders), **settings)
        with torch.random.fork_rng(devices=[]):  # initial weights are discarded; keep the caller's random state
            model = model_class(configuration)
        return fill_weights(model, network, orders)

    def _vocabulary_settings(self, config: ModelConfig, orders: Permutations) -> dict[str, Any]:
        source, target = (order.their_size for order in orders)
        if self.one_vocabulary:
            return {"vocab_size": target, "tie_word_embeddings": config.tie == "all"}
        shared = {"share_encoder_decoder_embeddings": config.tie == "all", "tie_word_embeddings": config.ties_output}
        return {"vocab_size": source, "decoder_vocab_size": target, **shared}

    def _position_checks(self, config: ModelConfig) -> dict[MessagePart, bool]:
        offset, layout = config.position_offset, config.position_layout
        conditions = {_setting("positions", config.positions, self.positions): config.positions == self.positions}
        if self.offset is None:
            size = config.target_vocab_size or 0
            conditions[MessagePart("position_offset_not_after_token", offset=offset)] = 1 <= offset < size
        else:
            conditions[_setting("position_offset", offset, self.offset)] = offset == self.offset
        if self.positions == config.positions == "sinusoidal":
            conditions[_setting("position_layout", layout, "/".join(self.layouts))] = layout in self.layouts
        return conditions


def _setting(name: str, value: object, expected: object) -> MessagePart:
    return MessagePart("setting_differs", name=name, value=value, expected=expected)


def identity_permutations(config: ModelConfig) -> Permutations:
    """Return permutations that keep attendo's ids. A network without an encoder has no source table."""
    assert config.target_vocab_size is not None
    return identity_permutation(config.source_vocab_size or 0), identity_permutation(config.target_vocab_size)


def _block_checks(config: ModelConfig) -> dict[MessagePart, bool]:
    """Return the requirements of all classes, and whether the network meets each."""
    width, uneven = divmod(config.d_model, config.num_heads)
    heads = MessagePart("d_model_not_multiple_of_heads", d_model=config.d_model, num_heads=config.num_heads)
    return {
        _setting("norm_kind", config.norm_kind, "layer"): config.norm_kind == "layer",
        _setting("norm_epsilon", config.norm_epsilon, EPSILON): config.norm_epsilon == EPSILON,
        MessagePart("gated_activation_unsupported", activation=config.activation): config.activation not in GATED,
        _setting("tie", config.tie, "none/output/all"): config.tie != "inputs",
        _setting("linear_bias", config.linear_bias, True): config.linear_bias,
        _setting("attention_scale", config.attention_scale, None): config.attention_scale is None,
        _setting("output_scale", config.output_scale, 1.0): config.output_scale == 1,
        _setting("d_key", config.d_key, "d_model / num_heads"): config.d_key in (None, width),
        _setting("d_value", config.d_value, "d_model / num_heads"): config.d_value in (None, width),
        heads: not uneven,
    }


_LEARNED: dict[str, Any] = {"positions": "learned", "offset": UNUSED_POSITIONS, "embedding_norm": True}
BART = HFModelClass("BartForConditionalGeneration", "a BART model", norm="post", **_LEARNED)
MBART = HFModelClass("MBartForConditionalGeneration", "an mBART model", norm="pre", **_LEARNED)
M2M100 = HFModelClass(
    "M2M100ForConditionalGeneration", "an M2M100 model", norm="pre", layouts=("fairseq",), offset=None, bias=False
)
MARIAN = HFModelClass("MarianMTModel", "a MarianMTModel", norm="post", one_vocabulary=False)
PEGASUS = HFModelClass("PegasusForConditionalGeneration", "a Pegasus model", norm="pre")
BLENDERBOT = HFModelClass(
    "BlenderbotForConditionalGeneration", "a Blenderbot model", norm="pre", positions="learned", offset=0
)


def config_settings(config: ModelConfig, max_length: int, order: VocabularyPermutation) -> dict[str, Any]:
    """Return the config settings, without vocabulary sizes and ties. `order` is the target permutation."""

    def share(own: float | None) -> float:
        return config.dropout if own is None else own

    return {
        "max_position_embeddings": max_length,
        "d_model": config.d_model,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "encoder_ffn_dim": config.d_ff,
        "decoder_ffn_dim": config.d_ff,
        "activation_function": {"gelu_tanh": "gelu_pytorch_tanh"}.get(config.activation, config.activation),
        "dropout": config.dropout,
        "attention_dropout": share(config.attention_dropout),
        "activation_dropout": share(config.activation_dropout),
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "scale_embedding": config.scale_embedding,
        "forced_eos_token_id": None,
        **control_tokens(order),
    }


def control_tokens(order: VocabularyPermutation) -> dict[str, int]:
    """Return the ids of pad, bos, the decoder start token and eos."""
    pad, start, end = order.to_theirs((PAD, BOS, EOS))
    return {"pad_token_id": pad, "bos_token_id": start, "decoder_start_token_id": start, "eos_token_id": end}


def suppress_tokens(order: VocabularyPermutation) -> list[int]:
    """Return the ids that attendo never generates: pad and bos, if they have rows of their own."""
    return order.to_theirs(each for each in (PAD, BOS) if each not in order.copies)


def fill_weights(model: Any, network: Transformer, orders: Permutations) -> Any:
    """Copy the weights into the model and return it in evaluation mode.

    It starts from attendo's bos, ends at eos, and suppresses pad and bos if it has rows for them.
    """
    from transformers import GenerationConfig

    source, target = orders
    positions = {name: each for name, each in model.state_dict().items() if "embed_positions" in name}  # sinusoids
    weights = {name: each for name, each in _permute_weights(network) if name in model.state_dict()}
    tables: dict[int, Tensor] = {}  # shared tables are converted once; they can be gigabytes
    for name, weight in weights.items():
        if name.endswith(_TABLES):
            if (address := weight.data_ptr()) not in tables:
                tables[address] = (source if "encoder" in name else target).table_to_theirs(weight)
            weights[name] = tables[address]
    if OUTPUT_BIAS in weights:
        weights[OUTPUT_BIAS] = target.table_to_theirs(weights[OUTPUT_BIAS][0])[None]
    model.load_state_dict({**positions, **weights})
    model.generation_config = GenerationConfig(**control_tokens(target), suppress_tokens=suppress_tokens(target))
    return model.eval()


def _permute_weights(network: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield all weights. Components of interleaved sinusoids are permuted to the layout `halves`."""
    config = network.config
    if config.position_layout != "interleaved" or config.positions == "learned":
        yield from _name_weights(network)
        return
    order = torch.cat((torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)))
    order = order.to(network.device)
    for name, weight in _name_weights(network):
        if name.endswith((*_INPUT_WEIGHTS, "fc1.weight")):
            yield name, weight[:, order]
        else:
            yield name, weight[order] if name.endswith(_OUTPUT_WEIGHTS) else weight


def _name_weights(network: Transformer) -> Iterator[tuple[str, Tensor]]:
    """Yield every weight under its transformers name. A shared table has several names."""
    assert network.source is not None  # `incompatibilities` rejects networks without an encoder
    bias = network.output.bias
    tables = {
        SHARED: network.target.tokens.weight,
        ENCODER: network.source.tokens.weight,
        DECODER: network.target.tokens.weight,
    }
    yield from ((f"model.{name}", table) for name, table in tables.items())
    yield OUTPUT, network.output.weight
    yield OUTPUT_BIAS, torch.zeros(1, network.output.out_features) if bias is None else bias[None]
    for name, weight in network.named_parameters():
        if not name.startswith(("source.tokens.", "target.tokens.", "output.")):
            names = bart_names(name)
            yield from ((f"model.{each}", part) for each, part in zip(names, weight.chunk(len(names)), strict=True))
