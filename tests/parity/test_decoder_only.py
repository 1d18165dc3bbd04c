"""A decoder-only network against GPT-2 of transformers with the same weights."""

from typing import Any

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import BOS, EOS, PAD, Characters
from attendo.text_model import TextModel

SIZES: dict[str, Any] = {"d_model": 32, "num_heads": 4, "d_ff": 48, "num_decoder_layers": 3}


def gpt2(vocab_size: int) -> GPT2LMHeadModel:
    torch.manual_seed(3)
    config = GPT2Config(
        vocab_size=vocab_size,
        n_positions=32,
        n_embd=SIZES["d_model"],
        n_layer=SIZES["num_decoder_layers"],
        n_head=SIZES["num_heads"],
        n_inner=SIZES["d_ff"],
        activation_function="gelu",
        initializer_range=0.4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
    )
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(0.1 * torch.randn_like(weight))
    return model


def from_gpt2(theirs: GPT2LMHeadModel, vocab_size: int) -> Transformer:
    config = ModelConfig(
        **SIZES,
        vocab_size=vocab_size,
        num_encoder_layers=0,
        positions="learned",
        max_length=32,
        activation="gelu",
        scale_embedding=False,
        dropout=0.0,
    )
    network, body = Transformer(config).eval(), theirs.transformer
    weights = {"target.tokens.weight": body.wte.weight, "target.positions.table": body.wpe.weight}
    for name, norm in (("decoder_norm", body.ln_f),):
        weights |= {f"{name}.weight": norm.weight, f"{name}.bias": norm.bias}
    for n, block in enumerate(body.h):
        linears = {
            "self_attention.project": block.attn.c_attn,
            "self_attention.output": block.attn.c_proj,
            "feed_forward.expand": block.mlp.c_fc,
            "feed_forward.contract": block.mlp.c_proj,
        }
        weights |= {f"decoder.{n}.{name}.weight": each.weight.T for name, each in linears.items()}
        weights |= {f"decoder.{n}.{name}.bias": each.bias for name, each in linears.items()}
        for name, norm in (("self_residual", block.ln_1), ("feed_forward_residual", block.ln_2)):
            weights |= {
                f"decoder.{n}.{name}.normalise.weight": norm.weight,
                f"decoder.{n}.{name}.normalise.bias": norm.bias,
            }
    parameters = dict(network.named_parameters())
    assert parameters.keys() == weights.keys()
    with torch.no_grad():
        for name, weight in parameters.items():
            weight.copy_(weights[name])
    return network.requires_grad_(False)


TOKENIZER = Characters.build(["abcdefghijklm\n"])


@pytest.fixture(scope="module")
def models() -> tuple[GPT2LMHeadModel, TextModel]:
    theirs = gpt2(TOKENIZER.vocab_size)
    return theirs, TextModel(StoredModel(from_gpt2(theirs, TOKENIZER.vocab_size), TOKENIZER, TOKENIZER, {}))


def test_logits_equal_gpt2(models: tuple[GPT2LMHeadModel, TextModel]) -> None:
    theirs, model = models
    ids = torch.randint(4, TOKENIZER.vocab_size, (5, 17), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs(ids).logits
    assert expected.std() > 0.5
    assert torch.allclose(model.network(None, ids), expected, atol=1e-4)


@pytest.mark.short(1)
@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("engine", ["textbook", "cached", "fast"])
def test_continuations_equal_gpt2(models: tuple[GPT2LMHeadModel, TextModel], beams: int, engine: str) -> None:
    """The length penalty is 0, because GPT-2 averages over the new tokens and our search over the complete text."""
    theirs, model = models
    for text in ("", "ab", "jam\nfed"):
        ids = torch.tensor([[BOS, *TOKENIZER.encode(text)]])
        output = theirs.generate(
            ids, attention_mask=torch.ones_like(ids), max_length=20, num_beams=beams, do_sample=False,
            suppress_tokens=[PAD, BOS], early_stopping=False, length_penalty=0.0,
        )  # fmt: skip
        expected = [each for each in output[0, 1:].tolist() if each not in (EOS, PAD)]
        result = model.generate([text], preset="hf", beam=beams, length_penalty=0.0, max_length=19, engine=engine)[0]
        assert list(result.ids) == expected
