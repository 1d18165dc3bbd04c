"""Run by test_compile.py: compiles a network with the given backend, and compares it with the uncompiled one."""

import sys

import torch

from attendo.model.config import ModelConfig
from attendo.model.transformer import Transformer


@torch.no_grad()
def compare(backend: str, positions: str, norm: str) -> None:
    """Without a graph break, `forward` and single `step`s give the same logits."""
    config = ModelConfig(
        vocab_size=17,
        d_model=16,
        num_heads=2,
        d_ff=24,
        num_encoder_layers=1,
        num_decoder_layers=1,
        positions=positions,
        norm=norm,
    )
    network = Transformer(config, torch.Generator().manual_seed(0)).eval()
    source, target = torch.tensor([[3, 1, 4, 1], [5, 9, 0, 0]]), torch.tensor([[1, 2, 7, 3], [1, 8, 2, 0]])
    mask = source != 0
    expected = network(source, target, mask)

    forward = torch.compile(network, fullgraph=True, backend=backend)
    torch.testing.assert_close(forward(source, target, mask), expected, atol=1e-5, rtol=1e-5)

    step = torch.compile(network.step, fullgraph=True, backend=backend)
    state, columns = network.start(network.encode(source, mask)), []
    for n in range(target.size(1)):
        logits, state = step(target[:, n : n + 1], state)
        columns.append(logits)
    torch.testing.assert_close(torch.cat(columns, 1), expected, atol=1e-5, rtol=1e-5)


if __name__ == "__main__":
    compare(*sys.argv[1:])
    print("equal")
