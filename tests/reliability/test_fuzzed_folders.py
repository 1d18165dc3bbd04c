"""X13: a random change to a file of any kind of folder gives an output or one error line, never a crash."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("fuzz_folders.py")
OWN = ("words", "characters", "decomposed", "spaced", "bytes", "bpe", "unigram")
EXPORTED = ("onnx", "ctranslate2", "argos", "hf", "pegasus")
RELATIVES = ("pegasus_spm", "mbart25", "nllb-legacy", "small100", "plbart", "mvp", "blenderbot")
T5 = ("t5", "flan", "byt5", "codet5", "madlad", "mt5", "umt5")
FOREIGN = ("marian", "bart", "m2m100", *RELATIVES, *T5)
MARIAN = ("native_marian", "untied_marian", "marian_vocabularies", "marian_spm", "marian_zip", "firefox")
NEEDS = {"onnx": ("onnx", "onnxruntime"), "ctranslate2": ("ctranslate2",), "argos": ("ctranslate2",)}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a child is forked for each mutation")


def fuzz(count: int, *kinds: str, seed: int = 0) -> list[dict[str, Any]]:
    """Fuzz all kinds in one process, because importing torch takes longer than the changes."""
    for kind in kinds:
        for package in NEEDS.get(kind, ("transformers",) if kind not in (*OWN, *MARIAN) else ()):
            pytest.importorskip(package)
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), ",".join(kinds), str(count), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent)},
    )
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_6_mutations_are_rejected_or_valid() -> None:
    kinds = fuzz(6, "words", "ctranslate2", "native_marian", "marian_zip")
    assert len(kinds) == 4
    for found in kinds:
        assert found["odd"] == []
        assert found["refused"] + found["valid"] == 6
        assert found["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*OWN, *EXPORTED, *FOREIGN, *MARIAN])
def test_300_mutations_are_rejected_or_valid(kind: str) -> None:
    (found,) = fuzz(300, kind, seed=1)
    assert found["odd"] == []
    assert found["refused"] + found["valid"] == 300
    assert found["refused"] > 0
