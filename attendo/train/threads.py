"""The number of CPU threads that a run trains with: timed before its first step, then kept, as sums depend on it."""

import time
from statistics import fmean

import torch

from attendo.data.batch import Batch, Example, collate, collate_windows
from attendo.data.sequences import Sequences
from attendo.nn.cpu_threads import THROTTLE, OtherLoad, thread_counts
from attendo.train.learner import Learner

_LENGTH = 16  # tokens of a sentence in the trial
_TOKENS = 2048  # of a batch in the trial, at most
_SECONDS = 0.25  # that a pass may take: a longer one is tried with fewer sentences
_PASSES = 4  # with each number of threads
_WORTH = 1.05  # fewer threads must be so many times as fast: on cores that become free, more are faster


def choose_threads(learner: Learner, most: int) -> int:
    """The number of threads, at most `most`, with which a pass forward and backward is fastest here and now.

    Nothing is learned: weights, gradients and random numbers are as before.
    """
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        try:
            load = OtherLoad()
            batch = _make_batch(learner)
            load.measure()
            best, best_seconds = 1, _time_passes(learner, batch, 1, load)
            for count in thread_counts(most)[1:]:
                seconds = _time_passes(learner, batch, count, load)
                if seconds > 2 * best_seconds:
                    break  # more of them only wait for each other longer
                if seconds < _WORTH * best_seconds:
                    best, best_seconds = count, min(seconds, best_seconds)
        finally:
            torch.set_num_threads(before)
            learner.optimizer.zero_grad(set_to_none=True)
    return best


def _time_passes(learner: Learner, batch: Batch, count: int, load: OtherLoad) -> float:
    """Seconds of a pass. Threads that have no core each sleep while they wait, as they will in training."""
    torch.set_num_threads(count)
    THROTTLE.set(count > 1 and not load.leaves(count))
    _pass(learner, batch)
    return fmean(_pass(learner, batch) for _ in range(_PASSES))


def _pass(learner: Learner, batch: Batch) -> float:
    begin = time.perf_counter()
    learner.try_batch(batch)
    return time.perf_counter() - begin


def _make_batch(learner: Learner) -> Batch:
    """Random sentences, as many as a pass of one thread takes in about `_SECONDS`."""
    tokens = min(learner.config.batch_tokens, _TOKENS)
    torch.set_num_threads(1)
    few = _random_batch(learner, max(1, tokens // _LENGTH // 8))
    _pass(learner, few)
    share = _SECONDS / max(1e-9, _pass(learner, few) * 8)
    return _random_batch(learner, max(1, int(tokens // _LENGTH * min(1.0, share))))


def _random_batch(learner: Learner, rows: int) -> Batch:
    config, generator = learner.network.config, torch.Generator().manual_seed(0)
    length = max(1, min(_LENGTH, config.max_length - 1))

    def draw(vocabulary: int | None) -> list[list[int]]:
        return torch.randint(vocabulary or 1, (rows, length), generator=generator).tolist()

    sources, targets = draw(config.source_vocab_size), draw(config.target_vocab_size)
    if config.decoder_only:
        return collate_windows(Sequences.of(targets))
    return collate([Example(*pair) for pair in zip(sources, targets, strict=True)])
