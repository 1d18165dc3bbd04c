"""`torch.nn.Transformer` with its embeddings and output layer, imported: the same logits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from error_codes import ErrorCheck, fragment, has_code
from torch import Tensor, nn

from attendo.errors import ModelError
from attendo.interop.torch_transformer import AddedPositions, from_torch
from attendo.model.transformer import Transformer

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")

WIDTH, SOURCE_TOKENS, TARGET_TOKENS = 16, 19, 23
SIZES: dict[str, Any] = {
    "d_model": WIDTH,
    "nhead": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 3,
    "dim_feedforward": 24,
    "dropout": 0.0,
    "batch_first": True,
}
SOURCE = torch.tensor([[5, 6, 7, 8, 9], [4, 4, 10, 0, 0]])
TARGET = torch.tensor([[2, 6, 7, 8], [2, 9, 10, 11]])

Parts = tuple[nn.Transformer, nn.Embedding, nn.Embedding, nn.Linear]


def parts(seed: int = 0, output_bias: bool = True, **changes: Any) -> Parts:
    torch.manual_seed(seed)
    transformer = nn.Transformer(**{**SIZES, **changes})
    for parameter in transformer.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5)
    source, target = nn.Embedding(SOURCE_TOKENS, WIDTH), nn.Embedding(TARGET_TOKENS, WIDTH)
    return transformer, source, target, nn.Linear(WIDTH, TARGET_TOKENS, bias=output_bias)


def logits_of_torch(made: Parts, scale: float = 1.0, added: Tensor | None = None) -> Tensor:
    """With gradients, since torch takes another path without them."""
    transformer, source_embedding, target_embedding, output = made
    source, target = source_embedding(SOURCE) * scale, target_embedding(TARGET) * scale
    if added is not None:
        source, target = source + added[: source.size(1)], target + added[: target.size(1)]
    if not transformer.batch_first:
        source, target = source.transpose(0, 1), target.transpose(0, 1)
    future = nn.Transformer.generate_square_subsequent_mask(TARGET.size(1), dtype=torch.bool)
    padding = SOURCE == 0
    mixed = transformer.eval()(
        source, target, tgt_mask=future, src_key_padding_mask=padding, memory_key_padding_mask=padding
    )
    logits: Tensor = output(mixed if transformer.batch_first else mixed.transpose(0, 1))
    return logits.detach()


def logits_of_ours(network: Transformer) -> Tensor:
    with torch.no_grad():
        return network(SOURCE, TARGET, SOURCE != 0)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_first": False},
        {"activation": "gelu"},
        {"activation": F.silu},
        {"bias": False},
        {"layer_norm_eps": 1e-3, "nhead": 2},
    ],
    ids=lambda changes: " ".join(changes) or "none",
)
def test_logits_are_equal(norm_first: bool, changes: dict[str, Any]) -> None:
    made = parts(norm_first=norm_first, **changes)
    network = from_torch(*made)
    torch.testing.assert_close(logits_of_ours(network), logits_of_torch(made), atol=1e-5, rtol=1e-5)
    assert network.config.norm == ("pre" if norm_first else "post")


def test_the_scale_and_sines_are_those_of_the_code_around_it() -> None:
    made = parts()
    angles = torch.arange(9.0)[:, None] / 10_000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    sines = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
    network = from_torch(*made, positions=AddedPositions("interleaved"), scale_embedding=True)
    expected = logits_of_torch(made, math.sqrt(WIDTH), sines)
    torch.testing.assert_close(logits_of_ours(network), expected, atol=1e-5, rtol=1e-5)


def test_learned_positions_come_as_tables() -> None:
    made = parts()
    table = torch.randn(12, WIDTH)
    network = from_torch(*made, positions=AddedPositions(source_table=table, target_table=table))
    torch.testing.assert_close(logits_of_ours(network), logits_of_torch(made, added=table), atol=1e-5, rtol=1e-5)
    assert network.config.max_length == 12


def test_what_is_tied_stays_tied() -> None:
    transformer, source, target, output = parts(output_bias=False)
    output.weight = target.weight
    network = from_torch(transformer, source, target, output)
    assert network.config.tie == "output"
    assert network.output.weight is network.target.tokens.weight
    assert network.output.bias is None
    torch.testing.assert_close(
        logits_of_ours(network), logits_of_torch((transformer, source, target, output)), atol=1e-5, rtol=1e-5
    )
    assert from_torch(transformer, target, target, output).config.tie == "all"


def test_without_final_norms() -> None:
    made = parts()
    made[0].encoder.norm = made[0].decoder.norm = None
    network = from_torch(*made)
    torch.testing.assert_close(logits_of_ours(network), logits_of_torch(made), atol=1e-5, rtol=1e-5)


def test_the_callers_randomness_and_network_are_left_alone() -> None:
    made = parts()
    before, weight = torch.get_rng_state(), made[3].weight.clone()
    with torch.no_grad():
        from_torch(*made).output.weight.zero_()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(made[3].weight, weight)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"activation": torch.tanh}, "the activation is none of relu, gelu"),
        ({"activation": nn.GELU("tanh")}, "the activation is none of relu, gelu"),
        # torch copies its layers, and a decoder layer whose activation is a module has relu afterwards.
        ({"activation": nn.SiLU()}, "layers differ in heads, width, activation"),
        ({"custom_encoder": nn.Identity()}, "its layers are"),
    ],
)
def test_what_cannot_be_held_is_refused_with_the_reason(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ModelError, match=f"{fragment('torch_network_unsupported')}{reason}"):
        from_torch(*parts(**changes))


def test_sizes_that_do_not_fit_are_told_together() -> None:
    transformer, source, _, output = parts()
    with pytest.raises(
        ModelError,
        check=has_code("torch_network_unsupported", reasons="widths differ: [8, 16]; 23 outputs and 7 target tokens"),
    ):
        from_torch(transformer, source, nn.Embedding(7, 8), output)


def test_positions_need_a_layout_or_two_tables() -> None:
    with pytest.raises(ModelError, check=has_code("position_arguments_invalid")):
        from_torch(*parts(), positions=AddedPositions(source_table=torch.zeros(3, WIDTH)))


def rms_norm(where: str) -> Callable[[nn.Transformer], None]:
    def change(transformer: nn.Transformer) -> None:
        if where == "behind a stack":
            transformer.decoder.norm = nn.RMSNorm(WIDTH)
        for layer in transformer.decoder.layers if where == "in layers" else ():
            layer.norm2 = nn.RMSNorm(WIDTH)

    return change


def epsilon(find: Callable[[nn.Transformer], Any]) -> Callable[[nn.Transformer], None]:
    return lambda transformer: setattr(find(transformer), "eps", 0.5)


def other_heads(transformer: nn.Transformer) -> None:
    transformer.decoder.layers[0].multihead_attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)


def doubled(transformer: nn.Transformer) -> None:
    class TransformerEncoderLayer(nn.TransformerEncoderLayer):
        def forward(self, *given: Any, **named: Any) -> Tensor:
            return 2 * super().forward(*given, **named)

    transformer.encoder.layers[0] = TransformerEncoderLayer(WIDTH, 4, 24, batch_first=True)


class Doubled:
    """Of any part: what it computes, twice."""

    def forward(self, *given: Any, **named: Any) -> Any:
        found = super().forward(*given, **named)  # type: ignore[misc]
        return (2 * found[0], *found[1:]) if isinstance(found, tuple) else 2 * found


def double(part: nn.Module) -> None:
    """Its weights stay, and so does its name."""
    part.__class__ = type(type(part).__name__, (Doubled, type(part)), {})


@pytest.mark.parametrize(
    ("find", "name"),
    [
        (lambda made: made[0].encoder, "encoder"),
        (lambda made: made[0].decoder.layers[1].linear2, "linear"),
        (lambda made: made[0].decoder.layers[0].multihead_attn, "attention"),
        (lambda made: made[0].encoder.layers[1].norm1, "norm"),
        (lambda made: made[0].decoder.norm, "norm"),
        (lambda made: made[1], "source_embedding"),
        (lambda made: made[2], "target_embedding"),
        (lambda made: made[3], "output"),
    ],
)
def test_a_part_that_computes_otherwise_is_seen(find: Callable[[Any], nn.Module], name: str) -> None:
    made = parts()
    double(find(made))
    with pytest.raises(ModelError, match=f"its {name} is a .*, which computes otherwise than torch.nn"):
        from_torch(*made)


def test_a_part_that_only_keeps_its_weights_otherwise_is_taken() -> None:
    made = parts()
    linear = nn.utils.parametrizations.weight_norm(made[0].encoder.layers[0].linear1)
    nn.init.uniform_(linear.parametrizations.weight.original0, 0.5, 2.0)  # so that the norm is no longer its own
    torch.testing.assert_close(logits_of_ours(from_torch(*made)), logits_of_torch(made), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("part", [nn.Identity(), nn.Sequential(nn.Linear(WIDTH, WIDTH))])
def test_a_part_of_another_kind_is_told(part: nn.Module) -> None:
    made = parts()
    made[0].encoder.layers[0].linear2 = part
    with pytest.raises(ModelError, check=has_code("torch_network_unsupported")):
        from_torch(*made)
    with pytest.raises(ModelError, check=has_code("torch_network_unsupported")):
        from_torch(part, *made[1:])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rms_norm("behind a stack"), "its norms are LayerNorm, RMSNorm"),
        (rms_norm("in layers"), "its norms are LayerNorm, RMSNorm"),
        (epsilon(lambda transformer: transformer.encoder.norm), "norms differ in epsilon"),
        (epsilon(lambda transformer: transformer.encoder.layers[0].norm2), "norms differ in epsilon"),
        (epsilon(lambda transformer: transformer.decoder.layers[1].norm3), "norms differ in epsilon"),
        (other_heads, "layers differ in heads"),
        (doubled, "its layers are .*doubled.*TransformerEncoderLayer"),
    ],
)
def test_a_part_that_was_exchanged_is_seen(change: Callable[[nn.Transformer], None], reason: str) -> None:
    made = parts()
    change(made[0])
    with pytest.raises(ModelError, match=f"{fragment('torch_network_unsupported')}{reason}"):
        from_torch(*made)


@pytest.mark.parametrize(
    ("added", "error"),
    [
        (
            AddedPositions(source_table=torch.zeros(9, 8), target_table=torch.zeros(9, 8)),
            has_code("position_table_shape_invalid", width=16),
        ),
        (
            AddedPositions(source_table=torch.zeros(5, WIDTH), target_table=torch.zeros(5, WIDTH), offset=9),
            has_code("position_table_shape_invalid", offset=9),
        ),
        (
            AddedPositions("halves", source_table=torch.zeros(5, WIDTH), target_table=torch.zeros(5, WIDTH)),
            has_code("position_arguments_invalid"),
        ),
    ],
)
def test_tables_of_positions_must_fit(added: AddedPositions, error: ErrorCheck) -> None:
    with pytest.raises(ModelError, check=error):
        from_torch(*parts(), positions=added)
