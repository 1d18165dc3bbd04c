"""Misaligned spans are found at their position, and aligned text gives none."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from attendo.doctor.lengths import LAGS, LengthArray, MisalignedSpan, find_misaligned_spans

Pairs = tuple[LengthArray, LengthArray]


def make_lengths(count: int, seed: int = 0, noise: float = 0.2) -> Pairs:
    """Source lengths around 15 tokens and similar target lengths."""
    generator = np.random.default_rng(seed)
    source = np.exp(generator.normal(2.7, 0.5, count))
    target = source * np.exp(generator.normal(0.0, noise, count))
    return tuple(np.maximum(1, side.round()).astype(np.int64) for side in (source, target))  # type: ignore[return-value]


def misalign(pairs: Pairs, first: int, last: int, lag: int) -> Pairs:
    """Rotate the targets of a span: the target of source i moves to i + lag."""
    target = pairs[1].copy()
    target[first:last] = np.roll(pairs[1][first:last], lag)
    return pairs[0], target


def find_single_span(pairs: Pairs) -> MisalignedSpan:
    (found,) = find_misaligned_spans([pairs]).spans
    return found


@pytest.mark.parametrize("seed", range(5))
def test_aligned_text_gives_no_span(seed: int) -> None:
    found = find_misaligned_spans([make_lengths(10_000, seed)])
    assert (found.is_informative, found.spans) == (True, ())


@pytest.mark.parametrize("lag", [-10, -1, 1, 3])
@pytest.mark.parametrize(("first", "last"), [(2000, 2060), (0, 300), (4800, 5000), (1234, 3456)])
def test_a_misaligned_span_is_found_with_its_lag(first: int, last: int, lag: int) -> None:
    found = find_single_span(misalign(make_lengths(5000), first, last, lag))
    assert found.lag == lag
    assert abs(found.first - first) <= 10 + abs(lag)
    assert abs(found.last - last) <= 10 + abs(lag)


def test_a_lost_line_misaligns_all_following_lines() -> None:
    source, target = make_lengths(10_000)
    found = find_single_span((source[:-1], np.delete(target, 7000)))
    assert (found.lag, found.last) == (-1, 9999)
    assert abs(found.first - 7000) <= 10


def test_a_completely_misaligned_corpus_is_found() -> None:
    source, target = make_lengths(2000)
    found = find_single_span((source[:-1], target[1:]))
    assert found.lag == -1
    assert found.last - found.first >= 1980


def test_two_spans_are_found_in_order() -> None:
    found = find_misaligned_spans([misalign(misalign(make_lengths(10_000), 6000, 6200, 2), 1000, 1100, -1)]).spans
    assert [each.lag for each in found] == [-1, 2]
    assert [round(each.first, -2) for each in found] == [1000, 6000]


def test_a_second_lost_line_increases_the_lag() -> None:
    source, target = make_lengths(10_000)
    found = find_misaligned_spans([(source[:-2], np.delete(target, [4000, 4300]))]).spans
    assert [each.lag for each in found] == [-1, -2]
    assert abs(found[0].last - 4300) <= 10
    assert abs(found[1].first - 4300) <= 10


def test_blocks_are_searched_separately() -> None:
    """A span names its block."""
    clean, misaligned = make_lengths(4000), misalign(make_lengths(4000, 1), 2000, 2100, 1)
    (found,) = find_misaligned_spans([clean, misaligned]).spans
    assert (found.block, found.lag) == (1, 1)
    assert abs(found.first - 2000) <= 10


def test_unrelated_lengths_are_not_informative() -> None:
    source, _ = make_lengths(5000, 0)
    _, target = make_lengths(5000, 1)
    found = find_misaligned_spans([(source, target)])
    assert (found.is_informative, found.spans) == (False, ())


@pytest.mark.parametrize("order", ["sorted", "equal", "two kinds"])
def test_neighbours_of_similar_length_give_no_span(order: str) -> None:
    source, target = make_lengths(5000)
    if order == "sorted":
        order_indices = np.argsort(source, kind="stable")
        source, target = source[order_indices], target[order_indices]
    elif order == "equal":
        source, target = np.full(5000, 7), np.full(5000, 9)
    else:  # the second half has three times as many target tokens
        target = np.where(np.arange(5000) < 2500, target, 3 * target)
    assert find_misaligned_spans([(source, target)]).spans == ()


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_too_few_pairs_give_no_span(count: int) -> None:
    assert find_misaligned_spans([make_lengths(count)]).spans == ()


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("multi30k/train.en.gz", "multi30k/train.de.gz"),
        ("tatoeba_en_zh/train.en.gz", "tatoeba_en_zh/train.zh.gz"),
    ],
)
def test_real_text_is_aligned_until_a_span_is_moved(shared: Path, source: str, target: str) -> None:
    pairs = tuple(character_counts(shared / "data" / name) for name in (source, target))
    assert len(pairs[0]) == len(pairs[1]) >= 20_000
    assert find_misaligned_spans([pairs]).spans == ()  # type: ignore[list-item]
    found = find_single_span(misalign(pairs, 9000, 9100, 1))  # type: ignore[arg-type]
    assert found.lag == 1
    assert abs(found.first - 9000) <= 10
    assert abs(found.last - 9100) <= 10


def test_lags_cover_both_directions() -> None:
    assert sorted(LAGS) == [*range(-10, 0), *range(1, 11)]


def character_counts(path: Path) -> LengthArray:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return np.array([max(1, len(line.strip())) for line in file])
