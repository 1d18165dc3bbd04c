"""What to do where a batch of a run does not fit into memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

from attendo.nn.out_of_memory import ran_out
from attendo.train.config import TrainConfig


@contextmanager
def advice_on_memory(train: TrainConfig, folder: Path, processes: int) -> Iterator[None]:
    """Goes along with the error: half as much at a time, twice before each update, is an update of the same size."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if ran_out(error):
            smaller, more = max(1, train.batch_tokens // 2), train.accumulate * 2
            together = "" if processes == 1 else f"with {processes} processes again, "
            error.add_note(
                f"batches of {train.batch_tokens:,} tokens are too much here; what was saved stays, go on with half of "
                f"them: {together}attendo train --resume {quote(str(folder))} --override "
                f"--set train.batch_tokens={smaller} --set train.accumulate={more}"
            )
        raise
