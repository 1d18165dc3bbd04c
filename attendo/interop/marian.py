"""The same weights as a `MarianMTModel` of transformers."""

from typing import TYPE_CHECKING

from attendo.interop.transformers_kind import Kind
from attendo.model.transformer import Transformer

if TYPE_CHECKING:
    from transformers import MarianMTModel

MARIAN = Kind("MarianMTModel", "MarianConfig", "a MarianMTModel", norm="post", one_vocabulary=False)


def to_marian(network: Transformer, longest: int = 1024) -> "MarianMTModel":
    """One in evaluation mode that has our ids and gives the same logits."""
    return MARIAN.made(network, longest)
