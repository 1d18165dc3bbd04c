"""A random network that every system supports and that does not repeat one token."""

import torch

from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.transformer import Transformer
from attendo.nn.attention import MultiHeadAttention
from attendo.nn.blocks import DecoderBlock
from attendo.text import BOS, EOS, PAD

_SUPPRESSED_BIAS = -1e4  # finite in fp16


@torch.no_grad()
def make_random_network(preset: str, vocab_size: int, seed: int = 1) -> Transformer:
    """Build a network like Marian's: post-norm, sines before cosines, one shared embedding, a bias on the logits.

    With the usual initialisation the decoder repeats one token for every source. A system with a broken cache would
    then still agree. So the outputs of decoder sub-layers are scaled down, attention is sharper, and the last gains
    have random signs. The signs keep a tied embedding from repeating its input.
    """
    config = ModelConfig.preset(
        preset, vocab_size=vocab_size, norm="post", position_layout="halves", tie="all", output_bias=True, dropout=0.0
    )
    generator = torch.Generator().manual_seed(seed)
    network = make_network(config, generator).eval()
    network.output.bias[[PAD, BOS, EOS]] = _SUPPRESSED_BIAS
    for module in network.modules():
        if isinstance(module, MultiHeadAttention):
            module.project.weight[: config.d_model] *= 4
    for block in network.decoder:
        assert isinstance(block, DecoderBlock)
        assert block.cross_attention is not None
        for part in (block.self_attention.output, block.cross_attention.output, block.feed_forward.contract):
            part.weight *= 0.25
    assert isinstance(block, DecoderBlock)
    gains = block.feed_forward_residual.normalise.get_parameter("weight")
    gains.copy_(4.0 * (2 * torch.randint(2, gains.shape, generator=generator) - 1))
    return network
