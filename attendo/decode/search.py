"""The generation loop: step the network, apply the rules, let a strategy choose, until all sentences are done."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.ranking import Ranking
from attendo.nn.cpu_threads import adapt_threads

CLOSED_SHARE = 0.25  # of the sentences; fewer closed ones do not justify a copy of the state
_STEP_HOOK: ContextVar[Callable[[], None] | None] = ContextVar("step_hook", default=None)


@runtime_checkable
class SearchState(Protocol):
    """The state of a stepper after the steps so far."""

    def reorder(self, parents: Int[Tensor, " R"]) -> Self:
        """Continue each row from its parent, a row of the same sentence."""

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> Self:
        """Keep only these sentences and rows."""


class ScoringState:
    """Base class of states that have more for the scores than their stepper's logits."""

    log_probs: Float[Tensor, "R V"] | None = None  # of the next tokens, if the stepper computes them

    def update_frontier(self, frontier: Frontier) -> Frontier:
        """Return the frontier with the scores of the step."""
        return frontier


@runtime_checkable
class Stepper(Protocol):
    """The model interface of the loop, also for ensembles and test doubles such as a bigram table."""

    def step(self, ids: Int[Tensor, "R 1"], state: Any) -> tuple[Float[Tensor, "R 1 V"], Any]: ...


@runtime_checkable
class Seq2SeqNetwork(Stepper, Protocol):
    """A stepper that encodes sources: a Transformer, an ensemble or a graph."""

    @property
    def device(self) -> torch.device: ...

    @property
    def continues_text(self) -> bool:
        """Whether it has no sources."""

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Any: ...

    def start(self, memory: Any) -> Any: ...


@runtime_checkable
class StaticNetwork(Seq2SeqNetwork, Protocol):
    """A network with states of fixed size, as CUDA graphs need them."""

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> Any:
        """Return a state of fixed size, `width` rows per sentence, that supports `reorder`, `insert` and `write`."""


class Rule(ABC):
    """A logits processor: forbids tokens (-∞) or changes their scores. It writes in place."""

    only_masks = False  # whether it changes numbers only to -∞

    @property
    def applies_to_logits(self) -> bool:
        """Whether it reads logits instead of log-probabilities. Such a rule must be the first."""
        return False

    @property
    def maskable_ids(self) -> Sequence[int] | None:
        """The only tokens that it may change between the prefix and the limit of an answer. None: any."""
        return None

    @abstractmethod
    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier, /) -> Float[Tensor, "R V"]: ...


class Strategy(ABC):
    """A decoding strategy. It sets the number of rows per sentence and closes rows."""

    supports_prefill = False  # whether the tokens of a prefix may be read in one pass
    needs_raw_log_probs = False  # whether `log_probs` must stay those of the model although rules write in place

    width: int  # rows per sentence
    free_end: bool = False  # whether any token may be the last at the limit: see `Frontier.append`
    ranking: Ranking | None = None  # scores hypotheses; None if every row is one

    @abstractmethod
    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        """Return the rows before the first token, `width` for each sentence."""

    @abstractmethod
    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        """Return the parent of each new row (None: the row itself), and the rows with one more token.

        `log_probs` are the model's, `ruled` are those after the rules.
        """


StateT = TypeVar("StateT", bound=Any)


@torch.no_grad()
def decode_step(
    stepper: Stepper, state: StateT, frontier: Frontier, strategy: Strategy, rules: Sequence[Rule]
) -> tuple[StateT, Frontier]:
    """Decode one more token in every open row. All engines use this function. Shapes do not change."""
    logits, state = stepper.step(frontier.last, state)
    log_probs = None
    if isinstance(state, ScoringState):
        log_probs, frontier = state.log_probs, state.update_frontier(frontier)
    log_probs, ruled = apply_rules(logits[:, -1], frontier, strategy, rules, log_probs)
    parents, frontier = strategy.advance(frontier, log_probs, ruled)
    return state if parents is None else state.reorder(parents), frontier


def apply_rules(
    logits: Float[Tensor, "R V"],
    frontier: Frontier,
    strategy: Strategy,
    rules: Sequence[Rule],
    log_probs: Float[Tensor, "R V"] | None = None,
) -> tuple[Float[Tensor, "R V"], Float[Tensor, "R V"]]:
    """Return the model's log-probabilities and those after the rules. Some steppers precompute `log_probs`."""
    logits = logits.float()
    log_probs = logits.log_softmax(-1) if log_probs is None else log_probs
    ruled = log_probs if _rules_only_mask(strategy, rules) else log_probs.clone()
    for rule in rules:
        # Rules for logits come first. Their result is converted to log-probabilities.
        ruled = rule(logits, frontier).log_softmax(-1) if rule.applies_to_logits else rule(ruled, frontier)
    return log_probs, ruled


def _rules_only_mask(strategy: Strategy, rules: Sequence[Rule]) -> bool:
    """Return True if no rule changes scores, so the [R, V] copy can be skipped.

    On a CPU the copy takes a large part of a step.
    """
    return not strategy.needs_raw_log_probs and all(rule.only_masks for rule in rules)


def search(
    stepper: Stepper,
    state: SearchState,
    limits: RowLimits | Frontier,
    strategy: Strategy,
    rules: Sequence[Rule] = (),
    step_function: Callable[..., tuple[Any, Frontier]] = decode_step,
) -> Iterator[Frontier]:
    """Yield the frontier of all sentences after every token. The last one has the answers.

    `state` has one memory per sentence. Closed sentences stay in the yielded frontier but are removed from the batch. A
    frontier instead of limits must be at the same position as the state.
    """
    frontier = complete = strategy.start(limits) if isinstance(limits, RowLimits) else limits
    sentences = frontier.length.size(0) // strategy.width
    here = torch.arange(sentences, device=frontier.length.device)  # sentences in the batch
    while int((still_open := frontier.open.view(-1, strategy.width).any(dim=1)).sum()) > 0:
        if still_open.sum() <= (1 - CLOSED_SHARE) * here.size(0):
            staying = still_open.nonzero()[:, 0]
            with torch.no_grad():
                state = state.select(staying, frontier.row_indices(staying))
                frontier = frontier.select_sentences(staying)
            here = here[staying]
        run_step_hook()
        state, frontier = step_function(stepper, state, frontier, strategy, rules)
        complete = frontier if here.size(0) == sentences else complete.replace_sentences(here, frontier)
        yield complete


@contextmanager
def step_hook(hook: Callable[[], None]) -> Iterator[None]:
    """Run `hook` before every decoding step of this thread."""
    before = _STEP_HOOK.set(hook)
    try:
        yield
    finally:
        _STEP_HOOK.reset(before)


def run_step_hook() -> None:
    """Run the hook and adapt the CPU threads. Every decoding loop calls this before each step."""
    adapt_threads()
    if (hook := _STEP_HOOK.get()) is not None:
        hook()
