"""Benchmarks of decoding speed against other systems with the same weights, and load tests of a server.

Import from the modules: the load test must not import torch.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """A description of the next step of a benchmark."""

    text: str
