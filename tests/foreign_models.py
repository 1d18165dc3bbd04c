"""Random models of the transformers library, saved in folders, for tests of imports."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attendo.interop.certificate import Bounds, Certificate
from attendo.interop.certify import certify, random_sources
from attendo.interop.compared_systems import TorchSystem, TransformersSystem
from attendo.interop.huggingface.imported import ImportedModel

VOCABULARY = 60
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 64,
}
MARIAN = {"pad_token_id": VOCABULARY - 1, "decoder_start_token_id": VOCABULARY - 1, "eos_token_id": 0}
KINDS = {
    "marian": ("Marian", "MarianMTModel", MARIAN),
    "bart": ("Bart", "BartForConditionalGeneration", {}),
    "m2m_100": ("M2M100", "M2M100ForConditionalGeneration", {}),
    "mbart": ("MBart", "MBartForConditionalGeneration", {"decoder_start_token_id": 2}),
    "pegasus": ("Pegasus", "PegasusForConditionalGeneration", {}),
    "plbart": ("PLBart", "PLBartForConditionalGeneration", {"decoder_start_token_id": 9}),
    "mvp": ("Mvp", "MvpForConditionalGeneration", {}),
    "blenderbot": ("Blenderbot", "BlenderbotForConditionalGeneration", {}),
}


def random_model(kind: str, seed: int = 0, **changes: Any) -> Any:
    """All weights are random, biases and gains too: outputs vary, and a swap of two weights is noticed."""
    transformers = pytest.importorskip("transformers")
    name, model, specials = KINDS[kind]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = getattr(transformers, model)(
            getattr(transformers, f"{name}Config")(**{**SIZES, **specials, **changes})
        )
        with torch.no_grad():
            for key, parameter in network.named_parameters():
                if kind not in ("marian", "pegasus") or "embed_positions" not in key:
                    parameter.copy_(_scale_weight(key, torch.randn_like(parameter), network.config.scale_embedding))
            if hasattr(network, "final_logits_bias"):
                network.final_logits_bias.copy_(0.3 * torch.randn_like(network.final_logits_bias))
                network.final_logits_bias[0, network.config.eos_token_id] += 5
    return network.eval()


def _scale_weight(key: str, values: Tensor, scaled: bool) -> Tensor:
    """Gains have random signs, so a tied embedding does not copy the source. Attention is peaked."""
    if "norm" in key and "weight" in key:
        return values.sign() * (1 + 0.2 * values.abs())
    if values.dim() == 1:
        return 0.1 * values
    if "embed" in key or "shared" in key:
        return values / values.size(1) ** 0.5 if scaled else values
    return values * values.size(1) ** -0.5 * (4 if "q_proj" in key else 1)


def written(model: Any, folder: Path, **changes: Any) -> Path:
    """Save the model with `save_pretrained`, then change its config.json and generation_config.json."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model.save_pretrained(folder)
    for path in (folder / "config.json", folder / "generation_config.json"):
        settings = json.loads(path.read_text("utf-8"))
        path.write_text(json.dumps({**settings, **changes}), "utf-8")
    return folder


def certificate(imported: ImportedModel, count: int, target_prefix: tuple[int, ...] = ()) -> Certificate:
    """Compares attendo with transformers on random sentences."""
    sources = short_sources(imported, count)
    ours, theirs = (
        TorchSystem(imported.network, "hf", target_prefix),
        TransformersSystem.from_import(imported, target_prefix),
    )
    return certify(ours, theirs, sources, Bounds(same_tokens=1.0, mean_difference=1e-5, largest_difference=1e-4))


def short_sources(imported: ImportedModel, count: int) -> list[list[int]]:
    """Random sources of at most 3 tokens, because the length limit of an output follows its source."""
    return [source[:3] for source in random_sources(imported.source.size, count)]


def assert_passed(found: Certificate) -> None:
    assert found.passed, found.reasons
    assert [each.same_answers for each in found.searches] == [found.sentences] * 2
    assert max(each.score_difference or 0 for each in found.searches) < 1e-3
