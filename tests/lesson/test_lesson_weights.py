"""The lesson's classes give the same outputs as the library and torch with the same weights."""

from typing import Any

import pytest
import torch
from loss import padded
from masks import future_mask, generate_square_subsequent_mask
from one_by_one import attention_head_by_head
from seq_first_layer import DecoderLayer as SeqFirstLayer
from torch import Tensor, nn
from torch_decoder import TransformerDecoder, TransformerDecoderLayer
from transformer import Sizes, Transformer
from transplant import transplanted

import attendo
from attendo.model.decoder_state import Memory

SOURCE = padded([[3, 4, 5, 6, 2], [7, 8, 2], [9, 2]])
TARGET = padded([[1, 5, 6], [1, 7, 8, 9], [1, 3]])


def perturb(module: nn.Module) -> Any:
    """Set evaluation mode and perturb every weight: biases of 0 and gains of 1 would hide a swap."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


@pytest.mark.parametrize("pre_norm", [True, False], ids=["pre-norm", "post-norm"])
def test_library_with_lesson_weights_gives_the_same_logits(pre_norm: bool) -> None:
    sizes = Sizes(11, 13, d_model=16, n_heads=4, n_layers=2, hidden_size=24, max_len=32, pre_norm=pre_norm)
    lesson = perturb(Transformer(sizes))
    network = transplanted(lesson, sizes)
    seen: dict[str, Tensor] = {}
    ours = network(SOURCE, TARGET, SOURCE != 0, TARGET != 0, tap=seen.__setitem__)
    logits, encoder_maps, self_maps, cross_maps = lesson(SOURCE, TARGET)
    real = TARGET != 0
    torch.testing.assert_close(logits[real], ours[real], atol=1e-5, rtol=1e-5)
    for site, maps in (
        ("encoder.{}.self", encoder_maps),
        ("decoder.{}.self", self_maps),
        ("decoder.{}.cross", cross_maps),
    ):
        rows = SOURCE != 0 if site.startswith("encoder") else real
        for n, weights in enumerate(maps):
            theirs = seen[site.format(n)].transpose(1, 2)[rows]
            torch.testing.assert_close(weights.transpose(1, 2)[rows], theirs, atol=1e-5, rtol=1e-5)


def test_lesson_and_library_have_equally_many_weights() -> None:
    sizes = Sizes(11, 13, d_model=16, n_heads=4, n_layers=1, hidden_size=24, max_len=32)
    lesson = perturb(Transformer(sizes))
    counts = [sum(p.numel() for p in each.parameters()) for each in (lesson, transplanted(lesson, sizes))]
    assert counts[0] == counts[1]


def test_N1_sequence_first_layer_equals_torch_post_norm() -> None:
    layer, theirs = perturb(SeqFirstLayer(16, 4, 24)), nn.TransformerDecoderLayer(16, 4, 24)
    theirs.load_state_dict(
        {
            _torch_name(name.replace("ffn.0", "linear1").replace("ffn.3", "linear2")): each
            for name, each in layer.state_dict().items()
        }
    )
    theirs.eval()
    tgt, memory, causal = torch.randn(5, 2, 16), torch.randn(7, 2, 16), generate_square_subsequent_mask(5)
    hidden = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    output, weights = layer(tgt, memory, causal, memory_padding=hidden)
    expected = theirs(tgt, memory, tgt_mask=causal, memory_key_padding_mask=hidden)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    assert weights.shape == (2, 4, 5, 7)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
    assert not weights[1, :, :, 4:].any()


def test_O1_sequence_first_layer_has_the_expected_shapes() -> None:
    output, weights = SeqFirstLayer().eval()(
        torch.randn(10, 2, 512), torch.randn(15, 2, 512), generate_square_subsequent_mask(10)
    )
    assert (output.shape, weights.shape, weights.mean(1).shape) == ((10, 2, 512), (2, 8, 10, 15), (2, 10, 15))


@pytest.mark.parametrize("shape", ["one for all", "one for each sentence"])
def test_N12_batch_first_layer_equals_torch_post_norm(shape: str) -> None:
    layer = perturb(TransformerDecoderLayer(16, 4, 24))
    theirs = nn.TransformerDecoderLayer(16, 4, 24, batch_first=True)
    theirs.load_state_dict({_torch_name(name): each for name, each in layer.state_dict().items()})
    theirs.eval()
    tgt, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    hidden, pads = torch.zeros(2, 7, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.bool)
    hidden[1, 4:], pads[0, 3:] = True, True
    causal = future_mask(5)
    if shape == "one for all":
        output, weights = layer(tgt, memory, causal, hidden, pads)
    else:
        output, weights = layer(tgt, memory, causal | pads[:, None], hidden)
    expected = theirs(tgt, memory, causal, memory_key_padding_mask=hidden, tgt_key_padding_mask=pads)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)
    assert weights.shape == (2, 4, 5, 7)


def test_N13_library_with_decoder_weights_gives_the_same_logits() -> None:
    decoder = perturb(TransformerDecoder(13, 16, 4, 2, 24, max_seq_len=8))
    network = attendo.Transformer(
        attendo.ModelConfig(
            vocab_size=13, d_model=16, num_heads=4, d_ff=24, num_encoder_layers=1, num_decoder_layers=2,
            norm="post", positions="learned", max_length=8, tie="none", scale_embedding=False, output_bias=True,
        )
    ).eval()  # fmt: skip
    network.load_state_dict(_library_names(decoder), strict=False)
    memory, is_token = torch.randn(3, 5, 16), SOURCE != 0
    logits, cross = decoder.with_weights(TARGET, memory, future_mask(TARGET.size(1)), ~is_token)
    seen: dict[str, Tensor] = {}
    ours, _ = network.step(TARGET, network.start(Memory(memory, is_token)), tap=seen.__setitem__)
    torch.testing.assert_close(logits, ours, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(cross[1], seen["decoder.1.cross"], atol=1e-5, rtol=1e-5)
    assert torch.equal(decoder(TARGET, memory, future_mask(TARGET.size(1)), ~is_token), logits)


def test_loop_over_heads_gives_the_same_output() -> None:
    lesson = perturb(Transformer(Sizes(11, 13, d_model=16, n_heads=4, n_layers=1, hidden_size=24, max_len=32)))
    attention = lesson.decoder.layers[0].cross_mha
    q, k = torch.randn(2, 3, 16), torch.randn(2, 5, 16)
    hidden = torch.zeros(2, 3, 5, dtype=torch.bool)
    hidden[0, :, 3:] = True
    torch.testing.assert_close(attention(q, k, k, hidden)[0], attention_head_by_head(attention, q, k, k, hidden))


def _torch_name(name: str) -> str:
    return name.replace("cross_attn", "multihead_attn")


def _library_names(decoder: TransformerDecoder) -> dict[str, Tensor]:
    named = {
        "target.tokens.weight": decoder.embedding.weight,
        "target.positions.table": decoder.pos_embedding.weight,
        "output.weight": decoder.out_proj.weight,
        "output.bias": decoder.out_proj.bias,
    }
    parts = {
        "self_attn.in_proj_": "self_attention.project.",
        "self_attn.out_proj.": "self_attention.output.",
        "norm1.": "self_residual.normalise.",
        "cross_attn.in_proj_": "cross_attention.project.",
        "cross_attn.out_proj.": "cross_attention.output.",
        "norm2.": "cross_residual.normalise.",
        "linear1.": "feed_forward.expand.",
        "linear2.": "feed_forward.contract.",
        "norm3.": "feed_forward_residual.normalise.",
    }
    for n, layer in enumerate(decoder.layers):
        for theirs, ours in parts.items():
            for kind in ("weight", "bias"):
                named[f"decoder.{n}.{ours}{kind}"] = layer.get_parameter(f"{theirs}{kind}")
    return named
