"""config.json of T5, mT5 and umT5 folders: sizes, the activation, and whether the output is scaled."""

from collections.abc import Mapping
from typing import Any

from attendo.errors import MessagePart, ModelError, cut_text, list_names
from attendo.interop.huggingface.folder import CONFIG, HuggingFaceFolder, JsonField
from attendo.interop.huggingface.read_weights import refuse_unsupported, require_valid_settings

T5_CLASSES = {
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "umt5": "UMT5ForConditionalGeneration",
}
# By feed_forward_proj. transformers reads the gated gelu of T5 1.1 as the tanh approximation, and only this one.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "gated-relu": "reglu",
    "gated-gelu": "geglu_tanh",
    "gated-gelu_new": "geglu_tanh",
    "gated-silu": "swiglu",
    "gated-swish": "swiglu",
}
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 250112,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.1,
    "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "gated-gelu",
}
_T5_DEFAULTS = {"vocab_size": 32128, "d_ff": 2048, "num_layers": 6, "num_heads": 8, "feed_forward_proj": "relu"}
_OLD_CLASSES = ("T5WithLMHeadModel",)
_REASONS = {
    "EncoderModel": "t5_has_no_decoder",
    "ForSequenceClassification": "t5_has_another_head",
    "ForTokenClassification": "t5_has_another_head",
    "ForQuestionAnswering": "t5_has_another_head",
}


def read_t5_settings(folder: HuggingFaceFolder) -> dict[str, Any]:
    """Return the settings of config.json with defaults. A folder of another class raises a `ModelError`."""
    _refuse_other_classes(folder)
    refuse_unsupported(folder)
    known = {**_DEFAULTS, **(_T5_DEFAULTS if folder.model_type == "t5" else {})}
    settings = {**known, **{name: value for name, value in folder.settings.items() if value is not None}}
    settings.setdefault("num_decoder_layers", settings["num_layers"])
    require_valid_settings(folder, settings, {**known, "num_decoder_layers": 1})
    if settings["feed_forward_proj"] not in ACTIVATIONS:
        activation = MessagePart(
            "activation_unknown", name=cut_text(settings["feed_forward_proj"]), known=", ".join(ACTIVATIONS)
        )
        raise ModelError("imported_model_incompatible", path=folder.path, kind=folder.model_type, reason=activation)
    return settings


def scales_t5_output(folder: HuggingFaceFolder) -> bool:
    """Return True if the output layer reads vectors multiplied by 1/√d_model.

    T5 1.0 scales, T5 1.1 does not, and both use the same classes. transformers 4 derives it from tie_word_embeddings.
    transformers 5 writes that setting as true in all models, and scale_decoder_outputs beside it.
    """
    if folder.model_type == "mt5":
        return False
    scales = _config_field(folder, "scale_decoder_outputs")
    if folder.model_type == "t5" and scales.value is not None:
        return scales.flag()
    tied = _config_field(folder, "tie_word_embeddings")
    return tied.value is None or tied.flag()


def prepare_t5_oracle(model: Any, folder: HuggingFaceFolder) -> Any:
    """Make a loaded model of transformers compute what config.json says.

    transformers 5 always scales the output of umT5.
    """
    name = "tie_word_embeddings" if folder.model_type == "umt5" else "scale_decoder_outputs"
    setattr(model.config, name, scales_t5_output(folder))
    return repair_t5_cache(model)


def repair_t5_cache(model: Any) -> Any:
    """Set the number of layers of the cache to that of the decoder. transformers 5 takes the encoder's."""
    model.config.num_layers = max(model.config.num_layers, model.config.num_decoder_layers)
    return model


def is_scale_ambiguous(folder: HuggingFaceFolder) -> bool:
    """Return True for an mT5 folder whose output transformers 4 scales and transformers 5 does not."""
    tied = _config_field(folder, "tie_word_embeddings")
    return folder.model_type == "mt5" and (tied.value is None or tied.flag())


def list_task_prefixes(settings: Mapping[str, Any]) -> list[str]:
    """Return the texts that T5 1.0 expects before a source, by task."""
    tasks = settings.get("task_specific_params")
    found = [each.get("prefix") for each in tasks.values() if isinstance(each, dict)] if isinstance(tasks, dict) else []
    return [each for each in found if isinstance(each, str)]


def _config_field(folder: HuggingFaceFolder, name: str) -> JsonField:
    return JsonField(folder.path / CONFIG, name, folder.settings.get(name))


def _refuse_other_classes(folder: HuggingFaceFolder) -> None:
    """Raise a `ModelError` that names a class without a decoder, with another output, or with its own code."""
    field = _config_field(folder, "architectures")
    names = [field.value] if isinstance(field.value, str) else list(map(str, field.items()))
    others = [name for name in names if name not in (*T5_CLASSES.values(), *_OLD_CLASSES)]
    if folder.settings.get("chronos_config") is not None:
        code = "t5_reads_numbers"
    elif others and not set(names) - set(others):
        suffixes = (reason for suffix, reason in _REASONS.items() if others[0].endswith(suffix))
        code = next(suffixes, "t5_class_unknown")
    else:
        return
    raise ModelError(
        "t5_class_unsupported",
        path=folder.path,
        name=list_names(map(cut_text, names)) or folder.model_type,
        reason=MessagePart(code),
        known=", ".join(T5_CLASSES.values()),
    )
