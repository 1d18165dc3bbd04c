"""Exercises of page 9. Replace each `raise`, then run `python check.py 9`."""


def layer_parameters(d_model: int, d_ff: int) -> tuple[int, int]:
    """The parameters of an encoder layer and of a decoder layer, all with biases.

    编码器层和解码器层的参数量，全部带偏置。
    """
    raise NotImplementedError


def shapes(b: int, s: int, t: int, h: int, d_model: int, v: int) -> dict[str, tuple[int, ...]]:
    """The shapes of "memory", "logits", and the maps "encoder", "decoder" and "cross".

    "memory"、"logits" 以及注意力图 "encoder"、"decoder"、"cross" 的形状。
    """
    raise NotImplementedError
