"""config.json of T5Gemma 2 folders: the text settings of both stacks, and what attendo's network cannot hold."""

from collections.abc import Iterator
from typing import Any

import torch

from attendo.errors import MessagePart, ModelError, cut_text, shorten
from attendo.interop.errors import join_reasons
from attendo.interop.huggingface.folder import CONFIG, HuggingFaceFolder, JsonField
from attendo.interop.huggingface.read_weights import refuse_unsupported, require_valid_settings

ACTIVATIONS = {
    "gelu_pytorch_tanh": "geglu_tanh",
    "gelu_new": "geglu_tanh",
    "gelu": "geglu",
    "silu": "swiglu",
    "relu": "reglu",
}
SLIDING, FULL = "sliding_attention", "full_attention"
_DEFAULTS: dict[str, Any] = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "attention_bias": False,
    "query_pre_attn_scalar": 256.0,
    "sliding_window": 4096,
}
_PATTERN = 6  # of layer types, if the file has none
_THETAS = {FULL: 1_000_000.0, SLIDING: 10_000.0}
# Settings in which the stacks may differ.
_OWN = ("num_hidden_layers", "final_logit_softcapping")


def read_t5gemma2_settings(folder: HuggingFaceFolder) -> dict[str, Any]:
    """Return the settings of the text networks. A network that attendo cannot hold raises a `ModelError`."""
    refuse_unsupported(folder)
    source = _config_field(folder, "encoder").fields().get("text_config")
    target = _config_field(folder, "decoder")
    if source is None or not target.content():
        missing = _config_field(folder, "decoder" if source is not None else "encoder.text_config")
        raise missing.make_error("needs_object")
    encoder, decoder = _read_stack(folder, source), _read_stack(folder, target)
    differing = (name for name in decoder if name not in _OWN and encoder[name] != decoder[name])
    reasons = [
        *(
            MessagePart(
                "stack_settings_differ", name=name, encoder=shorten(encoder[name]), decoder=shorten(decoder[name])
            )
            for name in differing
        ),
        *_find_unsupported(decoder),
    ]
    if reasons:
        raise ModelError(
            "imported_model_incompatible", path=folder.path, kind=folder.model_type, reason=join_reasons(reasons)
        )
    rates = {name: float(_config_field(folder, name).number() or 0.0) for name in ("dropout_rate", "attention_dropout")}
    return {**decoder, **rates, "num_encoder_layers": encoder["num_hidden_layers"]}


def prepare_t5gemma2_oracle(model: Any) -> Any:
    """Make a loaded model of transformers read the end-of-image token as any other, because attendo reads no images."""
    for stack in (model.get_encoder().text_model, model.get_decoder()):
        embedding = stack.embed_tokens
        if 0 <= embedding.eoi_token_index < embedding.num_embeddings:
            with torch.no_grad():
                row = embedding.weight[embedding.eoi_token_index]
                embedding.eoi_embedding.copy_(row * embedding.embed_scale.to(row.dtype))
    return model


def _config_field(folder: HuggingFaceFolder, name: str) -> JsonField:
    return JsonField(folder.path / CONFIG, name, folder.settings.get(name))


def _read_stack(folder: HuggingFaceFolder, field: JsonField) -> dict[str, Any]:
    """Return the settings of one stack with defaults."""
    content, fields = field.content(), field.fields()
    given = {name: content[name] for name in _DEFAULTS if content.get(name) is not None}
    settings = {**_DEFAULTS, **given}
    if "sliding_window" in content:  # null: all layers have full attention
        settings["sliding_window"] = content["sliding_window"]
    known = {name: usual for name, usual in _DEFAULTS.items() if settings[name] is not None}
    require_valid_settings(folder, settings, known)
    absent = JsonField(field.path, field.name, None)
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        settings[name] = fields.get(name, absent).number()
    layers = settings["num_hidden_layers"]
    pattern = fields.get("sliding_window_pattern", absent).count() or _PATTERN
    types = [SLIDING if (n + 1) % pattern else FULL for n in range(layers)]
    listed = list(map(str, fields.get("layer_types", absent).items()))
    settings["pattern"] = _find_pattern(listed or types) if len(listed or types) == layers else None
    if settings["pattern"] == 1:
        settings["sliding_window"] = None
    return {**settings, "rope": _read_rope(fields, absent)}


def _find_pattern(types: list[str]) -> int | None:
    """Return n if each n-th layer has full attention and no other has; None for another order."""
    first = types.index(FULL) + 1 if FULL in types else len(types) + 1
    return first if types == [FULL if (n + 1) % first == 0 else SLIDING for n in range(len(types))] else None


def _read_rope(fields: dict[str, JsonField], absent: JsonField) -> dict[str, dict[str, Any]]:
    """Return the settings of rotary positions by layer type, in the newer form: older files have one value each."""
    found = fields.get("rope_parameters", absent).fields()
    rope = {kind: dict(found[kind].content()) if kind in found else {} for kind in (FULL, SLIDING)}
    if not found:
        rope[FULL] |= fields.get("rope_scaling", absent).content()
    for kind, name in ((FULL, "rope_theta"), (SLIDING, "rope_local_base_freq")):
        rope[kind].setdefault("rope_theta", fields.get(name, absent).number() or _THETAS[kind])
        rope[kind].setdefault("rope_type", rope[kind].pop("type", "default"))
    return rope


def _find_unsupported(settings: dict[str, Any]) -> Iterator[MessagePart]:
    """Yield the settings that attendo's network cannot hold."""
    activation, cap = settings["hidden_activation"], settings["attn_logit_softcapping"]
    if activation not in ACTIVATIONS:
        known = ", ".join(ACTIVATIONS)
        yield MessagePart("setting_differs", name="hidden_activation", value=cut_text(activation), expected=known)
    if settings["attention_bias"]:
        yield MessagePart("setting_differs", name="attention_bias", value=True, expected=False)
    if cap is not None:  # transformers 5.22 has the setting, but does not apply it
        yield MessagePart("setting_differs", name="attn_logit_softcapping", value=cap, expected=None)
    if settings["pattern"] is None:
        yield MessagePart("layer_types_irregular")
    supported = {FULL: ("default", "linear"), SLIDING: ("default",)}
    for kind, rope in settings["rope"].items():
        if rope["rope_type"] not in supported[kind]:
            name, expected = f"rope_type of {kind}", " or ".join(supported[kind])
            yield MessagePart("setting_differs", name=name, value=shorten(rope["rope_type"]), expected=expected)
