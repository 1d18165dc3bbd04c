"""Text model as a folder that Marian decodes to the same answers.

    model.npz  vocab.yml (or source.vocab.yml and target.vocab.yml)  decoder.yml  source.spm  target.spm

Marian starts its decoder from a zero vector. A network trained in attendo starts from the vector of bos, c. So c is
subtracted from every vector of the target table. The first sub-layer adds it again, by the biases of its queries, keys,
values and output. A tied output layer then adds the same number to all logits of a step, which changes no probability.
"""

import struct
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attendo.decode.config import GenerationConfig
from attendo.decode.presets import preset
from attendo.errors import MessagePart, ModelError, UsageError
from attendo.interop.errors import find_gemma_settings, join_reasons, unmet_conditions
from attendo.interop.exported_files import ExportPrecision
from attendo.interop.huggingface.vocabulary import (
    SUPPRESS_BIAS,
    VocabularyPermutation,
    sentencepiece_bytes,
    vocabulary_names,
)
from attendo.interop.marian.network_settings import ACTIVATIONS, NORM_EPSILON
from attendo.interop.marian.parameters import OUTPUT_BIAS, marian_parameters
from attendo.interop.marian.read_model import DECODER_FILE
from attendo.interop.marian.read_weights import TableNames
from attendo.interop.marian.vocabulary import EOS_NAME, UNK_NAME
from attendo.interop.marian.weight_file import SETTINGS_TENSOR
from attendo.interop.marian.yaml_text import write_scalar
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import allocate_network
from attendo.text import BOS, CONTROL_PIECES, PAD, Tokenizer
from attendo.text_model import TextModel

WEIGHTS_FILE, JOINT_VOCABULARY = "model.npz", "vocab.yml"
_VERSION = "v1.12.42 written by attendo"
_KEPT_SETTINGS = ("beam", "length_penalty", "word_penalty", "allow_unk", "max_length_factor")
_IGNORED_SETTINGS = (
    "max_source",
    "long_source",
    "context_sentences",
    "batch_tokens",
    "engine",
    "compile",
    "precision",
    "seed",
)
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)  # the same bytes for the same model


@dataclass(frozen=True)
class MarianVocabularies:
    """The permutations of both sides, whose last row Marian does not have, and the names of Marian's ids."""

    source: VocabularyPermutation
    target: VocabularyPermutation
    source_names: Mapping[str, int]
    target_names: Mapping[str, int]

    @classmethod
    def of(cls, model: TextModel) -> "MarianVocabularies":
        orders = [_order(each.vocab_size) for each in (model.source_tokenizer, model.target_tokenizer)]
        names = [_names(each) for each in (model.source_tokenizer, model.target_tokenizer)]
        return cls(orders[0], orders[1], names[0], names[1])


def _order(size: int) -> VocabularyPermutation:
    """Return attendo's ids without pad and bos: eos first, then unk, as Marian's own tools number them."""
    count = size - len(CONTROL_PIECES)
    absent = count + 2
    return VocabularyPermutation((absent, 1, absent, 0, *range(2, absent)), frozenset({BOS}))


def _names(tokenizer: Tokenizer) -> dict[str, int]:
    """Return Marian's ids by name. An id without a piece has none. An import puts brackets around control pieces."""
    found = {EOS_NAME: 0, UNK_NAME: 1}
    wrapped = {f"<{piece}>": piece for piece in CONTROL_PIECES if piece not in found}
    for number, name in enumerate(vocabulary_names(tokenizer)[len(CONTROL_PIECES) :], start=len(found)):
        original = wrapped.get(name, name)
        if " " not in original and original not in found:
            found[original] = number
    return found


def write_marian(model: TextModel, folder: Path, precision: ExportPrecision) -> list[MessagePart]:
    """Write into an existing empty folder. Return notes on what Marian does not store."""
    if precision != "float32":
        raise UsageError("marian_precision_unsupported", precision=precision)
    check_marian_export(model)
    vocabularies = MarianVocabularies.of(model)
    config = model.network.config
    _write_npz(
        folder / WEIGHTS_FILE, _marian_weights(model.network, vocabularies), _model_settings(config, vocabularies)
    )
    names = _write_vocabularies(folder, vocabularies)
    settings, notes = _decoder_settings(model.generation)
    (folder / DECODER_FILE).write_text(_format_decoder(names, settings), "utf-8", newline="\n")
    for side, tokenizer in (("source", model.source_tokenizer), ("target", model.target_tokenizer)):
        if (spm := sentencepiece_bytes(tokenizer)) is not None:
            (folder / f"{side}.spm").write_bytes(spm)
        else:
            notes.append(MessagePart("marian_tokenizer_not_exported", side=side, kind=tokenizer.kind))
    if without_pad_and_bos(model.network) is not model.network:
        notes.append(MessagePart("marian_removes_pad_and_bos"))
    return notes


def without_pad_and_bos(network: Transformer) -> Transformer:
    """Return the network that Marian gets, in which pad and bos have no probability."""
    bias = network.output.bias
    if bias is not None and float(bias.detach()[[PAD, BOS]].max()) <= SUPPRESS_BIAS / 2:
        return network
    copy = allocate_network(network.config.replace(output_bias=True))
    weights = dict(network.named_parameters())
    with torch.no_grad():
        copy.output.bias.zero_()
        for name, parameter in copy.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])
        copy.output.bias[[PAD, BOS]] = SUPPRESS_BIAS
    return copy.eval()


def check_marian_export(model: TextModel) -> None:
    """Raise a `ModelError` with all reasons why Marian cannot represent the model."""
    if reasons := _incompatibilities(model):
        raise ModelError("marian_export_unsupported", reasons=join_reasons(reasons))


def _incompatibilities(model: TextModel) -> list[MessagePart]:
    """Return all reasons at once why Marian cannot hold the model."""
    config, network = model.network.config, model.network
    if config.decoder_only:
        return [_setting("num_encoder_layers", 0, "1 ...")]
    prefixes = (*model.generation.source_prefix, *model.generation.target_prefix)
    start_is_zero = not bool(network.target.tokens.weight[BOS].any())
    expected: dict[str, tuple[object, ...]] = {
        "kind": ("autoregressive",),
        "norm": ("post",),
        "norm_epsilon": (NORM_EPSILON,),
        "positions": ("sinusoidal",),
        "position_layout": ("fairseq",),
        "position_offset": (0,),
        "activation": tuple(ACTIVATIONS.values()),
        "scale_embedding": (True,),
        "linear_bias": (True,),
        "attention_scale": (None,),
        "output_scale": (1.0,),
        "d_key": (None, config.d_model // config.num_heads),
        "d_value": (None, config.d_model // config.num_heads),
    }
    conditions = {
        _setting(name, getattr(config, name), " / ".join(map(str, values))): getattr(config, name) in values
        for name, values in expected.items()
    }
    first_adds_start = not config.embedding_norm and config.autoregression == "attention"
    conditions[MessagePart("marian_start_not_zero")] = start_is_zero or first_adds_start
    conditions[MessagePart("marian_has_no_prefix", symbols=" ".join(prefixes))] = not prefixes
    return [*unmet_conditions(conditions), *find_gemma_settings(config)]


def _setting(name: str, value: object, expected: str) -> MessagePart:
    return MessagePart("setting_differs", name=name, value=value, expected=expected)


def _marian_weights(
    network: Transformer, vocabularies: MarianVocabularies
) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield Marian's names and arrays, sorted by name."""
    config = network.config
    weights = {name: weight.detach().cpu() for name, weight in network.named_parameters()}
    _move_start_to_zero(network, weights)
    arrays: dict[str, Tensor] = {}
    assert network.source is not None
    tables = TableNames.find(config.tie, {})
    arrays[tables.source] = _table(weights, network, network.source.tokens.weight, vocabularies.source)
    arrays[tables.target] = _table(weights, network, network.target.tokens.weight, vocabularies.target)
    if tables.output is not None:
        arrays[tables.output] = _table(weights, network, network.output.weight, vocabularies.target)
    if network.output.bias is not None:
        arrays[OUTPUT_BIAS] = _reorder(weights["output.bias"], vocabularies.target)[None]
    for name, weight in weights.items():
        if ".tokens." in name or name.startswith("output."):
            continue
        found = marian_parameters(name, config)
        for each, part in zip(found.names, weight.chunk(len(found.names)), strict=True):
            arrays[each] = part.T if found.is_matrix else part[None]
    for name in sorted(arrays):
        yield name, np.ascontiguousarray(arrays[name].numpy(), np.dtype("<f4"))


def _move_start_to_zero(network: Transformer, weights: dict[str, Tensor]) -> None:
    """Subtract the vector of bos from the target table, and add it in the first decoder layer (see the module)."""
    start = network.target.tokens.weight[BOS].detach().cpu().clone()
    if not bool(start.any()):
        return
    assert network.source is not None
    stacks = [("decoder", network.target.tokens.weight)]
    if network.source.tokens.weight is network.target.tokens.weight:
        stacks.append(("encoder", network.source.tokens.weight))
    table_name = _name_of(network, network.target.tokens.weight)
    weights[table_name] = weights[table_name] - start
    added = start.double() * network.target.scale
    for stack, _ in stacks:
        project, output = f"{stack}.0.self_attention.project", f"{stack}.0.self_attention.output"
        moved = weights[f"{project}.weight"].double() @ added
        weights[f"{project}.bias"] = (weights[f"{project}.bias"].double() + moved).float()
        weights[f"{output}.bias"] = (weights[f"{output}.bias"].double() + added).float()


def _name_of(network: Transformer, parameter: Tensor) -> str:
    return next(name for name, each in network.named_parameters() if each is parameter)


def _table(
    weights: Mapping[str, Tensor], network: Transformer, parameter: Tensor, order: VocabularyPermutation
) -> Tensor:
    return _reorder(weights[_name_of(network, parameter)], order)


def _reorder(rows: Tensor, order: VocabularyPermutation) -> Tensor:
    """Return the rows in Marian's order, without the last one, which Marian does not have."""
    return rows[order.to_ours(range(order.their_size - 1))]


def _model_settings(config: ModelConfig, vocabularies: MarianVocabularies) -> str:
    """Return the settings of the network. Flags and lists that are missing have their neutral values in Marian."""
    norm = "n" if config.norm_kind == "layer" else "r"
    activation = next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    sizes = [order.their_size - 1 for order in (vocabularies.source, vocabularies.target)]
    values: dict[str, object] = {
        "dec-cell": config.autoregression if config.autoregression == "ssru" else "gru",
        "dec-depth": config.num_decoder_layers,
        "dim-emb": config.d_model,
        "dim-vocabs": "".join(f"\n  - {size}" for size in sizes),
        "enc-depth": config.num_encoder_layers,
        "input-types": "\n  []",
        "layer-normalization": _yes(False),
        "output-omit-bias": _yes(not config.output_bias),
        "right-left": _yes(False),
        "skip": _yes(False),
        "tied-embeddings": _yes(config.tie == "output"),
        "tied-embeddings-all": _yes(config.tie == "all"),
        "tied-embeddings-src": _yes(str(config.tie) == "inputs"),
        "transformer-decoder-autoreg": "rnn" if config.autoregression == "ssru" else "self-attention",
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": activation,
        "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": config.num_heads,
        "transformer-no-projection": _yes(False),
        "transformer-postprocess": f"da{norm}",
        "transformer-postprocess-emb": f"{norm}d" if config.embedding_norm else "d",
        "transformer-postprocess-top": norm if config.has_final_norm else '""',
        "transformer-preprocess": '""',
        "type": "transformer",
        "version": _VERSION,
    }
    lines = (f"{name}:{value}" if str(value).startswith("\n") else f"{name}: {value}" for name, value in values.items())
    return "\n".join(lines)


def _yes(value: bool) -> str:
    return "true" if value else "false"


def _write_npz(path: Path, weights: Iterator[tuple[str, np.ndarray[Any, Any]]], settings: str) -> None:
    """Write the file as Marian does: not compressed, one header of 80 bytes or more for each array."""
    # One NUL ends the settings. All versions of Marian and CTranslate2 read this.
    text = np.frombuffer(settings.encode() + b"\0", np.dtype("i1"))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, array in weights:
            _write_array(archive, name, array)
        _write_array(archive, SETTINGS_TENSOR, text)


def _write_array(archive: zipfile.ZipFile, name: str, array: np.ndarray[Any, Any]) -> None:
    shape = "".join(f"{size}, " for size in array.shape)
    shape = shape if array.ndim == 1 else shape.removesuffix(", ")
    kind = "<f4" if array.dtype.itemsize == 4 else "<i1"
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape.rstrip() if array.ndim == 1 else shape}), }}"
    padding = -(10 + len(text) + 1) % 16
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + padding + 1) + (text + " " * padding + "\n").encode()
    with archive.open(zipfile.ZipInfo(f"{name}.npy", _ZIP_TIME), "w") as file:
        file.write(header)
        file.write(array.tobytes())


def _write_vocabularies(folder: Path, vocabularies: MarianVocabularies) -> tuple[str, str]:
    """Write the vocabularies, one if both are equal, and return the names of their files."""
    both = {"source": vocabularies.source_names, "target": vocabularies.target_names}
    names = {side: f"{side}.{JOINT_VOCABULARY}" for side in both}
    if both["source"] == both["target"]:
        names = dict.fromkeys(both, JOINT_VOCABULARY)
    for side, tokens in both.items():
        lines = (f"{write_scalar(token)}: {number}\n" for token, number in tokens.items())
        (folder / names[side]).write_text("".join(lines), "utf-8", newline="\n")
    return names["source"], names["target"]


def _format_decoder(vocabularies: Sequence[str], settings: Mapping[str, object]) -> str:
    listed = "".join(f"  - {name}\n" for name in vocabularies)
    values = "".join(f"{name}: {value}\n" for name, value in settings.items())
    return f"relative-paths: true\nmodels:\n  - {WEIGHTS_FILE}\nvocabs:\n{listed}{values}"


def _decoder_settings(config: GenerationConfig) -> tuple[dict[str, object], list[MessagePart]]:
    """Return the settings of decoder.yml, and a note for each of attendo's settings that Marian computes otherwise."""
    penalty = config.length_penalty if config.normalise == "average" else 0.0
    factor = config.max_length_factor or 3.0
    settings = {
        "beam-size": config.beam,
        "normalize": penalty,
        "word-penalty": config.word_penalty,
        "max-length-factor": factor,
        "allow-unk": _yes(config.allow_unk),
        "mini-batch": 1,
        "maxi-batch": 1,
        "maxi-batch-sort": "none",
    }
    kept = {name: getattr(config, name) for name in _KEPT_SETTINGS}
    theirs = preset("marian", {**kept, "length_penalty": penalty, "max_length_factor": factor}, config)
    differing = [
        name
        for name in type(config).model_fields
        if name not in _IGNORED_SETTINGS and getattr(config, name) != getattr(theirs, name)
    ]
    notes = [
        MessagePart(
            "marian_setting_not_exported",
            name=name,
            value=getattr(config, name),
            theirs=getattr(theirs, name),
        )
        for name in differing
    ]
    return settings, notes
