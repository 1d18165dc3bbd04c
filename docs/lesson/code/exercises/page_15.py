"""Exercises of page 15. Replace each `raise`, then run `python check.py 15`."""

from torch import Tensor


def rank(scores: list[list[float]]) -> list[int]:
    """The log-probabilities of the tokens of each sentence give the numbers of the sentences, best first.

    由每个句子各词元的对数概率，得到句子的编号，最好的在前。
    """
    raise NotImplementedError


def sentence_vector(memory: Tensor, ids: Tensor) -> Tensor:
    """[B, S, d] and ids [B, S] with padding 0 give one vector for each sentence, [B, d].

    由 [B, S, d] 和填充为 0 的编号 [B, S] 得到每个句子一个向量 [B, d]。
    """
    raise NotImplementedError
