"""Where a search stands: what is asked of each sentence, and every row as far as it has come.

All tensors keep their shape from the first token to the last, so that a GPU can replay a recorded step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import pad

from attendo.text import BOS, EOS, PAD

NEG_INF = float("-inf")  # the log-probability of a row that holds no hypothesis


@dataclass(frozen=True)
class RowLimits:
    """Of each sentence, or of each row of a frontier."""

    max_length: Int[Tensor, " B"]  # most tokens, bos and eos not counted
    min_length: Int[Tensor, " B"]  # fewest
    prefix: Int[Tensor, "B P"]  # how the answer begins; pad behind it
    request_id: Int[Tensor, " B"]  # names it: what is drawn at random for it follows from this

    @staticmethod
    def make(
        max_length: Int[Tensor, " B"], min_length: int = 0, prefix: Sequence[Sequence[int]] | None = None
    ) -> "RowLimits":
        """Sentences are numbered from 0."""
        prefix = prefix or [()] * max_length.size(0)
        longest = max(map(len, prefix), default=0)
        padded = [[*ids, *[PAD] * (longest - len(ids))] for ids in prefix]
        return RowLimits(
            max_length=max_length,
            min_length=torch.full_like(max_length, min_length),
            prefix=torch.tensor(padded, dtype=torch.long, device=max_length.device).view(max_length.size(0), longest),
            request_id=torch.arange(max_length.size(0), device=max_length.device),
        )

    @property
    def capacity(self) -> int:
        """Columns that the longest row may need: bos, its tokens, and eos."""
        return int(self.max_length.max()) + 2 if self.max_length.numel() else 2

    def repeat(self, width: int) -> "RowLimits":
        """Each sentence as `width` rows side by side."""
        return map_tensors(self, lambda each: each.repeat_interleave(width, dim=0))


@dataclass(frozen=True)
class Frontier:
    """`width` rows a sentence, side by side. A row is open until its strategy closes it."""

    width: int
    limits: RowLimits  # of each row
    ids: Int[Tensor, "R C"]  # begins with bos; pad behind the end
    length: Int[Tensor, " R"]  # tokens behind bos, eos included
    log_probability: Float[Tensor, " R"]  # of these tokens, as the model has it
    penalty: Float[Tensor, " R"]  # what rules and strategy added to it when the tokens were chosen
    open: Bool[Tensor, " R"]
    ended: Bool[Tensor, " R"]  # by eos, or with a free end at the limit
    cut: Bool[Tensor, " R"]  # at the limit, where another token than eos would have come next
    coverage: Float[Tensor, " R"]  # sum of log(min(attention to a source position, 1)); 0 where nobody keeps count
    finished: "Frontier | None" = None  # what a beam has put aside: the hypotheses of each sentence, best first
    was_top: Bool[Tensor, " R"] | None = None  # where a beam asks: when it ended, no other continuation was better

    @staticmethod
    def start(limits: RowLimits, width: int = 1, capacity: int | None = None) -> "Frontier":
        """Rows before the first token, with room for `capacity` columns or for the longest that is asked for."""
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
        """The token of each row that the network has not read yet."""
        return self.ids.gather(1, self.length[:, None])

    @property
    def value(self) -> Float[Tensor, " R"]:
        """What rows are compared by while they are equally long."""
        return self.log_probability + self.penalty

    @property
    def full(self) -> Bool[Tensor, " R"]:
        """Open rows behind which only eos may come, or one last token where the end is free."""
        return self.open & (self.length >= self.limits.max_length)

    @property
    def hypotheses(self) -> "Frontier":
        """What there is to answer: the finished of a beam, otherwise the rows themselves."""
        return self if self.finished is None else self.finished

    def trim_ids(self) -> Int[Tensor, "R T"]:
        """The ids without the columns that hold nothing."""
        return self.ids[:, : int(self.length.max()) + 1]

    def pad_to(self, columns: int, prefix: int) -> "Frontier":
        """With room for so many tokens, bos and eos included, and for a prefix of so many."""
        if self.ids.size(1) == columns and self.limits.prefix.size(1) == prefix:
            return self
        finished = None if self.finished is None else self.finished.pad_to(columns, prefix)
        asked = replace(self.limits, prefix=_pad_columns(self.limits.prefix, prefix))
        return replace(self, ids=_pad_columns(self.ids, columns), limits=asked, finished=finished)

    def select(self, rows: Int[Tensor, " N"], width: int = 1) -> "Frontier":
        """These rows, as `width` a sentence."""
        return replace(map_tensors(replace(self, finished=None), lambda each: each.index_select(0, rows)), width=width)

    def select_sentences(self, sentences: Int[Tensor, " N"]) -> "Frontier":
        """These sentences alone."""
        finished = None if self.finished is None else self.finished.select_sentences(sentences)
        return replace(self.select(self.row_indices(sentences), self.width), finished=finished)

    def replace_sentences(self, sentences: Int[Tensor, " N"], new: "Frontier") -> "Frontier":
        """The same with new rows for these sentences."""
        rows = self.row_indices(sentences)
        finished = None
        if self.finished is not None and new.finished is not None:
            finished = self.finished.replace_sentences(sentences, new.finished)
        changes = zip_tensors(
            replace(self, finished=None), replace(new, finished=None), lambda one, other: one.index_copy(0, rows, other)
        )
        return replace(changes, finished=finished)

    def where(self, rows: Bool[Tensor, " R"], other: "Frontier") -> "Frontier":
        """These rows, and the rest from the other."""
        return zip_tensors(
            replace(self, finished=None),
            replace(other, finished=None),
            lambda one, another: torch.where(rows.view(-1, *[1] * (one.dim() - 1)), one, another),
        )

    def cpu(self) -> "Frontier":
        """In one journey: every one of them makes the host wait."""
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
        """One more token in every open row.

        A row that is full takes nothing but eos and is cut otherwise, as is one of which nothing may follow (-∞). With
        a free end a full row takes any token as its last: it has then ended, and is cut too unless that was eos.
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
        """`ids` behind the last token of each row, there where it is asked for."""
        place = (self.length[:, None] + 1).clamp(max=self.ids.size(1) - 1)
        return self.ids.scatter(1, place, torch.where(where[:, None], ids[:, None], self.ids.gather(1, place)))


def difference(value: Float[Tensor, "*S"], log_probability: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """What was added to log-probabilities; 0 where nothing is."""
    return torch.where(value == NEG_INF, 0.0, value - log_probability)


def _pad_columns(ids: Int[Tensor, "R C"], count: int) -> Int[Tensor, "R N"]:
    return pad(ids, (0, count - ids.size(1)), value=PAD)


Value = TypeVar("Value", RowLimits, Frontier)


def map_tensors(value: Value, function: Callable[[Tensor], Tensor]) -> Value:
    """The same with every tensor changed, also in what it holds."""
    return zip_tensors(value, value, lambda each, _: function(each))


def zip_tensors(one: Value, other: Value, function: Callable[[Tensor, Tensor], Tensor]) -> Value:
    """Two of the same kind, tensor by tensor."""
    new: dict[str, Any] = {}
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if isinstance(first, Tensor):
            new[field.name] = function(first, second)
        elif isinstance(first, RowLimits | Frontier):
            new[field.name] = zip_tensors(first, second, function)
    return replace(one, **new)


def pack(value: Value, out: Tensor | None = None) -> UInt8[Tensor, " N"]:
    """All tensors as one."""
    parts = [each.flatten().view(torch.uint8) for each in _sort_by_element_size(value)]
    return torch.cat(parts, out=out)


def unpack(packed: UInt8[Tensor, " N"], like: Value) -> Value:
    """What had these bytes, of the shapes of another that is like it; it shares their memory."""
    there = _sort_by_element_size(like)
    sizes = [each.numel() * each.element_size() for each in there]
    parts = dict(zip(map(id, there), torch.split(packed, sizes), strict=True))
    return map_tensors(like, lambda each: parts[id(each)].view(each.dtype).view(each.shape))


def _sort_by_element_size(value: Value) -> list[Tensor]:
    """In this order each begins where numbers of its kind may."""
    tensors: dict[int, Tensor] = {}
    map_tensors(value, lambda each: tensors.setdefault(id(each), each))
    return sorted(tensors.values(), key=lambda each: -each.element_size())
