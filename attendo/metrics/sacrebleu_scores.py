"""BLEU, chrF and TER as sacrebleu computes them; it is imported only when one of them is asked for."""

from collections.abc import Sequence
from typing import Any

from attendo.errors import UsageError
from attendo.metrics.measure import Measure, Statistics, Ways, as_streams, every_text
from attendo.settings import nearest
from attendo.text.scripts import Script, main_script

# sacrebleu has more, but those fetch a model from the network.
TOKENIZERS = ("13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab")

_TOKENIZER_OF: dict[Script, str] = {"spaced": "13a", "han": "zh", "kana": "char", "hangul": "char", "unspaced": "char"}


def tokenizer_name(references: Sequence[str], given: str | None) -> str:
    """The one that was asked for, if there is such a one, or that for the script of the references."""
    name = given or _TOKENIZER_OF[main_script(references)]
    if name not in TOKENIZERS:
        known = ", ".join(TOKENIZERS)
        raise UsageError("unknown_bleu_tokeniser", name=name, suggestion=nearest(name, list(TOKENIZERS)), known=known)
    return name


def bleu(references: Ways, tokenize: str | None) -> Measure:
    tokenize = tokenizer_name(every_text(references), tokenize)
    from sacrebleu.metrics.bleu import BLEU

    try:
        # force: outputs that end in a full stop on its own bring no advice on standard error.
        metric = BLEU(tokenize=tokenize, force=True, references=as_streams(references))
    except RuntimeError:
        raise UsageError("bleu_tokeniser_package_missing", tokeniser=tokenize, extra=tokenize[:2]) from None
    return _measure("bleu", metric, higher_is_better=True)


def chrf(references: Ways) -> Measure:
    from sacrebleu.metrics.chrf import CHRF

    return _measure("chrf", CHRF(references=as_streams(references)), higher_is_better=True)


def ter(references: Ways) -> Measure:
    """Left to itself it takes a line of Chinese for one word; Han characters are set apart only when it normalises."""
    from sacrebleu.metrics.ter import TER

    east = main_script(every_text(references)) in ("han", "kana")
    metric = TER(normalized=east, asian_support=east, references=as_streams(references))
    return _measure("ter", metric, higher_is_better=False)


def _measure(name: str, metric: Any, higher_is_better: bool) -> Measure:
    """The one place that knows names which sacrebleu keeps to itself; its own significance tests stand on the same."""

    def statistics(outputs: Sequence[str]) -> Statistics:
        found: Statistics = metric._extract_corpus_statistics(list(outputs), None)
        return found

    def value(sums: Sequence[float]) -> float:
        return float(metric._compute_score_from_stats(list(sums)).score)

    return Measure(name, str(metric.get_signature()), higher_is_better, value, statistics)
