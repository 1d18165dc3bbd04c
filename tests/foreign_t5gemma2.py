"""Random T5Gemma 2 models of the transformers library in folders."""

from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import written

SLIDING, FULL = "sliding_attention", "full_attention"
TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "query_pre_attn_scalar": 10,
    "sliding_window": 6,
    "layer_types": [SLIDING, SLIDING, FULL],
    "max_position_embeddings": 512,
}
_VISION: dict[str, Any] = {
    "model_type": "siglip_vision_model",
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "image_size": 16,
    "patch_size": 4,
}
IMAGE_IDS = {"boi_token_index": 59, "eoi_token_index": 60, "image_token_index": 61}


def random_t5gemma2(seed: int = 0, decoder: dict[str, Any] | None = None, **changes: Any) -> Any:
    """All weights are random. `changes` are settings of both stacks, `decoder` of the decoder alone."""
    transformers = pytest.importorskip("transformers")
    text = {**TEXT, **changes}
    encoder = {"text_config": text, "vision_config": _VISION, "mm_tokens_per_image": 4, **IMAGE_IDS}
    config = transformers.T5Gemma2Config(
        encoder=encoder, decoder={**text, **(decoder or {})}, image_token_index=IMAGE_IDS["image_token_index"]
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = transformers.T5Gemma2ForConditionalGeneration(config)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                values = torch.randn_like(weight)
                is_gain = weight.dim() == 1
                weight.copy_(
                    0.3 * values if is_gain else values * (1 if "embed" in name else 2) * weight.size(-1) ** -0.5
                )
    return model.eval()


def write_t5gemma2(folder: Path, model: Any) -> Path:
    written(model, folder)
    return folder
