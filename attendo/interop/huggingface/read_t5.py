"""Reader of T5, mT5 and umT5 folders of transformers: T5 1.0 and 1.1, FLAN-T5, MADLAD-400, ByT5, CodeT5, UL2."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from attendo.errors import MessagePart, ModelError, UsageError, list_names, shorten
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import exclude_prefix_from_limit, import_generation
from attendo.interop.huggingface.imported import ImportedModel, import_network, read_token_id
from attendo.interop.huggingface.read_t5_tokenizers import read_t5_vocabulary
from attendo.interop.huggingface.read_weights import DECODER, ENCODER, OUTPUT, SHARED, WeightReader, require_rows
from attendo.interop.huggingface.t5_settings import (
    ACTIVATIONS,
    is_scale_ambiguous,
    list_task_prefixes,
    read_t5_settings,
    scales_t5_output,
)
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, build_permutation
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import allocate_network
from attendo.nn.feedforward import GATED

# Names of T5's modules by attendo's, in layer `{n}` of a block. The feed-forward network is the last layer.
_EXPAND: tuple[str, ...] = ("layer.{n}.DenseReluDense.wi",)
_GATED_EXPAND = ("layer.{n}.DenseReluDense.wi_0", "layer.{n}.DenseReluDense.wi_1")  # the gate comes first
_BLOCK_MODULES: dict[str, tuple[str, ...]] = {
    "self_attention.project": ("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v"),
    "self_attention.output": ("layer.0.SelfAttention.o",),
    "self_residual.normalise": ("layer.0.layer_norm",),
    "cross_attention.project": ("layer.1.EncDecAttention.q", "layer.1.EncDecAttention.k", "layer.1.EncDecAttention.v"),
    "cross_attention.output": ("layer.1.EncDecAttention.o",),
    "cross_residual.normalise": ("layer.1.layer_norm",),
    "feed_forward.contract": ("layer.{n}.DenseReluDense.wo",),
    "feed_forward_residual.normalise": ("layer.{n}.layer_norm",),
}
_NORMS = {
    "encoder_norm.weight": "encoder.final_layer_norm.weight",
    "decoder_norm.weight": "decoder.final_layer_norm.weight",
}
_BIASES = "{stack}.block.{layer}.layer.0.SelfAttention.relative_attention_bias.weight"
_STACKS = {"source": "encoder", "target": "decoder"}
_UNK_IDS = (2, 0)  # without tokenizer files: of T5 and of MADLAD
# Of files of 2020. transformers does not read it, because only self-attention has relative positions.
_DEAD_BIAS = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"


def from_t5(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> ImportedModel:
    """Read a model. Without tokenizers the folder needs only config.json and weights."""
    settings = read_t5_settings(folder)
    size = settings["vocab_size"]
    require_rows(folder, size)
    vocabulary = read_t5_vocabulary(folder, size) if with_tokenizers else None
    pad, eos = read_token_id(folder, "pad_token_id", 0), read_token_id(folder, "eos_token_id", 1)
    start = read_token_id(folder, "decoder_start_token_id", pad)
    default_unk = next((each for each in _UNK_IDS if each not in (pad, eos)), None)
    unk = default_unk if vocabulary is None else vocabulary.unk
    # attendo exports a model whose bos is no copy of another token with a ban on its start token.
    suppressed = start != pad and start in folder.generation_setting("suppress_tokens").tokens()
    first = () if vocabulary is None else vocabulary.symbol_ids
    order = build_permutation(size, pad, unk, start, eos, first, moves_start=suppressed)
    network = _build_network(folder, settings, order)
    if vocabulary is None:
        return import_network(folder, network, order, order)
    tokenizer = vocabulary.build(order)
    generation, notes = import_generation(folder, order, tokenizer.symbols)
    generation = exclude_prefix_from_limit(generation)
    if vocabulary.source_prefix:
        generation["source_prefix"] = list(vocabulary.source_prefix)
    notes += [*vocabulary.notes, *_list_notes(folder, network.config)]
    return ImportedModel(folder, network, order, order, tokenizer, tokenizer, generation, tuple(notes))


def t5_names(name: str, config: ModelConfig) -> list[str]:
    """Return T5's names for one of attendo's parameters, without tables of tokens. Several names are concatenated."""
    if name in _NORMS:
        return [_NORMS[name]]
    if (table := re.fullmatch(r"(source|target)\.positions\.table", name)) is not None:
        stack = _STACKS[table[1]]
        layers = config.num_encoder_layers if stack == "encoder" else config.num_decoder_layers
        count = layers if config.relative_bias == "per_layer" else 1
        return [_BIASES.format(stack=stack, layer=layer) for layer in range(count)]
    block = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.weight", name)
    assert block is not None, name
    stack, number, part = block.groups()
    expand = _GATED_EXPAND if config.activation in GATED else _EXPAND
    modules = expand if part == "feed_forward.expand" else _BLOCK_MODULES[part]
    last = 1 if stack == "encoder" else 2
    return [f"{stack}.block.{number}.{module.format(n=last)}.weight" for module in modules]


def _build_network(folder: HuggingFaceFolder, settings: Mapping[str, Any], order: VocabularyPermutation) -> Transformer:
    found = WeightReader(folder.weights)
    inputs, output = _find_tables(found, folder)
    _check_sizes(found, settings)
    found.check(folder)
    try:
        config = _config(folder, settings, order, "all" if output is None else "inputs")
    except UsageError as error:
        raise ModelError(
            "imported_model_incompatible", path=folder.path, kind=folder.model_type, reason=error
        ) from None
    network, shape = allocate_network(config), (settings["vocab_size"], settings["d_model"])
    for name, parameter in network.named_parameters():
        match name:
            case "source.tokens.weight" | "target.tokens.weight":
                parameter.data = found.take_table(inputs, shape, order)
            case "output.weight":
                parameter.data = found.take_table(output or inputs, shape, order)
            case "output.bias":
                parameter.data = order.bias_to_ours(torch.zeros(shape[0]))
            case _:
                parameter.data = _take_parameter(found, name, parameter.shape, config)
    found.ignore((_DEAD_BIAS,))
    found.check(folder, complete=True)
    return network.eval()


def _find_tables(weights: WeightReader, folder: HuggingFaceFolder) -> tuple[str, str | None]:
    """Return the names of the input table and of the output table, which is None if both are the same.

    The weights decide, because transformers 5 writes `tie_word_embeddings: true` into all folders.
    """
    names = [name for name in (SHARED, ENCODER, DECODER) if name in folder.weights] or [SHARED]
    for other in names[1:]:
        weights.require_equal(names[0], other, MessagePart("t5_tables_differ", first=names[0], other=other))
    if OUTPUT not in folder.weights or weights.equal(names[0], OUTPUT):
        weights.ignore((OUTPUT,))
        return names[0], None
    return names[0], OUTPUT


def _check_sizes(weights: WeightReader, settings: Mapping[str, Any]) -> None:
    """Check sizes before the network is built: a wrong size could exceed the memory."""
    for stack, last, count in (("encoder", 1, settings["num_layers"]), ("decoder", 2, settings["num_decoder_layers"])):
        block = f"{stack}.block.{count - 1}.layer"
        weights.fits(f"{block}.{last}.DenseReluDense.wo.weight", (settings["d_model"], settings["d_ff"]))
        heads = settings["num_heads"] * settings["d_kv"]
        weights.fits(f"{block}.0.SelfAttention.o.weight", (settings["d_model"], heads))


def _config(
    folder: HuggingFaceFolder, settings: Mapping[str, Any], order: VocabularyPermutation, tie: str
) -> ModelConfig:
    return ModelConfig(
        source_vocab_size=order.size,
        target_vocab_size=order.size,
        d_model=settings["d_model"],
        num_heads=settings["num_heads"],
        d_ff=settings["d_ff"],
        num_encoder_layers=settings["num_layers"],
        num_decoder_layers=settings["num_decoder_layers"],
        d_key=settings["d_kv"],
        d_value=settings["d_kv"],
        dropout=settings["dropout_rate"],
        final_dropout=True,
        norm="pre",
        norm_kind="rms",
        norm_epsilon=settings["layer_norm_epsilon"],
        activation=ACTIVATIONS[settings["feed_forward_proj"]],
        linear_bias=False,
        attention_scale=1.0,
        positions="relative",
        relative_buckets=settings["relative_attention_num_buckets"],
        relative_max_distance=settings["relative_attention_max_distance"],
        relative_bias="per_layer" if folder.model_type == "umt5" else "shared",
        tie=tie,
        scale_embedding=False,
        output_bias=bool(order.copies),
        output_scale=settings["d_model"] ** -0.5 if scales_t5_output(folder) else 1.0,
    )


def _take_parameter(weights: WeightReader, name: str, shape: torch.Size, config: ModelConfig) -> Tensor:
    names = t5_names(name, config)
    if name.endswith("positions.table"):
        return torch.stack([weights.take(each, tuple(shape[1:])) for each in names])
    return weights.take_joined(names, tuple(shape))


def _list_notes(folder: HuggingFaceFolder, config: ModelConfig) -> Iterator[MessagePart]:
    if config.tie == "all" and is_scale_ambiguous(folder):
        yield MessagePart("mt5_scale_ambiguous")
    if prefixes := list_task_prefixes(folder.settings):
        yield MessagePart("t5_task_prefixes", prefixes=list_names(map(shorten, prefixes), 3))
    if folder.model_type in ("mt5", "umt5"):
        yield MessagePart("t5_pretrained_only", kind=folder.model_type)
