"""The checks in their order, each finding told as soon as it is known."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attendo.data.sampler import BatchStream
from attendo.doctor.bad_lines import LineLocator, check_bad_lines
from attendo.doctor.data_sampling import MAX_PAIRS, read_blocks, take_middle
from attendo.doctor.duplicates import MAX_TEXT_PAIRS, DuplicateFinder, TextPair
from attendo.doctor.finding import Finding
from attendo.doctor.learning import check_first_loss, check_overfitting, check_warm_up
from attendo.doctor.lengths import PairLengths, check_length_ratios, check_long_sentences, check_misaligned_lines
from attendo.doctor.memory import check_memory
from attendo.doctor.network import (
    check_causal_leak,
    check_padding,
    check_shift,
    check_tying,
    pick_pairs,
    preserve_state,
    take_batches,
)
from attendo.doctor.vocabulary import VocabularyUse, check_unknown_tokens, check_window_shift
from attendo.errors import AttendoError
from attendo.runs.run import Run

_STREAMED_PAIRS = 2048  # of each corpus: a stream of all would first read a whole pool
_QUICK_PAIRS = 100_000  # pairs
_QUICK_TEXT_PAIRS = 2_000  # pairs that are compared as text


def examine(run: Run, quick: bool = False, tests: Mapping[str, Sequence[TextPair]] | None = None) -> Iterator[Finding]:
    """All findings on a run that was prepared and built; `quick` leaves out what takes more than seconds.

    `tests` are pairs, by the name of their set, that must not be among those that are learned from.

    The run is not changed: it trains bit for bit as it would have without.
    """
    yield check_bad_lines(run.data)
    yield check_warm_up(run.config.train)
    yield from examine_network(run, quick)
    yield from examine_data(run, quick, tests)


def run_quick_checks(run: Run) -> list[Finding]:
    """Warnings and faults of the quick part: to be told, or stopped at, before the first step."""
    meant = ("repeated pairs",) if run.config.data.task == "builtin" else ()  # its grammar makes some twice
    found = (finding for finding in examine(run, quick=True) if finding.check not in meant)
    return [finding for finding in found if finding.level in ("warning", "fault")]


def examine_network(run: Run, quick: bool = False) -> Iterator[Finding]:
    """The network as the run built it, on its device, with batches of its data."""
    learner, data = run.trainer.updater, run.data
    tables = check_tying(learner.network, data)
    yield tables
    if tables.level == "fault":  # ids outside a table would end everything else, on a GPU the whole process
        return
    some = take_middle(data, _STREAMED_PAIRS)
    dropout = run.config.tokenizer.dropout
    batches = take_batches(BatchStream(some, run.config.train.batch_tokens, run.config.seed, dropout))
    pairs = pick_pairs(batches, learner.network)
    trained = run.config.start_from is not None
    checks: dict[str, Callable[[], Finding]] = {
        "shift": lambda: (
            check_shift(batches[:2], some, resegmented=dropout > 0)
            if some.window is None
            else check_window_shift(batches[:2], some)
        ),
        "causal leak": lambda: check_causal_leak(learner, pairs),
        "padding": lambda: check_padding(learner, pairs),
        "first loss": lambda: check_first_loss(learner, pairs, trained),
        "memory": lambda: check_memory(learner, data, measure=not quick),
    }
    if run.trainer.step:  # its first loss is long past
        del checks["first loss"]
    if not quick:
        checks["overfitting one batch"] = lambda: check_overfitting(learner, pairs)
    for name, check in checks.items():
        with preserve_state(learner):
            try:
                finding = check()
            except AttendoError as error:  # such as a sentence that is too long for learned positions
                finding = Finding(name, "fault", str(error), about="network")
        yield finding


def examine_data(
    run: Run, quick: bool = False, tests: Mapping[str, Sequence[TextPair]] | None = None
) -> Iterator[Finding]:
    """The training pairs, read once, beside those of validation and tests; `quick` reads some of them."""
    data, config = run.data, run.config
    if data.window is not None:
        yield check_unknown_tokens(data)
        return
    places = LineLocator(data, lines=not quick)
    as_text = _QUICK_TEXT_PAIRS if quick else MAX_TEXT_PAIRS
    repeats = DuplicateFinder(data, places, tests, as_text, config.data.allow_copies)
    lengths, use = PairLengths(), VocabularyUse(data, config.tokenizer.dropout)
    for stretch in read_blocks(data, _QUICK_PAIRS if quick else MAX_PAIRS):
        for tally in (lengths, repeats, use):
            tally.add(stretch)
    yield check_misaligned_lines(lengths, places, config.about.task not in ("summarization", "conversation"))
    yield check_length_ratios(lengths, places)
    yield check_long_sentences(lengths, places, config.train.batch_tokens)
    yield from repeats.check()
    yield from use.check()
