"""Numbers about the heads of one run, by layer and head, as the page shows them beside the maps."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attendo.explore.heads_numbers import Rows, summed
from attendo.text import BOS, EOS

Numbers = dict[str, float | None]


def head_numbers(maps: Float[Tensor, "L H T S"], keys: Sequence[int], causal: bool = False) -> list[list[Numbers]]:
    """Means over the rows of each map; `keys` are the ids of the tokens looked at, `causal`: row i sees those up to i.

    What each number is stands in `heads_numbers.summed`. A number that no row has is None.
    """
    special = torch.tensor([[token in (BOS, EOS) for token in keys]])
    shape = Rows([maps.size(-2)], [maps.size(-1)], special, causal)
    told: list[list[Numbers]] = []
    for layer in maps:
        found = summed(layer[None], shape)
        told.append(
            [
                {name: float(values[head]) / count if count else None for name, (values, count) in found.items()}
                for head in range(maps.size(1))
            ]
        )
    return told
