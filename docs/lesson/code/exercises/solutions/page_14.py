"""Solutions of page 14."""

import torch
from torch import Tensor


def prefix_mask(length: int, prefix: int) -> Tensor:
    """[length, length]: True where something is hidden. The first `prefix` positions see each other."""
    hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
    hidden[:prefix, :prefix] = False
    return hidden


def prompt_and_labels(prompt: list[int], answer: list[int]) -> tuple[list[int], list[int]]:
    """The input and the labels of prompt and answer in one row, shifted. Labels inside the prompt are -100."""
    row = prompt + answer
    return row[:-1], [-100] * (len(prompt) - 1) + answer
