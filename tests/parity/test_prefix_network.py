"""A prefix LM against torch.nn.TransformerEncoder over one row of source and target, with a visibility mask."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attendo.model.prefix import PrefixTransformer
from attendo.model.transformer import Transformer
from attendo.nn.positions import LearnedPositions, RelativePositions, find_buckets

# torch warns that pre-norm or an odd number of heads disables nested tensors, which are not needed here.
pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")

MakeNetwork = Callable[..., Transformer]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"norm": "post", "final_norm": True, "tie": "none", "num_heads": 1},
    {"positions": "learned", "num_decoder_layers": 3, "activation": "gelu", "output_bias": True},
    {"positions": "none", "scale_embedding": False, "num_decoder_layers": 1},
    {"positions": "relative", "relative_buckets": 6, "relative_max_distance": 4},
]
IDS = ["pre-norm", "post-norm", "learned positions", "one layer", "relative positions"]


class OneRow(nn.Module):
    """One pass over [source ; target] with torch's layers. Each query sees the keys that `visible` marks."""

    def __init__(self, network: PrefixTransformer) -> None:
        super().__init__()
        config = network.config
        self.tokens, self.output, self.segments = (
            copy.deepcopy(each) for each in (network.target.tokens, network.output, network.segments)
        )
        if config.tie != "none":
            self.output.weight = self.tokens.weight
        trained = network.target.positions
        is_trained = isinstance(trained, LearnedPositions | RelativePositions)
        self.table = nn.Parameter(trained.table.detach().clone()) if is_trained else None
        self.scale, self.positions, self.heads = network.target.scale, config.positions, config.num_heads
        layer = nn.TransformerEncoderLayer(
            config.d_model,
            config.num_heads,
            config.d_ff,
            dropout=0.0,
            activation=config.activation,
            layer_norm_eps=config.norm_epsilon,
            batch_first=True,
            norm_first=config.norm == "pre",
        )
        norm = nn.LayerNorm(config.d_model, config.norm_epsilon)
        self.stack = nn.TransformerEncoder(layer, config.num_decoder_layers, norm)
        self.pairs = dict(self._pair(network))
        with torch.no_grad():
            for theirs, ours in self.pairs.values():
                theirs.copy_(ours)

    def _pair(self, network: PrefixTransformer) -> Any:
        """Yield our parameter and its counterpart by name."""
        ours = dict(network.named_parameters())
        theirs: dict[str, Any] = {"target.tokens.weight": self.tokens.weight, "segments": self.segments}
        theirs |= {"output.weight": self.output.weight, "output.bias": self.output.bias}
        theirs |= {"target.positions.table": self.table}
        norm = self.stack.norm
        assert norm is not None
        theirs |= {"decoder_norm.weight": norm.weight, "decoder_norm.bias": norm.bias}
        for n, layer in enumerate(self.stack.layers):
            parts = {
                "self_attention.project.weight": layer.self_attn.in_proj_weight,
                "self_attention.project.bias": layer.self_attn.in_proj_bias,
                "self_attention.output": layer.self_attn.out_proj,
                "self_residual.normalise": layer.norm1,
                "feed_forward.expand": layer.linear1,
                "feed_forward.contract": layer.linear2,
                "feed_forward_residual.normalise": layer.norm2,
            }
            for name, part in parts.items():
                if isinstance(part, nn.Module):
                    theirs |= {f"decoder.{n}.{name}.{key}": each for key, each in part.named_parameters()}
                else:
                    theirs[f"decoder.{n}.{name}"] = part
        assert ours.keys() <= theirs.keys()
        return ((name, (theirs[name], weight)) for name, weight in ours.items())

    def forward(self, source: Tensor, target: Tensor, source_mask: Tensor, target_mask: Tensor) -> Tensor:
        sizes = source.size(1), target.size(1)
        x = self.tokens(torch.cat((source, target), 1)) * self.scale
        x = x + torch.cat([self._position(size, x.size(2)) for size in sizes])
        x = x + torch.cat([self.segments[n].expand(size, -1) for n, size in enumerate(sizes)])
        column = torch.arange(sum(sizes))
        in_source = column < sizes[0]
        visible = in_source[None] | (~in_source[:, None] & (column[None] <= column[:, None]))
        seen = visible[None] & torch.cat((source_mask, target_mask), 1)[:, None]  # [B, R, R]
        seen = seen | torch.eye(sum(sizes), dtype=torch.bool)  # torch gives NaN for padding that sees nothing
        bias = self._bias(sizes).expand(len(x), -1, -1, -1).masked_fill(~seen[:, None], -torch.inf)
        return self.output(self.stack(x, mask=bias.flatten(0, 1))[:, sizes[0] :])

    def _bias(self, sizes: tuple[int, int]) -> Tensor:
        """Return the bias of each head and pair of positions: only within the source and within the target."""
        if self.positions != "relative":
            return torch.zeros(self.heads, sum(sizes), sum(sizes))
        assert self.table is not None
        blocks = []
        for size in sizes:
            distance = torch.arange(size) - torch.arange(size)[:, None]
            blocks.append(self.table[0, find_buckets(distance, True, 6, 4)].permute(2, 0, 1))
        return torch.stack([torch.block_diag(*pair) for pair in zip(*blocks, strict=True)])

    def _position(self, size: int, width: int) -> Tensor:
        """Return the vectors of positions 0 to size - 1: source and target are counted apart."""
        if self.positions in ("none", "relative"):
            return torch.zeros(size, width)
        if self.table is not None:
            return self.table[:size]
        place, frequency = torch.arange(size)[:, None], 10_000 ** (-torch.arange(0, width, 2) / width)
        return torch.stack(((place * frequency).sin(), (place * frequency).cos()), -1).flatten(1)


def make_batch(padded: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    source, target = (torch.randint(0, 17, (3, width), generator=generator) for width in (5, 6))
    lengths = (torch.tensor([5, 2, 3]), torch.tensor([4, 6, 1])) if padded else (torch.tensor(5), torch.tensor(6))
    masks = [
        torch.arange(each.size(1)).expand_as(each) < n.view(-1, 1)
        for each, n in zip((source, target), lengths, strict=True)
    ]
    return source, target, masks[0], masks[1]


def make_pair(small_network: MakeNetwork, settings: dict[str, Any]) -> tuple[PrefixTransformer, OneRow]:
    network = small_network(**{"num_encoder_layers": 0, "prefix_lm": True, **settings})
    assert isinstance(network, PrefixTransformer)
    return network, OneRow(network)


@pytest.mark.parametrize("settings", SETTINGS, ids=IDS)
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("tapped", [False, True], ids=["fused", "explicit"])
def test_outputs_and_gradients_equal_one_pass_over_the_row(
    small_network: MakeNetwork, settings: dict[str, Any], padded: bool, tapped: bool
) -> None:
    network, reference = make_pair(small_network, settings)
    source, target, source_mask, target_mask = batch = make_batch(padded)
    tap = (lambda site, weights: None) if tapped else None
    given = (source_mask, target_mask) if padded else (None, None)
    ours, theirs = network(source, target, *given, tap), reference(*batch)
    torch.testing.assert_close(ours[target_mask], theirs[target_mask], atol=1e-5, rtol=1e-5)

    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(5)) * target_mask[..., None]
    for logits in (ours, theirs):
        (logits * weight).sum().backward()
    for name, (expected, parameter) in reference.pairs.items():
        assert parameter.grad is not None, name
        assert expected.grad is not None, name
        torch.testing.assert_close(parameter.grad, expected.grad, atol=1e-4, rtol=1e-4, msg=name)


@torch.no_grad()
def test_single_steps_equal_one_pass_over_the_row(small_network: MakeNetwork) -> None:
    network, reference = make_pair(small_network, {})
    source, target, source_mask, target_mask = make_batch(padded=True)
    expected = reference(source, target, source_mask, torch.ones_like(target_mask))
    state = network.start(network.encode(source, source_mask))
    for column in range(target.size(1)):
        logits, state = network.step(target[:, column : column + 1], state)
        torch.testing.assert_close(logits[:, 0], expected[:, column], atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 3])
def test_rows_of_a_sentence_share_its_source(small_network: MakeNetwork, length: int) -> None:
    network, reference = make_pair(small_network, {})
    source, _, source_mask, _ = make_batch(padded=True)
    target = torch.randint(0, 17, (6, length), generator=torch.Generator().manual_seed(6))
    logits, _ = network.step(target, network.start(network.encode(source, source_mask)))
    repeated = (each.repeat_interleave(2, 0) for each in (source, source_mask))
    rows, mask = repeated
    torch.testing.assert_close(logits, reference(rows, target, mask, torch.ones_like(target, dtype=torch.bool)))


def test_a_network_of_seven_layers_is_as_large_as_three_and_three() -> None:
    from attendo.explore.describe import describe
    from attendo.model.config import ModelConfig

    prefix = {"num_encoder_layers": 0, "num_decoder_layers": 7, "prefix_lm": True}
    sizes = [
        describe(ModelConfig.preset("small", vocab_size=8000, **{"tie": "all", **settings})).parameters
        for settings in ({}, prefix)
    ]
    table, norms = 8000 * 256, 2 * 256
    assert sizes == [table + 5_529_600 + 2 * norms, table + 5_528_320 + norms + 2 * 256]
