"""Masks are boolean. True means that a query may attend to a key."""

import pytest
import torch

from attendo.nn.masks import Mask, SlidingWindow, causal_mask, padding_mask

CPU = torch.device("cpu")


def test_a_padding_mask_applies_to_every_head_and_query() -> None:
    is_token = torch.tensor([[True, True], [True, False]])
    mask = padding_mask(is_token)
    assert mask.visible is not None
    assert mask.visible.shape == (2, 1, 1, 2)
    assert torch.equal(mask.visible[:, 0, 0], is_token)
    assert not mask.causal


def test_without_padding_there_is_no_tensor() -> None:
    assert padding_mask(None) == Mask()
    assert Mask().matrix(3, 4, CPU) is None


def test_a_complete_target_is_masked_by_a_flag() -> None:
    mask = causal_mask(0, 3, None, CPU)
    assert mask == Mask(causal=True)
    visible = mask.matrix(3, 3, CPU)
    assert visible is not None
    assert torch.equal(visible[0, 0], torch.ones(3, 3).tril().bool())


@pytest.mark.parametrize("past", [0, 4])
def test_one_new_token_needs_no_mask(past: int) -> None:
    assert causal_mask(past, 1, None, CPU) == Mask()


def test_one_new_token_does_not_see_padding() -> None:
    is_token = torch.tensor([[False, True, True]])
    visible = causal_mask(2, 1, is_token, CPU).visible
    assert visible is not None
    assert visible.tolist() == [[[[False, True, True]]]]


def test_new_tokens_see_all_earlier_tokens() -> None:
    visible = causal_mask(2, 3, None, CPU).visible
    assert visible is not None
    assert visible[0, 0].int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]


def test_padding_and_future_are_hidden() -> None:
    visible = causal_mask(0, 3, torch.tensor([[True, False, True], [True, True, True]]), CPU).visible
    assert visible is not None
    assert visible[0, 0].int().tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 1]]
    assert visible[1, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_a_padding_mask_is_its_own_matrix() -> None:
    mask = padding_mask(torch.tensor([[True, False]]))
    assert mask.matrix(5, 2, CPU) is mask.visible


@pytest.mark.parametrize(("size", "two_sided"), [(1, False), (3, False), (3, True), (4, True), (20, False)])
def test_a_sliding_window_hides_far_keys(size: int, two_sided: bool) -> None:
    """As in transformers: with two sides, (size + 1) // 2 keys up to the query and size // 2 behind it."""
    position = torch.arange(9)
    distance = (position[:, None] - position)[None]
    limited = SlidingWindow(size, 2, two_sided).limit(Mask() if two_sided else Mask(causal=True), distance)
    found = limited.matrix(9, 9, torch.device("cpu"))
    assert found is not None
    for query in range(9):
        first, last = query - size + 1, query
        if two_sided:
            first, last = query - (size + 1) // 2 + 1, query + size // 2
        assert found[0, 0, query].nonzero().flatten().tolist() == [key for key in range(9) if first <= key <= last]


def test_the_last_of_every_pattern_layers_has_full_attention() -> None:
    window = SlidingWindow(3, 3, two_sided=False)
    assert [window.slides(layer) for layer in range(7)] == [True, True, False, True, True, False, True]
