"""What to do where a batch of a run does not fit into memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attendo.nn.out_of_memory import ran_out
from attendo.train.checkpoint import Checkpoints
from attendo.train.config import TrainConfig


@contextmanager
def advice_on_memory(train: TrainConfig, folder: Path, checkpoints: Checkpoints) -> Iterator[None]:
    """Goes along with the error: half as much at a time, twice before each update, is the same update."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if ran_out(error):
            saved = checkpoints.steps()
            kept = f"the checkpoint of step {saved[-1]:,} stays" if saved else "nothing was saved yet"
            error.add_note(
                f"a batch of {train.batch_tokens:,} tokens is too much here, and {kept}: attendo train --resume "
                f"{folder} --override --set train.batch_tokens={max(1, train.batch_tokens // 2)} "
                f"--set train.accumulate={train.accumulate * 2}"
            )
        raise
