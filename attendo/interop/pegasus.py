"""The same weights as a `PegasusForConditionalGeneration` of transformers: what Marian is, with the norms before."""

from typing import TYPE_CHECKING

from attendo.interop.transformers_kind import Kind
from attendo.model.transformer import Transformer

if TYPE_CHECKING:
    from transformers import PegasusForConditionalGeneration

PEGASUS = Kind(
    "PegasusForConditionalGeneration",
    "PegasusConfig",
    "a Pegasus model",
    norm="pre",
    remark="; a MarianMTModel has its norms elsewhere, and answers something else",
)


def to_pegasus(network: Transformer, longest: int = 1024) -> "PegasusForConditionalGeneration":
    """One in evaluation mode that has our ids and gives the same logits."""
    return PEGASUS.made(network, longest)
