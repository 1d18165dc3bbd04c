"""A run: text in, a trained model folder out, told as a stream of reports."""

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from attendo import __version__
from attendo.data.batch import Batch, Example, collate
from attendo.data.buckets import bucketed, group_by_length
from attendo.errors import DataError, UsageError
from attendo.model.transformer import Transformer
from attendo.recipes.corpus import TextPair, read_corpus
from attendo.recipes.run_config import RunConfig, TokenizerConfig, to_toml
from attendo.store import StoredModel
from attendo.text import Characters, SentencePiece, Tokenizer, Words
from attendo.text_model import TextModel
from attendo.train.loop import Report, train


@dataclass(frozen=True)
class Prepared:
    """What was read and decided before the first step."""

    train_pairs: int | None  # None where there is no end of them
    valid_pairs: int
    empty_pairs: int
    source_vocab_size: int
    target_vocab_size: int
    parameters: int


class Run:
    """A folder and the model that grows in it; the model is whole, and can be saved, after every report."""

    def __init__(self, config: RunConfig, folder: Path, device: torch.device, overwrite: bool = False) -> None:
        """Read the text, build the tokenizers and the network, and write the settings down."""
        if (folder / "model").exists() and not overwrite:
            raise UsageError(f"{folder} holds a run already: name another folder, or overwrite it (--overwrite)")
        self.config = config
        self.folder = folder
        self.corpus = read_corpus(config.data, config.seed)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"the run folder {folder} cannot be made: {error.strerror}") from None
        source, target = build_tokenizers(self.corpus.sample, config.tokenizer)
        generator = torch.Generator().manual_seed(config.seed)
        network = Transformer(config.network(source.vocab_size, target.vocab_size), generator)
        self.model = TextModel(StoredModel(network.to(device), source, target))
        self._refuse_too_long()
        (folder / "run.toml").write_text(to_toml(config), "utf-8")
        (folder / "run.json").write_text(json.dumps(_circumstances(config, device), indent=2) + "\n", "utf-8")

    @property
    def prepared(self) -> Prepared:
        return Prepared(
            train_pairs=None if self.corpus.endless else len(self.corpus.sample),
            valid_pairs=len(self.corpus.valid),
            empty_pairs=self.corpus.empty,
            source_vocab_size=self.model.source_tokenizer.vocab_size,
            target_vocab_size=self.model.target_tokenizer.vocab_size,
            parameters=sum(weight.numel() for weight in self.model.network.parameters()),
        )

    def train(self) -> Iterator[Report]:
        """Learn, telling every step and writing it to metrics.jsonl."""
        config = self.config.train
        torch.manual_seed(self.config.seed)  # dropout draws from torch's own generator
        valid = [self._example(pair) for pair in self.corpus.valid]
        valid_batches = [collate(group) for group in group_by_length(valid, config.batch_tokens)]
        with (self.folder / "metrics.jsonl").open("w", encoding="utf-8", buffering=1) as log:
            for report in train(self.model.network, self._batches(), valid_batches, config):
                log.write(json.dumps({"kind": type(report).__name__.lower(), **asdict(report)}) + "\n")
                yield report

    def _refuse_too_long(self) -> None:
        """Before the first step, not when the sentence comes up in the middle of the run."""
        network = self.config.network(8, 8)
        if network.positions != "learned" or self.corpus.endless is not None:
            return
        for pair in (*self.corpus.sample, *self.corpus.valid):
            if (length := self._example(pair).length) > network.max_length:
                raise DataError(
                    f"a pair has {length} tokens, more than model.max_length {network.max_length}: raise it, choose "
                    f"other positions, or shorten the pair that begins {pair[0][:40]!r}"
                )

    def _batches(self) -> Iterator[Batch]:
        # Epoch by epoch: sorted by length, two copies of a pair would end up in one batch.
        for number, epoch in enumerate(self.corpus.epochs()):
            seed = f"{self.config.seed} epoch {number}"
            yield from bucketed(map(self._example, epoch), self.config.train.batch_tokens, seed)

    def save(self) -> Path:
        self.model.save(self.folder / "model")
        return self.folder / "model"

    def _example(self, pair: TextPair) -> Example:
        source, target = pair
        return Example(self.model.source_tokenizer.encode(source), self.model.target_tokenizer.encode(target))


def _circumstances(config: RunConfig, device: torch.device) -> dict[str, Any]:
    """What is not in the settings and may still matter to whoever looks at the run later."""
    return {
        "attendo": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "seed": config.seed,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def build_tokenizers(pairs: Sequence[TextPair], config: TokenizerConfig) -> tuple[Tokenizer, Tokenizer]:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    if config.joint:
        joint = _build(sources + targets, config)
        return joint, joint
    return _build(sources, config), _build(targets, config)


def _build(texts: Sequence[str], config: TokenizerConfig) -> Tokenizer:
    match config.kind:
        case "words":
            return Words.build(texts, limit=config.size)
        case "characters":
            return Characters.build(texts, limit=config.size)
        case "bpe" | "unigram":
            return SentencePiece.train(texts, config.size, config.kind)
