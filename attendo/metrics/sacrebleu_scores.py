"""BLEU, chrF and TER as sacrebleu computes them; it is imported only when one of them is asked for."""

from collections.abc import Sequence
from typing import Any

from attendo.errors import UsageError
from attendo.metrics.measure import Metric, ReferenceSets, Statistics, flatten_references, to_sacrebleu_streams
from attendo.settings import suggest_name
from attendo.text.scripts import Script, main_script

# sacrebleu has more, but those fetch a model from the network.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")

_TOKENIZER_BY_SCRIPT: dict[Script, str] = {
    "spaced": "13a",
    "han": "zh",
    "kana": "char",
    "hangul": "char",
    "unspaced": "char",
}


def tokenizer_name(references: Sequence[str], given: str | None) -> str:
    """The one that was asked for, if there is such a one, or that for the script of the references."""
    name = given or _TOKENIZER_BY_SCRIPT[main_script(references)]
    if name not in TOKENIZERS:
        known = ", ".join(TOKENIZERS)
        raise UsageError(
            "unknown_bleu_tokeniser", name=name, suggestion=suggest_name(name, list(TOKENIZERS)), known=known
        )
    return name


def bleu(references: ReferenceSets, tokenize: str | None) -> Metric:
    tokenize = tokenizer_name(flatten_references(references), tokenize)
    from sacrebleu.metrics.bleu import BLEU

    try:
        # force: outputs that end in a full stop on its own bring no advice on standard error.
        metric = BLEU(tokenize=tokenize, force=True, references=to_sacrebleu_streams(references))
    except RuntimeError:
        raise UsageError("bleu_tokeniser_package_missing", tokeniser=tokenize, extra=tokenize[:2]) from None
    return _wrap_metric("bleu", metric, higher_is_better=True)


def chrf(references: ReferenceSets) -> Metric:
    from sacrebleu.metrics.chrf import CHRF

    return _wrap_metric("chrf", CHRF(references=to_sacrebleu_streams(references)), higher_is_better=True)


def ter(references: ReferenceSets) -> Metric:
    """Left to itself it takes a line of Chinese for one word; Han characters are set apart only when it normalises."""
    from sacrebleu.metrics.ter import TER

    east = main_script(flatten_references(references)) in ("han", "kana")
    metric = TER(normalized=east, asian_support=east, references=to_sacrebleu_streams(references))
    return _wrap_metric("ter", metric, higher_is_better=False)


def _wrap_metric(name: str, metric: Any, higher_is_better: bool) -> Metric:
    """The one place that knows names which sacrebleu keeps to itself; its own significance tests stand on the same."""

    def statistics(outputs: Sequence[str]) -> Statistics:
        found: Statistics = metric._extract_corpus_statistics(list(outputs), None)
        return found

    def value(sums: Sequence[float]) -> float:
        return float(metric._compute_score_from_stats(list(sums)).score)

    return Metric(name, str(metric.get_signature()), higher_is_better, value, statistics)
