"""Lines that have slipped against each other are found where they are, and nowhere else."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from attendo.doctor.lengths import LAGS, LengthArray, MisalignedSpan, find_misaligned_spans

Pairs = tuple[LengthArray, LengthArray]


def lengths(count: int, seed: int = 0, noise: float = 0.2) -> Pairs:
    """Sentences of about 15 tokens, and targets of about as many."""
    dice = np.random.default_rng(seed)
    source = np.exp(dice.normal(2.7, 0.5, count))
    target = source * np.exp(dice.normal(0.0, noise, count))
    return tuple(np.maximum(1, side.round()).astype(np.int64) for side in (source, target))  # type: ignore[return-value]


def slip(pairs: Pairs, first: int, last: int, lag: int) -> Pairs:
    """The target of source i stands at i + lag; what is pushed out at one end comes in at the other."""
    target = pairs[1].copy()
    target[first:last] = np.roll(pairs[1][first:last], lag)
    return pairs[0], target


def only(pairs: Pairs) -> MisalignedSpan:
    (found,) = find_misaligned_spans([pairs]).spans
    return found


@pytest.mark.parametrize("seed", range(5))
def test_there_is_no_alarm_on_clean_text(seed: int) -> None:
    found = find_misaligned_spans([lengths(10_000, seed)])
    assert (found.is_informative, found.spans) == (True, ())


@pytest.mark.parametrize("lag", [-10, -1, 1, 3])
@pytest.mark.parametrize(("first", "last"), [(2000, 2060), (0, 300), (4800, 5000), (1234, 3456)])
def test_a_slipped_stretch_is_found_with_its_lines_and_its_lag(first: int, last: int, lag: int) -> None:
    found = only(slip(lengths(5000), first, last, lag))
    assert found.lag == lag
    assert abs(found.first - first) <= 10 + abs(lag)
    assert abs(found.last - last) <= 10 + abs(lag)


def test_a_lost_line_slips_all_that_follow() -> None:
    source, target = lengths(10_000)
    found = only((source[:-1], np.delete(target, 7000)))
    assert (found.lag, found.last) == (-1, 9999)
    assert abs(found.first - 7000) <= 10


def test_a_corpus_that_has_slipped_as_a_whole_is_found() -> None:
    source, target = lengths(2000)
    found = only((source[:-1], target[1:]))
    assert found.lag == -1
    assert found.last - found.first >= 1980


def test_two_stretches_are_two_findings_in_their_order() -> None:
    found = find_misaligned_spans([slip(slip(lengths(10_000), 6000, 6200, 2), 1000, 1100, -1)]).spans
    assert [each.lag for each in found] == [-1, 2]
    assert [round(each.first, -2) for each in found] == [1000, 6000]


def test_a_second_lost_line_slips_the_rest_further() -> None:
    source, target = lengths(10_000)
    found = find_misaligned_spans([(source[:-2], np.delete(target, [4000, 4300]))]).spans
    assert [each.lag for each in found] == [-1, -2]
    assert abs(found[0].last - 4300) <= 10
    assert abs(found[1].first - 4300) <= 10


def test_what_is_read_in_parts_is_not_joined() -> None:
    """A stretch tells in which part it lies."""
    clean, spoilt = lengths(4000), slip(lengths(4000, 1), 2000, 2100, 1)
    (found,) = find_misaligned_spans([clean, spoilt]).spans
    assert (found.block, found.lag) == (1, 1)
    assert abs(found.first - 2000) <= 10


def test_lengths_that_have_nothing_to_do_with_each_other_tell_nothing() -> None:
    source, _ = lengths(5000, 0)
    _, target = lengths(5000, 1)
    found = find_misaligned_spans([(source, target)])
    assert (found.is_informative, found.spans) == (False, ())


@pytest.mark.parametrize("order", ["sorted", "equal", "two kinds"])
def test_neighbours_of_like_length_are_no_alarm(order: str) -> None:
    source, target = lengths(5000)
    if order == "sorted":
        places = np.argsort(source, kind="stable")
        source, target = source[places], target[places]
    elif order == "equal":
        source, target = np.full(5000, 7), np.full(5000, 9)
    else:  # a second half of another kind, with three times as many target tokens
        target = np.where(np.arange(5000) < 2500, target, 3 * target)
    assert find_misaligned_spans([(source, target)]).spans == ()


@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_a_handful_of_pairs_is_enough_to_ask_and_too_few_to_tell(count: int) -> None:
    assert find_misaligned_spans([lengths(count)]).spans == ()


@pytest.mark.short(1)
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("multi30k/train.en.gz", "multi30k/train.de.gz"),
        ("tatoeba_en_zh/train.en.gz", "tatoeba_en_zh/train.zh.gz"),
    ],
)
def test_real_text_is_clean_until_a_line_is_lost(shared: Path, source: str, target: str) -> None:
    pairs = tuple(characters(shared / "data" / name) for name in (source, target))
    assert len(pairs[0]) == len(pairs[1]) >= 20_000
    assert find_misaligned_spans([pairs]).spans == ()  # type: ignore[list-item]
    found = only(slip(pairs, 9000, 9100, 1))  # type: ignore[arg-type]
    assert found.lag == 1
    assert abs(found.first - 9000) <= 10
    assert abs(found.last - 9100) <= 10


def test_all_lags_are_looked_at_both_ways() -> None:
    assert sorted(LAGS) == [*range(-10, 0), *range(1, 11)]


def characters(path: Path) -> LengthArray:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return np.array([max(1, len(line.strip())) for line in file])
