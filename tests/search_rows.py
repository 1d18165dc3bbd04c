"""Limits and ids of the rows of a search, in the form that tests write them."""

from collections.abc import Sequence

from torch import Tensor

from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.requests import DecodeRequest, limit_tensors


def make_limits(max_length: Tensor, min_length: int = 0, prefix: Sequence[Sequence[int]] | None = None) -> RowLimits:
    """Returns limits with request ids from 0."""
    rows = zip(max_length.tolist(), prefix or [()] * max_length.size(0), strict=True)
    requests = [DecodeRequest(n, (), limit, min_length, tuple(ids)) for n, (limit, ids) in enumerate(rows)]
    return limit_tensors(requests, max_length.device)


def trim_ids(frontier: Frontier) -> Tensor:
    """Returns the ids without empty columns."""
    return frontier.ids[:, : int(frontier.length.max()) + 1]
