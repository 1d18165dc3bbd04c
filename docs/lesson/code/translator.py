"""The small translator that the lesson looks at: its own classes, trained for a minute on short built-in sentences."""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from loss import BOS, EOS, criterion, padded, shifted
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformer import Sizes, Transformer

from attendo import demo_task
from attendo.demo_task import BuiltinTask

HERE = Path(__file__).resolve().parent
KEPT = HERE.parents[2] / "runs" / "lesson"
MADE_OF = "attention decoder embedding encoder feed_forward loss masks positions sublayer transformer translator"
SPECIAL = ["<pad>", "<bos>", "<eos>"]
PAIRS, STEPS, BATCH, PEAK = 20_000, 500, 64, 3e-3
MOST_WORDS = 5


@dataclass(frozen=True)
class Translator:
    """A trained network with its two lists of words."""

    network: Transformer
    sizes: Sizes
    english: list[str]
    chinese: list[str]
    losses: list[float]

    def source(self, sentence: str) -> Tensor:
        """[1, S]: the words and an EOS."""
        return torch.tensor([[self.english.index(word) for word in sentence.split()] + [EOS]])

    def target(self, sentence: str) -> Tensor:
        """[1, T]: BOS and the words, what the decoder reads."""
        return torch.tensor([[BOS] + [self.chinese.index(word) for word in sentence.split()]])

    def words(self, ids: Sequence[int]) -> str:
        return " ".join(self.chinese[n] for n in ids)


def trained(folder: Path = KEPT) -> Translator:
    """The one that was trained before from the same code, or else a new one, which is kept."""
    described = folder / "translator.json"
    words = json.loads(described.read_text("utf-8")) if described.exists() else {}
    if words.get("made_from") != made_from():
        keep(train(), folder)
        words = json.loads(described.read_text("utf-8"))
    sizes = sizes_for(words["english"], words["chinese"])
    network = Transformer(sizes)
    network.load_state_dict(load_file(folder / "translator.safetensors"))
    return Translator(network.eval(), sizes, words["english"], words["chinese"], words["losses"])


def train() -> Translator:
    torch.manual_seed(1)
    pairs = short_pairs()
    english = SPECIAL + sorted({word for source, _ in pairs for word in source})
    chinese = SPECIAL + sorted({word for _, target in pairs for word in target})
    sizes = sizes_for(english, chinese)
    made = Translator(Transformer(sizes), sizes, english, chinese, [])
    optimizer = torch.optim.Adam(made.network.parameters())
    for step, (source, target) in enumerate(batches(made, pairs)):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1, (step + 1) / 100, 2 * (STEPS - step) / STEPS)
        read, say = shifted(target)
        loss = criterion(made.network(source, read)[0], say)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(made.network.parameters(), 1.0)
        optimizer.step()
        made.losses.append(round(loss.item(), 4))
    return made


def batches(made: Translator, pairs: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> list[tuple[Tensor, Tensor]]:
    source_ids = {word: n for n, word in enumerate(made.english)}
    target_ids = {word: n for n, word in enumerate(made.chinese)}
    dice, drawn = random.Random(1), []
    for _ in range(STEPS):
        some = dice.sample(pairs, BATCH)
        sources = [[source_ids[word] for word in source] + [EOS] for source, _ in some]
        targets = [[BOS] + [target_ids[word] for word in target] + [EOS] for _, target in some]
        drawn.append((padded(sources), padded(targets)))
    return drawn


def short_pairs() -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    pairs = []
    for pair in BuiltinTask(seed=1).train():
        if len(pair.source_words) <= MOST_WORDS:
            pairs.append((pair.source_words, pair.target_words))
        if len(pairs) == PAIRS:
            break
    return pairs


def sizes_for(english: list[str], chinese: list[str]) -> Sizes:
    return Sizes(len(english), len(chinese), d_model=64, n_heads=4, n_layers=2, hidden_size=256, max_len=64)


def keep(made: Translator, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file(made.network.state_dict(), folder / "translator.safetensors")
    words = {"english": made.english, "chinese": made.chinese, "losses": made.losses, "made_from": made_from()}
    (folder / "translator.json").write_text(json.dumps(words, ensure_ascii=False), "utf-8")


def made_from() -> str:
    """A fingerprint of everything that a trained network depends on."""
    grammar = Path(demo_task.__file__).parent
    files = [
        *(HERE / f"{name}.py" for name in MADE_OF.split()),
        *sorted(grammar.glob("*.py")),
        grammar / "lexicon.toml",
    ]
    whole = hashlib.sha256(torch.__version__.encode())
    for file in files:
        whole.update(file.read_bytes())
    return whole.hexdigest()
