"""State of a search: per-sentence limits and the tokens of every row so far.

All tensors keep their shape from the first token to the last, so that a GPU can replay a captured step.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import pad

from attendo.text import BOS, EOS, PAD

NEG_INF = float("-inf")  # the log-probability of a row without a hypothesis


@dataclass(frozen=True)
class RowLimits:
    """Limits for each sentence, or for each row of a frontier."""

    max_length: Int[Tensor, " B"]  # maximum tokens, without BOS and EOS
    min_length: Int[Tensor, " B"]  # minimum tokens
    prefix: Int[Tensor, "B P"]  # required first tokens of the answer, padded with PAD
    request_id: Int[Tensor, " B"]  # also seeds the random numbers of the sentence

    @property
    def capacity(self) -> int:
        """Columns of the longest row: BOS, its tokens, and EOS."""
        return int(self.max_length.max()) + 2 if self.max_length.numel() else 2

    def repeat(self, width: int) -> "RowLimits":
        """Repeat each sentence as `width` adjacent rows."""
        return map_tensors(self, lambda each: each.repeat_interleave(width, dim=0))


@dataclass(frozen=True)
class Frontier:
    """Rows of a search, `width` adjacent rows per sentence. A row is open until its strategy closes it."""

    width: int
    limits: RowLimits  # for each row
    ids: Int[Tensor, "R C"]  # starts with BOS, padded with PAD
    length: Int[Tensor, " R"]  # tokens after BOS, EOS included
    log_probability: Float[Tensor, " R"]  # of these tokens, by the model
    penalty: Float[Tensor, " R"]  # added by rules and strategy when the tokens were chosen
    open: Bool[Tensor, " R"]
    ended: Bool[Tensor, " R"]  # by EOS, or by any token at the limit with a free end
    cut: Bool[Tensor, " R"]  # at the limit, without EOS
    coverage: Float[Tensor, " R"]  # sum of log(min(attention to a source position, 1)); 0 if not tracked
    finished: "Frontier | None" = None  # the finished hypotheses of a beam, best first
    was_top: Bool[Tensor, " R"] | None = None  # for stop rule leader: it was the best continuation when it ended

    @staticmethod
    def start(limits: RowLimits, width: int = 1, capacity: int | None = None) -> "Frontier":
        """Return rows before the first token, with `capacity` columns or enough for the longest limit."""
        limits = limits.repeat(width)
        rows, device = limits.max_length.size(0), limits.max_length.device
        ids = torch.full((rows, capacity or limits.capacity), PAD, device=device)
        ids[:, 0] = BOS
        nowhere, zeros = torch.zeros(rows, dtype=torch.bool, device=device), torch.zeros(rows, device=device)
        return Frontier(
            width, limits, ids, torch.zeros_like(limits.max_length), zeros, zeros, ~nowhere, nowhere, nowhere, zeros
        )

    @property
    def last(self) -> Int[Tensor, "R 1"]:
        """The last token of each row, which the network has not read yet."""
        return self.ids.gather(1, self.length[:, None])

    @property
    def value(self) -> Float[Tensor, " R"]:
        """The value that ranks rows of equal length."""
        return self.log_probability + self.penalty

    @property
    def full(self) -> Bool[Tensor, " R"]:
        """Open rows that only EOS may follow, or one last token with a free end."""
        return self.open & (self.length >= self.limits.max_length)

    @property
    def hypotheses(self) -> "Frontier":
        """The possible answers: the finished hypotheses of a beam, otherwise the rows themselves."""
        return self if self.finished is None else self.finished

    def pad_to(self, columns: int, prefix: int) -> "Frontier":
        """Pad or trim to `columns` id columns (BOS and EOS included) and `prefix` prefix columns."""
        if self.ids.size(1) == columns and self.limits.prefix.size(1) == prefix:
            return self
        finished = None if self.finished is None else self.finished.pad_to(columns, prefix)
        limits = replace(self.limits, prefix=_pad_columns(self.limits.prefix, prefix))
        return replace(self, ids=_pad_columns(self.ids, columns), limits=limits, finished=finished)

    def select(self, rows: Int[Tensor, " N"], width: int = 1) -> "Frontier":
        """Select these rows, as `width` per sentence."""
        return replace(map_tensors(replace(self, finished=None), lambda each: each.index_select(0, rows)), width=width)

    def select_sentences(self, sentences: Int[Tensor, " N"]) -> "Frontier":
        """Select these sentences."""
        finished = None if self.finished is None else self.finished.select_sentences(sentences)
        return replace(self.select(self.row_indices(sentences), self.width), finished=finished)

    def replace_sentences(self, sentences: Int[Tensor, " N"], new: "Frontier", in_place: bool = False) -> "Frontier":
        """Return a copy with new rows for these sentences. With `in_place`, overwrite the tensors instead."""
        rows, copy = self.row_indices(sentences), Tensor.index_copy_ if in_place else Tensor.index_copy
        finished = None
        if self.finished is not None and new.finished is not None:
            finished = self.finished.replace_sentences(sentences, new.finished, in_place)
        changes = zip_tensors(
            replace(self, finished=None), replace(new, finished=None), lambda one, other: copy(one, 0, rows, other)
        )
        return replace(changes, finished=finished)

    def where(self, rows: Bool[Tensor, " R"], other: "Frontier") -> "Frontier":
        """Return these rows from self, and the others from `other`."""
        return zip_tensors(
            replace(self, finished=None),
            replace(other, finished=None),
            lambda one, another: torch.where(rows.view(-1, *[1] * (one.dim() - 1)), one, another),
        )

    def cpu(self) -> "Frontier":
        """Copy all tensors in one transfer; each transfer synchronises the device."""
        return self if self.ids.device.type == "cpu" else unpack(pack(self).cpu(), self)

    def row_indices(self, sentences: Int[Tensor, " N"]) -> Int[Tensor, " R"]:
        return (sentences[:, None] * self.width + torch.arange(self.width, device=sentences.device)).flatten()

    def append(
        self,
        ids: Int[Tensor, " R"],
        log_probability: Float[Tensor, " R"],
        penalty: Float[Tensor, " R"],
        free_end: bool = False,
    ) -> "Frontier":
        """Append one token to every open row.

        A full row accepts only EOS and is cut otherwise. A row is also cut if no token is allowed (-∞). With a free
        end, a full row accepts any last token and has then ended. It is also cut unless that token is EOS.
        """
        is_eos = ids == EOS
        ends = is_eos | self.full if free_end else is_eos
        cannot = self.open & ((self.full & ~ends) | (log_probability + penalty == NEG_INF))
        grows = self.open & ~cannot
        return replace(
            self,
            ids=self.with_token(ids, grows),
            length=self.length + grows,
            log_probability=torch.where(grows, self.log_probability + log_probability, self.log_probability),
            penalty=torch.where(grows, self.penalty + penalty, self.penalty),
            open=grows & ~ends,
            ended=self.ended | (grows & ends),
            cut=self.cut | cannot | (grows & ends & ~is_eos),
        )

    def with_token(self, ids: Int[Tensor, " R"], where: Bool[Tensor, " R"]) -> Int[Tensor, "R C"]:
        """Write `ids` after the last token of the rows selected by `where`."""
        position = (self.length[:, None] + 1).clamp(max=self.ids.size(1) - 1)
        return self.ids.scatter(1, position, torch.where(where[:, None], ids[:, None], self.ids.gather(1, position)))


def difference(value: Float[Tensor, "*S"], log_probability: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """Return the amount added to log-probabilities; 0 for forbidden tokens."""
    return torch.where(value == NEG_INF, 0.0, value - log_probability)


def _pad_columns(ids: Int[Tensor, "R C"], count: int) -> Int[Tensor, "R N"]:
    return pad(ids, (0, count - ids.size(1)), value=PAD)


Value = TypeVar("Value", RowLimits, Frontier)


def map_tensors(value: Value, function: Callable[[Tensor], Tensor]) -> Value:
    """Apply a function to every tensor, also in nested values."""
    return zip_tensors(value, value, lambda each, _: function(each))


def zip_tensors(one: Value, other: Value, function: Callable[[Tensor, Tensor], Tensor]) -> Value:
    """Combine two values of the same class tensor by tensor."""
    new: dict[str, Any] = {}
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if isinstance(first, Tensor):
            new[field.name] = function(first, second)
        elif isinstance(first, RowLimits | Frontier):
            new[field.name] = zip_tensors(first, second, function)
    return replace(one, **new)


def pack(value: Value, out: Tensor | None = None) -> UInt8[Tensor, " N"]:
    """Pack all tensors into one."""
    parts = [each.flatten().view(torch.uint8) for each in _sort_by_element_size(value)]
    return torch.cat(parts, out=out)


def unpack(packed: UInt8[Tensor, " N"], like: Value) -> Value:
    """Unpack bytes into tensors with the shapes of `like`. They share the memory of `packed`."""
    there = _sort_by_element_size(like)
    sizes = [each.numel() * each.element_size() for each in there]
    parts = dict(zip(map(id, there), torch.split(packed, sizes), strict=True))
    return map_tensors(like, lambda each: parts[id(each)].view(each.dtype).view(each.shape))


def _sort_by_element_size(value: Value) -> list[Tensor]:
    """Return the tensors, largest element size first, so that each is aligned in the packed bytes."""
    tensors: dict[int, Tensor] = {}
    map_tensors(value, lambda each: tensors.setdefault(id(each), each))
    return sorted(tensors.values(), key=lambda each: -each.element_size())
