"""Reader of T5Gemma 2 folders of transformers. Images are not read."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from attendo.errors import MessagePart, ModelError, UsageError
from attendo.interop.huggingface.folder import HuggingFaceFolder
from attendo.interop.huggingface.generation import import_generation
from attendo.interop.huggingface.imported import ImportedModel, import_network, read_token_id
from attendo.interop.huggingface.load_pretrained import require_tokenizer_class
from attendo.interop.huggingface.read_t5_tokenizers import read_t5_vocabulary
from attendo.interop.huggingface.read_tokenizers import TOKENIZER_JSON
from attendo.interop.huggingface.read_weights import DECODER, ENCODER, WeightReader, require_rows
from attendo.interop.huggingface.t5gemma2_settings import ACTIVATIONS, FULL, SLIDING, read_t5gemma2_settings
from attendo.interop.huggingface.vocabulary import VocabularyPermutation, build_permutation
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import allocate_network

OUTPUT = "lm_head.out_proj.weight"
# Names of their modules by attendo's, in a layer.
_BLOCK_MODULES: dict[str, tuple[str, ...]] = {
    "self_attention.project": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.o_proj",),
    "self_attention.query_norm": ("self_attn.q_norm",),
    "self_attention.key_norm": ("self_attn.k_norm",),
    "self_residual.normalise": ("pre_self_attn_layernorm",),
    "self_residual.normalise_output": ("post_self_attn_layernorm",),
    "feed_forward.expand": ("mlp.gate_proj", "mlp.up_proj"),
    "feed_forward.contract": ("mlp.down_proj",),
    "feed_forward_residual.normalise": ("pre_feedforward_layernorm",),
    "feed_forward_residual.normalise_output": ("post_feedforward_layernorm",),
}
_IMAGES = ("encoder.vision_tower.", "encoder.multi_modal_projector.")
_TEXT_MODEL = "encoder.text_model."  # part of the names in some files
_UNK = 3


def from_t5gemma2(folder: HuggingFaceFolder, with_tokenizers: bool = True) -> ImportedModel:
    """Read a model. Without tokenizers the folder needs only config.json and weights."""
    settings = read_t5gemma2_settings(folder)
    require_rows(folder, settings["vocab_size"])
    if any(folder.weights.dtype(name) != torch.float32 for name in folder.weights):
        raise ModelError("t5gemma2_gains_need_float32", path=folder.path)
    pad, eos = read_token_id(folder, "pad_token_id", 0), read_token_id(folder, "eos_token_id", 1)
    start = read_token_id(folder, "decoder_start_token_id", read_token_id(folder, "bos_token_id", 2))
    vocabulary = None
    if with_tokenizers:
        require_tokenizer_class(folder.path, folder.model_type)
        folder.require_file(TOKENIZER_JSON)  # it says what begins a source
        vocabulary = read_t5_vocabulary(folder, settings["vocab_size"])
    unk, first = (_UNK, ()) if vocabulary is None else (vocabulary.unk, vocabulary.symbol_ids)
    order = build_permutation(settings["vocab_size"], pad, unk, start, eos, first, moves_start=True)
    network = _build_network(folder, settings, order)
    if vocabulary is None:
        return import_network(folder, network, order, order)
    tokenizer = vocabulary.build(order)
    generation, notes = import_generation(folder, order, tokenizer.symbols)
    if vocabulary.source_prefix:
        generation["source_prefix"] = list(vocabulary.source_prefix)
    notes += [*vocabulary.notes, *map(MessagePart, ("line_breaks_are_spaces", "t5gemma2_reads_no_images"))]
    return ImportedModel(folder, network, order, order, tokenizer, tokenizer, generation, tuple(notes))


def t5gemma2_names(name: str) -> list[str]:
    """Return their names for one of attendo's parameters, without tables of tokens. Several names are concatenated."""
    if name in ("encoder_norm.weight", "decoder_norm.weight"):
        return [name.replace("_", ".")]
    block = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.weight", name)
    assert block is not None, name
    stack, number, part = block.groups()
    return [f"{stack}.layers.{number}.{module}.weight" for module in _BLOCK_MODULES[part]]


def _build_network(folder: HuggingFaceFolder, settings: Mapping[str, Any], order: VocabularyPermutation) -> Transformer:
    stored = folder.weights.rename(_TEXT_MODEL, "encoder.")
    weights = WeightReader(stored)
    inputs, output = _find_tables(weights)
    _check_sizes(weights, settings, inputs)
    weights.check(folder)
    try:
        config = _config(settings, order, "all" if output is None else "inputs")
    except UsageError as error:
        raise ModelError(
            "imported_model_incompatible", path=folder.path, kind=folder.model_type, reason=error
        ) from None
    network, shape = allocate_network(config), (settings["vocab_size"], settings["hidden_size"])
    for name, parameter in network.named_parameters():
        match name:
            case "source.tokens.weight" | "target.tokens.weight":
                parameter.data = weights.take_table(inputs, shape, order)
            case "output.weight":
                parameter.data = weights.take_table(output or inputs, shape, order)
            case _:
                parameter.data = _take_parameter(weights, name, tuple(parameter.shape), settings)
    weights.ignore(tuple(name for name in stored if name.startswith(_IMAGES) or "eoi_embedding" in name))
    weights.check(folder, complete=True)
    return network.eval()


def _find_tables(weights: WeightReader) -> tuple[str, str | None]:
    """Return the names of the input table and of the output table, which is None if both are the same."""
    names = [name for name in (ENCODER, DECODER) if name in weights] or [ENCODER]
    for other in names[1:]:
        weights.require_equal(names[0], other, MessagePart("t5_tables_differ", first=names[0], other=other))
    if OUTPUT not in weights or weights.equal(names[0], OUTPUT):
        weights.ignore((OUTPUT,))
        return names[0], None
    return names[0], OUTPUT


def _check_sizes(weights: WeightReader, settings: Mapping[str, Any], table: str) -> None:
    """Check sizes before the network is built: a wrong size could exceed the memory."""
    width, heads = settings["hidden_size"], settings["num_attention_heads"] * settings["head_dim"]
    weights.fits(table, (settings["vocab_size"], width))
    for stack, count in (("encoder", settings["num_encoder_layers"]), ("decoder", settings["num_hidden_layers"])):
        last = f"{stack}.layers.{count - 1}"
        weights.fits(f"{last}.mlp.down_proj.weight", (width, settings["intermediate_size"]))
        weights.fits(f"{last}.self_attn.o_proj.weight", (width, heads))


def _take_parameter(weights: WeightReader, name: str, shape: tuple[int, ...], settings: Mapping[str, Any]) -> Tensor:
    names, dim = t5gemma2_names(name), settings["head_dim"]
    if name.endswith("self_attention.project.weight"):
        heads, shared = settings["num_attention_heads"] * dim, settings["num_key_value_heads"] * dim
        return weights.take_parts(dict(zip(names, (heads, shared, shared), strict=True)), shape)
    found = weights.take_joined(names, shape)
    return 1 + found if len(shape) == 1 else found  # they store a gain minus 1


def _config(settings: Mapping[str, Any], order: VocabularyPermutation, tie: str) -> ModelConfig:
    rope, window = settings["rope"], settings["sliding_window"]
    sliding = {} if window is None else {"sliding_window_pattern": settings["pattern"]}
    if window is not None and rope[SLIDING]["rope_theta"] != rope[FULL]["rope_theta"]:
        sliding["rope_local_theta"] = rope[SLIDING]["rope_theta"]
    return ModelConfig(
        source_vocab_size=order.size,
        target_vocab_size=order.size,
        d_model=settings["hidden_size"],
        num_heads=settings["num_attention_heads"],
        num_kv_heads=settings["num_key_value_heads"],
        d_ff=settings["intermediate_size"],
        num_encoder_layers=settings["num_encoder_layers"],
        num_decoder_layers=settings["num_hidden_layers"],
        d_key=settings["head_dim"],
        d_value=settings["head_dim"],
        qk_norm=True,
        merged_attention=True,
        sliding_window=window,
        dropout=settings["dropout_rate"],
        attention_dropout=settings["attention_dropout"],
        final_dropout=True,
        norm="sandwich",
        norm_kind="rms",
        norm_epsilon=settings["rms_norm_eps"],
        activation=ACTIVATIONS[settings["hidden_activation"]],
        linear_bias=False,
        attention_scale=settings["query_pre_attn_scalar"] ** -0.5,
        positions="rotary",
        rope_theta=rope[FULL]["rope_theta"],
        rope_scaling=rope[FULL].get("factor", 1.0) if rope[FULL]["rope_type"] == "linear" else 1.0,
        tie=tie,
        logit_softcap=settings["final_logit_softcapping"],
        **sliding,
    )
