"""Running text, and a tiny decoder-only model that continues it."""

import random
from pathlib import Path
from typing import Any

import torch

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.runs.config import RunConfig
from attendo.text import Characters, Tokenizer
from attendo.text_model import TextModel

ALPHABET = "abcdefgh ijkl\nmnop."

SIZES: dict[str, Any] = {"num_encoder_layers": 0, "num_decoder_layers": 2, "d_model": 16, "num_heads": 2, "d_ff": 24}


def continuer(
    seed: int = 0, tokenizer: Tokenizer | None = None, extra: int = 7, generation: Any = None, **changes: Any
) -> TextModel:
    """An untrained model, with characters as tokens by default. Large weights make its output depend on the text."""
    tokenizer = tokenizer or Characters.build([ALPHABET])
    config = ModelConfig(**{**SIZES, "dropout": 0.0, "tie": "none", **changes}, target_vocab_size=tokenizer.vocab_size)
    network = Transformer(config, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(1.8 if weight.dim() > 1 else 1.0)
    network.requires_grad_(False)
    return TextModel(StoredModel(network, tokenizer, tokenizer, {"max_length_extra": extra, **(generation or {})}))


def some_text(characters: int, seed: int = 0) -> str:
    """Lines of made-up words."""
    dice = random.Random(seed)
    words = ["".join(dice.choices("abcdefgh", k=dice.randrange(1, 6))) for _ in range(40)]
    text = ""
    while len(text) < characters:
        text += " ".join(dice.choices(words, k=dice.randrange(1, 8))) + dice.choice((".\n", "\n", "\n\n"))
    return text[:characters]


def run_of_text(folder: Path, characters: int = 3000, **changes: Any) -> RunConfig:
    """A run on running text that trains in 1 s."""
    path = folder / "text.txt"
    path.write_text(some_text(characters), "utf-8")
    train = {"steps": 4, "batch_tokens": 128, "validate_every": 2, "save_every": 2, "workers": 0, "warmup": 2}
    values: dict[str, Any] = {
        "preset": "tiny",
        "tokenizer": {"kind": "characters"},
        "model": {**SIZES, "dropout": 0.2},
        **changes,
        "data": {"text": path, "window": 16, **changes.get("data", {})},
        "train": {**train, "label_smoothing": 0.0, "samples": 0, **changes.get("train", {})},
    }
    return RunConfig(**values)
