"""Attention to a prefix and to the row itself equals attention to all keys in one list."""

from typing import Any

import pytest
import torch
from torch import Tensor

from attendo.nn import attention
from attendo.nn.attention import KeysValues, MultiHeadAttention, PrefixedKeysValues, explicit_attention
from attendo.nn.masks import Mask, join_masks, padding_mask

HEADS, WIDTH, PREFIX = 2, 4, 5


def random_keys(rows: int, length: int, seed: int) -> KeysValues:
    generator = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(rows, HEADS, length, WIDTH, generator=generator) for _ in range(2))
    return KeysValues(keys, values)


def attend(queries: Tensor, kv: PrefixedKeysValues, mask: Mask, tap: Any = None) -> Tensor:
    module = MultiHeadAttention(HEADS * WIDTH, HEADS).eval()
    with torch.no_grad():
        module.output.weight.copy_(torch.eye(HEADS * WIDTH))
        module.output.bias.zero_()
        return module(queries, kv, mask, tap).unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)


@pytest.mark.parametrize("copied", [0, 1 << 17], ids=["two products", "one kernel"])
@pytest.mark.parametrize("tapped", [False, True], ids=["fused", "tapped"])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "bias"])
@pytest.mark.parametrize(("rows", "own_rows", "queries"), [(3, 3, 1), (3, 3, 4), (6, 6, 1), (6, 6, 4), (6, 3, 1)])
def test_two_parts_equal_one_list_of_keys(
    copied: int,
    tapped: bool,
    padded: bool,
    biased: bool,
    rows: int,
    own_rows: int,
    queries: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three prefixes, each for `rows` / 3 rows. The rows of a shared cache have their own keys in one list."""
    monkeypatch.setattr(attention, "_MAX_COPIED_NUMBERS", copied)
    width = rows // own_rows
    prefix, own = random_keys(3, PREFIX, 1), random_keys(own_rows, 4 * width, 2)
    is_token = torch.arange(PREFIX) < torch.tensor([[5], [2], [3]])
    prefix_mask = padding_mask(is_token if padded else None)
    mask = Mask(causal=True) if queries > 1 else Mask()
    if width > 1:  # each row sees every second column
        mask = Mask((torch.arange(4 * width) % width == torch.arange(width)[:, None]).expand(own_rows, 1, -1, -1))
    bias = torch.randn(own_rows, HEADS, queries, 4, generator=torch.Generator().manual_seed(4)) * biased
    if biased:
        mask = mask.with_bias(bias.repeat_interleave(width, dim=-1))
    each = torch.randn(rows, HEADS, queries, WIDTH, generator=torch.Generator().manual_seed(3))
    seen: list[Tensor] = []
    tap = (lambda site, weights: seen.append(weights)) if tapped else None
    found = attend(each, PrefixedKeysValues(prefix, prefix_mask, own), mask, tap)

    for row in range(rows):
        here, there = row * 3 // rows, row * own_rows // rows
        columns = slice(row % width, None, width)
        kept = is_token[here] if padded else torch.ones(PREFIX, dtype=torch.bool)
        keys, values = (
            torch.cat((first[here][:, kept], second[there][:, columns]), dim=1)[None]
            for first, second in ((prefix.keys, own.keys), (prefix.values, own.values))
        )
        visible = torch.cat((torch.ones(queries, int(kept.sum())), torch.ones(queries, 4).tril() if queries > 1 else
                             torch.ones(1, 4)), 1).bool()  # fmt: skip
        added = torch.nn.functional.pad(bias[there : there + 1], (int(kept.sum()), 0))
        seen_mask = Mask(visible[None, None], bias=added)
        expected, _ = explicit_attention(each[row : row + 1], KeysValues(keys, values), seen_mask)
        torch.testing.assert_close(found[row : row + 1], expected, atol=1e-5, rtol=1e-5)
    if tapped:
        torch.testing.assert_close(seen[0].sum(-1), torch.ones(rows, HEADS, queries))


@pytest.mark.parametrize("tapped", [False, True])
@pytest.mark.parametrize("queries", [1, 3])
def test_a_query_that_sees_nothing_gets_zeros(tapped: bool, queries: int) -> None:
    nothing = padding_mask(torch.zeros(2, PREFIX, dtype=torch.bool))
    hidden = Mask(torch.zeros(2, 1, queries, queries, dtype=torch.bool))
    kv = PrefixedKeysValues(random_keys(2, PREFIX, 1), nothing, random_keys(2, queries, 2))
    found = attend(torch.ones(2, HEADS, queries, WIDTH), kv, hidden, (lambda *_: None) if tapped else None)
    assert not found.any()


def test_joined_masks_stand_side_by_side() -> None:
    source = padding_mask(torch.tensor([[True, False], [True, True]]))
    joined = join_masks((source, Mask(causal=True)), 2, (2, 2), torch.device("cpu")).visible
    assert joined is not None
    assert joined.tolist() == [
        [[[True, False, True, False], [True, False, True, True]]],
        [[[True, True, True, False], [True, True, True, True]]],
    ]
    assert join_masks((Mask(), Mask()), 1, (2, 3), torch.device("cpu")) == Mask()
