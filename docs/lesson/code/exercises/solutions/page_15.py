"""Solutions of page 15."""

from torch import Tensor


def rank(scores: list[list[float]]) -> list[int]:
    """The log-probabilities of the tokens of each sentence give the numbers of the sentences, best first."""
    means = [sum(each) / len(each) for each in scores]
    return sorted(range(len(scores)), key=lambda n: -means[n])


def sentence_vector(memory: Tensor, ids: Tensor) -> Tensor:
    """[B, S, d] and ids [B, S] with padding 0 give one vector for each sentence, [B, d]."""
    counted = (ids != 0)[..., None]
    return (memory * counted).sum(1) / counted.sum(1)
