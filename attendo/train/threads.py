"""Chooses the number of CPU threads for training: measured before the first step, then fixed, as sums depend on it."""

import time
from statistics import fmean

import torch

from attendo.data.batch import Batch, Example, RaggedArray, collate, collate_windows
from attendo.nn.cpu_threads import THROTTLE, OtherLoad, thread_counts
from attendo.train.update import Updater

_SENTENCE_TOKENS = 16  # tokens per sentence in the trial
_MAX_BATCH_TOKENS = 2048  # maximum tokens per batch in the trial
_MAX_PASS_SECONDS = 0.25  # maximum time of a pass; a slower one is tried with fewer sentences
_PASSES, _CONTENDED_PASSES = 4, 10  # per thread count; pass times vary more while other processes run
# More threads are chosen if their time is below this ratio to the time of fewer threads. On idle cores a near tie is
# enough, because training then uses cores that become free. On contended cores they must be clearly faster, because
# validation needs fewer threads.
_IDLE_MAX_RATIO, _CONTENDED_MAX_RATIO = 1.05, 0.95


def choose_threads(updater: Updater, max_threads: int) -> int:
    """Return the thread count, at most `max_threads`, with the fastest training pass under the current load.

    Weights, gradients and random state do not change.
    """
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        try:
            load = OtherLoad()  # measures while the batch is made
            batch = _make_batch(updater)
            best = 1
            for count in thread_counts(max_threads)[1:]:
                fewer, more = _time_passes(updater, batch, (best, count), load)
                if more > 2 * fewer:
                    break  # more threads only wait for each other
                if more < (_IDLE_MAX_RATIO if load.has_cores_for(count) else _CONTENDED_MAX_RATIO) * fewer:
                    best = count
        finally:
            torch.set_num_threads(before)
            updater.optimizer.zero_grad(set_to_none=True)
    return best


def _time_passes(updater: Updater, batch: Batch, counts: tuple[int, int], load: OtherLoad) -> tuple[float, float]:
    """Return mean seconds per pass for two thread counts. Passes alternate, so that other load affects both equally."""
    timings: tuple[list[float], list[float]] = ([], [])
    load.measure()
    for _ in range(1 + (_PASSES if load.has_cores_for(max(counts)) else _CONTENDED_PASSES)):
        for count, seconds in zip(counts, timings, strict=True):
            torch.set_num_threads(count)
            load.measure()
            THROTTLE.set(
                count > 1 and not load.has_cores_for(count)
            )  # as in training, threads without a free core sleep
            seconds.append(_time_pass(updater, batch))
    fewer, more = (fmean(seconds[1:]) for seconds in timings)  # the first pass of each allocates memory
    return fewer, more


def _time_pass(updater: Updater, batch: Batch) -> float:
    begin = time.perf_counter()
    updater.try_batch(batch)
    return time.perf_counter() - begin


def _make_batch(updater: Updater) -> Batch:
    """Return random sentences, sized so that one thread takes about `_MAX_PASS_SECONDS` per pass."""
    tokens = min(updater.config.batch_tokens, _MAX_BATCH_TOKENS)
    torch.set_num_threads(1)
    few = _random_batch(updater, max(1, tokens // _SENTENCE_TOKENS // 8))
    _time_pass(updater, few)
    share = _MAX_PASS_SECONDS / max(1e-9, _time_pass(updater, few) * 8)
    return _random_batch(updater, max(1, int(tokens // _SENTENCE_TOKENS * min(1.0, share))))


def _random_batch(updater: Updater, rows: int) -> Batch:
    config, generator = updater.network.config, torch.Generator().manual_seed(0)
    length = max(1, min(_SENTENCE_TOKENS, config.max_length - 1))

    def draw(vocabulary: int | None) -> list[list[int]]:
        return torch.randint(vocabulary or 1, (rows, length), generator=generator).tolist()

    sources, targets = draw(config.source_vocab_size), draw(config.target_vocab_size)
    if config.continues_text:
        return collate_windows(RaggedArray.from_lists(targets))
    return collate([Example(*pair) for pair in zip(sources, targets, strict=True)])
