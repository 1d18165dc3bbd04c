"""How good the answers are whose speed is measured: who is fast by saying less should be seen."""

from collections.abc import Sequence

from attendo.metrics.scores import measure, score_of
from attendo.text import Tokenizer


class Scoring:
    """BLEU of answers as `attendo evaluate` computes it: cased, and cut by 13a unless the script asks for another."""

    def __init__(self, references: Sequence[str], tokenizer: Tokenizer) -> None:
        self._measure, self._tokenizer = measure("bleu", references, None), tokenizer

    @property
    def signature(self) -> str:
        return self._measure.signature

    def bleu(self, answers: Sequence[Sequence[int]]) -> float:
        """Of ids in the order of the references."""
        texts = [self._tokenizer.decode(answer) for answer in answers]
        return score_of(self._measure, self._measure.statistics(texts)).value
