"""Decoding options by the kind of the network. This module does not import torch: run files are checked with it."""

from collections.abc import Mapping
from typing import Any

from attendo.decode.config import GenerationConfig
from attendo.decode.options import CallFields
from attendo.errors import UsageError

# Settings and options that need the probability of the next token, with their neutral values.
_TOKEN_OPTIONS: dict[str, Any] = {
    "mbr": "none", "beam": 1, "sample": False, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
    "renormalise": False, "min_length_factor": 0.0, "min_length_extra": 0, "target_prefix": (), "prefix": "",
    "constraints": (), "glossary": None, "banned_phrases": (), "min_length": None,
}  # fmt: skip
_ATTENTION_OPTIONS: dict[str, Any] = {  # need the attention of each token
    "coverage_penalty": 0.0, "alignments": False, "replace_unknown": False, "transfer_case": False,
}  # fmt: skip
_KIND_SETTINGS = {
    "passes": ("masked",), "length_candidates": ("masked",), "graph_search": ("graph",),
    "path_length_penalty": ("graph",), "merge_repeats": ("masked", "graph"),
}  # fmt: skip


def check_kind(kind: str, options: CallFields, config: GenerationConfig) -> None:
    """Reject options that a network of this kind does not have."""
    for name, owners in _KIND_SETTINGS.items():
        if kind not in owners and getattr(config, name) != GenerationConfig.model_fields[name].default:
            raise UsageError("option_needs_kind", option=name, kind=kind, owner=" or ".join(owners))
    refused = {} if kind == "autoregressive" else {**_ATTENTION_OPTIONS, "compile": False}
    if kind in ("masked", "ctc"):
        refused |= _TOKEN_OPTIONS
    if given := _find_given(refused, options, config):
        fitting = "autoregressive or graph" if given in _TOKEN_OPTIONS else "autoregressive"
        raise UsageError("option_unsupported_by_kind", option=given, kind=kind, fitting=fitting)
    search = config.graph_search
    if search in ("greedy", "viterbi") and (given := _find_given(_TOKEN_OPTIONS, options, config)):
        raise UsageError("graph_search_conflict", option=given, search=search)
    if search != "viterbi" and config.path_length_penalty != 1:
        raise UsageError("path_length_penalty_without_viterbi", search=search)


def _find_given(names: Mapping[str, Any], options: CallFields, config: GenerationConfig) -> str | None:
    """Return the first option whose value is not the neutral one. A list of empty values is neutral."""
    for name, neutral in names.items():
        value = getattr(options if hasattr(options, name) else config, name)
        if value != neutral and (any(value) if isinstance(value, list | tuple) else bool(value or neutral)):
            return name
    return None


def drop_unsupported(settings: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the settings that a network of this kind has."""
    others = {name for name, owners in _KIND_SETTINGS.items() if kind not in owners}
    refused = {} if kind == "autoregressive" else _ATTENTION_OPTIONS
    tokens = _TOKEN_OPTIONS if kind in ("masked", "ctc") else {}
    return {name: value for name, value in settings.items() if name not in {*others, *refused, *tokens}}
