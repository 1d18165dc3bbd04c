"""What every system is given to do, and what each must be able to do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch

Precision = Literal["fp32", "fp16", "bf16", "int8"]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Work:
    """Sources to answer, so many side by side. With `least` equal to `most` every answer is that long.

    Ids are without control tokens. eos is forbidden before `least` tokens are there, and is one of the `most`; the last
    of these may be any token.

    A beam means the same for all, so that none has less to do than another: a step looks at the 2·beam best
    continuations, a sentence is done as soon as `beam` hypotheses have ended, and of these the one with the highest
    mean log-probability, eos counted, is the answer.

        attendo         Beam(beam, stop="first", free_end=True), whose ranking is the average
        CTranslate2     length_penalty 1 and patience 1
        transformers    length_penalty 1 and early_stopping True
    """

    sources: Sequence[Sequence[int]]
    beam: int
    batch: int
    least: int
    most: int

    @property
    def forced(self) -> bool:
        return self.least == self.most

    @property
    def longest(self) -> int:
        """Positions that a system needs, on either side."""
        return max(max(map(len, self.sources)), self.most) + 1

    def batches(self) -> list[list[int]]:
        """Numbers of the sources, those of like length together: for systems that do not sort by themselves."""
        order = sorted(range(len(self.sources)), key=lambda n: -len(self.sources[n]))
        return [order[first : first + self.batch] for first in range(0, len(order), self.batch)]


@runtime_checkable
class System(Protocol):
    """Something that decodes. Only the call that `prepare` returns is timed."""

    @property
    def name(self) -> str: ...

    def prepare(self, work: Work) -> Callable[[], Any]:
        """All that is done once, before the clock runs. The call must not return before the answers are there."""

    def ids(self, said: Any) -> list[list[int]]:
        """What such a call returned, as ids without control tokens, in the order of the sources."""
