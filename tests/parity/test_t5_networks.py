"""Networks with relative positions against transformers' T5, and against a reference of a few lines."""

import copy
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from t5_networks import KINDS, T5Kind, t5_network, transformers_twin
from torch import Tensor, nn

from attendo.interop.ctranslate2.converter import placeholder_pieces, to_ctranslate2
from attendo.interop.onnx.session import OnnxNetwork
from attendo.model.cpu_decoder_state import SharedCacheState
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.text import BOS, EOS

_SOURCE, _TARGET = 150, 140  # beyond the largest distance of its own, 128


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> T5Kind:
    found: T5Kind = request.param
    return found


@pytest.fixture(scope="module")
def network(kind: T5Kind) -> Transformer:
    return t5_network(kind)


@pytest.fixture(scope="module")
def inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(3, 64, (2, _SOURCE), generator=generator)
    mask = torch.ones_like(source, dtype=torch.bool)
    mask[1, 132:] = False
    return source, torch.randint(3, 64, (2, _TARGET), generator=generator), mask


@pytest.fixture(scope="module")
def logits(network: Transformer, kind: T5Kind, inputs: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """The logits of transformers."""
    pytest.importorskip("transformers")
    source, target, mask = inputs
    with torch.no_grad():
        found: Tensor = transformers_twin(network, kind)(
            input_ids=source, attention_mask=mask.long(), decoder_input_ids=target
        ).logits
    assert found.abs().max() > 1
    return found


def _assert_close(found: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    assert float((found - expected).abs().max()) < tolerance * float(expected.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("explicit", [False, True])
def test_logits_are_those_of_transformers(
    network: Transformer, inputs: tuple[Tensor, Tensor, Tensor], logits: Tensor, explicit: bool
) -> None:
    source, target, mask = inputs
    _assert_close(network(source, target, mask, tap=(lambda site, weights: None) if explicit else None), logits)


@torch.no_grad()
@pytest.mark.parametrize(
    ("cache", "width"),
    [
        ("growing", 2),
        ("static", 2),
        ("shared", 2),
        *(pytest.param(each, 1, marks=pytest.mark.slow) for each in ("static", "shared")),
    ],
)
def test_steps_have_the_logits_of_transformers(
    network: Transformer, inputs: tuple[Tensor, Tensor, Tensor], logits: Tensor, cache: str, width: int
) -> None:
    source, target, mask = inputs
    rows = torch.arange(2).repeat_interleave(width)
    start = network.start(network.encode(source, mask))
    state: object = start
    if cache == "static":
        state = network.allocate_state(2, _SOURCE, width, _TARGET + 20)
        state.insert(torch.arange(2), torch.arange(2 * width), start)
    elif cache == "shared":
        state = SharedCacheState.empty(start, width)
    found = []
    for column in target[rows].split(1, dim=1):
        step, state = network.step(column, state)
        found.append(step)
        state = state.reorder(torch.arange(2 * width).view(2, width).flip(1).flatten()) if width > 1 else state
    _assert_close(torch.cat(found, dim=1), logits[rows])


@torch.no_grad()
def test_logits_are_those_of_the_reference(network: Transformer, inputs: tuple[Tensor, Tensor, Tensor]) -> None:
    source, target, _ = inputs
    expected = torch.stack([_reference(network, *pair) for pair in zip(source, target, strict=True)])
    _assert_close(network(source, target), expected)


@torch.no_grad()
def test_bf16_gives_nearly_the_same_logits_in_every_path(
    network: Transformer, inputs: tuple[Tensor, Tensor, Tensor], logits: Tensor
) -> None:
    source, target, mask = inputs
    half = copy.deepcopy(network).bfloat16()
    explicit = half(source, target, mask, tap=lambda site, weights: None)
    memory = half.encode(source, mask)
    state = half.allocate_state(2, _SOURCE, 1, 30)
    state.insert(torch.arange(2), torch.arange(2), half.start(memory))
    columns = []
    for column in target[:, :20].split(1, dim=1):
        step, state = half.step(column, state)
        columns.append(step)
    for found in (half(source, target, mask), explicit, torch.cat(columns, dim=1)):
        assert found.dtype == torch.bfloat16
        expected = logits[:, : found.size(1)]
        assert float((found - expected).square().mean().sqrt()) < 0.03 * float(expected.square().mean().sqrt())


def test_training_in_bf16_reaches_the_biases(kind: T5Kind) -> None:
    network = t5_network(kind).train()
    ids = torch.randint(3, 64, (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        network(ids, ids).logsumexp(-1).sum().backward()
    for side in (network.source, network.target):
        grad = side.positions.table.grad  # type: ignore[union-attr]
        assert grad.dtype == torch.float32
        assert (grad.abs().sum((0, 2)) > 0).sum() > 8  # buckets


@torch.no_grad()
def test_onnx_steps_have_the_logits_of_transformers(
    network: Transformer, inputs: tuple[Tensor, Tensor, Tensor], logits: Tensor
) -> None:
    pytest.importorskip("onnxruntime")
    source, target, mask = inputs
    onnx = OnnxNetwork.from_network(network, threads=1)
    found, _ = onnx.step(target, onnx.start(onnx.encode(source, mask)))
    _assert_close(found, logits, 5e-5)


@torch.no_grad()
def test_ctranslate2_scores_are_those_of_transformers(
    network: Transformer, inputs: tuple[Tensor, Tensor, Tensor], logits: Tensor, tmp_path: Path
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    source, target, _ = inputs
    given = torch.cat((torch.full((2, 1), BOS), target[:, :-1]), dim=1)  # CTranslate2 begins with BOS, and ends sources
    expected = network(torch.cat((source, torch.full((2, 1), EOS)), dim=1), given).log_softmax(-1)
    expected = expected.gather(2, target[..., None])[..., 0]
    to_ctranslate2(network, tmp_path / "model")
    translator = ctranslate2.Translator(str(tmp_path / "model"), compute_type="float32", intra_threads=1)
    names = placeholder_pieces(64)
    texts = [[[names[token] for token in row] for row in side.tolist()] for side in (source, target)]
    found = torch.tensor([each.log_probs[:-1] for each in translator.score_batch(*texts)])
    torch.testing.assert_close(found, expected, atol=1e-4 * float(logits.abs().max()), rtol=0)


# The reference: T5 as its paper describes it, for one sentence pair.


def _reference(network: Transformer, source: Tensor, target: Tensor) -> Tensor:
    assert network.source is not None
    memory = _stack(network, network.encoder, network.source.positions.table, network.source.tokens.weight[source])
    memory = _rms(memory, network.encoder_norm)
    vectors = network.target.tokens.weight[target]
    y = _stack(network, network.decoder, network.target.positions.table, vectors, memory)  # type: ignore[arg-type]
    return _rms(y, network.decoder_norm) * network.config.output_scale @ network.output.weight.T


def _stack(
    network: Transformer, blocks: nn.ModuleList, table: Tensor, x: Tensor, memory: Tensor | None = None
) -> Tensor:
    position = torch.arange(len(x))
    distance = position - position[:, None]
    for n, block in enumerate(blocks):
        numbers = table[n if len(table) > 1 else 0]
        bias = numbers[_bucket(distance, memory is None)].permute(2, 0, 1)
        if memory is not None:
            bias = bias.masked_fill(distance > 0, -math.inf)
        y = _rms(x, block.self_residual.normalise)
        x = x + _attend(block.self_attention, y, y, bias)
        if memory is not None:
            x = x + _attend(block.cross_attention, _rms(x, block.cross_residual.normalise), memory)
        y = _rms(x, block.feed_forward_residual.normalise) @ block.feed_forward.expand.weight.T
        if network.config.activation == "relu":
            inner = y.clamp(min=0)
        else:
            gate, value = y.chunk(2, dim=-1)
            inner = F.gelu(gate, approximate="tanh") * value
        x = x + inner @ block.feed_forward.contract.weight.T
    return x


def _attend(attention: MultiHeadAttention, x: Tensor, memory: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    q, k, v = attention.project.weight.chunk(3)
    heads = [
        (each @ part.T).view(len(each), -1, 8).transpose(0, 1) for each, part in ((x, q), (memory, k), (memory, v))
    ]
    weights = (heads[0] @ heads[1].transpose(1, 2) + bias).softmax(-1)
    return (weights @ heads[2]).transpose(0, 1).flatten(1) @ attention.output.weight.T


def _rms(x: Tensor, norm: nn.Module) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight


def _bucket(d: Tensor, two_sided: bool, buckets: int = 32, most: int = 128) -> Tensor:
    first = torch.zeros_like(d)
    if two_sided:
        buckets //= 2
        first = (d > 0).long() * buckets
        d = d.abs()
    else:
        d = (-d).clamp(min=0)
    exact = buckets // 2
    far = exact + (torch.log(d.float() / exact) / math.log(most / exact) * (buckets - exact)).long()
    return first + torch.where(d < exact, d, far.clamp(max=buckets - 1))
