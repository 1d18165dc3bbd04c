"""Exact match, error rates and ROUGE, which need no other package. Of several references the nearest counts."""

from collections.abc import Callable, Sequence

from attendo.errors import UsageError
from attendo.metrics.measure import Measure, Statistics
from attendo.metrics.references import Ways, counted, every_text
from attendo.metrics.rouge import rouge_1, rouge_2, rouge_l, tokens
from attendo.metrics.scripts import SCRIPTS_WITHOUT_SPACES, main_script
from attendo.metrics.version import VERSION
from attendo.metrics.word_errors import edit_distance, words

_ROUGE = {"rouge1": rouge_1, "rouge2": rouge_2, "rougeL": rouge_l}


def exact_match(references: Ways) -> Measure:
    """In percent of the lines; white space around a line does not count."""
    return _of_whole_lines("exact_match", "exact", references, wanted=True)


def error_rate(references: Ways) -> Measure:
    """The rest of them: lines that are not right to the letter."""
    return _of_whole_lines("error_rate", "error", references, wanted=False)


def word_error_rate(references: Ways) -> Measure:
    """Words to put in, take out or change for every hundred words of the references."""
    characters = main_script(every_text(references)) in SCRIPTS_WITHOUT_SPACES
    expected = [[words(reference, characters) for reference in line] for line in references]
    if not any(any(line) for line in expected):
        raise UsageError("references_without_words", count=len(references))

    def statistics(outputs: Sequence[str]) -> Statistics:
        pairs = zip(outputs, expected, strict=True)
        return [_nearest(words(output, characters), line) for output, line in pairs]

    signature = f"wer|{counted(references)}tok:{'char' if characters else 'space'}|{VERSION}"
    return Measure("word_error_rate", signature, False, _percent, statistics)


def rouge(name: str, references: Ways) -> Measure:
    """The mean of the lines, in percent."""
    expected = [[tokens(reference) for reference in line] for line in references]
    of_line: Callable[[Sequence[str], Sequence[str]], float] = _ROUGE[name]

    def statistics(outputs: Sequence[str]) -> Statistics:
        cut = zip(map(tokens, outputs), expected, strict=True)
        return [(max(of_line(output, each) for each in line), 1) for output, line in cut]

    signature = f"{name}|{counted(references)}f1|case:lc|stem:no|tok:word+char|{VERSION}"
    return Measure(name, signature, True, _percent, statistics)


def _of_whole_lines(name: str, short: str, references: Ways, wanted: bool) -> Measure:
    expected = [{reference.strip() for reference in line} for line in references]

    def statistics(outputs: Sequence[str]) -> Statistics:
        return [((output.strip() in line) == wanted, 1) for output, line in zip(outputs, expected, strict=True)]

    return Measure(name, f"{short}|{counted(references)}strip|{VERSION}", wanted, _percent, statistics)


def _nearest(output: Sequence[str], line: Sequence[Sequence[str]]) -> tuple[int, int]:
    """Errors and words of the reference with the fewest errors for its length."""
    found = [(edit_distance(output, each), len(each)) for each in line]
    return min(found, key=lambda each: (each[0] / max(each[1], 1), -each[1]))


def _percent(sums: Sequence[float]) -> float:
    """Lines drawn by chance may have no words at all: then any error is as bad as all words wrong, as in TER."""
    part, whole = sums
    return 100 * part / whole if whole else 100.0 * bool(part)
