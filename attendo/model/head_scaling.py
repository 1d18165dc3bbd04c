"""Ablation: switches off or scales attention heads."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.errors import UsageError
from attendo.model.config import ModelConfig

# Factors for the attention weights of heads, by attention site and head index. 0 switches a head off.
HeadScales = Mapping[str, Mapping[int, float]]


class ScaledHeads:
    """A tap that multiplies the attention weights of some heads by a factor.

    `ScaledHeads({"decoder.0.cross": {3: 0.0}})` switches off one head.
    """

    def __init__(self, heads: HeadScales) -> None:
        self.heads = {site: dict(scales) for site, scales in heads.items()}
        for site, scales in self.heads.items():
            for head, scale in scales.items():
                if not math.isfinite(scale):
                    raise UsageError("head_scale_not_finite", head=head, site=site, scale=scale)
        # Cached per device, because no data can be copied to a GPU during CUDA graph capture.
        self._factors: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def __call__(self, site: str, weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"] | None:
        return weights * self.factors(site, weights) if self.heads.get(site) else None

    def factors(self, site: str, like: Float[Tensor, "*B H T S"]) -> Float[Tensor, "H 1 1"]:
        """Return one factor for each head of an attention site."""
        key = (site, like.device, like.dtype)
        if key not in self._factors:
            factors = [self.heads.get(site, {}).get(head, 1.0) for head in range(like.size(-3))]
            self._factors[key] = torch.tensor(factors, device=like.device, dtype=like.dtype)[:, None, None]
        return self._factors[key]

    def check(self, config: ModelConfig) -> None:
        """Raise UsageError if the network does not have these sites and heads."""
        known = sites(config)
        for site, scales in self.heads.items():
            if site not in known:
                raise UsageError("unknown_attention_site", site=site, sites=", ".join(known))
            for head in scales:
                if not 0 <= head < config.num_heads:
                    raise UsageError("attention_head_out_of_range", site=site, head=head, count=config.num_heads)


def sites(config: ModelConfig) -> list[str]:
    """Return the names of all attention sites of a network, in order."""
    encoder = [f"encoder.{n}.self" for n in range(config.num_encoder_layers)]
    kinds = ("cross",) if config.autoregression == "ssru" else ("self", "cross") if config.has_cross else ("self",)
    return [*encoder, *(f"decoder.{n}.{kind}" for n in range(config.num_decoder_layers) for kind in kinds)]
