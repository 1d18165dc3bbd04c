"""Comparison of two systems with the same model, and selection of the sentences for it."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec

import torch

from attendo.errors import DataError, MessagePart, ModelError, UsageError
from attendo.interop.certificate import (
    Bounds,
    Certificate,
    ComparedSystem,
    ReferenceScores,
    SearchComparison,
    TextEvaluation,
    TokenScoreComparison,
    TokenScorer,
    choose_criterion,
    format_beside_bound,
)
from attendo.interop.recorded_system import BEAMS, IdPair, RecordedSystem, TimedOutputs, generate_all
from attendo.text import BOS, CONTROL_PIECES, PAD, UNK
from attendo.text_model import TextModel
from attendo.text_model.inputs import ModelSymbols, encode_symbols

MIN_SENTENCES = 200
_MAX_SOURCE_LENGTH = 256  # tokens; longer sources would dominate the run time
_MAX_RANDOM_LENGTH = 12
_NUM_LONG_PAIRS, _MAX_LONG_PAIR = 2, 2048


def certify(
    ours: ComparedSystem | RecordedSystem,
    theirs: ComparedSystem,
    sources: Sequence[Sequence[int]],
    bounds: Bounds,
    evaluation: TextEvaluation | None = None,
    pairs: Sequence[IdPair] = (),
    compare_searches: bool = True,
) -> Certificate:
    """Compare the logits, the greedy outputs and the outputs of a beam of 4. Of `pairs` only logits are compared.

    If a system has no logits, the log-probabilities of the tokens of attendo's outputs are compared. Without
    `compare_searches` only they are compared.
    """
    if not sources:
        raise UsageError("certificate_sentences_missing")
    beams = BEAMS if compare_searches else BEAMS[:1]
    first = ours.found if isinstance(ours, RecordedSystem) else {n: generate_all(ours, sources, n) for n in beams}
    second = {beam: generate_all(theirs, sources, beam) for beam in beams} if compare_searches else {}
    found = {beam: _PairedOutputs(first[beam], second[beam]) for beam in second}
    targets = [answer.ids for answer in first[1].outputs]
    largest, mean = _logit_differences(ours, theirs, [*zip(sources, targets, strict=True), *pairs])
    token_scores = _compare_token_scores(ours, theirs, sources, targets) if largest is None else None
    is_scored = found and evaluation and evaluation.sentences
    scored, agreement = _score_texts(found[BEAMS[-1]], evaluation) if is_scored and evaluation else (None, None)
    searches = tuple(_compare_outputs(beam, both) for beam, both in found.items())
    reasons = tuple(_reasons(bounds, largest, mean, token_scores, searches, scored, agreement))
    return Certificate(
        ours=ours.name,
        theirs=theirs.name,
        sentences=len(sources),
        largest_difference=largest,
        mean_difference=mean,
        searches=searches,
        scored=scored,
        agreement=agreement,
        bounds=bounds,
        reasons=reasons,
        token_scores=token_scores,
    )


@dataclass(frozen=True)
class _PairedOutputs:
    """Outputs of both systems for the same sources."""

    ours: TimedOutputs
    theirs: TimedOutputs


def _logit_differences(
    ours: ComparedSystem | RecordedSystem, theirs: ComparedSystem, pairs: Sequence[IdPair]
) -> tuple[float | None, float | None]:
    """Return the largest and the mean difference, without pad and bos, which are never generated."""
    largest = total = count = 0.0
    for source, target in pairs:
        first, second = ours.logits(source, target), theirs.logits(source, target)
        if first is None or second is None:
            return None, None
        difference = (first.float().cpu() - second.float().cpu()).abs()
        allowed = torch.ones(difference.size(1), dtype=torch.bool)
        allowed[[PAD, BOS]] = False
        difference = difference[:, allowed]
        largest = _max_with_nan(largest, float(difference.max()))
        total += float(difference.sum(dtype=torch.float64))
        count += difference.numel()
    return largest, total / count


def _compare_token_scores(
    ours: ComparedSystem | RecordedSystem,
    theirs: ComparedSystem,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
) -> TokenScoreComparison | None:
    """Compare the scores of the targets; None if a system cannot score."""
    if not isinstance(ours, TokenScorer) or not isinstance(theirs, TokenScorer):
        return None
    both = zip(ours.score_tokens(sources, targets), theirs.score_tokens(sources, targets), strict=True)
    differences = torch.cat([(first - second).abs().double() for first, second in both])
    return TokenScoreComparison(
        tokens=differences.numel(),
        longest=max(map(len, (*sources, *targets))),
        largest_difference=float(differences.max()),
        mean_difference=float(differences.mean()),
    )


def _max_with_nan(one: float, other: float) -> float:
    """Return the larger value, or NaN if either is NaN. `max` can drop a NaN."""
    return other if other > one or math.isnan(other) else one


def _compare_outputs(beam: int, paired: _PairedOutputs) -> SearchComparison:
    pairs = list(zip(paired.ours.outputs, paired.theirs.outputs, strict=True))
    same = sum(one == other for first, second in pairs for one, other in zip(first.ids, second.ids, strict=False))
    positions = sum(max(len(first.ids), len(second.ids)) for first, second in pairs)
    alike = [(first, second) for first, second in pairs if first.ids == second.ids]
    differences = [
        abs(first.score - second.score)
        for first, second in alike
        if first.score is not None and second.score is not None
    ]
    return SearchComparison(
        beam=beam,
        same_tokens=same / positions if positions else 1.0,
        same_answers=len(alike),
        score_difference=reduce(_max_with_nan, differences) if differences else None,
        ours_per_second=paired.ours.tokens_per_second,
        theirs_per_second=paired.theirs.tokens_per_second,
    )


def _score_texts(paired: _PairedOutputs, evaluation: TextEvaluation) -> tuple[ReferenceScores | None, float | None]:
    from attendo.metrics import score

    count = evaluation.sentences
    ours, theirs = (
        [evaluation.decode(each.ids) for each in side.outputs[:count]] for side in (paired.ours, paired.theirs)
    )
    # If no output has four words, BLEU is 0, even against itself.
    agreement = score("bleu", theirs, ours).value if score("bleu", ours, ours).value else None
    if not evaluation.references:
        return None, agreement
    values = [
        score(metric, outputs, evaluation.references).value for metric in ("bleu", "chrf") for outputs in (ours, theirs)
    ]
    return ReferenceScores(count, *values), agreement


def _reasons(
    bounds: Bounds,
    largest: float | None,
    mean: float | None,
    token_scores: TokenScoreComparison | None,
    searches: Sequence[SearchComparison],
    scored: ReferenceScores | None,
    agreement: float | None,
) -> Iterator[MessagePart]:
    # `not found <= most` also fails for NaN.
    for name, found, most in (
        ("mean", mean, bounds.mean_difference),
        ("largest", largest, bounds.largest_difference),
    ):
        if found is not None and most is not None and not found <= most:
            value = format_beside_bound(found, most, 2, "e")
            yield MessagePart("logit_difference_too_large", kind=name, value=value, bound=f"{most:.0e}")
    most = bounds.mean_difference
    if token_scores is not None and most is not None and not token_scores.mean_difference <= most:
        value = format_beside_bound(token_scores.mean_difference, most, 2, "e")
        yield MessagePart("token_score_difference_too_large", value=value, bound=f"{most:.0e}")
    match choose_criterion(bounds, scored, agreement):
        case "lost_bleu" if scored is not None and bounds.lost_bleu is not None:
            if not scored.lost_bleu <= bounds.lost_bleu:
                value = format_beside_bound(scored.lost_bleu, bounds.lost_bleu, 2, "f")
                yield MessagePart("lost_bleu_too_large", value=value, bound=bounds.lost_bleu)
        case "agreement" if agreement is not None and bounds.agreement is not None:
            if not agreement >= bounds.agreement:
                value = format_beside_bound(agreement, bounds.agreement, 1, "f")
                yield MessagePart("agreement_too_small", value=value, bound=f"{bounds.agreement:g}")
        case _ if bounds.same_tokens is not None:
            for each in searches:
                if not each.same_tokens >= bounds.same_tokens:
                    value, bound = format_beside_bound(each.same_tokens, bounds.same_tokens, 2, "%"), bounds.same_tokens
                    yield MessagePart("same_tokens_too_few", value=value, search=each.name, bound=f"{bound:.1%}")


@dataclass(frozen=True)
class CertificateSentences:
    """Sources as ids, with the symbols of the model, and the data for BLEU if available."""

    sources: list[list[int]]
    evaluation: TextEvaluation | None = None
    notes: tuple[MessagePart, ...] = ()  # on skipped or missing sentences
    pairs: Sequence[IdPair] = ()  # long ones, of which only logits are compared
    without_symbols: Sequence[Sequence[int]] = ()


def collect_sentences(
    model: TextModel,
    texts: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    min_count: int = MIN_SENTENCES,
) -> CertificateSentences:
    """Return all given texts, or up to `min_count` of the model's sample, filled up to `min_count` with random ids."""
    if references is not None and len(references) != len(texts or ()):
        raise UsageError("comparison_reference_count_mismatch", sources=len(texts or ()), references=len(references))
    given = texts is not None
    if texts is None:
        pairs = model.stored_model.sample[:min_count]
        texts, references = [source for source, _ in pairs], [target for _, target in pairs]
    encoded, max_length = model.source_tokenizer.encode_many(texts), _usable_source_length(model)
    valid = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= max_length]
    notes = _describe_skipped(encoded, max_length) if given else []
    sources = [encoded[number] for number in valid]
    evaluation = None
    if find_spec("sacrebleu") is not None:
        kept_references = [references[number] for number in valid] if references else []
        evaluation = TextEvaluation(model.target_tokenizer.decode, len(valid), kept_references)
    symbols = model_symbols(model)
    if valid and len(valid) < min_count:
        code = "given_sentences_few" if given else "sample_sentences_few"
        notes.append(MessagePart(code, count=len(valid), random=min_count - len(valid)))
    sources += [ids[:max_length] for ids in random_sources(model.source_tokenizer.vocab_size, min_count - len(sources))]
    long_pairs, long_notes = _make_long_pairs(model)
    wrapped = [[*symbols.wrap_source(source)] for source in sources]
    return CertificateSentences(wrapped, evaluation, (*notes, *long_notes), long_pairs, sources)


def _describe_skipped(encoded: Sequence[Sequence[int]], max_length: int) -> list[MessagePart]:
    """Return a note on skipped texts. Raise a `DataError` if none is left."""
    empty, long = sum(not ids for ids in encoded), sum(len(ids) > max_length for ids in encoded)
    counts = {"count": len(encoded), "empty": empty, "long": long, "max_length": max_length}
    if empty + long == len(encoded):
        raise DataError("sentences_not_comparable", **counts)
    return [MessagePart("sentences_skipped", **counts)] if empty or long else []


def random_sources(vocab_size: int, count: int) -> list[list[int]]:
    """Return random ids, the same in every run."""
    dice = random.Random(1)
    tokens = range(len(CONTROL_PIECES), vocab_size) or [UNK]
    return [dice.choices(tokens, k=dice.randint(1, _MAX_RANDOM_LENGTH)) for _ in range(count)]


def _make_long_pairs(model: TextModel) -> tuple[list[IdPair], list[MessagePart]]:
    """Return random pairs that reach all distances of relative positions and pass a sliding window, and a note.

    Other networks need none.
    """
    config = model.network.config
    far = (config.relative_max_distance if config.positions == "relative" else 0, config.sliding_window or 0)
    if not any(far) or config.decoder_only:
        return [], []
    length, symbols = min(_MAX_LONG_PAIR, max(far) + 12), model_symbols(model)
    dice, tokenizers = random.Random(2), (model.source_tokenizer, model.target_tokenizer)
    source, target = (range(len(CONTROL_PIECES), each.vocab_size) or [UNK] for each in tokenizers)
    pairs: list[IdPair] = [
        (symbols.wrap_source(dice.choices(source, k=length + 10)), dice.choices(target, k=length))
        for _ in range(_NUM_LONG_PAIRS)
    ]
    note = MessagePart("long_pairs_compared", count=len(pairs), source=len(pairs[0][0]), target=length)
    return pairs, [note]


def _usable_source_length(model: TextModel) -> int:
    """Return the longest source of a certificate in tokens."""
    config = model.network.config
    if config.positions != "learned":
        return _MAX_SOURCE_LENGTH
    symbols = model_symbols(model)
    added = len(symbols.wrap_source(())) + len(symbols.begin)
    limit = min(_MAX_SOURCE_LENGTH, fit_source_length(config.max_length, added))
    if limit < 1:
        raise ModelError("max_length_too_short", max_length=config.max_length, needed=added + 14)
    return limit


def fit_source_length(positions: int, prefix_length: int) -> int:
    """Return the longest source, in tokens, whose output limit in `certify` (10 + 3/2 of it) fits the positions."""
    return (positions - prefix_length - 12) * 2 // 3


def model_symbols(model: TextModel) -> ModelSymbols:
    """Return the ids that the model adds to every source and output."""
    return encode_symbols(model.generation, model.source_tokenizer, model.target_tokenizer)
