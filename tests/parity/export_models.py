"""Small models with varied answers, and sources for them, for exports to other systems."""

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from attendo.interop.certify import CertificateSentences, random_sources
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock
from attendo.nn.devices import int8_saturates
from attendo.text import BOS, EOS, PAD, SentencePiece, Tokenizer, Words
from attendo.text_model import TextModel

needs_exact_int8 = pytest.mark.skipif(
    int8_saturates(), reason="int8 products of CTranslate2 overflow on this processor, which has no VNNI"
)
SIZES: dict[str, Any] = {
    "d_model": 32,
    "num_heads": 4,
    "d_ff": 48,
    "num_encoder_layers": 2,
    "num_decoder_layers": 1,
    "dropout": 0.0,
}
MARIAN: dict[str, Any] = {"norm": "post", "position_layout": "halves"}
WORDS = [f"w{n:02}" for n in range(56)]
TEXTS = ["the cat sat on the mat", "a dog ran home", "größer, später und höher", "sie sah die kleine Katze", "猫 坐 着"]


def word_model(seed: int = 1, words: Words | None = None, **changes: Any) -> TextModel:
    """A model with one word vocabulary for both sides."""
    words = words or Words.build([" ".join(WORDS)])
    return _model(words, words, seed, changes)


def subword_model(seed: int = 1, separate: bool = False, symbols: Sequence[str] = (), **changes: Any) -> TextModel:
    """A model with subwords, and one tokenizer per side if `separate`."""
    source = SentencePiece.train(TEXTS * 4, 330, symbols=list(symbols))
    target = SentencePiece.train([text.upper() for text in TEXTS] * 4, 325) if separate else source
    return _model(source, target, seed, changes)


def random_sentences(model: TextModel, count: int = 8) -> CertificateSentences:
    """Random sentences: fewer and shorter than those of a certificate, to be quick."""
    return CertificateSentences([source[:3] for source in random_sources(model.source_tokenizer.vocab_size, count)])


def random_texts(count: int = 20) -> list[str]:
    rng = random.Random(1)
    words = " ".join(TEXTS).split()
    return [" ".join(rng.choices(words, k=rng.randint(1, 8))) for _ in range(count)]


@torch.no_grad()
def _model(source: Tokenizer, target: Tokenizer, seed: int, changes: dict[str, Any]) -> TextModel:
    """Attention is sharp and logits differ widely, so that answers differ in tokens and length. All biases and
    gains are random: with values of 0 and 1 an exchange of two of them would go unnoticed.
    """
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    generator = torch.Generator().manual_seed(seed)
    network = Transformer(ModelConfig(**{**SIZES, **sizes, "tie": "none", "output_bias": True, **changes}), generator)
    for parameter in network.parameters():
        if parameter.dim() == 1:
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            module.project.weight[: module.num_heads * module.d_key] *= 4
    blocks = [block for block in network.decoder if isinstance(block, DecoderBlock)]
    for block in blocks:
        assert block.cross_attention is not None
        for part in (block.self_attention.output, block.cross_attention.output):
            part.weight *= 0.5 if network.config.norm == "post" else 3.0
    if network.config.norm == "post":
        gains = blocks[-1].feed_forward_residual.normalise.get_parameter("weight")
        gains.copy_(2.0 * torch.randint(2, gains.shape, generator=generator) - 1)
    assert network.output.bias is not None
    network.output.bias[[PAD, BOS]] = 0.0
    network.output.bias[EOS] = 1.5 if network.config.norm == "post" else 2.0
    return TextModel(StoredModel(network.eval(), source, target, {"max_length_extra": 9}))
