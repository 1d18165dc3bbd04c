"""Chance without state on any device: numbers that follow from a key alone, so that a sample does not depend on the
batch it is drawn in, nor on the engine.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood 2014), in numbers that wrap around at 64 bits.
_STEP, _FIRST, _SECOND = (each - 2**64 for each in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def gumbel(keys: Int[Tensor, " R"], count: int) -> Float[Tensor, "R V"]:
    """`count` draws of -ln(-ln u) for each key: the largest of logits + draws is a sample of their softmax."""
    each = mixed(mixed(keys)[:, None] + torch.arange(count, device=keys.device))
    uniform = (_shifted(each, 40).float() + 0.5) * 2.0**-24
    return -torch.log(-torch.log(uniform))


def mixed(number: Int[Tensor, "*S"]) -> Int[Tensor, "*S"]:
    """Every bit of the result depends on every bit of the number."""
    number = number + _STEP
    number = (number ^ _shifted(number, 30)) * _FIRST
    number = (number ^ _shifted(number, 27)) * _SECOND
    return number ^ _shifted(number, 31)


def _shifted(number: Int[Tensor, "*S"], bits: int) -> Int[Tensor, "*S"]:
    """To the right, zeros coming in."""
    return (number >> bits) & ((1 << (64 - bits)) - 1)
