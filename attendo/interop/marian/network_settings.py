"""The network of Marian's settings as a `ModelConfig`. What attendo's network cannot compute is refused by name."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from attendo.errors import MessagePart, ModelError, UsageError, shorten
from attendo.interop.errors import join_reasons
from attendo.interop.marian.settings import MarianSettings
from attendo.model.config import ModelConfig

NORM_EPSILON = 1e-6  # of Marian's layer norm and RMS norm
ACTIVATIONS = {"swish": "silu", "relu": "relu", "gelu": "gelu"}
_EXACT_GELU = (1, 12, 3)  # version that computes gelu with the error function; before: x times sigmoid(1.702 x)
_PRE_NORM_KEYS = (1, 11, 0)  # version that normalises keys and values of self-attention with pre-norm
# Flags that change the network, which must be false.
_FLAGS = (
    "transformer-no-projection",
    "transformer-pool",
    "transformer-train-position-embeddings",
    "transformer-disable-position-embeddings",
    "transformer-no-bias",
    "transformer-no-affine",
    "transformer-rnn-projection",
    "right-left",
    "layer-normalization",
    "skip",
    "ulr",
    "input-join-fields",
)
_TEXTS = {
    "type": "transformer",
    "transformer-attention-mask": "default",
    "factors-combine": "sum",
    "lemma-dependency": "",
}
_COUNTS = {"transformer-ffn-depth": (2,), "transformer-decoder-ffn-depth": (0, 2), "lemma-dim-emb": (0,)}
_EMPTY_LISTS = ("transformer-tied-layers", "input-types", "input-reorder")
_LETTERS_OF_KIND = {"n": "layer", "r": "rms"}


def version(settings: MarianSettings) -> tuple[int, int, int]:
    """Return the version of Marian that wrote the model; zeros if it is unknown."""
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})(?:\.(\d{1,6}))?", settings.text("version"))
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def tie(settings: MarianSettings) -> Literal["all", "output", "inputs", "none"]:
    """Return which tables are one in Marian."""
    both = settings.flag("tied-embeddings") and settings.flag("tied-embeddings-src")
    if settings.flag("tied-embeddings-all") or both:
        return "all"
    if settings.flag("tied-embeddings"):
        return "output"
    return "inputs" if settings.flag("tied-embeddings-src") else "none"


def is_recurrent(settings: MarianSettings) -> bool:
    """Return whether the decoder has a recurrence in place of self-attention."""
    return settings.text("transformer-decoder-autoreg", "self-attention") == "rnn"


def read_config(settings: MarianSettings, sizes: tuple[int, int]) -> ModelConfig:
    """Return the configuration of a network with vocabularies of these sizes, attendo's additional rows included."""
    reasons = list(_find_unsupported(settings))
    if not reasons:
        activation = ACTIVATIONS[settings.text("transformer-ffn-activation", "swish")]
        try:
            return ModelConfig(
                source_vocab_size=sizes[0],
                target_vocab_size=sizes[1],
                d_model=settings.count("dim-emb", 512),
                num_heads=settings.count("transformer-heads", 8),
                d_ff=settings.count("transformer-dim-ffn", 2048),
                num_encoder_layers=settings.count("enc-depth", 1),
                num_decoder_layers=settings.count("dec-depth", 1),
                autoregression="ssru" if is_recurrent(settings) else "attention",
                activation=activation,
                **_norm_options(settings),
                norm_epsilon=NORM_EPSILON,
                positions="sinusoidal",
                position_layout="fairseq",
                tie=tie(settings),
                output_bias=True,
            )
        except UsageError as error:
            reasons = [MessagePart("marian_network_invalid", reason=error)]
    raise ModelError(
        "imported_model_incompatible", path=settings.path, kind="native Marian", reason=join_reasons(reasons)
    )


def _find_unsupported(settings: MarianSettings) -> Iterator[MessagePart]:
    for name, expected in _TEXTS.items():
        default = "" if name == "type" else expected
        if (text := settings.text(name, default)) != expected:
            yield _refuse(name, text, expected or '""')
        if name == "type" and text != expected:
            return  # the other settings are those of another network
    if is_recurrent(settings):
        yield from _find_unsupported_recurrence(settings)
    elif (decoder := settings.text("transformer-decoder-autoreg", "self-attention")) != "self-attention":
        yield _refuse("transformer-decoder-autoreg", decoder, "self-attention / rnn")
    for name in _FLAGS:
        if settings.flag(name):
            yield _refuse(name, "true", "false")
    for name, counts in _COUNTS.items():
        if (count := settings.count(name, counts[0])) not in counts:
            yield _refuse(name, str(count), " / ".join(map(str, counts)))
    width = settings.count("transformer-dim-ffn", 2048)
    if (count := settings.count("transformer-decoder-dim-ffn", 0)) not in (0, width):
        yield _refuse("transformer-decoder-dim-ffn", str(count), f"0 / {width}")
    for name in _EMPTY_LISTS:
        if (items := settings.items(name)) not in ((), ("",)):
            yield _refuse(name, " ".join(items), "[]")
    yield from _find_unsupported_versions(settings)


def _find_unsupported_recurrence(settings: MarianSettings) -> Iterator[MessagePart]:
    if (cell := settings.text("dec-cell", "gru")) != "ssru":
        yield MessagePart("marian_decoder_recurrent", cell=shorten(cell))
    for name, only in (("dec-cell-base-depth", 2), ("dec-cell-high-depth", 1)):
        if (depth := settings.count(name, only)) != only:
            yield _refuse(name, str(depth), str(only))


def _find_unsupported_versions(settings: MarianSettings) -> Iterator[MessagePart]:
    """Yield the settings that are unsupported or that older versions compute differently."""
    activation = settings.text("transformer-ffn-activation", "swish")
    if activation not in ACTIVATIONS:
        yield _refuse("transformer-ffn-activation", activation, " / ".join(ACTIVATIONS))
    if activation == "gelu" and version(settings) < _EXACT_GELU:
        yield MessagePart("marian_gelu_old", version=shorten(settings.text("version")))
    options = _norm_options(settings)
    if not options:
        names = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
        values = " ".join(f"{name} {shorten(settings.text(name))}" for name in (*names, "transformer-postprocess-emb"))
        yield MessagePart("marian_norms_unsupported", values=values)
    elif options["norm"] == "pre" and version(settings) < _PRE_NORM_KEYS:
        yield MessagePart("marian_pre_norm_old", version=shorten(settings.text("version")))


def _refuse(name: str, value: str, supported: str) -> MessagePart:
    return MessagePart("marian_setting_unsupported", name=name, value=shorten(value), supported=supported)


def _norm_options(settings: MarianSettings) -> Mapping[str, Any]:
    """Return where the norms are; empty if attendo has no such network. `d` is dropout, `a` the residual sum."""
    before, after, top, embedding = (
        settings.text(f"transformer-{name}", default).replace("d", "")
        for name, default in (
            ("preprocess", ""),
            ("postprocess", "dan"),
            ("postprocess-top", ""),
            ("postprocess-emb", "d"),
        )
    )
    norm, letter = ("pre", before) if after == "a" else ("post", after.removeprefix("a"))
    is_known = letter in _LETTERS_OF_KIND and (norm == "pre" or (not before and after.startswith("a")))
    if not is_known or top not in ("", letter) or embedding not in ("", letter):
        return {}
    return {
        "norm": norm,
        "norm_kind": _LETTERS_OF_KIND[letter],
        "final_norm": None if bool(top) == (norm == "pre") else bool(top),
        "embedding_norm": bool(embedding),
    }
