"""Engine for ONNX models: a batch is split over threads; a NumPy fast path for greedy decoding.

A step that ends no row and that no rule affects only appends a token and its log-probability to each row. On tensors
this small, starting a torch operation takes longer than running it, and a decode step has dozens of them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from operator import attrgetter
from threading import Event
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.requests import (
    DecodeRequest,
    FinishedBatch,
    encode_and_start,
    length_batches,
    limit_tensors,
    pad_sources,
)
from attendo.decode.search import Rule, SearchState, Stepper, Strategy, apply_rules, decode_step, search
from attendo.decode.step_hook import run_step_hook, step_hook
from attendo.decode.strategies import Greedy
from attendo.interop.onnx.session import OnnxInPlaceStepper, OnnxNetwork
from attendo.text import EOS, PAD

T = TypeVar("T")
_SIGNAL_SECONDS = 0.1  # maximum delay until an interrupt is noticed
_UPDATED_FIELDS = ("ids", "length", "log_probability")


class OnnxEngine:
    """Decodes a batch with one thread per share of the sentences.

    A step is dozens of small matrix products. Threads that share each product wait for each other; threads with
    separate sentences do not. All threads share the products for a single sentence, and for the last share that is
    still running: outputs differ in length, and other processes can slow down a core.
    """

    def __init__(self, network: OnnxNetwork, batch_tokens: int) -> None:
        self._network, self._batch_tokens = network, batch_tokens

    def generate(
        self, requests: Sequence[DecodeRequest], strategy: Strategy, rules: Sequence[Rule]
    ) -> Iterator[FinishedBatch]:
        """Yield finished requests, batch by batch."""
        for group in length_batches(requests, attrgetter("num_positions"), self._batch_tokens // strategy.width):
            threads = min(self._network.threads, len(group))
            shares = [group[first::threads] for first in range(threads)]  # spreads long sentences evenly
            found = self._search_shares(shares, strategy, rules)
            yield from (FinishedBatch(share, each) for share, each in zip(shares, found, strict=True))

    def _search_shares(
        self, shares: list[list[DecodeRequest]], strategy: Strategy, rules: Sequence[Rule]
    ) -> list[Frontier]:
        network, finished = self._network, list[int]()
        if len(shares) > 1:
            network = network.single_threaded_until(lambda: len(finished) == len(shares) - 1)

        def search_share(requests: list[DecodeRequest]) -> Frontier:
            state = encode_and_start(network, *pad_sources(requests, network.device))
            frontier = run_search(network, state, limit_tensors(requests, network.device), strategy, rules)
            finished.append(len(requests))
            return frontier

        return run_in_threads([partial(search_share, share) for share in shares])


class _CancelledByFailure(Exception):  # noqa: N818  (not an error)
    """Raised to stop a thread after another thread has failed."""


def run_in_threads(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run the calls in parallel and return their results in order. The first runs in this thread, with its step hook.

    An exception in one call is raised here after all others have stopped, which they do before their next step.
    """
    first, *others = calls
    with _single_torch_thread():
        return _run_with_pool(first, others) if others else [first()]


def _run_with_pool(first: Callable[[], T], others: Sequence[Callable[[], T]]) -> list[T]:
    failed, context = Event(), copy_context()

    def stop_if_failed() -> None:
        if failed.is_set():
            raise _CancelledByFailure

    def check_step() -> None:
        context.run(run_step_hook)
        stop_if_failed()

    def compute(call: Callable[[], T], hook: Callable[[], None]) -> T:
        try:
            with step_hook(hook):
                return call()
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(len(others)) as pool:
        futures = [pool.submit(compute, call, stop_if_failed) for call in others]
        try:
            own = compute(first, check_step)
            # Use a timeout: a signal that arrives just before an unlimited wait is handled only after it.
            while wait(futures, _SIGNAL_SECONDS).not_done:
                pass
            return [own, *(each.result() for each in futures)]
        except _CancelledByFailure:
            errors = [each.exception() for each in futures]
            raise next(each for each in errors if each and not isinstance(each, _CancelledByFailure)) from None
        except BaseException:  # such as an interrupt during the wait
            failed.set()
            raise


@contextmanager
def _single_torch_thread() -> Iterator[None]:
    """Limit torch to one thread per caller, including threads started within the context.

    torch only chooses the tokens. Sharing such small work among threads is slower, even for one sentence.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def run_search(
    stepper: Stepper, state: SearchState, limits: RowLimits | Frontier, strategy: Strategy, rules: Sequence[Rule] = ()
) -> Frontier:
    """Run a search to its end and return the hypotheses."""
    return deque(search(stepper, state, limits, strategy, rules, greedy_fast_path), maxlen=1).pop().hypotheses


@torch.no_grad()
def greedy_fast_path(
    stepper: Stepper, state: Any, frontier: Frontier, strategy: Strategy, rules: Sequence[Rule]
) -> tuple[Any, Frontier]:
    """Run decode steps until a row may end or a rule may apply; a single full step if the fast path does not apply."""
    special, begin = _stopping_tokens(frontier, strategy, rules), getattr(stepper, "in_place_stepper", None)
    if special is None or begin is None:
        return decode_step(stepper, state, frontier, strategy, rules)
    steps: OnnxInPlaceStepper = begin(state)
    active = slice(None) if frontier.open.all() else frontier.open.numpy().nonzero()[0]
    rows = np.arange(frontier.length.size(0))[:, None]
    max_steps = int((frontier.limits.max_length - frontier.length)[frontier.open].min())
    steps_taken: list[tuple[NDArray[np.int64], NDArray[np.float32]]] = []
    log_probs = steps.step(frontier.last.numpy())
    best = log_probs.argmax(-1, keepdims=True)
    while len(steps_taken) < max_steps and special.isdisjoint(best[active, 0].tolist()):
        steps_taken.append((best, log_probs[rows, best]))
        run_step_hook()
        log_probs = steps.step(best)
        best = log_probs.argmax(-1, keepdims=True)
    frontier, scores = _append_tokens(frontier, steps_taken), torch.from_numpy(log_probs)
    return steps.state, strategy.advance(frontier, *apply_rules(scores, frontier, strategy, rules, scores))[1]


def _stopping_tokens(frontier: Frontier, strategy: Strategy, rules: Sequence[Rule]) -> Set[int] | None:
    """Return the tokens that end a row or that a rule may mask; None if any token may be one."""
    if type(strategy) is not Greedy or _is_inside_prefix(frontier):
        return None
    tokens = {EOS}
    for rule in rules:
        if (own := rule.maskable_ids) is None:
            return None
        tokens.update(own)
    return tokens


def _is_inside_prefix(frontier: Frontier) -> bool:
    prefix = frontier.limits.prefix
    return prefix.size(1) > 0 and bool(((prefix != PAD).sum(dim=1) > frontier.length).any())


def _append_tokens(frontier: Frontier, grown: Sequence[tuple[NDArray[np.int64], NDArray[np.float32]]]) -> Frontier:
    """Return the frontier with the tokens [R, 1] and their log-probabilities added to the open rows."""
    frontier = replace(frontier, **{name: getattr(frontier, name).clone() for name in _UPDATED_FIELDS})
    ids, length, log_probability = (getattr(frontier, name).numpy() for name in _UPDATED_FIELDS)
    rows = frontier.open.numpy().nonzero()[0]
    for tokens, log_probs in grown:
        length[rows] += 1
        ids[rows, length[rows]] = tokens[rows, 0]
        log_probability[rows] += log_probs[rows, 0]
    return frontier
