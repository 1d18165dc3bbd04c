"""The number of CPU threads that a run trains with: timed before its first step, then kept, as sums depend on it."""

import time
from statistics import fmean

import torch

from attendo.data.batch import Batch, Example, RaggedArray, collate, collate_windows
from attendo.nn.cpu_threads import THROTTLE, OtherLoad, thread_counts
from attendo.train.update import Updater

_SENTENCE_TOKENS = 16  # tokens of a sentence in the trial
_MAX_BATCH_TOKENS = 2048  # of a batch in the trial, at most
_MAX_PASS_SECONDS = 0.25  # that a pass may take: a longer one is tried with fewer sentences
_PASSES, _CONTENDED_PASSES = 4, 10  # with each number of threads; beside other processes passes vary in length
# More threads are chosen up to this many times the time of fewer: on idle cores where it is close, for training then
# uses cores that become free; on contended cores where they are clearly faster, for validations need fewer.
_IDLE_MAX_RATIO, _CONTENDED_MAX_RATIO = 1.05, 0.95


def choose_threads(updater: Updater, max_threads: int) -> int:
    """The number of threads, at most `max_threads`, with which a pass forward and backward is fastest here and now.

    Nothing is learned: weights, gradients and random numbers are as before.
    """
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        try:
            load = OtherLoad()  # which measures while the batch is made
            batch = _make_batch(updater)
            best = 1
            for count in thread_counts(max_threads)[1:]:
                fewer, more = _time_passes(updater, batch, (best, count), load)
                if more > 2 * fewer:
                    break  # more of them only wait for each other longer
                if more < (_IDLE_MAX_RATIO if load.has_cores_for(count) else _CONTENDED_MAX_RATIO) * fewer:
                    best = count
        finally:
            torch.set_num_threads(before)
            updater.optimizer.zero_grad(set_to_none=True)
    return best


def _time_passes(updater: Updater, batch: Batch, counts: tuple[int, int], load: OtherLoad) -> tuple[float, float]:
    """Mean seconds of a pass with each number of threads, in turns, so that other processes disturb both alike."""
    taken: tuple[list[float], list[float]] = ([], [])
    load.measure()
    for _ in range(1 + (_PASSES if load.has_cores_for(max(counts)) else _CONTENDED_PASSES)):
        for count, seconds in zip(counts, taken, strict=True):
            torch.set_num_threads(count)
            load.measure()
            THROTTLE.set(
                count > 1 and not load.has_cores_for(count)
            )  # as in training, threads without a core each sleep
            seconds.append(_time_pass(updater, batch))
    fewer, more = (fmean(seconds[1:]) for seconds in taken)  # the first pass of each allocates memory
    return fewer, more


def _time_pass(updater: Updater, batch: Batch) -> float:
    begin = time.perf_counter()
    updater.try_batch(batch)
    return time.perf_counter() - begin


def _make_batch(updater: Updater) -> Batch:
    """Random sentences, as many as a pass of one thread takes in about `_MAX_PASS_SECONDS`."""
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
    if config.decoder_only:
        return collate_windows(RaggedArray.from_lists(targets))
    return collate([Example(*pair) for pair in zip(sources, targets, strict=True)])
