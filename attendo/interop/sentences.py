"""The sentences of a certificate: given ones, or the model's own sample, and random ones where these are too few."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from attendo.errors import DataError, ModelError, UsageError
from attendo.interop.certificate import Reading
from attendo.text import CONTROL_PIECES, UNK
from attendo.text_model import TextModel
from attendo.text_model.prefixes import prefixes_of as text_model_prefixes

LEAST = 200
_LONGEST = 256  # tokens: longer ones would take all the time
_LONGEST_RANDOM = 12


@dataclass(frozen=True)
class Sentences:
    """Sources as ids, and how answers read, where that is known."""

    sources: list[list[int]]
    reading: Reading | None = None
    notes: tuple[str, ...] = ()  # what became of the given ones


def sentences_of(
    model: TextModel, texts: Sequence[str] | None = None, references: Sequence[str] | None = None, least: int = LEAST
) -> Sentences:
    """All texts that are given, or as many of the sample as are needed. Given ones that cannot be asked are told."""
    if references is not None and len(references) != len(texts or ()):
        raise UsageError("comparison_reference_count_mismatch", sources=len(texts or ()), references=len(references))
    given = texts is not None
    if texts is None:
        texts, references = [source for source, _ in model.stored.sample], [each for _, each in model.stored.sample]
        texts, references = texts[:least], references[:least]
    encoded, room = model.source_tokenizer.encode_many(texts), _room(model)
    kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= room]
    notes = _left_out(encoded, room) if given else []
    sources = [encoded[number] for number in kept]
    reading = None
    if find_spec("sacrebleu") is not None:
        beside = [references[number] for number in kept] if references else []
        reading = Reading(model.target_tokenizer.decode, len(kept), beside)
    before, _ = prefixes_of(model)
    if kept and len(kept) < least:
        where = "given" if given else "in the model's sample"
        notes.append(
            f"sentences {where}: {len(kept)}; the other {least - len(kept)} are random ids, and no part of a BLEU"
        )
    sources += [ids[:room] for ids in random_sources(model.source_tokenizer.vocab_size, least - len(sources))]
    return Sentences([[*before, *source] for source in sources], reading, tuple(notes))


def _left_out(encoded: Sequence[Sequence[int]], room: int) -> list[str]:
    """Of the given ones; where none is left, a certificate would not be what was asked for."""
    empty, long = sum(not ids for ids in encoded), sum(len(ids) > room for ids in encoded)
    reasons = [
        *([f"{empty} say nothing"] if empty else []),
        *([f"{long} have more than {room} tokens"] if long else []),
    ]
    if empty + long == len(encoded):
        told = f": {' and '.join(reasons)}" if reasons else ", there are none"
        raise DataError("sentences_not_comparable", count=len(encoded), reason=told)
    return [f"of {len(encoded)} given sentences {' and '.join(reasons)}, and are left out"] if reasons else []


def random_sources(vocab_size: int, count: int) -> list[list[int]]:
    """The same in every run."""
    dice = random.Random(1)
    tokens = range(len(CONTROL_PIECES), vocab_size) or [UNK]
    return [dice.choices(tokens, k=dice.randint(1, _LONGEST_RANDOM)) for _ in range(count)]


def _room(model: TextModel) -> int:
    """Tokens of a source whose answer still has positions; `certify` gives it 10 tokens, and 3 for every 2 of these."""
    config = model.network.config
    if config.positions != "learned":
        return _LONGEST
    before, begin = prefixes_of(model)
    room = min(_LONGEST, (config.max_length - len(before) - len(begin) - 12) * 2 // 3)
    if room < 1:
        raise ModelError("max_length_too_short", max_length=config.max_length, needed=len(before) + len(begin) + 14)
    return room


def prefixes_of(model: TextModel) -> tuple[list[int], list[int]]:
    """What stands before every source, and what every answer begins with, where a model has such a thing."""
    before, begin = text_model_prefixes(model.generation, model.source_tokenizer, model.target_tokenizer)
    return list(before), list(begin)
