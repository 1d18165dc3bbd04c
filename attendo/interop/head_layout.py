"""Attention heads with one width for queries, keys and values, as other systems need them."""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from attendo.model.config import ModelConfig
from attendo.nn.attention import MultiHeadAttention

Affine = tuple[Tensor, Tensor | None]  # weight and bias


@dataclass(frozen=True)
class HeadLayout:
    """Widths of the heads. Narrower queries, keys or values are padded with zeros to `width`."""

    num_heads: int
    d_key: int
    d_value: int

    @staticmethod
    def from_config(config: ModelConfig) -> "HeadLayout":
        return HeadLayout(config.num_heads, config.head_width, config.d_value or config.d_model // config.num_heads)

    @property
    def width(self) -> int:
        return max(self.d_key, self.d_value)

    def queries(self, attention: MultiHeadAttention, divisor: float) -> Affine:
        """Return the query projection, divided by `divisor`."""
        weight, bias = self._projection(attention, 0, self.d_key)
        return weight / divisor, None if bias is None else bias / divisor

    def keys(self, attention: MultiHeadAttention) -> Affine:
        return self._projection(attention, self.num_heads * self.d_key, self.d_key)

    def values(self, attention: MultiHeadAttention) -> Affine:
        return self._projection(attention, 2 * self.num_heads * self.d_key, self.d_value)

    def output(self, attention: MultiHeadAttention) -> Affine:
        weight = attention.output.weight.detach()
        by_head = weight.view(weight.size(0), self.num_heads, self.d_value)
        return F.pad(by_head, (0, self.width - self.d_value)).flatten(1), attention.output.bias

    def _projection(self, attention: MultiHeadAttention, first: int, width: int) -> Affine:
        rows, missing = slice(first, first + self.num_heads * width), self.width - width
        weight = attention.project.weight.detach()[rows].view(self.num_heads, width, -1)
        padded = F.pad(weight, (0, 0, 0, missing)).flatten(0, 1)
        if attention.project.bias is None:
            return padded, None
        bias = attention.project.bias.detach()[rows].view(self.num_heads, width)
        return padded, F.pad(bias, (0, missing)).flatten()
