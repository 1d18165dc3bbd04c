"""The scan pass: a text sample for the tokenizer and the held-out sources."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prepared_data import sentences

from attendo import keyed_random
from attendo.data.scan_pass import HeldOutSplit, ReservoirSample, TextPair, source_keys

texts = st.lists(st.sampled_from("abcdefghijklmnopqrst"), min_size=0, max_size=60)


def test_a_small_corpus_is_sampled_completely() -> None:
    pairs = sentences(500)
    assert draw_sample(pairs, block=37) == pairs


@pytest.mark.parametrize("limits", [{"max_pairs": 100}, {"max_characters": 1000}])
def test_a_sample_respects_limits_and_ignores_block_size(limits: dict[str, int]) -> None:
    pairs = sentences(3000)
    sample = draw_sample(pairs, block=1000, **limits)
    assert sample == draw_sample(pairs, block=7, **limits)
    assert sample == sorted(sample, key=pairs.index)
    assert sum(len(source) + len(target) for source, target in sample) <= limits.get("max_characters", 10**9)
    assert len(sample) == 100 or "max_characters" in limits
    assert len(sample) > 40


def test_a_sample_is_spread_evenly_and_depends_on_the_seed() -> None:
    pairs = sentences(8000)
    sample = draw_sample(pairs, max_pairs=800)
    counts = Counter(pairs.index(pair) // 1000 for pair in sample[::4])
    assert all(10 <= counts[eighth] <= 45 for eighth in range(8))
    assert sample != draw_sample(pairs, seed=2, max_pairs=800)


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_has_the_smallest_random_values_that_fit(seed: int) -> None:
    pairs = [("x" * (n * 7 % 40), "y") for n in range(400)]
    values = keyed_random.uniform(keyed_random.make_keys(seed, "sample", np.arange(400, dtype=np.uint64)))
    order = np.argsort(values)
    fit = np.cumsum([len(pairs[index][0]) + 1 for index in order]) <= 500
    assert draw_sample(pairs, seed, max_characters=500) == [pairs[index] for index in sorted(order[fit])]


def test_one_pair_is_sampled_even_if_it_is_too_long() -> None:
    assert draw_sample([("x" * 100, "y")], max_characters=10) == [("x" * 100, "y")]


def test_a_sample_of_0_pairs_is_empty() -> None:
    assert draw_sample(sentences(100), max_pairs=0) == []


@given(texts, st.integers(0, 3))
def test_some_but_not_all_sources_are_held_out(sources: list[str], seed: int) -> None:
    chosen = hold_out(sources, seed)
    distinct = len(set(sources))
    assert (len(chosen) > 0) == (distinct > 1)
    assert not distinct or len(chosen) < distinct


def test_five_percent_are_held_out_up_to_the_limit() -> None:
    sources = [source for source, _ in sentences(4000)]
    assert len(hold_out(sources)) == 200
    assert len(hold_out(sources, max_pairs=50)) == 50
    assert len(hold_out(sources[:40])) == 2
    assert len(hold_out(sources[:5])) == 1


def test_a_very_frequent_source_is_not_held_out() -> None:
    for seed in range(20):
        sources = ["yes"] * 500 + [f"number {n}" for n in range(500)]
        chosen = hold_out(sources, seed)
        assert "yes" not in chosen
        assert len(chosen) == 50


def test_if_every_source_repeats_the_rarest_is_held_out() -> None:
    assert hold_out(["a"] * 3 + ["b"] * 2 + ["c"] * 4) == {"b"}


def test_the_split_depends_on_seed_and_text_only() -> None:
    sources = [f"number {n % 3000}" for n in range(9000)]
    chosen = hold_out(sources, max_pairs=100)
    assert hold_out(sources[::-1], max_pairs=100, block=7) == chosen
    assert hold_out(sources, seed=5, max_pairs=100) != chosen
    assert sum(source in chosen for source in sources) <= 100


def test_equal_sources_have_equal_keys() -> None:
    first, second, third = source_keys(1, ["a", "b", "a"]).tolist()
    assert first == third != second
    assert source_keys(2, ["a"]).tolist() != [first]
    assert source_keys(1, []).tolist() == []


def draw_sample(text: list[TextPair], seed: int = 1, block: int = 1000, **limits: int) -> list[TextPair]:
    sample = ReservoirSample(seed, **limits)
    for first in range(0, len(text), block):
        sample.offer(text[first : first + block])
    return sample.pairs()


def hold_out(sources: list[str], seed: int = 1, max_pairs: int = 1000, block: int = 1000) -> set[str]:
    """The held-out sources."""
    choice = HeldOutSplit(max_pairs)
    for first in range(0, len(sources), block):
        choice.offer(source_keys(seed, sources[first : first + block]))
    chosen = choice.select_keys()
    keys = source_keys(seed, sources).tolist()
    return {source for source, key in zip(sources, keys, strict=True) if key in chosen}
