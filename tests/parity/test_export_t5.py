"""T5 folders that attendo writes: transformers computes the same, and an import gives the same model again."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from foreign_t5 import T5_FOLDERS, make_t5_folder
from foreign_tokenizers import some_lines, strange_texts

from attendo.errors import ModelError
from attendo.interop.certify import CertificateSentences, collect_sentences
from attendo.interop.export import export
from attendo.interop.import_model import from_folder
from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import BOS, PAD, Bytes
from attendo.text_model import TextModel

pytest.importorskip("transformers")

SIZES: dict[str, Any] = {"num_layers": 1, "num_decoder_layers": 2}


def sentences(model: TextModel) -> CertificateSentences:
    return collect_sentences(model, min_count=4)


def t5_network(size: int, **changes: Any) -> Transformer:
    """A network as trained from scratch, with scales that T5 does not have."""
    settings = {
        "vocab_size": size,
        "d_model": 24,
        "num_heads": 3,
        "d_ff": 20,
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "positions": "relative",
        "norm_kind": "rms",
        "linear_bias": False,
        "tie": "all",
    }
    return Transformer(ModelConfig(**{**settings, **changes}), torch.Generator().manual_seed(2)).eval()


def text_model(**changes: Any) -> TextModel:
    tokenizer = Bytes()
    return TextModel(StoredModel(t5_network(tokenizer.vocab_size, **changes), tokenizer, tokenizer, {"beam": 2}))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ("t5", "mt5") else []) for name in T5_FOLDERS]
)
def test_an_imported_model_is_exported_and_imported_again(tmp_path: Path, name: str) -> None:
    first = from_folder(make_t5_folder(name, tmp_path / "original", **SIZES))
    model = first.build_text_model()
    proof = export(model, tmp_path / "exported", "hf", sentences=sentences(model))
    codes = {note.code for note in proof.notes}
    assert "tokenizers_not_exported" not in codes, [str(note) for note in proof.notes]
    assert ("umt5_scaled_by_transformers_5" in codes) == (name == "umt5")
    again = from_folder(tmp_path / "exported")
    assert again.network.config == first.network.config
    assert again.source.rows == first.source.rows
    for (weight, one), other in zip(first.network.named_parameters(), again.network.parameters(), strict=True):
        assert torch.equal(one, other), weight
    texts = [*strange_texts(), *some_lines(1, 5), "<extra_id_0> ab"]
    tokenizers = first.source_tokenizer, again.source_tokenizer
    assert tokenizers[0] is not None
    assert tokenizers[1] is not None
    assert [tokenizers[1].encode(text) for text in texts] == [tokenizers[0].encode(text) for text in texts]
    assert again.generation.get("source_prefix") == first.generation.get("source_prefix")


NETWORKS: dict[str, dict[str, Any]] = {
    "defaults": {"activation": "geglu_tanh"},
    "an output table of its own": {"tie": "inputs", "attention_scale": 1.0, "scale_embedding": False},
    "an output scale": {"output_scale": 0.3, "activation": "swiglu"},
    "biases per layer": {"relative_bias": "per_layer", "activation": "reglu", "relative_buckets": 8},
    "other head widths": {"d_key": 6, "d_value": 6, "activation": "gelu_tanh", "norm_epsilon": 1e-6},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_trained_model_is_exported_and_imported_again(tmp_path: Path, name: str) -> None:
    model = text_model(**NETWORKS[name])
    assert export(model, tmp_path / "hf", "hf", sentences=sentences(model)).passed
    settings = json.loads((tmp_path / "hf" / "config.json").read_text("utf-8"))
    shared = name in (
        "defaults",
        "biases per layer",
        "other head widths",
    )  # √d_model of the embedding becomes T5's scale of the output
    assert settings["tie_word_embeddings"] is shared
    assert settings.get("scale_decoder_outputs") is (None if "layer" in name else shared)
    found = from_folder(tmp_path / "hf")
    assert found.source_tokenizer == model.source_tokenizer
    ids = torch.tensor([[5, 9, 77, 3]]), torch.tensor([[2, 8, 200]])
    assert torch.allclose(found.network(*ids), model.network(*ids), atol=1e-5)
    again = found.build_text_model().generate(["ab cd"], beam=1, max_length=6)
    assert again[0].ids == model.generate(["ab cd"], beam=1, max_length=6)[0].ids


@pytest.mark.parametrize("name", ["t5", "flan"])
def test_a_changed_bos_takes_the_input_row_of_pad(tmp_path: Path, name: str) -> None:
    """Training changes bos, which is no copy of pad then. Two tables keep the logits exact."""
    model = from_folder(make_t5_folder(name, tmp_path / "original", **SIZES)).build_text_model()
    with torch.no_grad():
        model.network.target.tokens.weight[BOS] += 0.5
    assert export(model, tmp_path / "hf", "hf", sentences=sentences(model)).passed
    found = from_folder(tmp_path / "hf")
    assert found.network.config.tie == "inputs"
    assert torch.equal(found.network.target.tokens.weight[PAD], model.network.target.tokens.weight[BOS])
    ids = torch.tensor([[5, 9, 77, 3]]), torch.tensor([[2, 8, 20]])
    assert torch.allclose(found.network(*ids)[..., 3:], model.network(*ids)[..., 3:], atol=1e-5)


UNSUPPORTED: dict[str, dict[str, Any]] = {
    "biases": {"linear_bias": True},
    "means": {"norm_kind": "layer"},
    "no counterpart": {"activation": "geglu"},
    "separate inputs": {"tie": "output"},
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_networks_are_rejected_with_the_reason(tmp_path: Path, name: str) -> None:
    model = text_model(**UNSUPPORTED[name])
    with pytest.raises(ModelError, check=has_code("transformers_network_unsupported", model="a T5 model")):
        export(model, tmp_path / "hf", "hf", sentences=sentences(model))


@pytest.mark.parametrize("changes", [{"linear_bias": False}, {"output_scale": 0.5}, {"attention_scale": 1.0}])
def test_other_classes_reject_the_settings_of_t5(tmp_path: Path, changes: dict[str, Any]) -> None:
    model = text_model(**{"positions": "sinusoidal", "norm_kind": "layer", "linear_bias": True, **changes})
    with pytest.raises(ModelError, check=has_code("transformers_network_unsupported", model="a Pegasus model")):
        export(model, tmp_path / "hf", "hf", sentences=sentences(model))
