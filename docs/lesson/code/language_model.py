"""The decoder-only translator that page 14 looks at, trained on the sentences of `translator.py` in one vocabulary."""

import hashlib
import json
import random
from dataclasses import dataclass
from pathlib import Path

import torch
from decoder_only import IGNORED, DecoderOnly, row_and_labels
from loss import BOS, EOS, PAD
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformer import Sizes
from translator import BATCH, HERE, KEPT, PEAK, SPECIAL, made_from, short_pairs

STEPS, LAYERS = 600, 3


@dataclass(frozen=True)
class LanguageModel:
    """A trained network with its words."""

    network: DecoderOnly
    words: list[str]

    def prompt(self, sentence: str) -> list[int]:
        """The words and a BOS, after which the translation begins."""
        return [*(self.words.index(word) for word in sentence.split()), BOS]

    def text(self, ids: list[int]) -> str:
        return " ".join(self.words[n] for n in ids)


def trained_language_model(folder: Path = KEPT) -> LanguageModel:
    """The one that was trained before from the same code, or else a new one, which is kept."""
    described = folder / "language_model.json"
    kept = json.loads(described.read_text("utf-8")) if described.exists() else {}
    if kept.get("made_from") != fingerprint():
        made = train()
        folder.mkdir(parents=True, exist_ok=True)
        save_file(made.network.state_dict(), folder / "language_model.safetensors")
        kept = {"words": made.words, "made_from": fingerprint()}
        described.write_text(json.dumps(kept, ensure_ascii=False), "utf-8")
    network = DecoderOnly(sizes_for(kept["words"]))
    network.load_state_dict(load_file(folder / "language_model.safetensors"))
    return LanguageModel(network.eval(), kept["words"])


def train() -> LanguageModel:
    torch.manual_seed(1)
    pairs = short_pairs()
    words = SPECIAL + sorted({word for pair in pairs for side in pair for word in side})
    numbers = {word: n for n, word in enumerate(words)}
    network = DecoderOnly(sizes_for(words))
    optimizer = torch.optim.Adam(network.parameters())
    dice = random.Random(1)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1, (step + 1) / 100, 2 * (STEPS - step) / STEPS)
        some = dice.sample(pairs, BATCH)
        rows = [
            row_and_labels([*(numbers[word] for word in source), BOS], [*(numbers[word] for word in target), EOS])
            for source, target in some
        ]
        ids, labels = padded_to([row for row, _ in rows], PAD), padded_to([each for _, each in rows], IGNORED)
        loss = F.cross_entropy(network(ids).flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return LanguageModel(network, words)


def padded_to(rows: list[list[int]], filler: int) -> Tensor:
    """Rows of equal length. The causal mask hides padding at the end from every token before it."""
    longest = max(map(len, rows))
    return torch.tensor([row + [filler] * (longest - len(row)) for row in rows])


def sizes_for(words: list[str]) -> Sizes:
    return Sizes(len(words), len(words), d_model=64, n_heads=4, n_layers=LAYERS, hidden_size=256, max_len=64)


def fingerprint() -> str:
    """A hash of everything that the trained network depends on."""
    files = [HERE / "decoder_only.py", HERE / "language_model.py"]
    return hashlib.sha256(made_from().encode() + b"".join(file.read_bytes() for file in files)).hexdigest()
