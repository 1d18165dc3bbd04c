"""The state whose rows share a storage: the logits of the growing one, wherever rows go on from."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from attendo.model.cpu_decoder_state import SharedCacheState
from attendo.model.decoder_state import DecoderState
from attendo.model.transformer import Transformer

Make = Callable[..., Transformer]
SENTENCES, STEPS = 5, 40  # more steps than there is room for at first


def started(network: Transformer, padded: bool) -> DecoderState:
    dice = torch.Generator().manual_seed(1)
    ids = torch.randint(4, 17, (SENTENCES, 6), generator=dice)
    mask = torch.arange(6) < torch.tensor([[6], [2], [5], [3], [6]])
    return network.start(network.encode(ids, mask if padded else None))


def parents_of(sentences: int, width: int, dice: torch.Generator) -> Tensor:
    """Any rows of the same sentence."""
    first = torch.arange(sentences).repeat_interleave(width) * width
    return first + torch.randint(width, first.shape, generator=dice)


@pytest.mark.short(2)
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
@pytest.mark.parametrize(("width", "padded"), [(1, False), (1, True), (3, True), (4, False)])
@torch.no_grad()
def test_D2_rows_say_what_they_would_with_keys_and_values_of_their_own(
    small_network: Make, width: int, padded: bool, positions: str
) -> None:
    network, dice = small_network(positions=positions), torch.Generator().manual_seed(width)
    growing = started(network, padded)
    shared, sentences = SharedCacheState.empty(growing, width), SENTENCES
    for step in range(STEPS):
        ids = torch.randint(4, 17, (sentences * width, 1), generator=dice)
        expected, growing = network.step(ids, growing)
        logits, shared = network.step(ids, shared)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
        assert shared.length == growing.length == step + 1
        parents = parents_of(sentences, width, dice)
        growing, shared = growing.reorder(parents), shared.reorder(parents)
        if step in (7, 20):  # some leave
            staying = torch.tensor([0, 2, 4][: sentences - 2])
            rows = (staying[:, None] * width + torch.arange(width)).flatten()
            growing, shared = growing.select(staying, rows), shared.select(staying, rows)
            sentences = staying.size(0)


@torch.no_grad()
def test_what_is_written_stays_where_it_is(small_network: Make) -> None:
    network = small_network()
    state = SharedCacheState.empty(started(network, padded=False), 2)
    ids = torch.full((2 * SENTENCES, 1), 5)
    places = {each.keys.data_ptr() for each in state.storage}
    for _ in range(6):
        state = network.step(ids, state)[1].reorder(torch.arange(2 * SENTENCES) // 2 * 2)
        assert {each.keys.data_ptr() for each in state.storage} == places
