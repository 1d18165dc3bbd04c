"""The mistakes of the gallery, each a few lines that replace the right ones. Nothing else in the lesson uses them."""

from collections.abc import Callable

import torch.nn.functional as F
from attention import MultiHeadAttention, safe_softmax
from decoder import Decoder
from feed_forward import FeedForwardNet
from masks import padding_mask
from positions import PositionalEncoding
from torch import Tensor, nn
from transformer import Transformer


class NoFutureMask(Decoder):
    """Forgets the causal mask."""

    def masks(self, x: Tensor, enc_x: Tensor) -> tuple[Tensor, Tensor]:
        return padding_mask(x, x), padding_mask(x, enc_x)


class MaskWithoutHeads(MultiHeadAttention):
    """E5: a mask [B, T, S] meets scores [B, h, T, S]. Where B = h it fits, and means something else."""

    def weights(self, scores: Tensor, masks: Tensor | None) -> Tensor:
        return safe_softmax(scores, masks)


class SwappedCrossMask(Decoder):
    """E6: hides the padding of the target where that of the source is meant. Fits where both are filled up alike."""

    def masks(self, x: Tensor, enc_x: Tensor) -> tuple[Tensor, Tensor]:
        right, _ = super().masks(x, enc_x)
        return right, padding_mask(enc_x, x)


class DeadLayers(Decoder):
    """E8: every layer reads the embedding; only what the last one makes of it is used."""

    def forward(self, x: Tensor, enc_x: Tensor, enc_context: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        back, across = self.masks(x, enc_x)
        embedded = self.embedding(x)
        made = [layer(embedded, enc_context, back, across) for layer in self.layers]
        return self.norm(made[-1][0]), [each[1] for each in made], [each[2] for each in made]


class PositionsByRow(PositionalEncoding):
    """E10: counts the first axis, as if it were time. It is the batch."""

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(x + self.table[: x.size(0), None])


class AttentionDroppedTwice(MultiHeadAttention):
    """E15: drops out its result, and the layer around it does so again."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, masks: Tensor | None = None) -> tuple[Tensor, Tensor]:
        context, attn = super().forward(q, k, v, masks)
        return self.attn_dropout(context), attn


class FeedForwardDroppedTwice(FeedForwardNet):
    """E15: the same, instead of a dropout behind the activation."""

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.fc2(self.relu(self.fc1(x))))


class MinusInfinity(MultiHeadAttention):
    """E31: a row in which all is hidden becomes 0 / 0."""

    def weights(self, scores: Tensor, masks: Tensor | None) -> Tensor:
        return F.softmax(scores if masks is None else scores.masked_fill(masks[:, None], float("-inf")), dim=-1)


class MinusBillion(MultiHeadAttention):
    """E31: such a row looks at everything alike. And half precision has no such number."""

    def weights(self, scores: Tensor, masks: Tensor | None) -> Tensor:
        return F.softmax(scores if masks is None else scores.masked_fill(masks[:, None], -1e9), dim=-1)


def probabilities_as_logits(logits: Tensor) -> Tensor:
    """E24: a softmax in front of a loss that takes one itself."""
    return logits.softmax(-1)


def without_last_norm(network: Transformer) -> None:
    """E13: with pre-norm nothing else brings the sum of all sub-layers back to size."""
    network.encoder.norm = network.decoder.norm = nn.Identity()


def replace(right: type[nn.Module], wrong: type[nn.Module]) -> Callable[[Transformer], None]:
    """Parts of one class behave like another from now on. Their weights stay as they are."""

    def switch(network: Transformer) -> None:
        for module in network.modules():
            if type(module) is right:
                module.__class__ = wrong

    return switch


SWITCHES: dict[str, list[Callable[[Transformer], None]]] = {
    "no mask": [replace(Decoder, NoFutureMask)],
    "E5": [replace(MultiHeadAttention, MaskWithoutHeads)],
    "E6": [replace(Decoder, SwappedCrossMask)],
    "E8": [replace(Decoder, DeadLayers)],
    "E10": [replace(PositionalEncoding, PositionsByRow)],
    "E13": [without_last_norm],
    "E15": [
        replace(MultiHeadAttention, AttentionDroppedTwice),
        replace(FeedForwardNet, FeedForwardDroppedTwice),
    ],
    "E24": [],  # stands in the loss, not in the network
    "E31 infinity": [replace(MultiHeadAttention, MinusInfinity)],
    "E31 billion": [replace(MultiHeadAttention, MinusBillion)],
}
