"""Where the pairs of a run come from: two text files, or the built-in task."""

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from attendo.data.parallel import read_pairs
from attendo.errors import DataError
from attendo.recipes.builtin import BuiltinTask
from attendo.recipes.run_config import DataConfig

TextPair = tuple[str, str]

VALID_AT_MOST = 1000
BUILTIN_SAMPLE = 20_000  # enough to have met every word of the built-in task


@dataclass(frozen=True)
class Corpus:
    """Pairs to learn from, without end or again and again, and pairs to check with."""

    sample: Sequence[TextPair]  # what tokenizers are built from
    valid: Sequence[TextPair]
    seed: int
    endless: BuiltinTask | None = None
    empty: int = 0  # pairs left out because one side has no text

    def epochs(self) -> Iterator[Iterable[TextPair]]:
        """The pairs again and again, in another order each time; of the built-in task there is one endless epoch."""
        if self.endless is not None:
            yield ((pair.source, pair.target) for pair in self.endless.train())
        for epoch in count():
            order = list(self.sample)
            random.Random(f"{self.seed} epoch {epoch}").shuffle(order)
            yield order


def read_corpus(config: DataConfig, seed: int) -> Corpus:
    if config.task == "builtin":
        task = BuiltinTask(seed)
        sample = [(pair.source, pair.target) for pair in islice(task.train(), BUILTIN_SAMPLE)]
        return Corpus(sample, [(pair.source, pair.target) for pair in task.heldout(VALID_AT_MOST)], seed, task)
    assert config.source is not None, "DataConfig has seen to it"
    assert config.target is not None
    pairs, empty = _read(config.source, config.target)
    if config.valid_source is not None and config.valid_target is not None:
        valid, empty_valid = _read(config.valid_source, config.valid_target)
        return Corpus(pairs, valid, seed, empty=empty + empty_valid)
    random.Random(f"{seed} validation").shuffle(pairs)
    kept_back = min(len(pairs) // 20, VALID_AT_MOST)
    return Corpus(pairs[kept_back:], pairs[:kept_back], seed, empty=empty)


def _read(source: Path, target: Path) -> tuple[list[TextPair], int]:
    pairs = list(read_pairs(source, target))
    kept = [(left, right) for left, right in pairs if left.strip() and right.strip()]
    if not kept:
        raise DataError(f"{source} and {target} hold no pair with text on both sides")
    return kept, len(pairs) - len(kept)
