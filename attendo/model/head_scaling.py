"""Heads that are switched off or scaled: what a network does without them is what they are for."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.errors import UsageError
from attendo.model.config import ModelConfig

# By the name of a place in the network, what the attention of some of its heads is multiplied by: 0 switches one off.
HeadScales = Mapping[str, Mapping[int, float]]


def scale_heads(heads: HeadScales) -> "ScaledHeads":
    """`scaled_heads({"decoder.0.cross": {3: 0.0}})` is a tap that switches off a head."""
    return ScaledHeads(heads)


class ScaledHeads:
    """A tap that scales the weights of some heads; the others go on as they are."""

    def __init__(self, heads: HeadScales) -> None:
        self.heads = {site: dict(scales) for site, scales in heads.items()}
        for site, scales in self.heads.items():
            for head, scale in scales.items():
                if not math.isfinite(scale):
                    raise UsageError("head_scale_not_finite", head=head, site=site, scale=scale)
        # Made once for each device: while a GPU's work is recorded, nothing can be brought to it.
        self._factors: dict[tuple[str, torch.device, torch.dtype], Tensor] = {}

    def __call__(self, site: str, weights: Float[Tensor, "B H T S"]) -> Float[Tensor, "B H T S"] | None:
        return weights * self.factors(site, weights) if self.heads.get(site) else None

    def factors(self, site: str, like: Float[Tensor, "*B H T S"]) -> Float[Tensor, "H 1 1"]:
        """One for each head of a place."""
        key = (site, like.device, like.dtype)
        if key not in self._factors:
            factors = [self.heads.get(site, {}).get(head, 1.0) for head in range(like.size(-3))]
            self._factors[key] = torch.tensor(factors, device=like.device, dtype=like.dtype)[:, None, None]
        return self._factors[key]

    def check(self, config: ModelConfig) -> None:
        """That the network has these places and heads: what is not there cannot be switched off."""
        known = sites(config)
        for site, scales in self.heads.items():
            if site not in known:
                raise UsageError("unknown_attention_site", site=site, sites=", ".join(known))
            for head in scales:
                if not 0 <= head < config.num_heads:
                    raise UsageError("attention_head_out_of_range", site=site, head=head, count=config.num_heads)


def sites(config: ModelConfig) -> list[str]:
    """The names of all attentions of a network, in the order in which they come."""
    encoder = [f"encoder.{n}.self" for n in range(config.num_encoder_layers)]
    kinds = ("self",) if config.decoder_only else ("self", "cross")
    return [*encoder, *(f"decoder.{n}.{kind}" for n in range(config.num_decoder_layers) for kind in kinds)]
