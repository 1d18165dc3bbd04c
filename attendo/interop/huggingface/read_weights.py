"""Builds a network from weights with BART's names: Marian, Pegasus, BART, mBART, M2M100 and NLLB."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attendo.errors import ErrorList, MessagePart, ModelError, UsageError, cut_text, shorten
from attendo.interop.errors import join_reasons, unmet_conditions
from attendo.interop.huggingface.folder import FolderWeights, HuggingFaceFolder
from attendo.interop.huggingface.vocabulary import VocabularyPermutation
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import allocate_network
from attendo.tensor_files import is_finite

SHARED, ENCODER, DECODER, OUTPUT = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)
_BLOCK_MODULES = {
    "self_attention.project": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.output": ("self_attn.out_proj",),
    "self_residual.normalise": ("self_attn_layer_norm",),
    "cross_attention.project": ("encoder_attn.q_proj", "encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.output": ("encoder_attn.out_proj",),
    "cross_residual.normalise": ("encoder_attn_layer_norm",),
    "feed_forward.expand": ("fc1",),
    "feed_forward.contract": ("fc2",),
    "feed_forward_residual.normalise": ("final_layer_norm",),
}
_OTHER_MODULES = {
    "source.positions.table": "encoder.embed_positions.weight",
    "target.positions.table": "decoder.embed_positions.weight",
    "source.norm": "encoder.layernorm_embedding",
    "target.norm": "decoder.layernorm_embedding",
    "encoder_norm": "encoder.layer_norm",
    "decoder_norm": "decoder.layer_norm",
}
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
}
OUTPUT_BIAS = "final_logits_bias"
_FIXED_POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")
# Defaults of the whole family, for settings missing in config.json.
_DEFAULTS: dict[str, Any] = {
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "max_position_embeddings": 1024,
    "tie_word_embeddings": True,
}

# Of BART, mBART and Pegasus.
BART_DEFAULTS: dict[str, Any] = {"vocab_size": 50265, "activation_function": "gelu", "scale_embedding": False}


class WeightReader:
    """Weights of a folder, with the faults found so far."""

    def __init__(self, weights: FolderWeights) -> None:
        self._weights = weights
        self._taken: set[str] = set()
        self._faults: dict[str, MessagePart] = {}  # by name of the weight

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Return a weight. On a fault, return zeros and record it, so that `check` reports all faults together."""
        return self.take_joined([name], shape)

    def take_joined(self, names: Sequence[str], shape: tuple[int, ...]) -> Tensor:
        """Return weights of equal shape one below the other. Each is read in parts, so it is in memory only once."""
        return self.take_parts(dict.fromkeys(names, shape[0] // len(names)), shape)

    def take_parts(self, rows: Mapping[str, int], shape: tuple[int, ...]) -> Tensor:
        """Return weights one below the other. `rows` has the number of rows of each by its name."""
        fitting = [name for name in rows if self.fits(name, (rows[name], *shape[1:]))]  # all faults are recorded
        if len(fitting) < len(rows):
            return torch.zeros(()).expand(shape)
        joined = torch.empty(shape, dtype=self._weights.dtype(fitting[0]))
        for name, weight in zip(rows, joined.split(list(rows.values())), strict=True):
            for begin, part in self._weights.stored[name].chunks():
                self._check_finite(name, part)
                weight[begin : begin + len(part)] = part
        return joined

    def take_table(self, name: str, shape: tuple[int, int], order: VocabularyPermutation) -> Tensor:
        """Return a table in the order of attendo's ids."""
        if not self.fits(name, shape):
            return torch.zeros(()).expand(order.size, shape[1])
        rows, ids = torch.tensor(order.rows).sort()
        table = torch.empty(order.size, shape[1], dtype=self._weights.dtype(name))
        for begin, part in self._weights.stored[name].chunks():
            self._check_finite(name, part)
            here = slice(*torch.searchsorted(rows, torch.tensor([begin, begin + len(part)])).tolist())
            table[ids[here]] = part[rows[here] - begin].to(table.dtype)
        return table

    def fits(self, name: str, shape: tuple[int, ...]) -> bool:
        """Return True if the weight exists and has this shape. Otherwise record the fault."""
        self._taken.add(name)
        if name not in self._weights:
            self._faults[name] = MessagePart("weight_missing", name=name)
        elif (found := self._weights.stored[name].shape) != shape:
            self._faults[name] = MessagePart("weight_shape_differs", name=name, found=list(found), expected=list(shape))
        return name not in self._faults

    def equal(self, first: str, other: str) -> bool:
        """Return True if both weights exist and have the same numbers."""
        if first not in self._weights or other not in self._weights:
            return False
        one, two = self._weights.stored[first], self._weights.stored[other]
        parts = zip(one.chunks(), two.chunks(), strict=True)
        same_type = (one.shape, one.dtype) == (two.shape, two.dtype)
        return same_type and all(torch.equal(mine, theirs) for (_, mine), (_, theirs) in parts)

    def require_equal(self, first: str, other: str, fault: MessagePart) -> None:
        """Record a fault if two weights differ."""
        self._taken.update((first, other))
        if not self.equal(first, other):
            self._faults[other] = fault

    def _check_finite(self, name: str, weight: Tensor) -> None:
        if not is_finite(weight):
            self._faults[name] = MessagePart("weight_not_finite", name=name)

    def ignore(self, names: tuple[str, ...]) -> None:
        """Accept weights that are not needed."""
        self._taken.update(names)

    def check(self, folder: HuggingFaceFolder, complete: bool = False) -> None:
        """Raise a `ModelError` for recorded faults, and for unused weights if `complete`."""
        unused = [name for name in self._weights if name not in self._taken] if complete else []
        if faults := [*self._faults.values(), *(MessagePart("weight_unknown", name=cut_text(name)) for name in unused)]:
            raise ModelError("weights_config_mismatch", path=folder.path, faults=ErrorList(faults))


class BartFamilyWeights(WeightReader):
    """Weights of the BART family."""

    def find_shared(self, names: set[str], default_name: str, flags: str) -> str:
        """Return the name of the table that all `names` share. `SHARED` replaces a missing embedding."""
        stand_in = SHARED if default_name != OUTPUT and SHARED in self._weights else default_name
        first, *others = sorted(name for name in names if name in self._weights) or [stand_in]
        for other in others:
            fault = MessagePart("shared_weights_differ", first=first, other=other, flags=flags)
            self.require_equal(first, other, fault)
        self._taken.add(SHARED)
        return first

    def take_parameter(self, name: str, shape: torch.Size) -> Tensor:
        """Return the weights for one of attendo's parameters. Queries, keys and values are concatenated."""
        return self.take_joined(bart_names(name), tuple(shape))


def bart_names(name: str) -> list[str]:
    """Return BART's names for one of attendo's parameters, without tables of tokens. Three names are concatenated."""
    if (prefix := next((each for each in _OTHER_MODULES if name.startswith(each)), None)) is not None:
        return [_OTHER_MODULES[prefix] + name.removeprefix(prefix)]
    block = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)\.(weight|bias)", name)
    assert block is not None, name
    stack, number, part, suffix = block.groups()
    return [f"{stack}.layers.{number}.{each}.{suffix}" for each in _BLOCK_MODULES[part]]


def read_settings(folder: HuggingFaceFolder, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of config.json with defaults, and a vocabulary size for each side."""
    refuse_unsupported(folder)
    given = {
        name: value for name, value in folder.settings.items() if value is not None or name == "activation_function"
    }
    settings = {**_DEFAULTS, **defaults, **given}
    settings.setdefault("share_encoder_decoder_embeddings", settings["tie_word_embeddings"])
    if "vocab_size" not in settings:
        raise ModelError("vocab_size_missing", path=folder.path / "config.json")
    require_valid_settings(folder, settings, {**_DEFAULTS, **defaults, "vocab_size": 1, "decoder_vocab_size": 1})
    _check_vocabulary(folder, settings)
    settings["source_vocab_size"] = settings["vocab_size"]
    settings["target_vocab_size"] = settings.get("decoder_vocab_size", settings["vocab_size"])
    return settings


def require_valid_settings(folder: HuggingFaceFolder, settings: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise a `ModelError` for settings of another type than in `known`, and for counts below 1."""
    faults = [
        f"{name} = {shorten(settings[name])}" for name in known if name in settings and not _fits(settings, name, known)
    ]
    if faults:
        raise ModelError("config_values_invalid", path=folder.path / "config.json", faults="; ".join(faults))


def _check_vocabulary(folder: HuggingFaceFolder, settings: Mapping[str, Any]) -> None:
    for name in ("vocab_size", "decoder_vocab_size"):
        require_rows(folder, settings.get(name, 0), name)


def require_rows(folder: HuggingFaceFolder, size: int, setting: str = "vocab_size") -> None:
    """Check a vocabulary size against the weights, before tensors of this size are allocated."""
    most = max((each.shape[0] for each in folder.weights.stored.values() if len(each.shape) == 2), default=0)
    if size > most:
        path = folder.path / "config.json"
        raise ModelError("vocab_size_exceeds_weights", path=path, setting=setting, value=size, rows=most)


def refuse_unsupported(folder: HuggingFaceFolder) -> None:
    """Raise a `ModelError` for a network without both stacks, and for quantised weights."""
    two_stacks = folder.setting("is_encoder_decoder")
    if two_stacks.value is not None and not two_stacks.flag():
        raise two_stacks.make_error("needs_encoder_and_decoder")
    if folder.setting("quantization_config").content():
        raise ModelError("weights_quantized", path=folder.path)


def _fits(settings: Mapping[str, Any], name: str, known: Mapping[str, Any]) -> bool:
    """Return True if a value has the type of its default. A count must be at least 1."""
    value, usual = settings[name], known[name]
    if isinstance(usual, bool) or isinstance(value, bool):
        return isinstance(value, bool) and isinstance(usual, bool)
    if isinstance(usual, int):
        return isinstance(value, int) and 1 <= value < 2**31
    return isinstance(value, int | float) if isinstance(usual, float) else isinstance(value, str)


def incompatibilities(settings: Mapping[str, Any]) -> list[MessagePart]:
    """Return the reasons why a `Transformer` cannot hold this network; empty if it can."""
    heads, other_heads = settings["encoder_attention_heads"], settings["decoder_attention_heads"]
    wide, other_wide = settings["encoder_ffn_dim"], settings["decoder_ffn_dim"]
    activation = settings["activation_function"]
    known = ", ".join(ACTIVATIONS)
    return unmet_conditions(
        {
            MessagePart("head_counts_differ", encoder=heads, decoder=other_heads): heads == other_heads,
            MessagePart("feed_forward_widths_differ", encoder=wide, decoder=other_wide): wide == other_wide,
            MessagePart("activation_unknown", name=cut_text(activation), known=known): activation in ACTIVATIONS,
        }
    )


def build_network(
    folder: HuggingFaceFolder,
    settings: Mapping[str, Any],
    choices: Mapping[str, Any],
    source: VocabularyPermutation,
    target: VocabularyPermutation,
) -> Transformer:
    """Return the network in evaluation mode.

    `settings` are those of config.json with defaults. `choices` are `ModelConfig` options that all models of this
    type have and config.json does not contain.
    """
    if reasons := incompatibilities(settings):
        raise ModelError(
            "imported_model_incompatible", path=folder.path, kind=folder.model_type, reason=join_reasons(reasons)
        )
    found = BartFamilyWeights(folder.weights)
    tables = _find_tables(found, settings)
    bias = None
    if OUTPUT_BIAS in folder.weights:
        bias = found.take(OUTPUT_BIAS, (1, settings["target_vocab_size"]))[0]
    _check_sizes(found, settings, choices)
    found.check(folder)
    has_bias = bool(target.copies) or (bias is not None and bool(bias.any()))
    try:
        config = _config(settings, choices, (source.size, target.size), _tie(settings), has_bias)
    except UsageError as error:
        raise ModelError(
            "imported_model_incompatible", path=folder.path, kind=folder.model_type, reason=error
        ) from None
    network = allocate_network(config)
    for name, parameter in network.named_parameters():
        if name in tables:
            order = source if name.startswith("source") else target
            parameter.data = found.take_table(tables[name], (order.their_size, config.d_model), order)
        elif name == "output.bias":
            parameter.data = target.bias_to_ours(torch.zeros(target.their_size) if bias is None else bias)
        else:
            parameter.data = found.take_parameter(name, parameter.shape)
    if config.positions != "learned":
        found.ignore(_FIXED_POSITIONS)
    found.check(folder, complete=True)
    return network.eval()


def _check_sizes(weights: BartFamilyWeights, settings: Mapping[str, Any], choices: Mapping[str, Any]) -> None:
    """Check sizes before the network is built: a wrong size could exceed the memory."""
    for stack in ("encoder", "decoder"):
        shape = settings[f"{stack}_ffn_dim"], settings["d_model"]
        weights.take(f"{stack}.layers.{settings[f'{stack}_layers'] - 1}.fc1.weight", shape)
        if choices["positions"] == "learned":
            positions = settings["max_position_embeddings"] + choices["position_offset"]
            weights.take(f"{stack}.embed_positions.weight", (positions, settings["d_model"]))


def _config(
    settings: Mapping[str, Any], choices: Mapping[str, Any], sizes: tuple[int, int], tie: str, has_bias: bool
) -> ModelConfig:
    return ModelConfig(
        source_vocab_size=sizes[0],
        target_vocab_size=sizes[1],
        d_model=settings["d_model"],
        num_heads=settings["encoder_attention_heads"],
        d_ff=settings["encoder_ffn_dim"],
        num_encoder_layers=settings["encoder_layers"],
        num_decoder_layers=settings["decoder_layers"],
        dropout=settings["dropout"],
        attention_dropout=settings["attention_dropout"],
        activation_dropout=settings["activation_dropout"],
        activation=ACTIVATIONS[settings["activation_function"]],
        scale_embedding=settings["scale_embedding"],
        tie=tie,
        output_bias=has_bias,
        **choices,
    )


def _tie(settings: Mapping[str, Any]) -> str:
    if not settings["tie_word_embeddings"]:
        return "none"
    return "all" if settings["share_encoder_decoder_embeddings"] else "output"


def _find_tables(weights: BartFamilyWeights, settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the embedding tables and of the output weight, by attendo's names.

    A shared table may be stored under any of its names. Without tie_word_embeddings nothing is shared, even with
    share_encoder_decoder_embeddings, as in transformers.
    """
    shared, tied = settings["share_encoder_decoder_embeddings"], settings["tie_word_embeddings"]
    encoder, decoder, output = {ENCODER}, {DECODER}, {OUTPUT}
    if tied:
        decoder = output = {DECODER, OUTPUT, *([SHARED, ENCODER] if shared else [])}
        encoder = decoder if shared else encoder
    flags = f"share_encoder_decoder_embeddings {shared} and tie_word_embeddings {tied}"
    tables = {
        "source.tokens.weight": weights.find_shared(encoder, ENCODER, flags),
        "target.tokens.weight": weights.find_shared(decoder, DECODER, flags),
        "output.weight": weights.find_shared(output, OUTPUT, flags),
    }
    for name, table in tables.items():
        size = settings["source_vocab_size" if name.startswith("source") else "target_vocab_size"]
        weights.fits(table, (size, settings["d_model"]))
    return tables
