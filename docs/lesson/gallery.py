"""The experiments of the gallery: measures the effect of each mistake and stores the numbers."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import torch
from attention import MultiHeadAttention
from experiment import Outcome, Setting, batch, exact, make, read, run, write
from loss import EOS, PAD, criterion, padded, shifted
from masks import padding_mask, self_mask
from mistakes import SWITCHES, MinusBillion, MinusInfinity
from torch import Tensor

KEPT = Path(__file__).resolve().parent / "mistakes" / "measured.json"
WORDS = ["bad", "chief", "jacdebi"]
EVERY = 10  # steps; each stored loss is the mean of this number of steps

RUNS: dict[str, Setting] = {
    "right": Setting(),
    "no mask": Setting("no mask"),
    "E5 right": Setting(batch=4, steps=800),
    "E5": Setting("E5", batch=4, steps=800),
    "E6": Setting("E6"),
    "E8": Setting("E8"),
    "E10": Setting("E10"),
    "E13 right": Setting(layers=6, steps=200),
    "E13": Setting("E13", layers=6, steps=200),
    "E15 right": Setting(dropout=0.2),
    "E15": Setting("E15", dropout=0.2),
    "E24": Setting("E24"),
    "E31 right": Setting(empty_at=150),
    "E31 infinity": Setting("E31 infinity", empty_at=150),
    "E31 billion": Setting("E31 billion", empty_at=150),
}


def measure() -> None:
    """Run all experiments, which takes some minutes on one core."""
    measured: dict[str, Any] = {}
    for name, setting in RUNS.items():
        outcome = run(setting)
        size = min(setting.batch, 25)
        # The added "a" makes a batch of four: one of the mistakes needs as many sentences as heads.
        written = write(outcome.network, read([*WORDS, "a"])[0])[: len(WORDS)]
        measured[name] = {
            "losses": means(outcome.losses),
            "last": mean(outcome.losses[-20:]),
            "exact": exact(outcome.network, size),
            "written": written,
            "gradients": [number(each) for each in outcome.gradients],
        } | looks(name, outcome)
    KEPT.write_text(json.dumps(measured, indent=1, ensure_ascii=False) + "\n", "utf-8")


def kept() -> dict[str, Any]:
    return json.loads(KEPT.read_text("utf-8"))


@torch.no_grad()
def looks(name: str, outcome: Outcome) -> dict[str, Any]:
    """Return further measurements of a trained network, for the runs that have any."""
    source, target = read(["chief"])
    if name in ("right", "no mask"):
        said, _ = shifted(target)
        logits, _, own, _ = outcome.network(source, said)
        changed = said.clone()
        changed[0, -3:] = 4
        moved = (outcome.network(source, changed)[0] - logits)[0, 0].abs().max()
        return {"map": rounded(own[-1][0].mean(0)[:6, :6]), "leak": number(float(moved))}
    if name in ("E5", "E5 right"):
        return {"neighbours": number(difference_by_neighbours(outcome))}
    return {}


@torch.no_grad()
def difference_by_neighbours(outcome: Outcome) -> float:
    """Return the largest change of the scores of one word when the other three words of its batch change."""
    answers = []
    for others in (["jacdebij", "chiefabc", "abcdefgh"], ["dig", "fed", "jab"]):
        source, target = read(["bad", *others])
        answers.append(outcome.network(source, shifted(target)[0])[0][0, :4])
    return float((answers[0] - answers[1]).abs().max())


@torch.no_grad()
def first_losses(depths: list[int], mistake: str | None) -> list[tuple[float, float]]:
    """Return, for untrained networks, the loss and the root mean square of the input of the projection."""
    found = []
    for depth in depths:
        torch.manual_seed(1)
        network = make(Setting(mistake, layers=depth)).eval()
        source, target = batch(32, torch.Generator().manual_seed(2))
        said, say = shifted(target)
        memory, _ = network.encoder(source)
        hidden, _, _ = network.decoder(said, source, memory)
        found.append((float(criterion(network.projection(hidden), say)), float(hidden.square().mean().sqrt())))
    return found


def softmax_twice(vocabulary: int) -> tuple[float, float]:
    """Return the lowest possible loss with two softmaxes, and the factor by which the first gradient is too small."""
    logits = torch.zeros(1, vocabulary, requires_grad=True)
    label, sizes = torch.tensor([0]), []
    for twice in (False, True):
        loss = torch.nn.functional.cross_entropy(logits.softmax(-1) if twice else logits, label)
        (gradient,) = torch.autograd.grad(loss, logits)
        sizes.append(float(gradient.norm()))
    return math.log(math.e + vocabulary - 1) - 1, sizes[0] / sizes[1]


@torch.no_grad()
def blind_rows() -> dict[str, Tensor]:
    """Return the attention weights of a query if the mask hides all three keys."""
    scores, hidden = torch.tensor([[[[1.0, 2.0, 3.0]]]]), torch.ones(1, 1, 3, dtype=torch.bool)
    kinds = {"-inf": MinusInfinity, "-1e9": MinusBillion, "safe": MultiHeadAttention}
    return {name: kind(4, 1).weights(scores, hidden)[0, 0, 0] for name, kind in kinds.items()}


@torch.no_grad()
def difference_by_width(mistake: str | None) -> float:
    """Return the largest change of the scores when an empty source is padded to 9 positions instead of 4."""
    torch.manual_seed(1)
    network = make(Setting(mistake)).eval()
    said = torch.tensor([[1, 5, 6]])
    narrow, wide = (network(torch.full((1, width), PAD), said)[0] for width in (4, 9))
    return float((narrow - wide).abs().max())


def zeros(p: float, twice: bool) -> float:
    """Return the share of zeros in the output that a sub-layer adds to its input during training."""
    torch.manual_seed(1)
    network = make(Setting("E15" if twice else None, dropout=p)).train()
    layer: Any = network.encoder.layers[0]
    x = torch.randn(64, 9, 32)
    made, _ = layer.mha(x, x, x)
    return float((layer.around_attention.dropout(made) == 0).float().mean())


def masks_by_head() -> tuple[Tensor, Tensor]:
    """Return the mask of each head for the first of four sentences, [h, S]: correct, and with mistake E5."""
    source = padded([[3, 4, EOS], [3, 4, 5, 6, EOS], [3, EOS], [3, 4, 5, EOS]])
    right = padding_mask(source, source)
    return right[:, None].expand(-1, 4, -1, -1)[0, :, 0], right.expand(4, 4, 5, 5)[0, :, 0]


def cross_masks(place: int) -> tuple[Tensor, Tensor]:
    """Return the mask [T, S] of a five-letter word when its answer has `place` tokens: correct, and with mistake E6."""
    source = padded([[3, 4, 5, 6, 7, EOS]], 9)
    target = padded([[1, 7, 6, 5, 4, 3][:place]], 9)
    return padding_mask(target, source)[0], padding_mask(source, target)[0]


def visible(hidden: Tensor) -> list[list[float | None]]:
    return [[None if each else 1.0 for each in row] for row in hidden.tolist()]


def causal_map(rows: list[list[float]]) -> list[list[float | None]]:
    hidden = self_mask(torch.ones(1, len(rows), dtype=torch.long))[0].tolist()
    return [
        [None if gone else value for value, gone in zip(*each, strict=True)] for each in zip(rows, hidden, strict=True)
    ]


@cache
def values() -> dict[str, str]:
    """Return every number in the text of the gallery, formatted as in the text."""
    measured = kept() if KEPT.exists() else {}
    named: dict[str, str] = {}
    for name, found in measured.items():
        named |= {
            f"{name}.last": shown(found["last"]),
            f"{name}.first": shown(found["losses"][0]),
            f"{name}.exact": f"{100 * found['exact']:.1f}%",
            f"{name}.written": " · ".join(f"`{each or '—'}`" for each in found["written"]),
            f"{name}.gradients": ", ".join(shown(each) for each in found["gradients"]),
        }
        named |= {f"{name}.{each}": shown(found[each]) for each in ("leak", "neighbours") if each in found}
    for size in (13, 1_000, 30_000):
        floor, ratio = softmax_twice(size)
        named |= {f"E24.floor {size}": f"{floor:.2f}", f"E24.ratio {size}": f"{ratio:,.0f}"}
    for p in (0.1, 0.2):
        named |= {
            f"E15.zeros {p}": f"{100 * zeros(p, True):.0f}%",
            f"E15.right zeros {p}": f"{100 * zeros(p, False):.0f}%",
        }
    for name, mistake in (("E31 right", None), ("E31 billion", "E31 billion")):
        named[f"{name}.width"] = shown(difference_by_width(mistake))
    for (name, mistake), depth in (
        (each, depth) for each in (("E13 right", None), ("E13", "E13")) for depth in (2, 24)
    ):
        loss, height = first_losses([depth], mistake)[0]
        named |= {f"{name}.start {depth}": f"{loss:.2f}", f"{name}.size {depth}": f"{height:.1f}"}
    dead, alive = (sum(p.numel() for p in make(Setting()).decoder.layers[n].parameters()) for n in (0, 1))
    return named | {"E8.dead": f"{dead:,}", "E8.alive": f"{alive:,}", "switches": str(len(SWITCHES))}


def means(losses: list[float]) -> list[float | None]:
    return [mean(losses[n : n + EVERY]) for n in range(0, len(losses), EVERY)]


def mean(losses: list[float]) -> float | None:
    return number(sum(losses) / len(losses))


def number(value: float) -> float | None:
    """Round a number; return None if it is not finite, because JSON has no NaN."""
    return round(value, 5) if math.isfinite(value) else None


def rounded(rows: Tensor) -> list[list[float]]:
    return [[round(value, 3) for value in row] for row in rows.tolist()]


def shown(value: float | None) -> str:
    if value is None:
        return "NaN"
    return (
        f"{value:.2f}"
        if value >= 0.1
        else f"{value:.4f}"
        if value >= 0.0001
        else "0"
        if value < 1e-9
        else f"{value:.0e}"
    )
