"""What a model answers: texts with their scores taken apart, and one run seen from inside."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Score:
    """How a score came about: value = (log_probability + penalty) / divisor + reward."""

    log_probability: float  # of all tokens together, eos included unless the answer was cut
    penalty: float = 0.0  # what rules and penalties added
    tokens: int = 0  # the length that counts
    divisor: float = 1.0  # what normalises for it
    reward: float = 0.0  # for it

    @property
    def value(self) -> float:
        return (self.log_probability + self.penalty) / self.divisor + self.reward


@dataclass(frozen=True)
class Hypothesis:
    """One way to answer. `ids` are without bos, eos and pad; `cut`: the length limit came before the end."""

    text: str
    ids: tuple[int, ...]
    pieces: tuple[str, ...]
    parts: Score
    cut: bool

    @property
    def score(self) -> float:
        """What ranks, greedy or not."""
        return self.parts.value

    @property
    def log_probability(self) -> float:
        return self.parts.log_probability


@dataclass(frozen=True)
class Result:
    """The answer to one text: the best hypothesis, and all that were kept, best first."""

    hypotheses: tuple[Hypothesis, ...]
    unknown: tuple[str, ...] = ()  # parts of the source that the vocabulary does not have

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]

    @property
    def text(self) -> str:
        return self.best.text

    @property
    def score(self) -> float:
        return self.best.score

    @property
    def log_probability(self) -> float:
        return self.best.log_probability

    @property
    def ids(self) -> tuple[int, ...]:
        return self.best.ids

    @property
    def pieces(self) -> tuple[str, ...]:
        return self.best.pieces

    @property
    def cut(self) -> bool:
        return self.best.cut


EMPTY = Result((Hypothesis("", (), (), Score(0.0), False),))


@dataclass(frozen=True)
class Trace:
    """One run seen from inside. Row t of `decoder` and `cross` is the look that predicted `target_pieces[t]`."""

    source_pieces: tuple[str, ...]  # eos included
    target_pieces: tuple[str, ...]  # the tokens predicted, eos included unless the answer was cut
    encoder: Float[Tensor, "E H S S"]
    decoder: Float[Tensor, "L H T T"]
    cross: Float[Tensor, "L H T S"]
