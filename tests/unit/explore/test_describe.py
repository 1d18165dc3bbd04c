"""What a network is made of: the numbers are those of the real one."""

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
    {"positions": "none"},
    {"embedding_norm": True},
    {"d_key": 6, "d_value": 10},
    {"num_encoder_layers": 0},
    {"num_encoder_layers": 1, "num_decoder_layers": 3},
]


@pytest.mark.short(6)
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_parameters_are_those_of_the_real_network(
    small_config: Callable[..., ModelConfig], changes: dict[str, Any]
) -> None:
    config = small_config(**changes)
    assert describe(config).parameters == count(Transformer(config))


@pytest.mark.short(2)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_parameters_of_every_preset_are_those_of_the_real_network(preset: str, tie: str) -> None:
    config = ModelConfig.preset(preset, vocab_size=1000, tie=tie)
    with torch.device("meta"):
        network = Transformer(config)
    assert describe(config).parameters == count(network)


def test_E37_a_decoder_layer_of_the_base_size_has_a_third_more_than_an_encoder_layer() -> None:
    base = describe(ModelConfig.preset("base", vocab_size=100))
    assert part(base, "encoder layer").parameters == 3_152_384
    assert part(base, "decoder layer").parameters == 4_204_032
    assert part(base, "encoder layer").times == part(base, "decoder layer").times == 6


def test_E38_cross_attention_of_the_base_size_by_row() -> None:
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
    shown = describe(ModelConfig.preset("base", vocab_size=100), source_length=15, target_length=10)
    encoder = {row.operation: (row.input, row.output) for row in part(shown, "encoder layer").rows}
    decoder = {row.operation: (row.input, row.output) for row in part(shown, "decoder layer").rows}
    assert encoder["self-attention Q, K, V"] == ((15, 512), (15, 1536))
    assert encoder["self-attention weights"][1] == (8, 15, 15)
    assert encoder["feed-forward W₁, relu"] == ((15, 512), (15, 2048))
    assert decoder["masked self-attention weights"][1] == (8, 10, 10)
    assert decoder["cross-attention weights"][1] == (8, 10, 15)
    assert decoder["cross-attention K, V"] == ((15, 512), (15, 1024))
    assert [row.output for row in part(shown, "output").rows] == [(10, 100), (10, 100)]


def test_each_row_takes_up_where_the_row_before_left_off() -> None:
    shown = describe(ModelConfig.preset("tiny", vocab_size=100))
    for name, length in (("encoder layer", 7), ("decoder layer", 5)):
        assert part(shown, name).rows[0].input == (length, 128)
        assert part(shown, name).rows[-1].output == (length, 128)


@pytest.mark.parametrize(
    ("tie", "source", "output"), [("none", None, None), ("output", None, "target"), ("all", "target", "target")]
)
def test_shared_weights_are_named_and_counted_once(tie: str, source: str | None, output: str | None) -> None:
    shown = describe(ModelConfig.preset("tiny", vocab_size=100, tie=tie))
    assert part(shown, "source").rows[0].shared_with == source
    assert part(shown, "output").rows[0].shared_with == output
    assert (part(shown, "source").parameters == 0) == (source is not None)
    assert (part(shown, "output").parameters == 0) == (output is not None)


def test_the_kinds_are_named() -> None:
    operations = [
        row.operation
        for each in describe(
            ModelConfig.preset("tiny", vocab_size=9, norm="post", activation="swiglu", positions="rotary")
        ).parts
        for row in each.rows
    ]
    assert {"rotary positions", "add and norm", "feed-forward W₁, swiglu", "embedding × √d_model"} <= set(operations)


def test_more_tokens_than_learned_positions_are_refused() -> None:
    config = ModelConfig.preset("tiny", vocab_size=9, positions="learned", max_length=4)
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", max_length=4)):
        describe(config, source_length=5)


def part(description: Description, name: str) -> NetworkPart:
    return next(each for each in description.parts if each.name == name)


def count(network: Transformer) -> int:
    return sum(weight.numel() for weight in network.parameters())
