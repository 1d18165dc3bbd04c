"""Random T5Gemma 2 models of the transformers library in folders."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from foreign_models import written
from foreign_tokenizers import some_lines
from torch import Tensor

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
TOKENS, TURN = 420, "<start_of_turn>"
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
                weight.copy_(_scale_weight(name, torch.randn_like(weight)))
    return model.eval()


def _scale_weight(name: str, values: Tensor) -> Tensor:
    """Gains, stored minus 1, have random signs, so that the tied table does not copy the source."""
    if values.dim() == 1:
        return values.sign() * (1 + 0.2 * values.abs()) - 1
    return values * (1 if "embed" in name else 2) * values.size(-1) ** -0.5


def write_gemma_tokenizer(folder: Path) -> dict[str, int]:
    """A tokenizer.json with Gemma's control ids and steps: spaces become `▁`, unknown characters bytes."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    controls = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=TOKENS - 257, special_tokens=controls, initial_alphabet=["▁"], show_progress=False
    )
    lines = (line.replace(" ", " \n").splitlines() for line in some_lines())  # as words, each with its space in front
    backend.train_from_iterator((f" {word.strip()}" for words in lines for word in words), trainer)
    model = json.loads(backend.to_str())["model"]
    names = [*sorted(model["vocab"], key=model["vocab"].get), *(f"<0x{byte:02X}>" for byte in range(256)), TURN]
    made = transformers.GemmaTokenizer(
        vocab={name: number for number, name in enumerate(names)},
        merges=[tuple(each) for each in model["merges"]],
        extra_special_tokens=[TURN],
        add_bos_token=True,
    )
    made.save_pretrained(folder)
    return {name: number for number, name in enumerate(names)}


def write_t5gemma2(folder: Path, model: Any) -> Path:
    written(model, folder)
    return folder


def make_t5gemma2_folder(folder: Path, **changes: Any) -> Path:
    """Write a folder with a tokenizer, as its authors publish it."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = write_gemma_tokenizer(folder)
    return write_t5gemma2(folder, random_t5gemma2(**{"vocab_size": len(vocabulary) + 4, **changes}))
