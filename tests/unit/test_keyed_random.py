"""Keyed random numbers: the published mixer, no state, independent of the order of calls."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attendo.keyed_random import choose, make_keys, permutation, uniform

MASK = 2**64 - 1
numbers = st.integers(0, MASK)


def split_mix(number: int) -> int:
    """SplitMix64 with Python integers."""
    number = (number + 0x9E3779B97F4A7C15) & MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def expected_key(*parts: int | str) -> int:
    mixed = 0
    for part in parts:
        if isinstance(part, str):
            letters = part.encode()
            number = 0
            if len(letters) <= 8:
                number = sum(byte << 8 * position for position, byte in enumerate(letters))
            else:
                for byte in letters:
                    number = split_mix(number ^ byte)
        else:
            number = part
        mixed = split_mix(mixed ^ number)
    return mixed


def test_the_mixer_gives_the_published_numbers() -> None:
    """The numbers of the generator with seed 1234567."""
    step = 0x9E3779B97F4A7C15
    states = [(1234567 + n * step) & MASK for n in range(5)]
    published = [
        *(6457827717110365317, 3203168211198807973, 9817491932198370423),
        *(4593380528125082431, 16408922859458223821),
    ]
    assert [split_mix(state) for state in states] == published
    assert make_keys(np.array(states, np.uint64)).tolist() == published


@given(st.lists(numbers | st.text(max_size=12), min_size=1, max_size=4))
def test_keys_equal_those_of_plain_integers(parts: list[int | str]) -> None:
    assert make_keys(*parts).tolist() == [expected_key(*parts)]


@pytest.mark.parametrize("text", ["", "a", "pairs", "12345678", "123456789", "été", "a text of many letters"])
def test_texts_of_every_length_give_keys(text: str) -> None:
    assert make_keys(3, text).tolist() == [expected_key(3, text)]


@given(numbers)
def test_uniform_numbers_are_the_upper_bits_of_the_mixed_key(number: int) -> None:
    (drawn,) = uniform(np.array([number], np.uint64)).tolist()
    assert drawn == (split_mix(number) >> 11) / 2**53
    assert 0 <= drawn < 1


@given(st.lists(numbers, min_size=1, max_size=20), numbers, st.randoms(use_true_random=False))
def test_a_key_does_not_depend_on_other_keys_or_order(values: list[int], seed: int, generator: object) -> None:
    together = make_keys(seed, "pairs", np.array(values, np.uint64))
    alone = [int(make_keys(seed, "pairs", each)[0]) for each in values]
    assert together.tolist() == alone
    order = list(range(len(values)))
    generator.shuffle(order)  # type: ignore[attr-defined]
    again = make_keys(seed, "pairs", np.array([values[position] for position in order], np.uint64))
    assert again.tolist() == [alone[position] for position in order]


def test_arrays_broadcast_against_each_other() -> None:
    rows, columns = np.arange(3, dtype=np.uint64)[:, None], np.arange(4, dtype=np.uint64)
    table = make_keys(7, rows, columns)
    assert table.shape == (3, 4)
    assert int(table[2, 3]) == expected_key(7, 2, 3)


def test_every_part_and_its_position_change_the_key() -> None:
    inputs = [(1, 2), (2, 1), (1, 2, 0), (1,), (1, "a"), (1, "b"), (1, "a longer text"), (1, "a longer tex"), ("a", 1)]
    found = {int(make_keys(*parts)[0]) for parts in inputs}
    assert len(found) == len(inputs)


def test_one_bit_of_a_part_flips_half_of_the_key() -> None:
    first = make_keys(np.arange(1000, dtype=np.uint64))
    flipped = [
        np.bitwise_count(first ^ make_keys(np.arange(1000, dtype=np.uint64) ^ np.uint64(1 << bit))) for bit in range(64)
    ]
    assert 31.5 < np.mean(flipped) < 32.5
    assert all(31 < each.mean() < 33 for each in flipped)


def test_uniform_numbers_are_evenly_distributed() -> None:
    drawn = uniform(make_keys(1, "test", np.arange(100_000, dtype=np.uint64)))
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    assert abs(counts - 5000).max() < 5 * 5000**0.5
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.02


@given(st.integers(0, 200), numbers, st.text(max_size=10))
def test_a_permutation_contains_every_index_once(count: int, seed: int, text: str) -> None:
    order = permutation(count, seed, text)
    assert sorted(order.tolist()) == list(range(count))
    assert order.tolist() == permutation(count, seed, text).tolist()


def test_permutations_differ_by_key_and_are_uniform() -> None:
    orders = np.array([permutation(10, seed) for seed in range(2000)])
    assert len({tuple(order) for order in orders.tolist()}) > 1990
    for position in range(10):
        counts = np.bincount(orders[:, position], minlength=10)
        assert abs(counts - 200).max() < 5 * 200**0.5


def test_choose_returns_every_item_for_some_seed() -> None:
    items = [3, 5, 8]
    drawn = [choose(items, seed, "item") for seed in range(300)]
    assert set(drawn) == set(items)
    assert drawn == [choose(items, seed, "item") for seed in range(300)]
    assert min(drawn.count(item) for item in items) > 60


@pytest.mark.parametrize("part", [-1, 2**64])
def test_a_number_outside_64_bits_is_rejected(part: int) -> None:
    with pytest.raises(OverflowError):
        make_keys(part)
