"""Sub-layers of a trace with every formula written out, and the recorder of their tensors.

Tensors are of one sentence, [T, D]; those of heads have the head first, [H, T, K]. Nothing here calls the network's
own calculation, only its weights: that both come to the same is what a test can then say.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attendo.model.head_scaling import ScaledHeads
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.feedforward import FeedForward
from attendo.nn.residual import Residual

Shape = tuple[int, ...]
_LAYER = re.compile(r"(?:encoder|decoder)\.(\d+)\.")


@dataclass(frozen=True, eq=False)
class Traced:
    """One tensor: the formula that gave it, and the shapes of what the formula was applied to."""

    name: str  # such as decoder.0.cross.scores
    formula: str  # its name in the catalogue of formulas
    value: Tensor
    operands: tuple[Shape, ...] = ()
    letter: str = "X"  # what the formula calls the vectors that it reads: X of the encoder, Y of the decoder, Z between

    @property
    def shape(self) -> Shape:
        return tuple(self.value.shape)

    @property
    def place(self) -> str:
        """All of the name but its end: `decoder.0.cross`."""
        return self.name.rpartition(".")[0]


class Ledger:
    """Keeps every tensor that is written down, or of all layers only one."""

    def __init__(self, layer: int | None = None) -> None:
        self.entries: dict[str, Traced] = {}
        self._layer = layer

    def write(
        self, name: str, formula: str, value: Tensor, operands: Sequence[Tensor | Shape] = (), letter: str = "X"
    ) -> Tensor:
        """The same value, so that a calculation can go on with it."""
        found = _LAYER.match(name)
        if self._layer is None or found is None or int(found[1]) == self._layer:
            shapes = tuple(tuple(each.shape) if isinstance(each, Tensor) else each for each in operands)
            self.entries[name] = Traced(name, formula, value, shapes, letter)
        return value


@dataclass(frozen=True)
class Stream:
    """Vectors on their way through a stack, and the letter that formulas call them by."""

    vectors: Float[Tensor, "T D"]
    letter: str


@dataclass(frozen=True)
class Look:
    """What an attention may look at, by which angles it is turned, and which of its heads are scaled."""

    visible: Bool[Tensor, "T S"]
    mask: str  # the formula of it
    scales: ScaledHeads
    angles: Float[Tensor, "T half"] | None = None


def enter(ledger: Ledger, place: str, residual: Residual, stream: Stream) -> Stream:
    """What the sub-layer is given: with pre-norm the normalised vectors."""
    if not residual.pre_norm:
        return stream
    return Stream(norm(ledger, f"{place}.norm", residual.normalise, stream), _hat(stream.letter))


def leave(ledger: Ledger, place: str, residual: Residual, stream: Stream, made: Float[Tensor, "T D"]) -> Stream:
    """What goes on: x + Sublayer(x), and with post-norm its norm."""
    x, letter = stream.vectors, stream.letter
    formula = "residual_pre" if residual.pre_norm else "residual"
    summed = Stream(ledger.write(f"{place}.residual", formula, x + made, (x, made), letter), letter)
    if residual.pre_norm:
        return summed
    return Stream(norm(ledger, f"{place}.norm", residual.normalise, summed), letter)


def norm(ledger: Ledger, name: str, module: nn.Module, stream: Stream) -> Float[Tensor, "T D"]:
    """Each vector by itself: layer norm, or without mean and bias the norm by the root of the mean square."""
    x, letter = stream.vectors, stream.letter
    if isinstance(module, nn.LayerNorm):
        gain, bias = like(module.weight, x), like(module.bias, x)
        mean = x.mean(dim=-1, keepdim=True)
        variance = (x - mean).square().mean(dim=-1, keepdim=True)
        value = (x - mean) / (variance + module.eps).sqrt() * gain + bias
        return ledger.write(name, "layer_norm", value, (x, gain, bias), letter)
    assert isinstance(module, nn.RMSNorm)
    assert module.eps is not None
    gain = like(module.weight, x)
    value = x / (x.square().mean(dim=-1, keepdim=True) + module.eps).sqrt() * gain
    return ledger.write(name, "rms_norm", value, (x, gain), letter)


def attention(ledger: Ledger, part: MultiHeadAttention, asks: Stream, told: Stream, look: Look) -> Float[Tensor, "T D"]:
    """Queries of one stream, keys and values of another, which in self-attention is the same."""
    site = part.site
    queries = _project(ledger, part, "queries", asks)
    keys, values = _project(ledger, part, "keys", told), _project(ledger, part, "values", told)
    if look.angles is not None:
        queries = ledger.write(f"{site}.turned_queries", "turn", turned(queries, look.angles), (queries, look.angles))
        keys = ledger.write(f"{site}.turned_keys", "turn_keys", turned(keys, look.angles), (keys, look.angles))
    products = ledger.write(f"{site}.products", "products", queries @ keys.transpose(-2, -1), (queries, keys.mT))
    scores = ledger.write(f"{site}.scores", "scores", products / math.sqrt(part.d_key), (products,))
    visible = look.visible
    masked = scores.masked_fill(~visible, -math.inf)
    ledger.write(f"{site}.masked", look.mask, masked, (scores, visible))
    weights = ledger.write(f"{site}.weights", "softmax", softmax(masked), (masked,))
    factors = look.scales.factors(site, weights)
    as_it_is = bool((factors == 1).all())
    operands = (weights, values) if as_it_is else (factors, weights, values)
    mixed = ledger.write(f"{site}.mixed", "mixed" if as_it_is else "scaled_mixed", factors * weights @ values, operands)
    joined = torch.cat(list(mixed), dim=-1)  # [H, T, Kv] -> [T, H * Kv]
    matrix, bias = like(part.output.weight, joined).T, like(part.output.bias, joined)
    return ledger.write(f"{site}.output", "heads_joined", joined @ matrix + bias, (joined, matrix, bias))


def feed_forward(ledger: Ledger, place: str, part: FeedForward, stream: Stream) -> Float[Tensor, "T D"]:
    x = stream.vectors
    expand, contract = part.expand, part.contract
    matrix, bias = like(expand.weight, x).T, like(expand.bias, x)
    inner = ledger.write(f"{place}.inner", "expand", x @ matrix + bias, (x, matrix, bias), stream.letter)
    bent = ledger.write(f"{place}.bent", part.activation, _bent(inner, part.activation), (inner,))
    matrix, bias = like(contract.weight, x).T, like(contract.bias, x)
    return ledger.write(f"{place}.output", "contract", bent @ matrix + bias, (bent, matrix, bias))


def softmax(scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
    """eˢ / ∑ eˢ by rows; less the largest score, which changes nothing but keeps the powers from growing too large."""
    powers = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return powers / powers.sum(dim=-1, keepdim=True)


def turned(heads: Float[Tensor, "H T K"], angles: Float[Tensor, "T half"]) -> Float[Tensor, "H T K"]:
    """Component i and component i + K/2 are a point in the plane, turned about the origin."""
    first, second = heads.chunk(2, dim=-1)
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)


def like(weight: Tensor, x: Tensor) -> Tensor:
    """A network in half precision is calculated with its own weights, but in the precision of the trace."""
    return weight.detach().to(x.dtype)


def _project(ledger: Ledger, part: MultiHeadAttention, kind: str, stream: Stream) -> Float[Tensor, "H T K"]:
    """x·W + b for all heads together, then cut into heads."""
    keys_width, values_width = part.num_heads * part.d_key, part.num_heads * part.d_value
    begin, width = {
        "queries": (0, keys_width),
        "keys": (keys_width, keys_width),
        "values": (2 * keys_width, values_width),
    }[kind]
    x = stream.vectors
    matrix = like(part.project.weight[begin : begin + width], x).T
    bias = like(part.project.bias[begin : begin + width], x)
    flat = x @ matrix + bias
    heads = torch.stack(flat.chunk(part.num_heads, dim=-1))  # [T, H * K] -> [H, T, K]
    return ledger.write(f"{part.site}.{kind}", kind, heads, (x, matrix, bias, flat), stream.letter)


def _bent(inner: Float[Tensor, "T F"], activation: str) -> Float[Tensor, "T E"]:
    match activation:
        case "relu":
            return inner.clamp(min=0)
        case "gelu":
            return inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        case "silu":
            return inner / (1 + (-inner).exp())
        case _:
            gate, value = inner.chunk(2, dim=-1)
            return gate / (1 + (-gate).exp()) * value


def _hat(letter: str) -> str:
    """A letter of normalised vectors wears a hat."""
    return letter + "\u0302"
