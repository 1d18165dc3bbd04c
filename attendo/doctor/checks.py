"""Runs all checks in order and yields each finding as soon as it is known."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attendo.data.sampler import BatchStream
from attendo.doctor.bad_lines import LineLocator, check_alignments, check_bad_lines
from attendo.doctor.data_sampling import MAX_PAIRS, read_blocks, take_middle
from attendo.doctor.duplicates import MAX_TEXT_PAIRS, DuplicateFinder, TextPair
from attendo.doctor.finding import Finding
from attendo.doctor.lengths import PairLengths, check_length_ratios, check_long_sentences, check_misaligned_lines
from attendo.doctor.memory import check_memory
from attendo.doctor.network import (
    check_causal_leak,
    check_padding,
    check_shift,
    check_tying,
    check_window_shift,
    pick_pairs,
    preserve_state,
    take_batches,
)
from attendo.doctor.training_checks import check_first_loss, check_overfitting, check_warm_up
from attendo.doctor.vocabulary import VocabularyUse, check_unknown_tokens
from attendo.errors import AttendoError, LocalizedText
from attendo.runs.run import Run

_STREAMED_PAIRS = 2048  # pairs per corpus; a stream of all pairs would first read a whole shuffle pool
_QUICK_PAIRS = 100_000  # pairs read by the quick checks
_QUICK_TEXT_PAIRS = 2_000  # pairs that the quick checks compare as text


def examine(run: Run, quick: bool = False, tests: Mapping[str, Sequence[TextPair]] | None = None) -> Iterator[Finding]:
    """Yield all findings on a run that was prepared and built. `quick` skips checks that take more than seconds.

    `tests` are pairs by set name that must not be in the training data.

    The run is not changed: it trains bit for bit as without the checks.
    """
    yield check_bad_lines(run.data)
    if run.data.has_links:
        yield check_alignments(run.data)
    yield check_warm_up(run.config.train)
    yield from examine_network(run, quick)
    yield from examine_data(run, quick, tests)


def run_quick_checks(run: Run) -> list[Finding]:
    """Return warnings and faults of the quick checks, for use before the first training step."""
    expected = ("repeated pairs",) if run.config.data.task == "builtin" else ()  # its grammar repeats some pairs
    found = (finding for finding in examine(run, quick=True) if finding.check not in expected)
    return [finding for finding in found if finding.level in ("warning", "fault")]


def examine_network(run: Run, quick: bool = False) -> Iterator[Finding]:
    """Yield findings on the network, on its device, with batches of the run's data."""
    updater, data = run.trainer.updater, run.data
    tables = check_tying(updater.network, data)
    yield tables
    if tables.level == "fault":  # ids outside an embedding table would raise, on a GPU kill the process
        return
    some = take_middle(data, _STREAMED_PAIRS)
    dropout = run.config.tokenizer.dropout
    batches = take_batches(BatchStream(some, run.config.train.batch_tokens, run.config.seed, dropout))
    pairs = pick_pairs(batches, updater.network)
    trained = run.config.start_from is not None
    checks: dict[str, Callable[[], Finding]] = {
        "shift": lambda: (
            check_shift(batches[:2], some, resegmented=dropout > 0)
            if some.window is None
            else check_window_shift(batches[:2], some)
        ),
        "causal leak": lambda: check_causal_leak(updater, pairs),
        "padding": lambda: check_padding(updater, pairs),
        "first loss": lambda: check_first_loss(updater, pairs, trained),
        "memory": lambda: check_memory(updater, data, measure=not quick),
    }
    if updater.network.config.kind != "autoregressive":  # no causal mask, and a loss that is not ln V at first
        del checks["causal leak"], checks["first loss"]
    elif run.trainer.step:  # a resumed run is past its first loss
        del checks["first loss"]
    if not quick:
        checks["overfitting one batch"] = lambda: check_overfitting(updater, pairs)
    for name, check in checks.items():
        with preserve_state(updater):
            try:
                finding = check()
            except AttendoError as error:  # for example a sentence too long for learned positions
                finding = Finding(name, "fault", LocalizedText("{error}", error=error), about="network")
        yield finding


def examine_data(
    run: Run, quick: bool = False, tests: Mapping[str, Sequence[TextPair]] | None = None
) -> Iterator[Finding]:
    """Yield findings on the training pairs, which are read once, and on overlap with validation and tests.

    `quick` reads a sample.
    """
    data, config = run.data, run.config
    if data.window is not None:
        yield check_unknown_tokens(data)
        return
    locator = LineLocator(data, lines=not quick)
    as_text = _QUICK_TEXT_PAIRS if quick else MAX_TEXT_PAIRS
    repeats = DuplicateFinder(data, locator, tests, as_text, config.data.allow_copies)
    lengths, use = PairLengths(), VocabularyUse(data, config.tokenizer.dropout)
    for block in read_blocks(data, _QUICK_PAIRS if quick else MAX_PAIRS):
        for counter in (lengths, repeats, use):
            counter.add(block)
    yield check_misaligned_lines(lengths, locator, config.about.task not in ("summarization", "conversation"))
    yield check_length_ratios(lengths, locator)
    yield check_long_sentences(lengths, locator, config.train.batch_tokens)
    yield from repeats.check()
    yield from use.check()
