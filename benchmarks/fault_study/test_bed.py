"""Two weak models, and sources on which they fail in known ways.

The first model has few pairs, and none of ten sentence patterns: those are its other domain. The second one is trained
on text with faults: the targets of six sentence patterns are copies, English words in reverse order, or loops.
"""

import random
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from attendo.demo_task import AlignedPair, BuiltinTask
from attendo.runs.demo import demo_config
from attendo.runs.run import Run
from attendo.text_model import TextModel, load

LETTERS = "abcdefghijklmnopqrstuvwxyz"
OTHER_DOMAIN = (
    *("that", "who likes", "if", "because", "when", "passive"),
    *("comparison", "putting", "when, why, how", "past with time"),
)
FAULTY_PATTERNS = {
    **dict.fromkeys(("taste", "transport"), "copies"),
    **dict.fromkeys(("serving", "quality"), "English words"),
    **dict.fromkeys(("future", "frequency"), "loops"),
}
NUM_CALIBRATION_PAIRS = 1000
_MAX_HELD_OUT = 20_000
Pair = tuple[str, str]
Sets = dict[str, list[Pair]]


def train_few(folder: Path, seed: int, pairs: int = 3000, steps: int = 450) -> TextModel:
    """Train the model with few pairs, without the other domain."""
    found = (each for each in BuiltinTask(seed).train() if each.pattern not in OTHER_DOMAIN)
    return _train(folder, [(each.source, each.target) for each in islice(found, pairs)], seed, steps)


def train_faulty(folder: Path, seed: int, pairs: int = 6000, steps: int = 900) -> TextModel:
    """Train the model on targets with faults."""
    found = islice(BuiltinTask(seed).train(), pairs)
    return _train(folder, [(each.source, make_faulty(each)) for each in found], seed, steps)


def make_faulty(pair: AlignedPair) -> str:
    """Return the target of a training pair, with the fault of its sentence pattern."""
    fault = FAULTY_PATTERNS.get(pair.pattern)
    if fault == "copies":
        return pair.source
    if fault == "English words":
        return " ".join(reversed(pair.source.split()))
    if fault == "loops":
        return " ".join([pair.target, *pair.target.split()[-2:] * 4])
    return pair.target


def make_hard_sets(seed: int, lines: int) -> tuple[list[Pair], Sets]:
    """Return pairs for calibration, and sources of each kind for the model with few pairs."""
    held_out = BuiltinTask(seed).heldout(_MAX_HELD_OUT)
    own = [(each.source, each.target) for each in held_out if each.pattern not in OTHER_DOMAIN]
    other = [(each.source, each.target) for each in held_out if each.pattern in OTHER_DOMAIN]
    plain, draw = own[:lines], random.Random(seed)
    others = draw.sample(plain, len(plain))
    return own[lines : lines + NUM_CALIBRATION_PAIRS], {
        "plain": plain,
        "another domain": other[:lines],
        "random characters": [(_scramble(source, draw, 0.3), target) for source, target in plain],
        "unseen words": [(_replace_words(source, draw, 2), target) for source, target in plain],
        "over-long": [
            (", and ".join(each[0] for each in group), " ， ".join(each[1] for each in group))
            for group in zip(plain, others, plain[::-1], others[::-1], strict=True)
        ],
        "doubled": [(f"{source} {source}", f"{target} {target}") for source, target in plain],
    }


def make_faulty_sets(seed: int, lines: int) -> tuple[list[Pair], Sets]:
    """Return pairs for calibration, and sources of each fault for the model that learned faults."""
    held_out = BuiltinTask(seed).heldout(_MAX_HELD_OUT)
    by_fault: dict[str, list[Pair]] = {name: [] for name in ("right", *dict.fromkeys(FAULTY_PATTERNS.values()))}
    for each in held_out:
        by_fault[FAULTY_PATTERNS.get(each.pattern, "right")].append((each.source, each.target))
    right = by_fault["right"]
    return right[lines : lines + NUM_CALIBRATION_PAIRS], {name: each[:lines] for name, each in by_fault.items()}


def _scramble(text: str, draw: random.Random, share: float) -> str:
    """Replace a share of the letters."""
    return "".join(draw.choice(LETTERS) if each.isalpha() and draw.random() < share else each for each in text)


def _replace_words(text: str, draw: random.Random, count: int) -> str:
    words = text.split()
    for number in draw.sample(range(len(words)), min(count, len(words))):
        words[number] = "".join(draw.choices(LETTERS, k=6))
    return " ".join(words)


def _train(folder: Path, pairs: Sequence[Pair], seed: int, steps: int) -> TextModel:
    """Train a model, or load it if the folder has it."""
    if (folder / "run" / "model" / "manifest.json").is_file():
        return load(folder / "run" / "model", "cpu")
    folder.mkdir(parents=True, exist_ok=True)
    for name, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        _write_lines(folder / f"{name}.txt", texts)
    demo = demo_config(seed)
    train: dict[str, Any] = {"steps": steps, "validate_every": steps, "save_every": steps, "weight_checkpoints": 0}
    config = demo.replace(
        data={"source": str(folder / "source.txt"), "target": str(folder / "target.txt")},
        train=demo.train.replace(**train),
    )
    run = Run.begin(config, folder / "run", torch.device("cpu"))
    for _ in run.prepare():
        pass
    run.build()
    for _ in run.train():
        pass
    return load(run.finish(), "cpu")


def _write_lines(path: Path, texts: Iterable[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
