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

NOTHING = float("-inf")  # the log-probability of a row that holds no hypothesis


@dataclass(frozen=True)
class Asked:
    """Of each sentence, or of each row of a frontier."""

    limit: Int[Tensor, " B"]  # most tokens, bos and eos not counted
    least: Int[Tensor, " B"]  # fewest
    prefix: Int[Tensor, "B P"]  # how the answer begins; pad behind it
    number: Int[Tensor, " B"]  # names it: what is drawn at random for it follows from this

    @staticmethod
    def of(limit: Int[Tensor, " B"], least: int = 0, prefix: Sequence[Sequence[int]] | None = None) -> "Asked":
        """Sentences are numbered from 0."""
        prefix = prefix or [()] * limit.size(0)
        longest = max(map(len, prefix), default=0)
        padded = [[*ids, *[PAD] * (longest - len(ids))] for ids in prefix]
        return Asked(
            limit=limit,
            least=torch.full_like(limit, least),
            prefix=torch.tensor(padded, dtype=torch.long, device=limit.device).view(limit.size(0), longest),
            number=torch.arange(limit.size(0), device=limit.device),
        )

    @property
    def capacity(self) -> int:
        """Columns that the longest row may need: bos, its tokens, and eos."""
        return int(self.limit.max()) + 2 if self.limit.numel() else 2

    def repeated(self, width: int) -> "Asked":
        """Each sentence as `width` rows side by side."""
        return changed(self, lambda each: each.repeat_interleave(width, dim=0))


@dataclass(frozen=True)
class Frontier:
    """`width` rows a sentence, side by side. A row is open until its strategy closes it."""

    width: int
    asked: Asked  # of each row
    ids: Int[Tensor, "R C"]  # begins with bos; pad behind the end
    length: Int[Tensor, " R"]  # tokens behind bos, eos included
    log_probability: Float[Tensor, " R"]  # of these tokens, as the model has it
    penalty: Float[Tensor, " R"]  # what rules and strategy added to it when the tokens were chosen
    open: Bool[Tensor, " R"]
    ended: Bool[Tensor, " R"]  # by eos, or with a free end at the limit
    cut: Bool[Tensor, " R"]  # at the limit, where another token than eos would have come next
    coverage: Float[Tensor, " R"]  # sum of log(min(attention to a source position, 1)); 0 where nobody keeps count
    finished: "Frontier | None" = None  # what a beam has put aside: the hypotheses of each sentence, best first
    led: Bool[Tensor, " R"] | None = None  # where a beam asks: when it ended, no other continuation was better

    @staticmethod
    def start(asked: Asked, width: int = 1, capacity: int | None = None) -> "Frontier":
        """Rows before the first token, with room for `capacity` columns or for the longest that is asked for."""
        asked = asked.repeated(width)
        rows, device = asked.limit.size(0), asked.limit.device
        ids = torch.full((rows, capacity or asked.capacity), PAD, device=device)
        ids[:, 0] = BOS
        nowhere, zeros = torch.zeros(rows, dtype=torch.bool, device=device), torch.zeros(rows, device=device)
        return Frontier(
            width, asked, ids, torch.zeros_like(asked.limit), zeros, zeros, ~nowhere, nowhere, nowhere, zeros
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
        return self.open & (self.length >= self.asked.limit)

    @property
    def hypotheses(self) -> "Frontier":
        """What there is to answer: the finished of a beam, otherwise the rows themselves."""
        return self if self.finished is None else self.finished

    def longest(self) -> Int[Tensor, "R T"]:
        """The ids without the columns that hold nothing."""
        return self.ids[:, : int(self.length.max()) + 1]

    def wide(self, columns: int, prefix: int) -> "Frontier":
        """With room for so many tokens, bos and eos included, and for a prefix of so many."""
        if self.ids.size(1) == columns and self.asked.prefix.size(1) == prefix:
            return self
        finished = None if self.finished is None else self.finished.wide(columns, prefix)
        asked = replace(self.asked, prefix=_columns(self.asked.prefix, prefix))
        return replace(self, ids=_columns(self.ids, columns), asked=asked, finished=finished)

    def select(self, rows: Int[Tensor, " N"], width: int = 1) -> "Frontier":
        """These rows, as `width` a sentence."""
        return replace(changed(replace(self, finished=None), lambda each: each.index_select(0, rows)), width=width)

    def keep(self, sentences: Int[Tensor, " N"]) -> "Frontier":
        """These sentences alone."""
        finished = None if self.finished is None else self.finished.keep(sentences)
        return replace(self.select(self.rows_of(sentences), self.width), finished=finished)

    def put(self, sentences: Int[Tensor, " N"], new: "Frontier") -> "Frontier":
        """The same with new rows for these sentences."""
        rows = self.rows_of(sentences)
        finished = None
        if self.finished is not None and new.finished is not None:
            finished = self.finished.put(sentences, new.finished)
        changes = combined(
            replace(self, finished=None), replace(new, finished=None), lambda one, other: one.index_copy(0, rows, other)
        )
        return replace(changes, finished=finished)

    def where(self, rows: Bool[Tensor, " R"], other: "Frontier") -> "Frontier":
        """These rows, and the rest from the other."""
        return combined(
            replace(self, finished=None),
            replace(other, finished=None),
            lambda one, another: torch.where(rows.view(-1, *[1] * (one.dim() - 1)), one, another),
        )

    def cpu(self) -> "Frontier":
        """In one journey: every one of them makes the host wait."""
        return self if self.ids.device.type == "cpu" else from_bytes(as_bytes(self).cpu(), self)

    def rows_of(self, sentences: Int[Tensor, " N"]) -> Int[Tensor, " R"]:
        return (sentences[:, None] * self.width + torch.arange(self.width, device=sentences.device)).flatten()

    def grow(
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
        cannot = self.open & ((self.full & ~ends) | (log_probability + penalty == NOTHING))
        grows = self.open & ~cannot
        return replace(
            self,
            ids=self.written(ids, grows),
            length=self.length + grows,
            log_probability=torch.where(grows, self.log_probability + log_probability, self.log_probability),
            penalty=torch.where(grows, self.penalty + penalty, self.penalty),
            open=grows & ~ends,
            ended=self.ended | (grows & ends),
            cut=self.cut | cannot | (grows & ends & ~is_eos),
        )

    def written(self, ids: Int[Tensor, " R"], where: Bool[Tensor, " R"]) -> Int[Tensor, "R C"]:
        """`ids` behind the last token of each row, there where it is asked for."""
        place = (self.length[:, None] + 1).clamp(max=self.ids.size(1) - 1)
        return self.ids.scatter(1, place, torch.where(where[:, None], ids[:, None], self.ids.gather(1, place)))


def difference(value: Float[Tensor, "*S"], log_probability: Float[Tensor, "*S"]) -> Float[Tensor, "*S"]:
    """What was added to log-probabilities; 0 where nothing is."""
    return torch.where(value == NOTHING, 0.0, value - log_probability)


def _columns(ids: Int[Tensor, "R C"], count: int) -> Int[Tensor, "R N"]:
    return pad(ids, (0, count - ids.size(1)), value=PAD)


Value = TypeVar("Value", Asked, Frontier)


def changed(value: Value, change: Callable[[Tensor], Tensor]) -> Value:
    """The same with every tensor changed, also in what it holds."""
    return combined(value, value, lambda each, _: change(each))


def combined(one: Value, other: Value, combine: Callable[[Tensor, Tensor], Tensor]) -> Value:
    """Two of the same kind, tensor by tensor."""
    new: dict[str, Any] = {}
    for field in fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        if isinstance(first, Tensor):
            new[field.name] = combine(first, second)
        elif isinstance(first, Asked | Frontier):
            new[field.name] = combined(first, second, combine)
    return replace(one, **new)


def as_bytes(value: Value, out: Tensor | None = None) -> UInt8[Tensor, " N"]:
    """All tensors as one."""
    parts = [each.flatten().view(torch.uint8) for each in _wide_first(value)]
    return torch.cat(parts, out=out)


def from_bytes(all_of_them: UInt8[Tensor, " N"], like: Value) -> Value:
    """What had these bytes, of the shapes of another that is like it; it shares their memory."""
    there = _wide_first(like)
    sizes = [each.numel() * each.element_size() for each in there]
    parts = dict(zip(map(id, there), torch.split(all_of_them, sizes), strict=True))
    return changed(like, lambda each: parts[id(each)].view(each.dtype).view(each.shape))


def _wide_first(value: Value) -> list[Tensor]:
    """In this order each begins where numbers of its kind may."""
    tensors: dict[int, Tensor] = {}
    changed(value, lambda each: tensors.setdefault(id(each), each))
    return sorted(tensors.values(), key=lambda each: -each.element_size())
