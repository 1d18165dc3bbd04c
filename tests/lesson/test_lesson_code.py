"""The lesson's classes have the signatures of the study texts and none of their mistakes (ids as in the spec)."""

import inspect
from collections.abc import Callable
from typing import Any

import decoder
import encoder
import pytest
import seq_first_layer
import torch
import torch_decoder
from attention import MultiHeadAttention, safe_softmax
from embedding import TokenEmbedding
from feed_forward import FeedForwardNet
from generate import beam_search, generate
from loss import BOS, EOS, PAD, CrossEntropy, criterion, padded, shifted
from masks import generate_causal_mask, generate_square_subsequent_mask, padding_mask, self_mask
from positions import PositionalEncoding, position_table
from transformer import Sizes, Transformer

SIZES = Sizes(11, 13, d_model=16, n_heads=4, n_layers=3, hidden_size=24, dropout=0.0, max_len=32)


@pytest.fixture
def network() -> Transformer:
    torch.manual_seed(0)
    return Transformer(SIZES).eval()


@pytest.mark.parametrize(
    ("function", "parameters"),
    [
        (seq_first_layer.DecoderLayer, "d_model=512 n_heads=8 d_ff=2048 dropout=0.1"),
        (seq_first_layer.DecoderLayer.forward, "tgt memory tgt_mask=None"),
        (generate_square_subsequent_mask, "sz"),
        (Transformer.forward, "enc_inputs dec_inputs"),
        (encoder.Encoder, "vocal_size d_model layer_nums max_len hidden_size n_heads=8 p=0.1"),
        (encoder.Encoder.forward, "x"),
        (PositionalEncoding, "d_model dropout=0.1 max_len=5000"),
        (encoder.EncoderLayer, "d_model n_heads hidden_size dropout=0.1 pre_norm=True"),
        (encoder.EncoderLayer.forward, "x attn_masks=None"),
        (MultiHeadAttention, "d_model n_heads p=0.1"),
        (MultiHeadAttention.forward, "q k v masks=None"),
        (FeedForwardNet, "d_model hidden_size p=0.1"),
        (decoder.Decoder, "vocal_size d_model max_len layer_nums hidden_size p=0.1"),
        (decoder.Decoder.forward, "x enc_x enc_context"),
        (decoder.DecoderLayer, "d_model n_heads hidden_size dropout=0.1"),
        (decoder.DecoderLayer.forward, "x enc_output self_mask cross_mask"),
        (padding_mask, "enc_seq dec_seq pad_idx=0"),
        (torch_decoder.TransformerDecoderLayer, "d_model num_heads dim_feedforward=2048 dropout=0.1"),
        (torch_decoder.TransformerDecoderLayer.forward, "tgt memory tgt_mask=None memory_mask=None"),
        (
            torch_decoder.TransformerDecoder,
            "vocab_size d_model num_heads num_layers dim_feedforward=2048 dropout=0.1 max_seq_len=512",
        ),
        (torch_decoder.TransformerDecoder.forward, "tgt memory tgt_mask=None memory_mask=None"),
        (generate_causal_mask, "n"),
        (CrossEntropy.forward, "logits labels"),
    ],
    ids=lambda each: getattr(each, "__qualname__", ""),
)
def test_signatures_start_as_in_the_texts(function: Callable[..., Any], parameters: str) -> None:
    found = [
        each.name if each.default is each.empty else f"{each.name}={each.default}"
        for each in inspect.signature(function).parameters.values()
        if each.name != "self"
    ]
    expected = parameters.split()
    assert found[: len(expected)] == expected


def test_N12_layer_has_the_parts_of_the_text() -> None:
    layer = torch_decoder.TransformerDecoderLayer(16, 4)
    names = "self_attn cross_attn linear1 linear2 norm1 norm2 norm3 dropout dropout1 dropout2 dropout3 activation"
    assert all(hasattr(layer, name) for name in names.split())


def test_O2_O3_causal_mask_is_lower_triangular() -> None:
    mask = generate_square_subsequent_mask(4)
    assert torch.equal(mask, generate_causal_mask(4))
    assert torch.equal(mask == 0, torch.ones(4, 4).tril().bool())
    assert torch.isinf(mask[mask != 0]).all()


def test_O5_O6_target_is_shifted_and_padded_after_eos() -> None:
    decoder_input, labels = shifted(torch.tensor([[BOS, 5, 6, EOS], [BOS, 7, EOS, 0]]))
    assert decoder_input.tolist() == [[BOS, 5, 6], [BOS, 7, EOS]]
    assert labels.tolist() == [[5, 6, EOS], [7, EOS, 0]]


def test_O11_base_layers_have_the_expected_parameters() -> None:
    def count(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    assert count(encoder.EncoderLayer(512, 8, 2048)) == 3_152_384
    assert count(decoder.DecoderLayer(512, 8, 2048)) == 4_204_032


def test_E4_E7_keys_and_queries_may_differ_in_length(network: Transformer) -> None:
    logits, _, own, cross = network(torch.randint(3, 11, (2, 6)), torch.randint(3, 13, (2, 4)))
    assert logits.shape == (2, 4, 13)  # E18: not flattened
    assert len(own) == len(cross) == 3
    assert cross[0].shape == (2, 4, 4, 6)


@pytest.mark.parametrize("size", [1, 4, 3], ids=["one", "as many as heads", "three"])
def test_E5_a_sentence_does_not_depend_on_its_neighbours(network: Transformer, size: int) -> None:
    rows = padded([[3, 4, 5, 6, 7], [8, 9], [3, 2, 4], [5]][:size])
    target = torch.full((size, 3), 4)
    together = network(rows, target)[0]
    for n in range(size):
        alone = rows[n : n + 1, : int((rows[n] != 0).sum())]
        torch.testing.assert_close(network(alone, target[:1])[0][0], together[n], atol=1e-5, rtol=1e-5)


def test_E6_E41_source_padding_is_masked_in_the_decoder() -> None:
    mask = padding_mask(torch.tensor([[1, 5, 0, 0]]), torch.tensor([[4, 6, 0]]))
    assert mask.tolist() == [[[False, False, True]] * 4]


def test_E8_every_layer_gets_gradients(network: Transformer) -> None:
    criterion(network(torch.randint(3, 11, (2, 6)), torch.randint(3, 13, (2, 4)))[0], torch.full((2, 4), 5)).backward()
    for layer in network.decoder.layers:
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in layer.parameters())


def test_E10_equal_tokens_differ_by_position_not_by_row() -> None:
    embedded = TokenEmbedding(9, 16).eval()(torch.tensor([[5, 5], [5, 5]]))
    assert not torch.allclose(embedded[0, 0], embedded[0, 1])
    assert torch.equal(embedded[0], embedded[1])


@pytest.mark.parametrize("pre_norm", [True, False])
def test_E13_E14_both_stacks_end_in_a_norm(pre_norm: bool) -> None:
    network = Transformer(Sizes(11, 13, 16, 4, 2, 24, max_len=32, pre_norm=pre_norm)).eval()
    source = torch.randint(3, 11, (2, 6))
    memory, _ = network.encoder(source)
    hidden, _, _ = network.decoder(torch.randint(3, 13, (2, 4)), source, memory)
    for states in (memory, hidden):
        torch.testing.assert_close(states.mean(-1), torch.zeros(states.shape[:2]), atol=1e-5, rtol=0)
        torch.testing.assert_close(states.var(-1, unbiased=False), torch.ones(states.shape[:2]), atol=1e-3, rtol=0)


def test_E15_dropout_is_applied_once_per_sublayer() -> None:
    torch.manual_seed(0)
    layer = encoder.EncoderLayer(32, 4, 64, dropout=0.3).train()
    x = torch.randn(64, 10, 32)
    made = layer.around_attention.dropout(layer.mha(x, x, x)[0])
    assert float((made == 0).float().mean()) == pytest.approx(0.3, abs=0.01)
    assert not (layer.ff(x) == 0).any()


def test_E16_returned_weights_are_before_dropout() -> None:
    attention = MultiHeadAttention(16, 4, p=0.5).train()
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(attention(x, x, x)[1].sum(-1), torch.ones(2, 4, 5))


def test_E17_odd_width_raises() -> None:
    with pytest.raises(ValueError, match="d_model must be even, not 7"):
        position_table(4, 7)


def test_E24_E32_loss_takes_logits_and_ignores_padding() -> None:
    logits, labels = torch.randn(1, 3, 7), torch.tensor([[3, 4, 0]])
    by_hand = -logits.log_softmax(-1)[0, [0, 1], [3, 4]].mean()
    torch.testing.assert_close(criterion(logits, labels), by_hand)


def test_E25_positions_beyond_the_table_raise() -> None:
    with pytest.raises(ValueError, match="40 tokens, but positions for 32 only"):
        PositionalEncoding(16, max_len=32)(torch.zeros(1, 40, 16))
    learned = torch_decoder.TransformerDecoder(9, 16, 4, 1, 24, max_seq_len=4)
    with pytest.raises(ValueError, match="5 tokens, but learned positions for 4 only"):
        learned(torch.ones(1, 5, dtype=torch.long), torch.zeros(1, 3, 16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_E31_fully_masked_row_is_zero_in_every_precision(dtype: torch.dtype) -> None:
    scores = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=dtype, requires_grad=True)
    weights = safe_softmax(scores, torch.tensor([[False, True], [True, True]]))
    assert weights.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    (gradient,) = torch.autograd.grad(weights.sum(), scores)
    assert gradient.isfinite().all()


def test_E54_padding_and_causal_masks_are_combined_by_or() -> None:
    hidden = self_mask(torch.tensor([[1, 5, 0]]))[0].tolist()
    assert hidden == [[False, True, True], [False, False, True], [False, False, True]]


def test_future_tokens_do_not_change_earlier_logits(network: Transformer) -> None:
    source, target = torch.randint(3, 11, (1, 6)), torch.tensor([[1, 5, 6, 7]])
    changed = torch.tensor([[1, 5, 6, 8]])
    before, after = network(source, target)[0], network(source, changed)[0]
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_beam_of_one_is_greedy_and_scores_match_logits(network: Transformer) -> None:
    source = torch.randint(3, 11, (1, 6))
    with torch.no_grad():  # raise the probability of EOS, so that hypotheses finish
        hidden, _, _ = network.decoder(torch.tensor([[BOS, 5, 6]]), source, network.encoder(source)[0])
        network.projection.weight[EOS] = 0.15 * hidden[0, -1]
    found = beam_search(network, source, 3, 8)
    assert found
    assert found == sorted(found, reverse=True)
    for score, ids in found:
        logits = network(source, torch.tensor([[BOS, *ids]]))[0][0].detach()
        logits[:, [PAD, BOS]] = float("-inf")
        log_p = logits.log_softmax(-1)
        total = sum(float(log_p[n, each]) for n, each in enumerate([*ids, EOS]))
        assert score == pytest.approx(total / (len(ids) + 1), abs=1e-4)
    assert [ids for _, ids in beam_search(network, source, 1, 20)] == generate(network, source, 20)
