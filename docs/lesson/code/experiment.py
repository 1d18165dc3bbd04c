"""A small experiment: a Transformer learns to write words backwards, with one mistake switched on, or none."""

from dataclasses import dataclass, field

import torch
from loss import BOS, EOS, PAD, criterion, padded, shifted
from mistakes import SWITCHES, probabilities_as_logits
from torch import Tensor, nn
from transformer import Sizes, Transformer

LETTERS = "abcdefghij"
FIRST = 3  # the id of the first letter, behind PAD, BOS and EOS
LONGEST = 8
WIDTH = LONGEST + 1  # every sentence is filled up to this, source and target alike


@dataclass(frozen=True)
class Setting:
    """One run. `empty_at` is a step whose batch has a source without any token."""

    mistake: str | None = None
    steps: int = 400
    batch: int = 32
    layers: int = 2
    dropout: float = 0.0
    empty_at: int | None = None


@dataclass
class Outcome:
    """What a run has shown."""

    network: Transformer
    losses: list[float] = field(default_factory=list)
    gradients: list[float] = field(default_factory=list)  # of each decoder layer, at the last step


def run(setting: Setting) -> Outcome:
    """Trains from scratch. The same setting gives the same numbers."""
    torch.manual_seed(1)
    letters = torch.Generator().manual_seed(2)
    outcome = Outcome(make(setting))
    network = outcome.network
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for step in range(1, setting.steps + 1):
        optimizer.param_groups[0]["lr"] = 3e-3 * min(1, step / 50, 2 * (1 - (step - 1) / setting.steps))
        source, target = batch(setting.batch, letters)
        if step == setting.empty_at:
            source[0] = PAD
        read, say = shifted(target)
        logits, *_ = network(source, read)
        loss = criterion(probabilities_as_logits(logits) if setting.mistake == "E24" else logits, say)
        optimizer.zero_grad()
        loss.backward()
        outcome.gradients = [gradient_norm(layer) for layer in network.decoder.layers]
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        outcome.losses.append(loss.item())
    network.eval()
    return outcome


def make(setting: Setting) -> Transformer:
    vocabulary = FIRST + len(LETTERS)
    sizes = Sizes(vocabulary, vocabulary, 32, 4, setting.layers, 64, setting.dropout, max_len=WIDTH + 55)
    network = Transformer(sizes)
    for switch in SWITCHES[setting.mistake] if setting.mistake else []:
        switch(network)
    return network


def batch(size: int, letters: torch.Generator) -> tuple[Tensor, Tensor]:
    """Words of 3 to 8 letters and EOS; and BOS, the same backwards, EOS."""
    lengths = torch.randint(3, LONGEST + 1, (size,), generator=letters).tolist()
    words = [(torch.randint(len(LETTERS), (n,), generator=letters) + FIRST).tolist() for n in lengths]
    return rows(words)


def rows(words: list[list[int]]) -> tuple[Tensor, Tensor]:
    return padded([[*word, EOS] for word in words], WIDTH), padded(
        [[BOS, *reversed(word), EOS] for word in words], WIDTH + 1
    )


@torch.no_grad()
def write(network: Transformer, source: Tensor) -> list[str]:
    """Greedy, with the target filled up to its full width from the beginning, as in training."""
    target = torch.full((source.size(0), WIDTH + 1), PAD)
    target[:, 0] = BOS
    for place in range(WIDTH):
        logits, *_ = network(source, target[:, :-1])
        ended = (target == EOS).any(1)
        target[:, place + 1] = logits[:, place].argmax(-1).masked_fill(ended, PAD)
    return [spell(row) for row in target]


def exact(network: Transformer, size: int, total: int = 200) -> float:
    """The share of unseen words that come out right, asked in batches of `size`."""
    letters, right = torch.Generator().manual_seed(3), 0
    for _ in range(total // size):
        source, target = batch(size, letters)
        right += sum(a == b for a, b in zip(write(network, source), map(spell, target), strict=True))
    return right / (total // size * size)


def read(words: list[str]) -> tuple[Tensor, Tensor]:
    return rows([[LETTERS.index(letter) + FIRST for letter in word] for word in words])


def spell(ids: Tensor) -> str:
    return "".join(LETTERS[n - FIRST] for n in ids.tolist() if n >= FIRST)


def gradient_norm(module: nn.Module) -> float:
    squares = [p.grad.square().sum() for p in module.parameters() if p.grad is not None]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0
