"""BLEU, chrF and TER from sacrebleu, which is imported on first use."""

from collections.abc import Sequence
from typing import Any

from attendo.errors import UsageError
from attendo.metrics.measure import Metric, ReferenceSets, Statistics, flatten_references, to_sacrebleu_streams
from attendo.settings import suggest_name
from attendo.text.scripts import Script, main_script

# sacrebleu has more tokenizers, but they download a model.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")

_TOKENIZER_BY_SCRIPT: dict[Script, str] = {
    "spaced": "13a",
    "han": "zh",
    "kana": "char",
    "hangul": "char",
    "unspaced": "char",
}


def tokenizer_name(references: Sequence[str], given: str | None) -> str:
    """Return the given tokenizer, or the one for the script of the references."""
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
        # force=True suppresses sacrebleu's warning about outputs that end in a separate full stop.
        metric = BLEU(tokenize=tokenize, force=True, references=to_sacrebleu_streams(references))
    except RuntimeError:
        raise UsageError("bleu_tokeniser_package_missing", tokeniser=tokenize, extra=tokenize[:2]) from None
    return _wrap_metric("bleu", metric, higher_is_better=True)


def chrf(references: ReferenceSets) -> Metric:
    from sacrebleu.metrics.chrf import CHRF

    return _wrap_metric("chrf", CHRF(references=to_sacrebleu_streams(references)), higher_is_better=True)


def ter(references: ReferenceSets) -> Metric:
    """Return TER. sacrebleu splits Han characters only with `normalized`; otherwise a Chinese line is one word."""
    from sacrebleu.metrics.ter import TER

    east = main_script(flatten_references(references)) in ("han", "kana")
    metric = TER(normalized=east, asian_support=east, references=to_sacrebleu_streams(references))
    return _wrap_metric("ter", metric, higher_is_better=False)


def _wrap_metric(name: str, metric: Any, higher_is_better: bool) -> Metric:
    """Wrap a sacrebleu metric. It uses private methods, on which sacrebleu's own significance tests rely too."""

    def statistics(outputs: Sequence[str]) -> Statistics:
        found: Statistics = metric._extract_corpus_statistics(list(outputs), None)
        return found

    def value(sums: Sequence[float]) -> float:
        return float(metric._compute_score_from_stats(list(sums)).score)

    return Metric(name, str(metric.get_signature()), higher_is_better, value, statistics)
