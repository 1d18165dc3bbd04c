"""X13: random changes of any file of any kind of folder end in an answer or in one short line, never in a crash."""

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
FOREIGN = ("marian", "bart", "m2m100")
NEEDS = {"onnx": ("onnx", "onnxruntime"), "ctranslate2": ("ctranslate2",), "argos": ("ctranslate2",)}

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a child is forked for each mutation")


def fuzz(kind: str, count: int, seed: int = 0) -> dict[str, Any]:
    for package in NEEDS.get(kind, ("transformers",) if kind not in OWN else ()):
        pytest.importorskip(package)
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), kind, str(count), str(seed)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SCRIPT.parent)},
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("kind", ["words", "bpe", "ctranslate2"])
def test_a_few_changes_of_a_folder_are_refused_in_one_line_or_harmless(kind: str) -> None:
    found = fuzz(kind, 8)
    assert found["odd"] == []
    assert found["refused"] + found["valid"] == 8
    assert found["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*OWN, *EXPORTED, *FOREIGN])
def test_hundreds_of_changes_of_a_folder_are_refused_in_one_line_or_harmless(kind: str) -> None:
    found = fuzz(kind, 300, seed=1)
    assert found["odd"] == []
    assert found["refused"] + found["valid"] == 300
    assert found["refused"] > 0
