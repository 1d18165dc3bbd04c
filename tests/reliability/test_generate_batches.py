"""D1: a sentence has the same answer alone and in any batch, whatever the decoder."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("random_batches.py")


def test_D1_200_sentences_alone_and_in_random_batches_by_every_decoder() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[1])},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 8
    for name, compared in found.items():
        assert compared["hypotheses"] >= 200, name
        assert compared["texts"] > 5, name
        assert compared["different"] == 0, name
        assert compared["score"] < 1e-5, name
        assert compared["attention"] < 1e-5, name
