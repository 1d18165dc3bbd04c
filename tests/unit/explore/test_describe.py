"""The description of a network has the parameter counts and shapes of the real one."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from error_codes import has_code

from attendo.errors import UsageError
from attendo.explore.describe import Description, NetworkPart, describe
from attendo.model.config import PRESETS, ModelConfig
from attendo.model.transformer import Transformer

VARIANTS: list[dict[str, Any]] = [
    {"tie": "none"},
    {"tie": "output"},
    {"tie": "all"},
    {"tie": "none", "output_bias": True},
    {"tie": "all", "output_bias": True},
    {"tie": "none", "vocab_size": None, "source_vocab_size": 11, "target_vocab_size": 13},
    {"activation": "gelu"},
    {"activation": "swiglu"},
    {"norm": "post"},
    {"norm": "post", "final_norm": True},
    {"final_norm": False},
    {"norm_kind": "rms"},
    {"positions": "learned", "max_length": 50, "tie": "all"},
    {"positions": "learned", "max_length": 50, "position_offset": 2},
    {"positions": "rotary"},
    {"positions": "relative", "tie": "inputs", "linear_bias": False, "activation": "geglu"},
    {"positions": "relative", "relative_bias": "per_layer", "attention_scale": 1.0, "output_scale": 0.5},
    {"num_kv_heads": 1, "qk_norm": True, "norm": "sandwich", "merged_attention": True, "sliding_window": 3},
    {"positions": "none"},
    {"embedding_norm": True},
    {"d_key": 6, "d_value": 10},
    {"num_encoder_layers": 0},
    {"num_encoder_layers": 1, "num_decoder_layers": 3},
]


@pytest.mark.short(6)
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_parameter_counts_equal_the_real_network(
    small_config: Callable[..., ModelConfig], changes: dict[str, Any]
) -> None:
    config = small_config(**changes)
    assert describe(config).parameters == count(Transformer(config))


@pytest.mark.short(2)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_parameter_counts_of_presets_equal_the_real_network(preset: str, tie: str) -> None:
    config = ModelConfig.preset(preset, vocab_size=1000, tie=tie)
    with torch.device("meta"):
        network = Transformer(config)
    assert describe(config).parameters == count(network)


def test_E37_base_decoder_layers_are_a_third_larger() -> None:
    base = describe(ModelConfig.preset("base", vocab_size=100))
    assert part(base, "encoder layer").parameters == 3_152_384
    assert part(base, "decoder layer").parameters == 4_204_032
    assert part(base, "encoder layer").times == part(base, "decoder layer").times == 6


def test_E38_base_cross_attention_parameters_by_row() -> None:
    layer = part(describe(ModelConfig.preset("base", vocab_size=100)), "decoder layer")
    rows = {row.operation: row.parameters for row in layer.rows if row.operation.startswith("cross-attention")}
    assert rows == {
        "cross-attention Q": 262_656,
        "cross-attention K, V": 525_312,
        "cross-attention weights": 0,
        "cross-attention weights × V": 0,
        "cross-attention W^O": 262_656,
    }


def test_shapes_follow_the_lengths() -> None:
    description = describe(ModelConfig.preset("base", vocab_size=100), source_length=15, target_length=10)
    encoder = {row.operation: (row.input, row.output) for row in part(description, "encoder layer").rows}
    decoder = {row.operation: (row.input, row.output) for row in part(description, "decoder layer").rows}
    assert encoder["self-attention Q, K, V"] == ((15, 512), (15, 1536))
    assert encoder["self-attention weights"][1] == (8, 15, 15)
    assert encoder["feed-forward W₁, relu"] == ((15, 512), (15, 2048))
    assert decoder["masked self-attention weights"][1] == (8, 10, 10)
    assert decoder["cross-attention weights"][1] == (8, 10, 15)
    assert decoder["cross-attention K, V"] == ((15, 512), (15, 1024))
    assert [row.output for row in part(description, "output").rows] == [(10, 100), (10, 100)]


def test_layers_begin_and_end_with_the_model_width() -> None:
    description = describe(ModelConfig.preset("tiny", vocab_size=100))
    for name, length in (("encoder layer", 7), ("decoder layer", 5)):
        assert part(description, name).rows[0].input == (length, 128)
        assert part(description, name).rows[-1].output == (length, 128)


@pytest.mark.parametrize(
    ("tie", "source", "output"), [("none", None, None), ("output", None, "target"), ("all", "target", "target")]
)
def test_shared_weights_are_named_and_counted_once(tie: str, source: str | None, output: str | None) -> None:
    description = describe(ModelConfig.preset("tiny", vocab_size=100, tie=tie))
    assert part(description, "source").rows[0].shared_with == source
    assert part(description, "output").rows[0].shared_with == output
    assert (part(description, "source").parameters == 0) == (source is not None)
    assert (part(description, "output").parameters == 0) == (output is not None)


def test_operations_name_the_configured_kinds() -> None:
    operations = [
        row.operation
        for each in describe(
            ModelConfig.preset("tiny", vocab_size=9, norm="post", activation="swiglu", positions="rotary")
        ).parts
        for row in each.rows
    ]
    assert {"rotary positions", "add and norm", "feed-forward W₁, swiglu", "embedding × √d_model"} <= set(operations)


def test_more_tokens_than_learned_positions_are_rejected() -> None:
    config = ModelConfig.preset("tiny", vocab_size=9, positions="learned", max_length=4)
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", max_length=4)):
        describe(config, source_length=5)


def part(description: Description, name: str) -> NetworkPart:
    return next(each for each in description.parts if each.name == name)


def count(network: Transformer) -> int:
    return sum(weight.numel() for weight in network.parameters())
