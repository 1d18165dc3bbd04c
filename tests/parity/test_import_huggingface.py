"""Imported models of transformers give the same logits and the same greedy and beam answers."""

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import VOCABULARY, assert_passed, certificate, random_model, short_sources, written

from attendo.interop.compared_systems import TorchSystem
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.huggingface.model_classes import MARIAN
from attendo.interop.huggingface.vocabulary import SUPPRESS_BIAS
from attendo.interop.import_model import from_folder
from attendo.text import BOS, EOS, PAD, UNK

pytest.importorskip("transformers")

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "marian": ("marian", {"activation_function": "swish", "scale_embedding": True}),
    "bart": ("bart", {}),
    "m2m_100": ("m2m_100", {}),
    "mbart": ("mbart", {}),
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one vocabulary per side": ("marian", {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 71}),
    "nothing tied": (
        "marian",
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "decoder_vocab_size": 71},
    ),
    "untied output": ("marian", {"tie_word_embeddings": False}),
    "a start token that can be generated": ("marian", {"decoder_start_token_id": 7}),
    "bart untied": ("bart", {"tie_word_embeddings": False, "scale_embedding": True, "activation_function": "relu"}),
    "m2m100 with another pad": ("m2m_100", {"pad_token_id": 4, "scale_embedding": False}),
}


def import_random(folder: Path, kind: str, **changes: Any) -> ImportedModel:
    return from_folder(written(random_model(kind, **changes), folder), with_tokenizers=False)


@pytest.mark.short(2)
@pytest.mark.parametrize("count", [16, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_answers_are_the_same(tmp_path: Path, name: str, count: int) -> None:
    kind, changes = MODELS[name]
    assert_passed(certificate(import_random(tmp_path, kind, **changes, decoder_layers=1), count))


@pytest.mark.short(1)
@pytest.mark.parametrize("name", VARIANTS)
def test_other_settings_are_kept(tmp_path: Path, name: str) -> None:
    kind, changes = VARIANTS[name]
    assert_passed(certificate(import_random(tmp_path, kind, **changes), count=8))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bart", "m2m_100"])
def test_answers_with_a_prefix_are_the_same(tmp_path: Path, kind: str) -> None:
    assert_passed(certificate(import_random(tmp_path, kind), count=8, target_prefix=(9,)))


def test_random_answers_vary(tmp_path: Path) -> None:
    """Otherwise the tests above would compare little."""
    for kind in MODELS:
        found = import_random(tmp_path / kind, kind)
        answers = TorchSystem(found.network, "hf").generate(short_sources(found, 40), 1, 20)
        assert len({each.ids for each in answers}) > 10, kind
        assert len({token for each in answers for token in each.ids}) > 10, kind


@pytest.mark.slow
def test_a_trained_model_is_imported(tmp_path: Path) -> None:
    model = random_model("marian", activation_function="swish", decoder_layers=1).train()
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sources = torch.randint(2, VOCABULARY - 1, (16, 6), generator=generator)
    losses = []
    for _ in range(20):
        loss = model(input_ids=sources, labels=sources.flip(1)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]
    assert_passed(certificate(from_folder(written(model.eval(), tmp_path), with_tokenizers=False), count=50))


def test_a_marian_round_trip_keeps_the_network(tmp_path: Path) -> None:
    """An imported model that is exported and imported again is the same network."""
    first = import_random(tmp_path / "first", "marian")
    exported = MARIAN.build(first.network)
    second = from_folder(written(exported, tmp_path / "second"), with_tokenizers=False)
    assert second.network.config == first.network.config
    assert second.target.rows == tuple(range(VOCABULARY + 1))
    for one, other in zip(first.network.parameters(), second.network.parameters(), strict=True):
        assert torch.equal(one, other)
    assert_passed(certificate(second, count=20))


def test_control_tokens_get_our_ids(tmp_path: Path) -> None:
    found = import_random(tmp_path, "marian")
    assert found.target.rows[: EOS + 1] == (VOCABULARY - 1, 1, VOCABULARY - 1, 0)
    table = found.network.target.tokens.weight
    assert table.size(0) == VOCABULARY + 1
    assert torch.equal(table[BOS], table[PAD])
    assert found.network.output.bias[BOS] == SUPPRESS_BIAS
    assert all(found.network.output.bias[each] > -100 for each in (PAD, UNK, EOS))


@pytest.mark.slow
def test_sharded_half_precision_weights_are_read(tmp_path: Path) -> None:
    model = random_model("marian").half()
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    found = from_folder(tmp_path, with_tokenizers=False)
    assert found.network.output.weight.dtype == torch.float32
    assert_passed(certificate(found, count=20))


def test_decoding_defaults_are_imported(tmp_path: Path) -> None:
    folder = written(
        random_model("marian", forced_eos_token_id=0),
        tmp_path,
        num_beams=6,
        max_length=512,
        length_penalty=0.8,
        early_stopping=True,
        no_repeat_ngram_size=3,
    )
    assert from_folder(folder, with_tokenizers=False).generation == {
        "beam": 6,
        "length_penalty": 0.8,
        "stop": "first",
        "no_repeat_ngram_size": 3,
        "max_length_factor": 0.0,
        "max_length_extra": 510,
        "at_limit": "force_eos",
    }


def test_the_global_random_state_is_unchanged(tmp_path: Path) -> None:
    folder = written(random_model("bart"), tmp_path)
    before = torch.get_rng_state()
    from_folder(folder, with_tokenizers=False)
    assert torch.equal(torch.get_rng_state(), before)
