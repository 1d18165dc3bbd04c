"""Transitions between the vertices of a DA-Transformer's graph (Huang et al., 2022)."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from attendo.nn.positions import OrthogonalPositions, SinusoidalPositions

_HIDDEN = -1e30  # finite: the gradient of a softmax over -inf alone is NaN


class Links(nn.Module):
    """Log-probabilities of the hops from each vertex to the later ones.

    Each head has a distribution over the later vertices. A gate mixes the heads. Both see the vertex's state and its
    position: sinusoids to know the distance, orthogonal vectors to distinguish neighbours. The computation is in
    float32: an error here multiplies along a path.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads, self.width = num_heads, d_model // num_heads
        self.positions, self.vertex_positions = SinusoidalPositions(), OrthogonalPositions()
        self.query = nn.Linear(2 * d_model, num_heads * self.width)
        self.key = nn.Linear(2 * d_model, num_heads * self.width)
        self.gate = nn.Linear(2 * d_model, num_heads)

    def forward(self, states: Float[Tensor, "B L D"], num_vertices: Int[Tensor, " B"]) -> Float[Tensor, "B L L"]:
        """Return -inf for hops backward, to the same vertex and to padding."""
        with torch.autocast(states.device.type, enabled=False):
            dtype = torch.float64 if states.dtype == torch.float64 else torch.float32
            positions = self.positions.add(torch.zeros_like(states[:1], dtype=dtype), 0)
            positions = self.vertex_positions.add(positions, 0)
            features = torch.cat((states.to(dtype), positions.expand_as(states)), dim=-1)
            query, key = (self._split_heads(_project(features, each)) for each in (self.query, self.key))
            size = states.size(1)
            vertex = torch.arange(size, device=states.device)
            later = vertex[None, :] > vertex[:, None]
            possible = later & (vertex < num_vertices[:, None])[:, None, :]  # [B, L, L]
            scores = (query @ key.transpose(-1, -2) / math.sqrt(self.width)).masked_fill(~possible[:, None], _HIDDEN)
            gate = _project(features, self.gate).log_softmax(-1).transpose(1, 2)[..., None]  # [B, H, L, 1]
            hops = (gate + scores.log_softmax(-1)).logsumexp(1)
            return hops.masked_fill(~possible, float("-inf"))

    def _split_heads(self, x: Float[Tensor, "B L E"]) -> Float[Tensor, "B H L K"]:
        return x.unflatten(-1, (self.num_heads, self.width)).transpose(1, 2)


def _project(x: Float[Tensor, "B L E"], layer: nn.Linear) -> Float[Tensor, "B L F"]:
    """Apply the layer in the precision of `x`. The weights of a network in half precision are widened."""
    return functional.linear(x, layer.weight.to(x.dtype), layer.bias.to(x.dtype))
