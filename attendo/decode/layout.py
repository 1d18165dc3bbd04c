"""Weights as a CPU reads them fastest when few rows are multiplied by them."""

import copy

import torch
from torch import nn

from attendo.model.transformer import Transformer


@torch.no_grad()
def laid_out(network: Transformer) -> Transformer:
    """A copy whose matrices lie in memory column by column: the same numbers, and products of few rows 1.4 times as
    fast (measured with MKL, 32 rows). It does not follow when the weights of the network change.
    """
    made = copy.deepcopy(network)
    for module in made.modules():
        if isinstance(module, nn.Linear):  # a tied table stays as it is: its rows are looked up one by one
            module.weight = nn.Parameter(module.weight.T.contiguous().T, requires_grad=False)
    return made
