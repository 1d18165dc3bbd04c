"""Single queries, one kernel beside the formula written out: run as a program where Triton interprets, or on a GPU."""

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
    width: int  # rows of each
    heads: int
    positions: int
    d_key: int
    d_value: int


CASES = [Sizes(3, 4, 2, 37, 8, 12), Sizes(2, 1, 3, 70, 20, 16), Sizes(1, 5, 2, 5, 4, 4), Sizes(2, 3, 1, 200, 64, 32)]


def largest_difference(sizes: Sizes, device: str = "cpu", kind: torch.dtype = torch.float32) -> float:
    """Over all ways to be asked: shared memories with and without mask, growing storage with and without order."""
    make = _Maker(device, kind)
    found = [_shared(make, sizes, masked) for masked in (False, True)]
    found += [_growing(make, sizes, ordered) for ordered in (False, True)]
    return max(found)


class _Maker:
    def __init__(self, device: str, kind: torch.dtype) -> None:
        self.device, self.kind = device, kind
        self.dice = torch.Generator().manual_seed(1)

    def numbers(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.dice).to(self.device, self.kind)

    def whole(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.dice).to(self.device)


def _shared(make: _Maker, sizes: Sizes, masked: bool) -> float:
    queries = make.numbers(sizes.sentences * sizes.width, sizes.heads, 1, sizes.d_key)
    # As projections leave them: heads side by side in one vector.
    keys, values = (
        make.numbers(sizes.sentences, sizes.positions, sizes.heads, width).transpose(1, 2)
        for width in (sizes.d_key, sizes.d_value)
    )
    visible = make.whole(3, sizes.sentences, 1, 1, sizes.positions) > 0 if masked else None
    if visible is not None:
        visible[0] = False  # a sentence of which nothing can be seen
    found = single_query_attention.attend(queries, keys, values, visible)
    rows = [None if each is None else each.repeat_interleave(sizes.width, 0) for each in (keys, values, visible)]
    return _apart(found, queries, KeysValues(rows[0].double(), rows[1].double()), rows[2])


def _growing(make: _Maker, sizes: Sizes, ordered: bool) -> float:
    rows, here = sizes.sentences * sizes.width, torch.arange(sizes.sentences * sizes.width, device=make.device)
    queries = make.numbers(rows, sizes.heads, 1, sizes.d_key)
    storage, new = (
        KeysValues(
            make.numbers(rows, sizes.heads, count, sizes.d_key), make.numbers(rows, sizes.heads, count, sizes.d_value)
        )
        for count in (sizes.positions, 1)
    )
    length = make.whole(sizes.positions, sizes.sentences).repeat_interleave(sizes.width)
    order = None
    if ordered:
        order = make.whole(sizes.width, rows, sizes.positions) + (here // sizes.width * sizes.width)[:, None]
        order[here, length] = here
    apart = KeysValues(storage.keys.clone(), storage.values.clone())
    found = single_query_attention.append_and_attend(
        queries, (storage.keys, storage.values), (new.keys, new.values), length, order
    )
    seen = StaticKeysValues(apart, length, order).append(new)
    assert torch.equal(storage.keys, apart.keys)
    assert torch.equal(storage.values, apart.values)
    visible = (torch.arange(sizes.positions, device=make.device) <= length[:, None])[:, None, None]
    return _apart(found, queries, KeysValues(seen.keys.double(), seen.values.double()), visible)


def _apart(found: Tensor, queries: Tensor, kv: KeysValues, visible: Tensor | None) -> float:
    return float((found.double() - explicit_attention(queries.double(), kv, Mask(visible))[0]).abs().max())


if __name__ == "__main__":
    sys.stdout.write(repr(max(largest_difference(case) for case in CASES)))
