"""The one generation loop: step the network, forbid what may not be said, let a strategy choose, until all is said."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attendo.decode.coverage import CoverageState
from attendo.decode.frontier import Frontier, RowLimits
from attendo.decode.step_hook import run_step_hook

CLOSED_SHARE = 0.25  # of the sentences: so many closed ones leave the batch. Fewer are not worth the copy of the state.


@runtime_checkable
class SearchState(Protocol):
    """What a stepper knows of the steps before."""

    def reorder(self, parents: Int[Tensor, " R"]) -> Self:
        """Each row goes on from another one of its sentence."""

    def select(self, sentences: Int[Tensor, " N"], rows: Int[Tensor, " R"]) -> Self:
        """These sentences alone, with these rows of theirs."""


@runtime_checkable
class Stepper(Protocol):
    """All that the loop asks of a model, so that an ensemble, or a table of bigrams in a test, can stand in."""

    def step(self, ids: Int[Tensor, "R 1"], state: Any) -> tuple[Float[Tensor, "R 1 V"], Any]: ...


@runtime_checkable
class Seq2SeqNetwork(Stepper, Protocol):
    """What also reads sources, and keeps what it knows in place: a Transformer, or an ensemble of some."""

    @property
    def device(self) -> torch.device: ...

    def encode(self, source_ids: Int[Tensor, "B S"], source_mask: Bool[Tensor, "B S"] | None = None) -> Any: ...

    def start(self, memory: Any) -> Any: ...

    def allocate_state(self, sentences: int, source_width: int, width: int, capacity: int) -> Any:
        """A state of fixed size, `width` rows a sentence, that besides `reorder` can `insert` and `write`."""


@runtime_checkable
class Rule(Protocol):
    """Something that may not be said (-∞), or counts for less or more."""

    def __call__(self, log_probs: Float[Tensor, "R V"], frontier: Frontier, /) -> Float[Tensor, "R V"]: ...


@runtime_checkable
class Strategy(Protocol):
    """A way to choose. It decides how many rows a sentence has, and when they are closed."""

    @property
    def width(self) -> int:
        """Rows of a sentence."""

    def start(self, limits: RowLimits, capacity: int | None = None) -> Frontier:
        """The rows before the first token, `width` for each sentence."""

    def advance(
        self, frontier: Frontier, log_probs: Float[Tensor, "R V"], ruled: Float[Tensor, "R V"]
    ) -> tuple[Int[Tensor, " R"] | None, Frontier]:
        """The row that each new row continues (None: every row itself), and the rows with one more token.

        `log_probs` are the model's, `ruled` what the rules made of them.
        """


StateT = TypeVar("StateT", bound=Any)


@torch.no_grad()
def decode_step(
    stepper: Stepper, state: StateT, frontier: Frontier, strategy: Strategy, rules: Sequence[Rule]
) -> tuple[StateT, Frontier]:
    """One more token in every open row: the same for every engine. Shapes in are shapes out."""
    logits, state = stepper.step(frontier.last, state)
    if isinstance(state, CoverageState):
        frontier = state.update_frontier(frontier)
    log_probs, ruled = apply_rules(logits[:, -1], frontier, strategy, rules, getattr(state, "log_probs", None))
    parents, frontier = strategy.advance(frontier, log_probs, ruled)
    return state if parents is None else state.reorder(parents), frontier


def apply_rules(
    logits: Float[Tensor, "R V"],
    frontier: Frontier,
    strategy: Strategy,
    rules: Sequence[Rule],
    log_probs: Float[Tensor, "R V"] | None = None,
) -> tuple[Float[Tensor, "R V"], Float[Tensor, "R V"]]:
    """The log-probabilities of the model, which some steppers leave in their state, and what the rules make of them."""
    logits = logits.float()
    log_probs = logits.log_softmax(-1) if log_probs is None else log_probs
    ruled = log_probs if _rules_only_mask(strategy, rules) else log_probs.clone()
    for rule in rules:
        # A rule of logits comes first; what it leaves are log-probabilities again.
        on_logits = getattr(rule, "applies_to_logits", False)
        ruled = rule(logits, frontier).log_softmax(-1) if on_logits else rule(ruled, frontier)
    return log_probs, ruled


def _rules_only_mask(strategy: Strategy, rules: Sequence[Rule]) -> bool:
    """Whether what is chosen has the log-probability that the model gave it, so that nobody needs both numbers.

    To copy as many as there are tokens and rows takes a good part of a step on a CPU.
    """
    if getattr(strategy, "needs_raw_log_probs", False):
        return False
    return all(getattr(rule, "only_masks", False) for rule in rules)


def search(
    stepper: Stepper,
    state: SearchState,
    limits: RowLimits | Frontier,
    strategy: Strategy,
    rules: Sequence[Rule] = (),
    step_function: Callable[..., tuple[Any, Frontier]] = decode_step,
) -> Iterator[Frontier]:
    """Yields the frontier of all sentences after every token; the last one holds the answers.

    `state` has one memory a sentence. Closed sentences stay in what is told but leave the batch that is stepped. A
    frontier in place of what is asked is one that has come as far as the state.
    """
    frontier = told = strategy.start(limits) if isinstance(limits, RowLimits) else limits
    sentences = frontier.length.size(0) // strategy.width
    here = torch.arange(sentences, device=frontier.length.device)  # those that are stepped
    while int((still_open := frontier.open.view(-1, strategy.width).any(dim=1)).sum()) > 0:
        if still_open.sum() <= (1 - CLOSED_SHARE) * here.size(0):
            staying = still_open.nonzero()[:, 0]
            with torch.no_grad():
                state, frontier = (
                    state.select(staying, frontier.row_indices(staying)),
                    frontier.select_sentences(staying),
                )
            here = here[staying]
        run_step_hook()
        state, frontier = step_function(stepper, state, frontier, strategy, rules)
        told = frontier if here.size(0) == sentences else told.replace_sentences(here, frontier)
        yield told
