"""The checks in their order, each finding told as soon as it is known."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from attendo.data.sampler import BatchStream
from attendo.doctor.bad_lines import Places, bad_lines
from attendo.doctor.data_sampling import MOST_PAIRS, middle, stretches
from attendo.doctor.duplicates import READ_AS_TEXT, Repeats, TextPair
from attendo.doctor.finding import Finding
from attendo.doctor.learning import first_loss, overfitting, warm_up
from attendo.doctor.lengths import PairLengths, length_ratios, long_sentences, misaligned
from attendo.doctor.memory import memory
from attendo.doctor.network import causal_leak, few_pairs, padding, shift, some_batches, tying, undisturbed
from attendo.doctor.vocabulary import VocabularyUse, unknown_tokens, window_shift
from attendo.errors import AttendoError
from attendo.runs.run import Run

_STREAMED_PAIRS = 2048  # of each corpus: a stream of all would first read a whole pool
_READ_QUICKLY = 100_000  # pairs
_COMPARED_QUICKLY = 2_000  # pairs that are compared as text


def examine(run: Run, quick: bool = False, tests: Mapping[str, Sequence[TextPair]] | None = None) -> Iterator[Finding]:
    """All findings on a run that was prepared and built; `quick` leaves out what takes more than seconds.

    `tests` are pairs, by the name of their set, that must not be among those that are learned from.

    The run is not changed: it trains bit for bit as it would have without.
    """
    yield bad_lines(run.data)
    yield warm_up(run.config.train)
    yield from examine_network(run, quick)
    yield from examine_data(run, quick, tests)


def quick_faults(run: Run) -> list[Finding]:
    """Warnings and faults of the quick part: to be told, or stopped at, before the first step."""
    meant = ("repeated pairs",) if run.config.data.task == "builtin" else ()  # its grammar makes some twice
    found = (finding for finding in examine(run, quick=True) if finding.check not in meant)
    return [finding for finding in found if finding.level in ("warning", "fault")]


def examine_network(run: Run, quick: bool = False) -> Iterator[Finding]:
    """The network as the run built it, on its device, with batches of its data."""
    learner, data = run.trainer.learner, run.data
    tables = tying(learner.network, data)
    yield tables
    if tables.level == "fault":  # ids outside a table would end everything else, on a GPU the whole process
        return
    some = middle(data, _STREAMED_PAIRS)
    dropout = run.config.tokenizer.dropout
    batches = some_batches(BatchStream(some, run.config.train.batch_tokens, run.config.seed, dropout))
    pairs = few_pairs(batches, learner.network)
    trained = run.config.start_from is not None
    checks: dict[str, Callable[[], Finding]] = {
        "shift": lambda: (
            shift(batches[:2], some, recut=dropout > 0) if some.window is None else window_shift(batches[:2], some)
        ),
        "causal leak": lambda: causal_leak(learner, pairs),
        "padding": lambda: padding(learner, pairs),
        "first loss": lambda: first_loss(learner, pairs, trained),
        "memory": lambda: memory(learner, data, measure=not quick),
    }
    if run.trainer.step:  # its first loss is long past
        del checks["first loss"]
    if not quick:
        checks["overfitting one batch"] = lambda: overfitting(learner, pairs)
    for name, check in checks.items():
        with undisturbed(learner):
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
        yield unknown_tokens(data)
        return
    places = Places(data, lines=not quick)
    as_text = _COMPARED_QUICKLY if quick else READ_AS_TEXT
    repeats = Repeats(data, places, tests, as_text, config.data.allow_copies)
    lengths, use = PairLengths(), VocabularyUse(data, config.tokenizer.dropout)
    for stretch in stretches(data, _READ_QUICKLY if quick else MOST_PAIRS):
        for tally in (lengths, repeats, use):
            tally.add(stretch)
    yield misaligned(lengths, places, config.about.task not in ("summarization", "conversation"))
    yield length_ratios(lengths, places)
    yield long_sentences(lengths, places, config.train.batch_tokens)
    yield from repeats.findings()
    yield from use.findings()
