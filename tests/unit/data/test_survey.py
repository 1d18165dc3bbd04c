"""What the first reading chooses: pairs to learn the vocabulary from, and sources to keep back."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prepared_data import sentences

from attendo import keyed_random
from attendo.data.scan_pass import HeldOutSplit, ReservoirSample, TextPair, source_keys

texts = st.lists(st.sampled_from("abcdefghijklmnopqrst"), min_size=0, max_size=60)


def test_few_pairs_are_all_taken_in_their_order() -> None:
    pairs = sentences(500)
    assert sampled(pairs, block=37) == pairs


@pytest.mark.parametrize("limits", [{"max_pairs": 100}, {"max_characters": 1000}])
def test_a_sample_keeps_its_limits_and_does_not_depend_on_how_the_text_was_read(limits: dict[str, int]) -> None:
    pairs = sentences(3000)
    sample = sampled(pairs, block=1000, **limits)
    assert sample == sampled(pairs, block=7, **limits)
    assert sample == sorted(sample, key=pairs.index)
    assert sum(len(source) + len(target) for source, target in sample) <= limits.get("max_characters", 10**9)
    assert len(sample) == 100 or "max_characters" in limits
    assert len(sample) > 40


def test_a_sample_is_spread_evenly_and_decided_by_the_seed() -> None:
    pairs = sentences(8000)
    sample = sampled(pairs, max_pairs=800)
    places = Counter(pairs.index(pair) // 1000 for pair in sample[::4])
    assert all(10 <= places[eighth] <= 45 for eighth in range(8))
    assert sample != sampled(pairs, seed=2, max_pairs=800)


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_is_as_many_of_the_smallest_draws_as_there_is_room_for(seed: int) -> None:
    pairs = [("x" * (n * 7 % 40), "y") for n in range(400)]
    drawn = keyed_random.uniform(keyed_random.make_keys(seed, "sample", np.arange(400, dtype=np.uint64)))
    order = np.argsort(drawn)
    fit = np.cumsum([len(pairs[place][0]) + 1 for place in order]) <= 500
    assert sampled(pairs, seed, max_characters=500) == [pairs[place] for place in sorted(order[fit])]


def test_one_pair_is_taken_even_where_it_alone_is_too_long() -> None:
    assert sampled([("x" * 100, "y")], max_characters=10) == [("x" * 100, "y")]


def test_a_sample_of_nothing_takes_nothing() -> None:
    assert sampled(sentences(100), max_pairs=0) == []


@given(texts, st.integers(0, 3))
def test_what_is_kept_back_is_some_and_never_all(sources: list[str], seed: int) -> None:
    chosen = kept_back(sources, seed)
    distinct = len(set(sources))
    assert (len(chosen) > 0) == (distinct > 1)
    assert not distinct or len(chosen) < distinct


def test_about_a_twentieth_is_kept_back_and_at_most_as_many_as_wanted() -> None:
    sources = [source for source, _ in sentences(4000)]
    assert len(kept_back(sources)) == 200
    assert len(kept_back(sources, most=50)) == 50
    assert len(kept_back(sources[:40])) == 2
    assert len(kept_back(sources[:5])) == 1


def test_a_source_that_is_most_of_the_text_is_not_kept_back() -> None:
    for seed in range(20):
        sources = ["yes"] * 500 + [f"number {n}" for n in range(500)]
        chosen = kept_back(sources, seed)
        assert "yes" not in chosen
        assert len(chosen) == 50


def test_where_every_source_comes_often_the_rarest_is_kept_back() -> None:
    assert kept_back(["a"] * 3 + ["b"] * 2 + ["c"] * 4) == {"b"}


def test_the_choice_follows_from_seed_and_text_not_from_order_or_blocks() -> None:
    sources = [f"number {n % 3000}" for n in range(9000)]
    chosen = kept_back(sources, most=100)
    assert kept_back(sources[::-1], most=100, block=7) == chosen
    assert kept_back(sources, seed=5, most=100) != chosen
    assert sum(source in chosen for source in sources) <= 100


def test_the_same_source_has_the_same_key_everywhere() -> None:
    first, second, third = source_keys(1, ["a", "b", "a"]).tolist()
    assert first == third != second
    assert source_keys(2, ["a"]).tolist() != [first]
    assert source_keys(1, []).tolist() == []


def sampled(text: list[TextPair], seed: int = 1, block: int = 1000, **limits: int) -> list[TextPair]:
    sample = ReservoirSample(seed, **limits)
    for first in range(0, len(text), block):
        sample.offer(text[first : first + block])
    return sample.pairs()


def kept_back(sources: list[str], seed: int = 1, most: int = 1000, block: int = 1000) -> set[str]:
    """The sources that are chosen."""
    choice = HeldOutSplit(seed, most)
    for first in range(0, len(sources), block):
        choice.offer(sources[first : first + block])
    chosen = choice.select_keys()
    keys = source_keys(seed, sources).tolist()
    return {source for source, key in zip(sources, keys, strict=True) if key in chosen}
