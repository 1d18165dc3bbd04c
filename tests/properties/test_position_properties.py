"""Properties of positions: an encoder without them ignores the order, and a shift is a rotation."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from attendo.model.transformer import Transformer
from attendo.nn.positions import Layout, RotaryPositions, SinusoidalPositions

MakeNetwork = Callable[..., Transformer]
EVEN = st.integers(1, 8).map(lambda half: 2 * half)


@given(order=st.permutations(range(6)), seed=st.integers(0, 3))
@torch.no_grad()
def test_an_encoder_without_positions_is_permutation_equivariant(
    small_network: MakeNetwork, order: list[int], seed: int
) -> None:
    network = small_network(seed, positions="none")
    source = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 6, 5, 3, 5, 8]])
    shuffled = network.encode(source[:, order]).states
    torch.testing.assert_close(shuffled, network.encode(source).states[:, order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "relative"])
@torch.no_grad()
def test_an_encoder_with_positions_depends_on_the_order(small_network: MakeNetwork, positions: str) -> None:
    network = small_network(positions=positions)
    source, order = torch.tensor([[3, 1, 4, 7, 5, 9]]), [1, 0, 2, 3, 5, 4]
    shuffled = network.encode(source[:, order]).states
    assert (shuffled - network.encode(source).states[:, order]).abs().max() > 1e-2


@given(
    layout=st.sampled_from(["interleaved", "halves"]),
    width=EVEN,
    shift=st.integers(0, 20),
    start=st.integers(0, 30),
    offset=st.integers(0, 3),
)
def test_a_shift_rotates_the_sinusoids(layout: Layout, width: int, shift: int, start: int, offset: int) -> None:
    positions = SinusoidalPositions(layout, offset)
    nothing = torch.zeros(1, 8, width)
    here, there = positions.add(nothing, start)[0], positions.add(nothing, start + shift)[0]
    torch.testing.assert_close(here @ _rotation(layout, width, shift).T, there, atol=2e-5, rtol=0)


@given(
    width=EVEN, first=st.integers(0, 30), second=st.integers(0, 30), shift=st.integers(0, 30), seed=st.integers(0, 99)
)
def test_rotary_scores_depend_on_the_distance_only(width: int, first: int, second: int, shift: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, width, generator=generator)
    here = _rotate(query, first) @ _rotate(key, second)
    there = _rotate(query, first + shift) @ _rotate(key, second + shift)
    torch.testing.assert_close(here, there, atol=1e-4, rtol=0)
    torch.testing.assert_close(_rotate(query, first).norm(), query.norm())


def test_rotary_scores_do_depend_on_the_distance() -> None:
    query = torch.ones(8)
    scores = torch.stack([_rotate(query, 0) @ _rotate(query, distance) for distance in range(4)])
    assert scores.diff().abs().min() > 0.1


def _rotation(layout: Layout, width: int, shift: int) -> Tensor:
    """One 2 x 2 rotation per frequency. The angle depends on the shift and not on the position."""
    matrix = torch.zeros(width, width, dtype=torch.float64)
    half = width // 2
    for pair in range(half):
        sine, cosine = (2 * pair, 2 * pair + 1) if layout == "interleaved" else (pair, half + pair)
        angle = torch.tensor(shift / 10_000 ** (2 * pair / width), dtype=torch.float64)
        matrix[sine, sine] = matrix[cosine, cosine] = angle.cos()
        matrix[sine, cosine], matrix[cosine, sine] = angle.sin(), -angle.sin()
    return matrix.float()


def _rotate(vector: Tensor, position: int) -> Tensor:
    rotation = RotaryPositions(vector.numel()).rotation(torch.zeros(1, 1, vector.numel()), position)
    assert rotation is not None
    return rotation.rotate(vector[None, None, None, :]).flatten()


def test_rotary_scores_depend_on_distance_only_in_bfloat16_too() -> None:
    """Vectors are rotated in float32, because with rounded angles the scores would drift with the position."""
    generator = torch.Generator().manual_seed(3)
    query, key = (torch.randn(1, 1, 1, 64, generator=generator).bfloat16() for _ in range(2))
    positions = RotaryPositions(64)
    x = torch.zeros(1, 1, 64)

    def score(start: int) -> float:
        rotated_query, rotated_key = positions.rotation(x, start + 5), positions.rotation(x, start)
        assert rotated_query is not None
        assert rotated_key is not None
        return float((rotated_query.rotate(query).double() * rotated_key.rotate(key).double()).sum())

    scores = [score(start) for start in (0, 10, 100, 1000)]
    exact = float((query.double() * key.double()).abs().sum())
    assert max(scores) - min(scores) < 0.004 * exact
