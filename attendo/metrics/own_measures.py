"""Exact match, word error rate and ROUGE, which need no other package."""

from collections.abc import Callable, Sequence
from importlib import import_module

from attendo.errors import UsageError
from attendo.metrics.measure import Measure, Statistics
from attendo.metrics.rouge import rouge_1, rouge_2, rouge_l, tokens
from attendo.metrics.scripts import SCRIPTS_WITHOUT_SPACES, main_script
from attendo.metrics.word_errors import edit_distance, words

# A plain import of the package would tie this layer to all that the package has on show.
_VERSION = f"attendo:{import_module('attendo').__version__}"
_ROUGE = {"rouge1": rouge_1, "rouge2": rouge_2, "rougeL": rouge_l}


def exact_match(references: Sequence[str]) -> Measure:
    """In percent of the lines; white space around a line does not count."""
    expected = [reference.strip() for reference in references]

    def statistics(outputs: Sequence[str]) -> Statistics:
        return [(output.strip() == line, 1) for output, line in zip(outputs, expected, strict=True)]

    return Measure("exact_match", f"exact|strip|{_VERSION}", True, statistics, _percent)


def word_error_rate(references: Sequence[str]) -> Measure:
    """Words to put in, take out or change for every hundred words of the references."""
    characters = main_script(references) in SCRIPTS_WITHOUT_SPACES
    expected = [words(reference, characters) for reference in references]
    if not any(expected):
        raise UsageError(f"word_error_rate counts errors per word, but the {len(references)} references have no words")

    def statistics(outputs: Sequence[str]) -> Statistics:
        pairs = zip(outputs, expected, strict=True)
        return [(edit_distance(words(output, characters), line), len(line)) for output, line in pairs]

    signature = f"wer|tok:{'char' if characters else 'space'}|{_VERSION}"
    return Measure("word_error_rate", signature, False, statistics, _percent)


def rouge(name: str, references: Sequence[str]) -> Measure:
    """The mean of the lines, in percent."""
    expected = [tokens(reference) for reference in references]
    of_line: Callable[[Sequence[str], Sequence[str]], float] = _ROUGE[name]

    def statistics(outputs: Sequence[str]) -> Statistics:
        return [(of_line(tokens(output), line), 1) for output, line in zip(outputs, expected, strict=True)]

    return Measure(name, f"{name}|f1|case:lc|stem:no|tok:word+char|{_VERSION}", True, statistics, _percent)


def _percent(sums: Sequence[float]) -> float:
    """Lines drawn by chance may have no words at all: then any error is as bad as all words wrong, as in TER."""
    part, whole = sums
    return 100 * part / whole if whole else 100.0 * bool(part)
