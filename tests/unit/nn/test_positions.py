"""Positions: first vectors, start and limits."""

import math

import pytest
import torch
from error_codes import has_code
from torch import Tensor
from torch.nn import functional

from attendo.errors import UsageError
from attendo.nn.positions import (
    LearnedPositions,
    NoPositions,
    OrthogonalPositions,
    RelativePositions,
    RotaryPositions,
    Rotation,
    SinusoidalPositions,
    find_buckets,
)


def test_sinusoids_of_the_first_two_positions_interleaved() -> None:
    vectors = SinusoidalPositions().add(torch.zeros(1, 2, 4), 0)[0]
    expected = torch.tensor([[0, 1, 0, 1], [math.sin(1), math.cos(1), math.sin(0.01), math.cos(0.01)]])
    torch.testing.assert_close(vectors, expected)


def test_sinusoids_of_the_first_two_positions_in_halves() -> None:
    vectors = SinusoidalPositions("halves").add(torch.zeros(1, 2, 4), 0)[0]
    expected = torch.tensor([[0, 0, 1, 1], [math.sin(1), math.sin(0.01), math.cos(1), math.cos(0.01)]])
    torch.testing.assert_close(vectors, expected)


@pytest.mark.parametrize("positions", [SinusoidalPositions(), LearnedPositions(9, 4), LearnedPositions(9, 4, offset=2)])
def test_a_later_start_gives_later_positions(positions: NoPositions) -> None:
    with torch.no_grad():
        for parameter in positions.parameters():
            parameter.copy_(torch.arange(parameter.numel()).view_as(parameter))
    nothing = torch.zeros(2, 9, 4)
    torch.testing.assert_close(positions.add(nothing[:, :3], 5), positions.add(nothing, 0)[:, 5:8])


@pytest.mark.parametrize("positions", [SinusoidalPositions(offset=2), LearnedPositions(5, 4, offset=2)])
def test_an_offset_renumbers_the_first_position(positions: NoPositions) -> None:
    first = positions.add(torch.zeros(1, 1, 4), 0)[0, 0]
    if isinstance(positions, LearnedPositions):
        assert positions.table.shape == (7, 4)
        torch.testing.assert_close(first, positions.table[2], equal_nan=True)
    else:
        torch.testing.assert_close(first, SinusoidalPositions().add(torch.zeros(1, 3, 4), 0)[0, 2])


def test_positions_are_added_to_the_input() -> None:
    x = torch.randn(3, 5, 8)
    vectors = SinusoidalPositions().add(torch.zeros(3, 5, 8), 0)
    torch.testing.assert_close(SinusoidalPositions().add(x, 0), x + vectors)


def test_sinusoids_keep_the_dtype_and_have_no_limit() -> None:
    vectors = SinusoidalPositions().add(torch.zeros(1, 2, 4, dtype=torch.bfloat16), 100_000)
    assert vectors.dtype == torch.bfloat16
    assert vectors.isfinite().all()


def test_learned_positions_end_at_max_length() -> None:
    positions = LearnedPositions(4, 2, offset=1)
    assert positions.add(torch.zeros(1, 4, 2), 0).shape == (1, 4, 2)
    with pytest.raises(UsageError, check=has_code("sequence_exceeds_max_length", count=5)):
        positions.add(torch.zeros(1, 1, 2), 4)


def test_only_rotary_positions_rotate() -> None:
    x = torch.randn(1, 3, 8)
    rotary = RotaryPositions(4)
    assert rotary.add(x, 0) is x
    assert isinstance(rotary.rotation(x, 0), Rotation)
    for positions in (NoPositions(), SinusoidalPositions(), LearnedPositions(3, 8)):
        assert positions.rotation(x, 0) is None
    assert NoPositions().add(x, 0) is x


def test_a_rotation_by_90_degrees_swaps_the_halves() -> None:
    rotation = Rotation(cosine=torch.zeros(1, 2), sine=torch.ones(1, 2))
    rotated = rotation.rotate(torch.tensor([[[[1.0, 2.0, 3.0, 4.0]]]]))
    assert rotated.flatten().tolist() == [-3.0, -4.0, 1.0, 2.0]


def test_the_first_position_is_not_rotated() -> None:
    heads = torch.randn(2, 3, 1, 4)
    rotation = RotaryPositions(4).rotation(torch.zeros(2, 1, 12), 0)
    assert rotation is not None
    assert torch.equal(rotation.rotate(heads), heads)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_gradients_of_a_rotation_equal_the_formula(dtype: torch.dtype) -> None:
    rotation = RotaryPositions(6).rotation(torch.zeros(2, 5, 12), torch.tensor([0, 7]))
    assert rotation is not None
    heads, weights = torch.randn(2, 2, 5, 6).to(dtype), torch.randn(2, 2, 5, 6).to(dtype)
    ours, plain = heads.clone().requires_grad_(), heads.clone().requires_grad_()
    first, second = plain.to(torch.promote_types(dtype, torch.float32)).chunk(2, dim=-1)
    rotated = (
        first * rotation.cosine - second * rotation.sine,
        first * rotation.sine + second * rotation.cosine,
    )
    expected, found = torch.cat(rotated, dim=-1).to(dtype), rotation.rotate(ours)
    torch.testing.assert_close(found, expected)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(ours.grad, plain.grad)


def test_rotary_positions_need_an_even_width() -> None:
    with pytest.raises(UsageError, check=has_code("rotary_head_width_odd", head_width=5)):
        RotaryPositions(5)


def test_orthogonal_positions_are_far_from_each_other_and_sinusoidal_neighbours_are_not() -> None:
    def similarities(positions: NoPositions) -> Tensor:
        vectors = functional.normalize(positions.add(torch.zeros(1, 2000, 256), 0)[0], dim=-1)
        return (vectors @ vectors.T).fill_diagonal_(0)

    assert similarities(OrthogonalPositions()).abs().max() < 0.42
    assert similarities(SinusoidalPositions()).diagonal(1).min() > 0.9


def test_orthogonal_positions_do_not_depend_on_the_length_or_the_first_position() -> None:
    positions = OrthogonalPositions()
    together = positions.add(torch.zeros(2, 9, 8), 0)
    torch.testing.assert_close(positions.add(torch.zeros(2, 5, 8), 4), together[:, 4:])
    starts = torch.tensor([1, 3])
    torch.testing.assert_close(
        positions.add(torch.zeros(2, 4, 8), starts), torch.stack((together[0, 1:5], together[1, 3:7]))
    )


def test_distances_have_the_buckets_of_t5() -> None:
    behind = torch.tensor([0, 1, 7, 8, 11, 12, 15, 16, 19, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 1000])
    encoder = [0, 1, 7, 8, 8, 9, 9, 10, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15]
    decoder = [0, 1, 7, 8, 11, 12, 15, 16, 17, 18, 18, 21, 21, 23, 24, 26, 26, 29, 29, 31, 31, 31]
    assert find_buckets(-behind, True, 32, 128).tolist() == encoder
    assert find_buckets(-behind, False, 32, 128).tolist() == decoder
    assert find_buckets(torch.tensor([1, 7, 8, 16, 128]), True, 32, 128).tolist() == [17, 23, 24, 26, 31]
    assert find_buckets(torch.tensor([1, 7, 300]), False, 32, 128).tolist() == [0, 0, 0]


@pytest.mark.parametrize("two_sided", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (4, 3), (16, 20), (64, 256), (32, 17)])
def test_buckets_of_all_distances_are_those_of_transformers(two_sided: bool, buckets: int, max_distance: int) -> None:
    attention = pytest.importorskip("transformers.models.t5.modeling_t5").T5Attention
    distance = torch.arange(-3000, 3001)
    expected = attention._relative_position_bucket(distance, two_sided, buckets, max_distance)
    found = find_buckets(distance, two_sided, buckets, max_distance)
    assert torch.equal(found, expected)
    positions = RelativePositions(1, 1, buckets, max_distance, two_sided)
    with torch.no_grad():
        positions.table[0, :, 0] = torch.arange(buckets)
    assert torch.equal(positions.by_distance(distance)[0, 0].long(), expected)


def test_biases_depend_on_the_distance_only() -> None:
    positions = RelativePositions(2, 3, 8, 5, two_sided=True)
    torch.nn.init.normal_(positions.table, generator=torch.Generator().manual_seed(0))
    x = torch.zeros(4, 3, 6)
    number = lambda query, key: positions.by_distance(torch.tensor(key - query))  # noqa: E731
    biases = positions.biases(x, 2, 9)
    assert biases.shape == (3, 1, 2, 3, 9)
    assert all(torch.equal(biases[:, 0, :, q, k], number(2 + q, k)) for q in range(3) for k in range(9))
    starts = torch.tensor([4, 0, 2, 7])
    by_row = positions.biases(x, starts, 9)
    assert by_row.shape == (3, 4, 2, 3, 9)
    assert all(torch.equal(by_row[:, row, :, 1, 5], number(start + 1, 5)) for row, start in enumerate(starts.tolist()))
