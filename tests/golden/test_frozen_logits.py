"""Tiny networks with fixed seeds give the stored logits.

After an intended change, `python tests/golden/test_frozen_logits.py` writes the file again.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer

FROZEN = Path(__file__).with_name("frozen_logits.json")
TINY = {"vocab_size": 7, "d_model": 8, "num_heads": 2, "d_ff": 12, "num_encoder_layers": 2, "num_decoder_layers": 2}
CASES: dict[str, dict[str, Any]] = {
    "defaults": TINY,
    "as in the paper": {**TINY, "norm": "post", "tie": "all"},
    "as in Marian": {**TINY, "norm": "post", "activation": "silu", "position_layout": "halves", "output_bias": True},
    "rotary, RMS norm, SwiGLU": {**TINY, "positions": "rotary", "norm_kind": "rms", "activation": "swiglu"},
    "decoder only, learned positions": {**TINY, "num_encoder_layers": 0, "positions": "learned", "activation": "gelu"},
}


@pytest.mark.parametrize("case", CASES)
def test_logits_match_the_stored_ones(case: str) -> None:
    frozen = torch.tensor(json.loads(FROZEN.read_text())[case])
    torch.testing.assert_close(logits(case), frozen, atol=1e-5, rtol=0)


@torch.no_grad()
def logits(case: str) -> torch.Tensor:
    network = Transformer(ModelConfig(**CASES[case]), torch.Generator().manual_seed(2017)).eval()
    target = torch.tensor([[1, 5, 2, 6], [1, 3, 0, 0]])
    if network.config.continues_text:
        return network(None, target)
    source = torch.tensor([[3, 4, 5], [6, 2, 0]])
    return network(source, target, source != 0)


if __name__ == "__main__":
    rows = {case: [[[round(x, 6) for x in t] for t in row] for row in logits(case).tolist()] for case in CASES}
    FROZEN.write_text("{\n" + ",\n".join(f"{json.dumps(case)}: {json.dumps(rows[case])}" for case in CASES) + "\n}\n")
