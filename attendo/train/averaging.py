"""The mean of several checkpoints' weights: often better than any of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attendo.errors import ModelError, UsageError
from attendo.store import misfits
from attendo.train.checkpoint import Checkpoints
from attendo.train.snapshot import averaged_weights


def average_checkpoints(
    checkpoints: Checkpoints, steps: Sequence[int], passed_over: list[str] | None = None
) -> dict[str, Tensor]:
    """Weight by weight, summed in double precision. One checkpoint after the other is read, not all at once.

    A damaged one is an error, or, where there is a list for such, is left out and told there.
    """
    total, count = dict[str, Tensor](), 0
    for step in steps:
        try:
            weights = averaged_weights(checkpoints.load(step))
        except ModelError as error:
            if passed_over is None:
                raise
            passed_over.append(str(error))
            continue
        if total and (faults := misfits({name: weight.float() for name, weight in total.items()}, weights)):
            raise UsageError(
                "checkpoints_not_averageable",
                path=checkpoints.path(step),
                first=checkpoints.path(steps[0]),
                reason=faults[0],
            )
        for name, weight in weights.items():
            total[name] = total[name] + weight.double() if name in total else weight.double()
        count += 1
    if not count:
        raise UsageError("no_checkpoint_to_average", folder=checkpoints.folder)
    with torch.no_grad():
        return {name: (weight / count).float() for name, weight in total.items()}
