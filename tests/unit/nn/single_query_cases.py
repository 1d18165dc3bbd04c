"""Compares the single-query kernel with the formula. Run as a program if Triton interprets, or on a GPU."""

import sys
from dataclasses import dataclass

import torch
from torch import Tensor

from attendo.nn import single_query_attention
from attendo.nn.attention import KeysValues, StaticKeysValues, explicit_attention
from attendo.nn.masks import Mask


@dataclass(frozen=True)
class Sizes:
    sentences: int
    width: int  # rows per sentence
    heads: int
    positions: int
    d_key: int
    d_value: int


CASES = [Sizes(3, 4, 2, 37, 8, 12), Sizes(2, 1, 3, 70, 20, 16), Sizes(1, 5, 2, 5, 4, 4), Sizes(2, 3, 1, 200, 64, 32)]


def largest_difference(sizes: Sizes, device: str = "cpu", dtype: torch.dtype = torch.float32) -> float:
    """Over shared memories with and without a mask, and growing storage with and without an order.

    Each with and without a bias of relative positions and another scale.
    """
    make = _Maker(device, dtype)
    found = [_shared(make, sizes, masked, biased) for masked in (False, True) for biased in (False, True)]
    found += [_growing(make, sizes, ordered, biased) for ordered in (False, True) for biased in (False, True)]
    return max(found)


class _Maker:
    def __init__(self, device: str, dtype: torch.dtype) -> None:
        self.device, self.dtype = device, dtype
        self.generator = torch.Generator().manual_seed(1)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.device, self.dtype)

    def bias(self, rows: int, sizes: "Sizes") -> Tensor:
        """A bias whose last axis is not contiguous."""
        return self.normal(rows, sizes.positions, sizes.heads, 1).permute(0, 2, 3, 1)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator).to(self.device)


def _shared(make: _Maker, sizes: Sizes, masked: bool, biased: bool) -> float:
    queries = make.normal(sizes.sentences * sizes.width, sizes.heads, 1, sizes.d_key)
    # As after a projection: the heads are adjacent in one vector.
    keys, values = (
        make.normal(sizes.sentences, sizes.positions, sizes.heads, width).transpose(1, 2)
        for width in (sizes.d_key, sizes.d_value)
    )
    visible = make.integers(3, sizes.sentences, 1, 1, sizes.positions) > 0 if masked else None
    if visible is not None:
        visible[0] = False  # a fully masked sentence
    bias, scale = (make.bias(1, sizes), 0.3) if biased else (None, None)  # the same for all rows
    found = single_query_attention.attend(queries, keys, values, visible, bias, scale)
    rows = [None if each is None else each.repeat_interleave(sizes.width, 0) for each in (keys, values, visible)]
    return _difference(found, queries, KeysValues(rows[0].double(), rows[1].double()), Mask(rows[2], bias=bias), scale)


def _growing(make: _Maker, sizes: Sizes, ordered: bool, biased: bool) -> float:
    rows, row_numbers = sizes.sentences * sizes.width, torch.arange(sizes.sentences * sizes.width, device=make.device)
    queries = make.normal(rows, sizes.heads, 1, sizes.d_key)
    storage, new = (
        KeysValues(
            make.normal(rows, sizes.heads, count, sizes.d_key), make.normal(rows, sizes.heads, count, sizes.d_value)
        )
        for count in (sizes.positions, 1)
    )
    length = make.integers(sizes.positions, sizes.sentences).repeat_interleave(sizes.width)
    order = None
    if ordered:
        order = make.integers(sizes.width, rows, sizes.positions) + (row_numbers // sizes.width * sizes.width)[:, None]
        order[row_numbers, length] = row_numbers
    expected_storage = KeysValues(storage.keys.clone(), storage.values.clone())
    bias, scale = (make.bias(rows, sizes), 0.3) if biased else (None, None)
    found = single_query_attention.append_and_attend(
        queries, (storage.keys, storage.values), (new.keys, new.values), length, order, bias, scale
    )
    expected = StaticKeysValues(expected_storage, length, order).append(new)
    assert torch.equal(storage.keys, expected_storage.keys)
    assert torch.equal(storage.values, expected_storage.values)
    visible = (torch.arange(sizes.positions, device=make.device) <= length[:, None])[:, None, None]
    kv = KeysValues(expected.keys.double(), expected.values.double())
    return _difference(found, queries, kv, Mask(visible, bias=bias), scale)


def _difference(found: Tensor, queries: Tensor, kv: KeysValues, mask: Mask, scale: float | None) -> float:
    return float((found.double() - explicit_attention(queries.double(), kv, mask, scale=scale)[0]).abs().max())


if __name__ == "__main__":
    sys.stdout.write(repr(max(largest_difference(case) for case in CASES)))
