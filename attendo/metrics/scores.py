"""One function for every score, each with a signature that says how it was computed."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from attendo.errors import UsageError
from attendo.metrics.scripts import Script, main_script
from attendo.metrics.word_errors import edit_distance, words
from attendo.settings import nearest

METRICS = ("bleu", "chrf", "exact_match", "word_error_rate")

# sacrebleu has more, but those fetch a model from the network.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")

_TOKENIZER_OF: dict[Script, str] = {"spaced": "13a", "han": "zh", "kana": "char", "hangul": "char", "unspaced": "char"}
# A plain import of the package would tie this layer to all that the package has on show.
_VERSION = f"attendo:{import_module('attendo').__version__}"
_FROM_SACREBLEU = {"bleu": "BLEU", "chrf": "chrF"}


@dataclass(frozen=True)
class Score:
    """A number on the scale of 0 to 100 (a word error rate may be higher) and how it came about."""

    name: str
    value: float
    signature: str
    higher_is_better: bool


def score(name: str, outputs: Sequence[str], references: Sequence[str], *, tokenize: str | None = None) -> Score:
    """The score of all outputs together, each beside its reference.

    `tokenize` is sacrebleu's name of a tokeniser for BLEU. Unless given, the script of the references decides: `zh` for
    Chinese; `char` for Japanese and Korean, where sacrebleu's own need other packages, and for scripts without spaces
    such as Thai; else `13a`.
    """
    check_metric(name)
    _check_pairs(outputs, references)
    if tokenize is not None and name != "bleu":
        raise UsageError(f"tokenize is for bleu: {name} has no use for {tokenize}")
    match name:
        case "bleu":
            return _bleu(outputs, references, tokenize or _TOKENIZER_OF[main_script(references)])
        case "chrf":
            from sacrebleu.metrics.chrf import CHRF

            return _by_sacrebleu(name, CHRF(), outputs, references)
        case "exact_match":
            return _exact_match(outputs, references)
        case _:
            return _word_error_rate(outputs, references)


def check_metric(name: str) -> None:
    """A name that is none, or a score that needs what is not installed, is a `UsageError`: ask before long work."""
    if name not in METRICS:
        raise UsageError(f"unknown metric {name}{nearest(name, list(METRICS))}: use {', '.join(METRICS)}")
    if name in _FROM_SACREBLEU and find_spec("sacrebleu") is None:
        raise UsageError(f"{_FROM_SACREBLEU[name]} needs sacrebleu: pip install 'attendo[eval]'")


def _check_pairs(outputs: Sequence[str], references: Sequence[str]) -> None:
    if isinstance(outputs, str) or isinstance(references, str):
        raise UsageError("lists of texts are needed: write [text] for a single one")
    if len(outputs) != len(references):
        raise UsageError(f"each output needs its reference: {len(outputs)} outputs and {len(references)} references")
    if not outputs:
        raise UsageError("there is nothing to score: give at least one output and its reference")


def _bleu(outputs: Sequence[str], references: Sequence[str], tokenize: str) -> Score:
    if tokenize not in TOKENIZERS:
        known = ", ".join(TOKENIZERS)
        raise UsageError(f"unknown tokeniser {tokenize}{nearest(tokenize, list(TOKENIZERS))}: use {known}")
    from sacrebleu.metrics.bleu import BLEU

    try:
        # force: outputs that end in a full stop on its own bring no advice on standard error.
        metric = BLEU(tokenize=tokenize, force=True)
    except RuntimeError:
        raise UsageError(
            f"tokeniser {tokenize} needs another package: pip install 'sacrebleu[{tokenize[:2]}]'"
        ) from None
    return _by_sacrebleu("bleu", metric, outputs, references)


def _by_sacrebleu(name: str, metric: Any, outputs: Sequence[str], references: Sequence[str]) -> Score:
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return Score(name, float(value), str(metric.get_signature()), higher_is_better=True)


def _exact_match(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """In percent of the lines; white space around a line does not count."""
    right = sum(output.strip() == reference.strip() for output, reference in zip(outputs, references, strict=True))
    return Score("exact_match", 100 * right / len(references), f"exact|strip|{_VERSION}", True)


def _word_error_rate(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Words to put in, take out or change for every hundred words of the references."""
    characters = main_script(references) in ("han", "kana", "unspaced")
    errors = count = 0
    for output, reference in zip(outputs, references, strict=True):
        expected = words(reference, characters)
        errors += edit_distance(words(output, characters), expected)
        count += len(expected)
    if count == 0:
        raise UsageError(f"word_error_rate counts errors per word, but the {len(references)} references have no words")
    signature = f"wer|tok:{'char' if characters else 'space'}|{_VERSION}"
    return Score("word_error_rate", 100 * errors / count, signature, higher_is_better=False)
