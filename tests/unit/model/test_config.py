"""ModelConfig: accepted values, defaults and errors."""

from typing import Any

import pytest
from error_codes import ErrorCheck, fragment, has_code, message

from attendo.errors import UsageError
from attendo.model.config import PRESETS, ModelConfig


def test_defaults_are_the_papers_base_model() -> None:
    config = ModelConfig(vocab_size=37_000)
    sizes = (config.d_model, config.num_heads, config.d_ff, config.num_encoder_layers, config.num_decoder_layers)
    assert sizes == (512, 8, 2048, 6, 6)
    assert (config.dropout, config.activation, config.positions) == (0.1, "relu", "sinusoidal")
    assert config.head_width == 64


def test_one_vocabulary_sets_both_sides() -> None:
    config = ModelConfig(vocab_size=10)
    assert (config.source_vocab_size, config.target_vocab_size) == (10, 10)
    decoder_only = ModelConfig(vocab_size=10, num_encoder_layers=0)
    assert decoder_only.decoder_only
    assert (decoder_only.source_vocab_size, decoder_only.target_vocab_size) == (None, 10)


def test_a_dumped_config_loads_again() -> None:
    for changes in ({"vocab_size": 10}, {"vocab_size": 10, "num_encoder_layers": 0}, {"target_vocab_size": 9}):
        values: dict[str, Any] = {"source_vocab_size": 8} if "vocab_size" not in changes else {}
        config = ModelConfig(**{**values, **changes})
        assert ModelConfig(**config.model_dump()) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, message("vocabulary_size_missing")),
        ({"target_vocab_size": 5}, message("vocabulary_size_missing")),
        (
            {"vocab_size": 5, "source_vocab_size": 6},
            message("vocabulary_sizes_conflict", size=5, option="source_vocab_size", value=6),
        ),
        (
            {"source_vocab_size": 5, "target_vocab_size": 5, "num_encoder_layers": 0},
            message("decoder_only_source_vocabulary"),
        ),
        ({"vocab_size": 5, "d_model": 500}, message("d_model_not_divisible", d_model=500, num_heads=8)),
        ({"vocab_size": 5, "d_model": 15, "num_heads": 1}, message("sinusoidal_d_model_odd", d_model=15)),
        (
            {"vocab_size": 5, "d_model": 12, "num_heads": 4, "positions": "rotary"},
            message("rotary_head_width_odd", head_width=3),
        ),
        (
            {"source_vocab_size": 5, "target_vocab_size": 6, "tie": "all"},
            message("tied_vocabulary_not_joint", tie="all", source_size=5, target_size=6),
        ),
        (
            {"source_vocab_size": 5, "target_vocab_size": 6, "tie": "inputs"},
            message("tied_vocabulary_not_joint", tie="inputs", source_size=5, target_size=6),
        ),
        (
            {"vocab_size": 5, "prefix_lm": True, "tie": "inputs"},
            message("tied_inputs_without_encoder"),
        ),
        (
            {"vocab_size": 5, "positions": "relative", "relative_buckets": 16, "relative_max_distance": 8},
            message("relative_max_distance_small", distance=8, buckets=16),
        ),
        (
            {"vocab_size": 5, "relative_bias": "per_layer"},
            message("position_setting_unused", option="relative_bias", positions="sinusoidal"),
        ),
        (
            {"vocab_size": 5, "positions": "relative", "position_offset": 2},
            message("position_setting_unused", option="position_offset", positions="relative"),
        ),
        ({"vocab_size": 5, "positions": "relative", "relative_buckets": 2}, "relative_buckets must be at least 4"),
        (
            {"vocab_size": 5, "positions": "relative", "relative_buckets": 31},
            message("relative_buckets_odd", buckets=31),
        ),
        ({"vocab_size": 5, "attention_scale": 0.0}, "attention_scale must be above 0, not 0.0"),
        ({"vocab_size": 5, "output_scale": float("inf")}, "output_scale must be"),
        (
            {"vocab_size": 5, "d_modle": 64},
            fragment("unknown_setting", name="d_modle", suggestion=" (did you mean d_model?)"),
        ),
        ({"vocab_size": 5, "colour": "red"}, fragment("unknown_setting", name="colour")),
        ({"vocab_size": 0}, "vocab_size must be at least 1, not 0"),
        ({"vocab_size": 5, "dropout": 1.0}, "dropout must be below 1, not 1.0"),
        (
            {"vocab_size": 5, "num_kv_heads": 3},
            message("kv_heads_not_divisor", num_heads=8, num_kv_heads=3),
        ),
        (
            {"vocab_size": 5, "rope_local_theta": 9.0, "positions": "rotary"},
            message("setting_without_effect", option="rope_local_theta", other="sliding_window"),
        ),
        (
            {"vocab_size": 5, "prefix_lm": True, "sliding_window": 4},
            message("attention_setting_conflict", option="sliding_window", other="prefix_lm", value=True),
        ),
        (
            {"target_vocab_size": 5, "num_encoder_layers": 0, "merged_attention": True},
            message("attention_setting_conflict", option="merged_attention", other="num_encoder_layers", value=0),
        ),
        ({"vocab_size": 5, "norm": "middle"}, "norm must be 'pre', 'post' or 'sandwich', not 'middle'"),
    ],
)
def test_invalid_settings_raise_a_one_line_error(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        ModelConfig(**values)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_invalid_settings_raise_one_error() -> None:
    with pytest.raises(UsageError, check=has_code("settings_invalid")) as caught:
        ModelConfig(vocab_size=5, d_model=0, dropout=2.0)
    assert str(caught.value) == "d_model must be at least 1, not 0; dropout must be below 1, not 2.0"


def test_E63_joint_vocabularies_may_be_tied() -> None:
    assert ModelConfig(vocab_size=5, tie="all").tie == "all"
    assert ModelConfig(target_vocab_size=5, num_encoder_layers=0, tie="all").tie == "all"


def test_explicit_head_widths_allow_any_d_model() -> None:
    config = ModelConfig(vocab_size=5, d_model=10, num_heads=3, d_key=4, d_value=2)
    assert config.head_width == 4


@pytest.mark.parametrize("name", PRESETS)
def test_presets_accept_changes(name: str) -> None:
    config = ModelConfig.preset(name, vocab_size=100, norm="post", d_ff=77)
    assert config.d_model == PRESETS[name]["d_model"]
    assert (config.norm, config.d_ff, config.target_vocab_size) == ("post", 77, 100)


def test_base_and_big_presets_equal_the_paper() -> None:
    base, big = ModelConfig.preset("base", vocab_size=5), ModelConfig.preset("big", vocab_size=5)
    assert base == ModelConfig(vocab_size=5)
    assert (big.d_model, big.num_heads, big.d_ff, big.dropout) == (1024, 16, 4096, 0.3)
    assert (big.num_encoder_layers, big.num_decoder_layers) == (6, 6)


def test_an_unknown_preset_raises_with_a_suggestion() -> None:
    error = has_code(
        "unknown_preset", preset="bsae", suggestion=" (did you mean base?)", presets="tiny, small, base, big, paper"
    )
    with pytest.raises(UsageError, check=error):
        ModelConfig.preset("bsae", vocab_size=5)


@pytest.mark.parametrize("changes", [{"d_model": 64}, {"norm": "post"}, {"positions": "rotary"}, {"tie": "all"}])
def test_replace_changes_one_setting(changes: dict[str, Any]) -> None:
    config = ModelConfig(vocab_size=5, d_ff=33)
    replaced = config.replace(**changes)
    assert replaced == ModelConfig(vocab_size=5, d_ff=33, **changes)


def test_replace_changes_the_vocabulary() -> None:
    assert ModelConfig(vocab_size=5).replace(vocab_size=6) == ModelConfig(vocab_size=6)


def test_replace_removes_the_encoder() -> None:
    replaced = ModelConfig(vocab_size=5).replace(num_encoder_layers=0)
    assert replaced == ModelConfig(vocab_size=5, num_encoder_layers=0)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"max_length": 7}, has_code("position_setting_unused", option="max_length", positions="sinusoidal")),
        (
            {"positions": "rotary", "position_offset": 2},
            has_code("position_setting_unused", option="position_offset", positions="rotary"),
        ),
        (
            {"positions": "learned", "position_layout": "halves"},
            has_code("position_setting_unused", option="position_layout", positions="learned"),
        ),
    ],
)
def test_unused_position_settings_are_rejected(changes: dict[str, Any], error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        ModelConfig(vocab_size=5, **changes)


def test_position_offsets_beyond_float32_are_rejected() -> None:
    assert ModelConfig(vocab_size=5, position_offset=2**24).position_offset == 2**24
    with pytest.raises(
        UsageError, check=has_code("setting_invalid", fault=has_code("field_less_than_equal", le=2**24))
    ):
        ModelConfig(vocab_size=5, position_offset=10**29)


def test_the_preset_paper_is_the_base_model_of_the_paper() -> None:
    paper, base = (ModelConfig.preset(name, vocab_size=37_000) for name in ("paper", "base"))
    assert paper == base.replace(norm="post", tie="all")
