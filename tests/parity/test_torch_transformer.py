"""The network against torch.nn.Transformer with the same weights: outputs and the gradient of every parameter."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.residual import Residual

# torch warns that pre-norm or an odd number of heads disables nested tensors, which are not needed here.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

MakeNetwork = Callable[..., Transformer]
Batch = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
Pairs = dict[str, tuple[nn.Parameter, nn.Parameter]]

SIZES: list[dict[str, Any]] = [
    {},
    {"num_heads": 1},
    {"num_heads": 8, "d_model": 32, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 3},
]


class Reference(nn.Module):
    """torch's own Transformer between copies of our embeddings and our output layer."""

    def __init__(self, network: Transformer) -> None:
        super().__init__()
        config = network.config
        # Copied together, so that tied tables stay tied.
        self.ends = copy.deepcopy(nn.ModuleList([network.source, network.target, network.output]))  # type: ignore[list-item]
        self.middle = nn.Transformer(
            d_model=config.d_model,
            nhead=config.num_heads,
            num_encoder_layers=config.num_encoder_layers,
            num_decoder_layers=config.num_decoder_layers,
            dim_feedforward=config.d_ff,
            dropout=0.0,
            activation=config.activation,
            layer_norm_eps=config.norm_epsilon,
            batch_first=True,
            norm_first=config.norm == "pre",
        ).to(network.output.weight.dtype)
        if not config.has_final_norm:
            self.middle.encoder.norm = self.middle.decoder.norm = None

    def forward(
        self, source_ids: Tensor, target_ids: Tensor, source_mask: Tensor | None, target_mask: Tensor | None
    ) -> Tensor:
        embed_source, embed_target, output = self.ends
        length = target_ids.size(1)
        source_padding = None if source_mask is None else ~source_mask
        x = self.middle(
            embed_source(source_ids, 0),
            embed_target(target_ids, 0),
            tgt_mask=torch.ones(length, length, dtype=torch.bool).triu(1),
            src_key_padding_mask=source_padding,
            tgt_key_padding_mask=None if target_mask is None else ~target_mask,
            memory_key_padding_mask=source_padding,
        )
        return output(x)


@pytest.mark.parametrize("size", SIZES, ids=["small", "one head", "wide and uneven"])
@pytest.mark.parametrize("lengths", [(5, 4), (3, 7), (4, 1), (1, 1)], ids=str)
@pytest.mark.parametrize("padded", [(False, False), (True, False), (True, True)], ids=["full", "source", "both"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_outputs_and_gradients_equal_torch(
    small_network: MakeNetwork, norm: str, padded: tuple[bool, bool], lengths: tuple[int, int], size: dict[str, Any]
) -> None:
    network = small_network(norm=norm, final_norm=True, **size)
    batch = make_batch(*lengths, source_padded=padded[0], target_padded=padded[1])
    assert_equal(network, batch, tolerance=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("final_norm", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("tie", ["none", "output", "all"])
def test_options_equal_torch(
    small_network: MakeNetwork, tie: str, norm: str, final_norm: bool, activation: str
) -> None:
    network = small_network(tie=tie, norm=norm, final_norm=final_norm, activation=activation, output_bias=True)
    assert_equal(network, make_batch(5, 4, source_padded=True, target_padded=True), tolerance=1e-5)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_in_float64_both_agree_to_ten_digits(small_network: MakeNetwork, norm: str) -> None:
    network = small_network(norm=norm, final_norm=True).double()
    assert_equal(network, make_batch(5, 4, source_padded=True, target_padded=True), tolerance=1e-10)


def test_float32_is_within_the_tolerance_of_the_float64_reference(small_network: MakeNetwork) -> None:
    network = small_network(final_norm=True)
    batch = make_batch(6, 5, source_padded=True, target_padded=True)
    exact, _ = make_reference(copy.deepcopy(network).double())
    torch.testing.assert_close(network(*batch).double(), exact(*batch), atol=1e-5, rtol=1e-5)


def test_every_parameter_has_its_counterpart(small_network: MakeNetwork) -> None:
    network = small_network(final_norm=True, tie="none", output_bias=True)
    reference, pairs = make_reference(network)
    assert set(pairs) == {name for name, _ in network.named_parameters()}
    theirs = {id(other) for _, other in pairs.values()}
    assert theirs == {id(parameter) for parameter in reference.parameters()}


def assert_equal(network: Transformer, batch: Batch, tolerance: float) -> None:
    reference, pairs = make_reference(network)
    ours, theirs = network(*batch), reference(*batch)
    torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=tolerance)

    probe = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(9)) / ours.size(-1)
    (ours * probe).sum().backward()
    (theirs * probe).sum().backward()
    for name, (parameter, other) in pairs.items():
        assert parameter.grad is not None, name
        assert other.grad is not None, name
        torch.testing.assert_close(
            parameter.grad,
            other.grad,
            atol=tolerance,
            rtol=tolerance,
            msg=lambda text, name=name: f"gradient of {name}: {text}",  # type: ignore[misc]
        )


def make_reference(network: Transformer) -> tuple[Reference, Pairs]:
    """A reference with the weights of `network`, and pairs of parameters by our names."""
    reference = Reference(network)
    pairs = _match(network, reference)
    with torch.no_grad():
        for parameter, other in pairs.values():
            other.copy_(parameter)
    return reference, pairs


def make_batch(source_length: int, target_length: int, source_padded: bool, target_padded: bool) -> Batch:
    """Three sentences. Padded ones have different lengths."""
    generator = torch.Generator().manual_seed(source_length * 31 + target_length)
    source = torch.randint(17, (3, source_length), generator=generator)
    target = torch.randint(17, (3, target_length), generator=generator)
    return (
        source,
        target,
        _lengths_mask(source_length) if source_padded else None,
        _lengths_mask(target_length) if target_padded else None,
    )


def _lengths_mask(longest: int) -> Tensor:
    lengths = torch.tensor([longest, max(1, longest - 1), max(1, longest - 3)])
    return torch.arange(longest) < lengths[:, None]


def _match(network: Transformer, reference: Reference) -> Pairs:
    # `named_parameters` lists a tied table once, the copied ends list it several times. Only our names are used.
    ours, theirs = dict(network.named_parameters()), {}
    for ending, name in zip(reference.ends, ("source", "target", "output"), strict=True):
        theirs.update({f"{name}.{inner}": parameter for inner, parameter in ending.named_parameters()})
    for stack in ("encoder", "decoder"):
        their_stack = getattr(reference.middle, stack)
        for n, (block, layer) in enumerate(zip(getattr(network, stack), their_stack.layers, strict=True)):
            theirs.update({f"{stack}.{n}.{name}": other for name, other in _match_block(block, layer).items()})
        if their_stack.norm is not None:
            theirs[f"{stack}_norm.weight"] = their_stack.norm.weight
            theirs[f"{stack}_norm.bias"] = their_stack.norm.bias
    return {name: (ours[name], theirs[name]) for name in ours}


def _match_block(block: Any, layer: Any) -> dict[str, nn.Parameter]:
    crossed = hasattr(layer, "multihead_attn")
    modules = {
        "self_attention": layer.self_attn,
        "self_residual": layer.norm1,
        "feed_forward.expand": layer.linear1,
        "feed_forward.contract": layer.linear2,
        "feed_forward_residual": layer.norm3 if crossed else layer.norm2,
    }
    if crossed:
        modules |= {"cross_attention": layer.multihead_attn, "cross_residual": layer.norm2}
    matched: dict[str, nn.Parameter] = {}
    for name, other in modules.items():
        ours = block.get_submodule(name)
        if isinstance(ours, MultiHeadAttention):
            matched |= {f"{name}.project.weight": other.in_proj_weight, f"{name}.project.bias": other.in_proj_bias}
            matched |= {f"{name}.output.weight": other.out_proj.weight, f"{name}.output.bias": other.out_proj.bias}
        else:
            inner = ".normalise" if isinstance(ours, Residual) else ""
            matched |= {f"{name}{inner}.weight": other.weight, f"{name}{inner}.bias": other.bias}
    return matched
