"""An imported `torch.nn.Transformer` with embeddings and output layer gives the same logits."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from error_codes import ErrorCheck, has_code, message
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


def make_parts(seed: int = 0, output_bias: bool = True, **changes: Any) -> Parts:
    torch.manual_seed(seed)
    transformer = nn.Transformer(**{**SIZES, **changes})
    for parameter in transformer.parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.5)
    source, target = nn.Embedding(SOURCE_TOKENS, WIDTH), nn.Embedding(TARGET_TOKENS, WIDTH)
    return transformer, source, target, nn.Linear(WIDTH, TARGET_TOKENS, bias=output_bias)


def torch_logits(parts: Parts, scale: float = 1.0, added: Tensor | None = None) -> Tensor:
    """With gradients, because torch uses another code path without them."""
    transformer, source_embedding, target_embedding, output = parts
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


def our_logits(network: Transformer) -> Tensor:
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
    parts = make_parts(norm_first=norm_first, **changes)
    network = from_torch(*parts)
    torch.testing.assert_close(our_logits(network), torch_logits(parts), atol=1e-5, rtol=1e-5)
    assert network.config.norm == ("pre" if norm_first else "post")


def test_scale_and_sinusoids_can_be_given() -> None:
    parts = make_parts()
    angles = torch.arange(9.0)[:, None] / 10_000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    sines = torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)
    network = from_torch(*parts, positions=AddedPositions("interleaved"), scale_embedding=True)
    expected = torch_logits(parts, math.sqrt(WIDTH), sines)
    torch.testing.assert_close(our_logits(network), expected, atol=1e-5, rtol=1e-5)


def test_learned_positions_are_given_as_tables() -> None:
    parts = make_parts()
    table = torch.randn(12, WIDTH)
    network = from_torch(*parts, positions=AddedPositions(source_table=table, target_table=table))
    torch.testing.assert_close(our_logits(network), torch_logits(parts, added=table), atol=1e-5, rtol=1e-5)
    assert network.config.max_length == 12


def test_tied_weights_stay_tied() -> None:
    transformer, source, target, output = make_parts(output_bias=False)
    output.weight = target.weight
    network = from_torch(transformer, source, target, output)
    assert network.config.tie == "output"
    assert network.output.weight is network.target.tokens.weight
    assert network.output.bias is None
    torch.testing.assert_close(
        our_logits(network), torch_logits((transformer, source, target, output)), atol=1e-5, rtol=1e-5
    )
    assert from_torch(transformer, target, target, output).config.tie == "all"


def test_models_without_final_norms_are_imported() -> None:
    parts = make_parts()
    parts[0].encoder.norm = parts[0].decoder.norm = None
    network = from_torch(*parts)
    torch.testing.assert_close(our_logits(network), torch_logits(parts), atol=1e-5, rtol=1e-5)


def test_random_state_and_source_network_are_unchanged() -> None:
    parts = make_parts()
    before, weight = torch.get_rng_state(), parts[3].weight.clone()
    with torch.no_grad():
        from_torch(*parts).output.weight.zero_()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(parts[3].weight, weight)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"activation": torch.tanh}, has_code("torch_activation_unknown")),
        ({"activation": nn.GELU("tanh")}, has_code("torch_activation_unknown")),
        # torch copies its layers. A decoder layer whose activation is a module has relu afterwards.
        ({"activation": nn.SiLU()}, has_code("torch_layers_differ")),
        ({"custom_encoder": nn.Identity()}, has_code("torch_layer_classes")),
    ],
)
def test_unsupported_networks_raise_with_the_reason(changes: dict[str, Any], reason: ErrorCheck) -> None:
    with pytest.raises(ModelError, check=has_code("torch_network_unsupported", reasons=reason)):
        from_torch(*make_parts(**changes))


def test_all_size_mismatches_are_reported() -> None:
    transformer, source, _, output = make_parts()
    with pytest.raises(
        ModelError,
        check=has_code(
            "torch_network_unsupported",
            reasons="; ".join(
                (
                    message("torch_widths_differ", widths=[8, 16]),
                    message("torch_vocabulary_sizes_differ", outputs=23, tokens=7),
                )
            ),
        ),
    ):
        from_torch(transformer, source, nn.Embedding(7, 8), output)


def test_positions_need_a_layout_or_two_tables() -> None:
    with pytest.raises(ModelError, check=has_code("position_arguments_invalid")):
        from_torch(*make_parts(), positions=AddedPositions(source_table=torch.zeros(3, WIDTH)))


def rms_norm(where: str) -> Callable[[nn.Transformer], None]:
    def change(transformer: nn.Transformer) -> None:
        if where == "after a stack":
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
        def forward(self, *args: Any, **kwargs: Any) -> Tensor:
            return 2 * super().forward(*args, **kwargs)

    transformer.encoder.layers[0] = TransformerEncoderLayer(WIDTH, 4, 24, batch_first=True)


class Doubled:
    """A mixin that doubles the output of a module."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        result = super().forward(*args, **kwargs)  # type: ignore[misc]
        return (2 * result[0], *result[1:]) if isinstance(result, tuple) else 2 * result


def double(part: nn.Module) -> None:
    """Its weights and its class name stay."""
    part.__class__ = type(type(part).__name__, (Doubled, type(part)), {})


@pytest.mark.parametrize(
    ("find", "name"),
    [
        (lambda parts: parts[0].encoder, "encoder"),
        (lambda parts: parts[0].decoder.layers[1].linear2, "linear"),
        (lambda parts: parts[0].decoder.layers[0].multihead_attn, "attention"),
        (lambda parts: parts[0].encoder.layers[1].norm1, "norm"),
        (lambda parts: parts[0].decoder.norm, "norm"),
        (lambda parts: parts[1], "source_embedding"),
        (lambda parts: parts[2], "target_embedding"),
        (lambda parts: parts[3], "output"),
    ],
)
def test_a_subclass_with_another_forward_is_rejected(find: Callable[[Any], nn.Module], name: str) -> None:
    parts = make_parts()
    double(find(parts))
    replaced = has_code("torch_module_replaced", part=name)
    with pytest.raises(ModelError, check=has_code("torch_network_unsupported", reasons=replaced)):
        from_torch(*parts)


def test_parametrized_weights_are_imported() -> None:
    parts = make_parts()
    linear = nn.utils.parametrizations.weight_norm(parts[0].encoder.layers[0].linear1)
    nn.init.uniform_(linear.parametrizations.weight.original0, 0.5, 2.0)  # so that the weight norm changes the weight
    torch.testing.assert_close(our_logits(from_torch(*parts)), torch_logits(parts), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("part", [nn.Identity(), nn.Sequential(nn.Linear(WIDTH, WIDTH))])
def test_a_module_of_another_class_is_rejected(part: nn.Module) -> None:
    parts = make_parts()
    parts[0].encoder.layers[0].linear2 = part
    with pytest.raises(ModelError, match=r"its linear is a torch\.nn\.modules\."):
        from_torch(*parts)
    with pytest.raises(ModelError, check=has_code("torch_network_unsupported")):
        from_torch(part, *parts[1:])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rms_norm("after a stack"), has_code("torch_norm_classes", found="LayerNorm, RMSNorm")),
        (rms_norm("in layers"), has_code("torch_norm_classes", found="LayerNorm, RMSNorm")),
        (epsilon(lambda transformer: transformer.encoder.norm), has_code("torch_epsilons_differ")),
        (epsilon(lambda transformer: transformer.encoder.layers[0].norm2), has_code("torch_epsilons_differ")),
        (epsilon(lambda transformer: transformer.decoder.layers[1].norm3), has_code("torch_epsilons_differ")),
        (other_heads, has_code("torch_layers_differ")),
        (doubled, has_code("torch_layer_classes")),
    ],
)
def test_a_replaced_module_is_rejected(change: Callable[[nn.Transformer], None], reason: ErrorCheck) -> None:
    parts = make_parts()
    change(parts[0])
    with pytest.raises(ModelError, check=has_code("torch_network_unsupported", reasons=reason)):
        from_torch(*parts)


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
def test_position_tables_must_fit(added: AddedPositions, error: ErrorCheck) -> None:
    with pytest.raises(ModelError, check=error):
        from_torch(*make_parts(), positions=added)
