"""Small prepared and built runs on aligned text, for tests of the doctor."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from attendo.doctor import Finding
from attendo.runs.config import RunConfig
from attendo.runs.run import Run

TextPair = tuple[str, str]


def parallel_text(count: int, seed: int = 0) -> list[TextPair]:
    """Sentences of 3 to 20 words; target and source lengths differ by at most 1 word."""
    generator = random.Random(seed)
    pairs = []
    for _ in range(count):
        words = generator.randint(3, 20)
        other = max(1, words + generator.choice((-1, 0, 0, 0, 1)))
        pairs.append((_sentence("abcdefghijklmnop", words, generator), _sentence("qrstuvwxyz", other, generator)))
    return pairs


def write_text(folder: Path, pairs: Sequence[TextPair], name: str = "train") -> dict[str, Path]:
    """Write the pairs as two files and return their paths by setting name."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {side: folder / f"{name}.{side}" for side in ("source", "target")}
    for index, path in enumerate(paths.values()):
        path.write_text("".join(f"{pair[index]}\n" for pair in pairs), "utf-8")
    return paths


def built_run(folder: Path, pairs: Sequence[TextPair], valid: Sequence[TextPair] = (), **changes: Any) -> Run:
    """A run that is ready to train."""
    run = prepared_run(folder, pairs, valid, **changes)
    run.build()
    return run


def prepared_run(folder: Path, pairs: Sequence[TextPair], valid: Sequence[TextPair] = (), **changes: Any) -> Run:
    """A run with data but without a network."""
    data: dict[str, Any] = {**write_text(folder, pairs), "max_bad_ratio": 0.05, **changes.pop("data", {})}
    if valid:
        data |= {f"valid_{side}": path for side, path in write_text(folder, valid, "valid").items()}
    settings: dict[str, Any] = {
        "preset": "tiny",
        "data": data,
        "tokenizer": {"kind": "words", **changes.pop("tokenizer", {})},
        "model": {"d_model": 16, "num_heads": 2, "d_ff": 24, "dropout": 0.2, **changes.pop("model", {})},
        "train": {
            "steps": 4,
            "batch_tokens": 256,
            "validate_every": 100,
            "samples": 0,
            "warmup": 1,
            **changes.pop("train", {}),
        },
    }
    run = Run.begin(RunConfig(**{**settings, **changes}), folder / "run", torch.device("cpu"))
    for _ in run.prepare():
        pass
    return run


def find_check(findings: Sequence[Finding], check: str) -> Finding:
    """The only finding of this check."""
    (found,) = (finding for finding in findings if finding.check == check)
    return found


def _sentence(letters: str, words: int, generator: random.Random) -> str:
    return " ".join(generator.choice(letters) + generator.choice(letters) for _ in range(words))
