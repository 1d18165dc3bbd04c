"""The state with shared storage gives the logits of the growing state, for any parents of its rows."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from attendo.model.cpu_decoder_state import SharedCacheState
from attendo.model.decoder_state import DecoderState
from attendo.model.transformer import Transformer

Make = Callable[..., Transformer]
SENTENCES, STEPS = 5, 40  # more steps than fit into the initial storage


def start_state(network: Transformer, padded: bool) -> DecoderState:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 17, (SENTENCES, 6), generator=generator)
    mask = torch.arange(6) < torch.tensor([[6], [2], [5], [3], [6]])
    return network.start(network.encode(ids, mask if padded else None))


def random_parents(sentences: int, width: int, generator: torch.Generator) -> Tensor:
    """Random rows of the same sentence."""
    first = torch.arange(sentences).repeat_interleave(width) * width
    return first + torch.randint(width, first.shape, generator=generator)


@pytest.mark.short(2)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
@pytest.mark.parametrize(("width", "padded"), [(1, False), (1, True), (3, True), (4, False)])
@pytest.mark.parametrize("kind", [{}, {"num_encoder_layers": 0, "prefix_lm": True}], ids=["encoder", "prefix LM"])
@torch.no_grad()
def test_D2_shared_storage_gives_the_logits_of_separate_storage(
    small_network: Make, kind: dict[str, Any], width: int, padded: bool, positions: str
) -> None:
    network, generator = small_network(positions=positions, **kind), torch.Generator().manual_seed(width)
    growing = start_state(network, padded)
    shared, sentences = SharedCacheState.empty(growing, width), SENTENCES
    for step in range(STEPS):
        ids = torch.randint(4, 17, (sentences * width, 1), generator=generator)
        expected, growing = network.step(ids, growing)
        logits, shared = network.step(ids, shared)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        assert shared.length == growing.length == step + 1
        parents = random_parents(sentences, width, generator)
        growing, shared = growing.reorder(parents), shared.reorder(parents)
        if step in (7, 20):  # some sentences leave
            kept = torch.tensor([0, 2, 4][: sentences - 2])
            rows = (kept[:, None] * width + torch.arange(width)).flatten()
            growing, shared = growing.select(kept, rows), shared.select(kept, rows)
            sentences = kept.size(0)


@torch.no_grad()
def test_reordering_does_not_move_the_storage(small_network: Make) -> None:
    network = small_network()
    state = SharedCacheState.empty(start_state(network, padded=False), 2)
    ids = torch.full((2 * SENTENCES, 1), 5)
    addresses = {each.keys.data_ptr() for each in state.storage}
    for _ in range(6):
        state = network.step(ids, state)[1].reorder(torch.arange(2 * SENTENCES) // 2 * 2)
        assert {each.keys.data_ptr() for each in state.storage} == addresses
