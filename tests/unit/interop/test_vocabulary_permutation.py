"""Permutations of imported vocabularies into our order of ids."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attendo.interop.huggingface.vocabulary import SUPPRESS_BIAS, VocabularyPermutation, build_permutation
from attendo.text import BOS, EOS, PAD, UNK


def test_marian_pad_is_also_the_start() -> None:
    order = build_permutation(6, pad=5, unk=1, start=5, eos=0)
    assert order.rows == (5, 1, 5, 0, 2, 3, 4)
    assert order.copies == {BOS}


def test_bart_eos_is_also_the_start() -> None:
    order = build_permutation(7, pad=1, unk=3, start=2, eos=2, first=[6, 0])
    assert order.rows == (1, 3, 2, 2, 6, 0, 4, 5)
    assert order.copies == {BOS}


def test_a_separate_start_can_be_generated_unless_moved() -> None:
    assert build_permutation(5, pad=0, unk=1, start=2, eos=3).rows == (0, 1, 2, 3, 2, 4)
    moved = build_permutation(5, pad=0, unk=1, start=2, eos=3, moves_start=True)
    assert moved == VocabularyPermutation((0, 1, 2, 3, 4))


def test_missing_control_tokens_are_copies() -> None:
    order = build_permutation(4, pad=3, unk=None, start=3, eos=3)
    assert order.copies == {PAD, UNK, BOS}
    assert order.rows == (3, 3, 3, 3, 0, 1, 2)


def test_copies_have_probability_zero() -> None:
    order = build_permutation(6, pad=5, unk=1, start=5, eos=0)
    weight, bias = torch.randn(6, 3), torch.randn(6)
    hidden = torch.randn(2, 3)
    theirs = (hidden @ weight.T + bias).softmax(-1)
    ours = (hidden @ order.table_to_ours(weight).T + order.bias_to_ours(bias)).softmax(-1)
    assert order.bias_to_ours(bias)[BOS] == SUPPRESS_BIAS
    assert not ours[:, BOS].any()
    kept = [PAD, UNK, EOS, 4, 5, 6]
    torch.testing.assert_close(ours[:, kept], theirs[:, order.to_theirs(kept)])


@given(st.integers(4, 12), st.data())
def test_every_imported_token_has_one_id(size: int, data: st.DataObject) -> None:
    draw = st.integers(0, size - 1)
    pad, start, eos = (data.draw(draw) for _ in range(3))
    unk = data.draw(st.none() | draw)
    order = build_permutation(size, pad, unk, start, eos, moves_start=data.draw(st.booleans()))
    assert order.to_theirs(order.to_ours(range(size))) == list(range(size))
    assert sorted(row for number, row in enumerate(order.rows) if number not in order.copies) == list(range(size))
    table = torch.arange(2.0 * size).view(size, 2)
    assert torch.equal(order.table_to_theirs(order.table_to_ours(table)), table)
    assert order.their_size == size
    assert order.rows[EOS] == eos
    assert order.rows[BOS] == start
    assert EOS not in order.copies


def test_rows_are_permuted() -> None:
    assert build_permutation(5, pad=4, unk=1, start=4, eos=0).rows == (4, 1, 4, 0, 2, 3)


@pytest.mark.parametrize("given_id", [0, 5])
def test_ids_round_trip(given_id: int) -> None:
    order = build_permutation(6, pad=5, unk=1, start=5, eos=0)
    assert order.to_theirs(order.to_ours([given_id])) == [given_id]
