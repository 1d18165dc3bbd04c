"""Compares two systems that hold the same model, and selects the sentences they are compared on."""

import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib.util import find_spec

import torch

from attendo.errors import DataError, ModelError, UsageError
from attendo.interop.certificate import (
    Bounds,
    Certificate,
    ComparedSystem,
    ReferenceScores,
    SearchComparison,
    SystemOutput,
    TextEvaluation,
    choose_criterion,
    format_beside_bound,
)
from attendo.text import BOS, CONTROL_PIECES, PAD, UNK
from attendo.text_model import TextModel
from attendo.text_model.inputs import encode_prefixes as text_model_prefixes

BEAMS = (1, 4)
_BATCH_SENTENCES = 32  # sentences of like length that are answered in one call, with one limit
_MAX_OUTPUT_LENGTH = 256
MIN_SENTENCES = 200
_MAX_SOURCE_LENGTH = 256  # tokens: longer ones would take all the time
_MAX_RANDOM_LENGTH = 12


def certify(
    ours: ComparedSystem,
    theirs: ComparedSystem,
    sources: Sequence[Sequence[int]],
    bounds: Bounds,
    evaluation: TextEvaluation | None = None,
) -> Certificate:
    """Ask both for logits, greedy answers and those of a beam of 4."""
    if not sources:
        raise UsageError("certificate_sentences_missing")
    found = {beam: _generate_both(ours, theirs, sources, beam) for beam in BEAMS}
    largest, mean = _logit_differences(ours, theirs, sources, [answer.ids for answer in found[1].ours])
    scored, agreement = (
        _score_texts(found[BEAMS[-1]], evaluation) if evaluation and evaluation.sentences else (None, None)
    )
    searches = tuple(_compare_outputs(beam, both) for beam, both in found.items())
    reasons = tuple(_reasons(bounds, largest, mean, searches, scored, agreement))
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
    )


@dataclass(frozen=True)
class _PairedOutputs:
    """The answers of both in the order of the sources, and how long each took."""

    ours: list[SystemOutput]
    theirs: list[SystemOutput]
    our_seconds: float
    their_seconds: float


def _generate_both(
    ours: ComparedSystem, theirs: ComparedSystem, sources: Sequence[Sequence[int]], beam: int
) -> _PairedOutputs:
    answers: list[dict[int, SystemOutput]] = [{}, {}]
    seconds = [0.0, 0.0]
    for party in (ours, theirs):
        party.generate([min(sources, key=len)], beam, 2)  # the first call sets things up
    for group, limit in _groups(sources):
        asked = [sources[n] for n in group]
        for side, party in enumerate((ours, theirs)):
            begin = time.perf_counter()
            told = party.generate(asked, beam, limit)
            seconds[side] += time.perf_counter() - begin
            answers[side] |= dict(zip(group, told, strict=True))
    first, second = ([each[n] for n in range(len(sources))] for each in answers)
    return _PairedOutputs(first, second, *seconds)


def _groups(sources: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], int]]:
    """Sources of like length by their numbers, with the limit of their answers."""
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    for begin in range(0, len(order), _BATCH_SENTENCES):
        group = order[begin : begin + _BATCH_SENTENCES]
        yield group, min(_MAX_OUTPUT_LENGTH, 10 + 3 * len(sources[group[-1]]) // 2)


def _logit_differences(
    ours: ComparedSystem, theirs: ComparedSystem, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> tuple[float | None, float | None]:
    """The largest and the mean; pad and bos, which are never said, are left out."""
    largest = total = count = 0.0
    for source, target in zip(sources, targets, strict=True):
        first, second = ours.logits(source, target), theirs.logits(source, target)
        if first is None or second is None:
            return None, None
        difference = (first.float().cpu() - second.float().cpu()).abs()
        said = torch.ones(difference.size(1), dtype=torch.bool)
        said[[PAD, BOS]] = False
        difference = difference[:, said]
        largest = _max_with_nan(largest, float(difference.max()))
        total += float(difference.sum(dtype=torch.float64))
        count += difference.numel()
    return largest, total / count


def _max_with_nan(one: float, other: float) -> float:
    """Of which neither can hide that the other is no number, as they can from `max`."""
    return other if other > one or math.isnan(other) else one


def _compare_outputs(beam: int, paired: _PairedOutputs) -> SearchComparison:
    pairs = list(zip(paired.ours, paired.theirs, strict=True))
    same = sum(one == other for first, second in pairs for one, other in zip(first.ids, second.ids, strict=False))
    places = sum(max(len(first.ids), len(second.ids)) for first, second in pairs)
    alike = [(first, second) for first, second in pairs if first.ids == second.ids]
    differences = [
        abs(first.score - second.score)
        for first, second in alike
        if first.score is not None and second.score is not None
    ]
    return SearchComparison(
        beam=beam,
        same_tokens=same / places if places else 1.0,
        same_answers=len(alike),
        score_difference=reduce(_max_with_nan, differences) if differences else None,
        ours_per_second=_count_tokens(paired.ours) / paired.our_seconds,
        theirs_per_second=_count_tokens(paired.theirs) / paired.their_seconds,
    )


def _count_tokens(outputs: Sequence[SystemOutput]) -> int:
    return sum(len(answer.ids) + 1 for answer in outputs)


def _score_texts(paired: _PairedOutputs, evaluation: TextEvaluation) -> tuple[ReferenceScores | None, float | None]:
    from attendo.metrics import score

    count = evaluation.sentences
    ours, theirs = ([evaluation.decode(each.ids) for each in side[:count]] for side in (paired.ours, paired.theirs))
    # Where no answer has four words, whatever is said has 0 BLEU: with oneself, too.
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
    searches: Sequence[SearchComparison],
    scored: ReferenceScores | None,
    agreement: float | None,
) -> Iterator[str]:
    # All are put this way round: what is no number does not pass either.
    for name, found, most in (
        ("mean", mean, bounds.mean_difference),
        ("largest", largest, bounds.largest_difference),
    ):
        if found is not None and most is not None and not found <= most:
            yield f"the {name} difference of logits is {format_beside_bound(found, most, 2, 'e')}, more than {most:.0e}"
    match choose_criterion(bounds, scored, agreement):
        case "lost_bleu" if scored is not None and bounds.lost_bleu is not None:
            if not scored.lost_bleu <= bounds.lost_bleu:
                told = format_beside_bound(scored.lost_bleu, bounds.lost_bleu, 2, "f")
                yield f"{told} BLEU are lost, more than {bounds.lost_bleu}"
        case "agreement" if agreement is not None and bounds.agreement is not None:
            if not agreement >= bounds.agreement:
                told = format_beside_bound(agreement, bounds.agreement, 1, "f")
                yield f"answers have {told} BLEU with ours as references, fewer than {bounds.agreement:g}"
        case _:
            yield from _too_few_tokens(bounds, searches)


def _too_few_tokens(bounds: Bounds, searches: Sequence[SearchComparison]) -> Iterator[str]:
    for each in searches:
        if bounds.same_tokens is not None and not each.same_tokens >= bounds.same_tokens:
            name = "greedy" if each.beam == 1 else f"beam {each.beam}"
            told = format_beside_bound(each.same_tokens, bounds.same_tokens, 2, "%")
            yield f"{told} of the tokens of {name} are the same, fewer than {bounds.same_tokens:.1%}"


@dataclass(frozen=True)
class CertificateSentences:
    """Sources as ids, and how answers read, where that is known."""

    sources: list[list[int]]
    evaluation: TextEvaluation | None = None
    notes: tuple[str, ...] = ()  # what became of the given ones


def collect_sentences(
    model: TextModel,
    texts: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    min_count: int = MIN_SENTENCES,
) -> CertificateSentences:
    """All texts that are given, or as many of the sample as are needed. Given ones that cannot be asked are told."""
    if references is not None and len(references) != len(texts or ()):
        raise UsageError("comparison_reference_count_mismatch", sources=len(texts or ()), references=len(references))
    given = texts is not None
    if texts is None:
        texts, references = (
            [source for source, _ in model.stored_model.sample],
            [each for _, each in model.stored_model.sample],
        )
        texts, references = texts[:min_count], references[:min_count]
    encoded, room = model.source_tokenizer.encode_many(texts), _usable_source_length(model)
    kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= room]
    notes = _describe_skipped(encoded, room) if given else []
    sources = [encoded[number] for number in kept]
    reading = None
    if find_spec("sacrebleu") is not None:
        beside = [references[number] for number in kept] if references else []
        reading = TextEvaluation(model.target_tokenizer.decode, len(kept), beside)
    before, _ = model_prefix_ids(model)
    if kept and len(kept) < min_count:
        where = "given" if given else "in the model's sample"
        notes.append(
            f"sentences {where}: {len(kept)}; the other {min_count - len(kept)} are random ids, and no part of a BLEU"
        )
    sources += [ids[:room] for ids in random_sources(model.source_tokenizer.vocab_size, min_count - len(sources))]
    return CertificateSentences([[*before, *source] for source in sources], reading, tuple(notes))


def _describe_skipped(encoded: Sequence[Sequence[int]], max_length: int) -> list[str]:
    """Of the given ones; where none is left, a certificate would not be what was asked for."""
    empty, long = sum(not ids for ids in encoded), sum(len(ids) > max_length for ids in encoded)
    reasons = [
        *([f"{empty} say nothing"] if empty else []),
        *([f"{long} have more than {max_length} tokens"] if long else []),
    ]
    if empty + long == len(encoded):
        told = f": {' and '.join(reasons)}" if reasons else ", there are none"
        raise DataError("sentences_not_comparable", count=len(encoded), reason=told)
    return [f"of {len(encoded)} given sentences {' and '.join(reasons)}, and are left out"] if reasons else []


def random_sources(vocab_size: int, count: int) -> list[list[int]]:
    """The same in every run."""
    dice = random.Random(1)
    tokens = range(len(CONTROL_PIECES), vocab_size) or [UNK]
    return [dice.choices(tokens, k=dice.randint(1, _MAX_RANDOM_LENGTH)) for _ in range(count)]


def _usable_source_length(model: TextModel) -> int:
    """Tokens of a source whose answer still has positions; `certify` gives it 10 tokens, and 3 for every 2 of these."""
    config = model.network.config
    if config.positions != "learned":
        return _MAX_SOURCE_LENGTH
    before, begin = model_prefix_ids(model)
    room = min(_MAX_SOURCE_LENGTH, (config.max_length - len(before) - len(begin) - 12) * 2 // 3)
    if room < 1:
        raise ModelError("max_length_too_short", max_length=config.max_length, needed=len(before) + len(begin) + 14)
    return room


def model_prefix_ids(model: TextModel) -> tuple[list[int], list[int]]:
    """What stands before every source, and what every answer begins with, where a model has such a thing."""
    before, begin = text_model_prefixes(model.generation, model.source_tokenizer, model.target_tokenizer)
    return list(before), list(begin)
