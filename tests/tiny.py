"""A tiny text model with its vocabulary texts, and the result of a command."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel
from attendo.text import Tokenizer, Words
from attendo.text_model import TextModel

SOURCES = ("I love NLP", "the cat sat", "a dog ran home", "I saw the small cat")
TARGETS = ("我 爱 NLP", "猫 坐 着", "狗 跑 回 家", "我 看见 小 猫 了")

SIZES: dict[str, Any] = {
    "d_model": 16,
    "num_heads": 2,
    "d_ff": 24,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "dropout": 0.0,
}

# Time limit of tests that wait, in seconds. Only a hang reaches it, even on a busy machine.
PATIENCE = 300.0

# Settings for `attendo train`: a network of that size, trained in 1 s.
QUICK_RUN = (
    "preset=tiny",
    "tokenizer.kind=words",
    "model.d_model=16",
    "model.num_heads=2",
    "model.d_ff=24",
    "train.batch_tokens=64",
    "train.steps=3",
)


@dataclass(frozen=True)
class Outcome:
    """The result of a command."""

    code: int
    output: str
    errors: str

    @property
    def error(self) -> str:
        """The error line of a command that failed."""
        assert self.errors.count("\n") == 1, self.errors
        assert self.errors.startswith("attendo: ")
        assert self.output == ""
        return self.errors.removeprefix("attendo: ").rstrip("\n")


Command = Callable[..., Outcome]


def tiny_model(seed: int = 0, joint: bool = False, **changes: Any) -> TextModel:
    """An untrained model with one vocabulary of words per side, or a joint one."""
    source: Tokenizer = Words.build(SOURCES + TARGETS if joint else SOURCES)
    target: Tokenizer = source if joint else Words.build(TARGETS)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    network = make_network(ModelConfig(**{**sizes, **SIZES, **changes}), torch.Generator().manual_seed(seed))
    return TextModel(StoredModel(network, source, target, {"max_length_extra": 7}, {"exact_match": 0.25}))


def parallel_model(kind: str, **settings: Any) -> TextModel:
    """An untrained model of kind masked, ctc or graph, whose distributions are not flat."""
    source, target = Words.build(SOURCES), Words.build(TARGETS)
    sizes = {"source_vocab_size": source.vocab_size, "target_vocab_size": target.vocab_size}
    network = make_network(ModelConfig(**{**SIZES, **sizes, **settings}, kind=kind), torch.Generator().manual_seed(1))
    with torch.no_grad():
        network.output.weight.mul_(6)
        if kind == "masked":  # lengths near that of the source, within the limit of an answer
            bias = network.get_parameter("length_head.bias")
            bias.copy_(-(torch.arange(len(bias)) - len(bias) // 2).abs())
    return TextModel(network, (source, target))


def without_source() -> TextModel:
    """A decoder-only model, which continues texts."""
    words = Words.build(SOURCES)
    config = ModelConfig(vocab_size=words.vocab_size, **{**SIZES, "num_encoder_layers": 0})
    return TextModel(StoredModel(Transformer(config, torch.Generator().manual_seed(0)), words, words, {}, {}))


def prefix_model(seed: int = 0, **changes: Any) -> TextModel:
    """A decoder-only model for pairs, with one vocabulary of words."""
    return tiny_model(seed, joint=True, **{"num_encoder_layers": 0, "prefix_lm": True, **changes})


def write_pairs(folder: Path, times: int = 10) -> tuple[Path, Path]:
    """Write the tiny sentences to two parallel files."""
    source, target = folder / "train.source", folder / "train.target"
    source.write_text("".join(f"{line}\n" for line in SOURCES * times), "utf-8")
    target.write_text("".join(f"{line}\n" for line in TARGETS * times), "utf-8")
    return source, target


def settings(*changes: str) -> list[str]:
    """`--set` before each change."""
    return [word for change in changes for word in ("--set", change)]
