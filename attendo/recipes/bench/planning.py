"""From what a person asks for to pieces of work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch

from attendo.data.parallel import read_lines
from attendo.errors import DataError, UsageError
from attendo.model.config import ModelConfig
from attendo.recipes.bench.comparison import Rival
from attendo.recipes.bench.rivals import RIVALS
from attendo.recipes.bench.work import Precision, Work
from attendo.settings import nearest
from attendo.text import CONTROL_PIECES, Tokenizer


@dataclass(frozen=True)
class Sentences:
    """Sources as ids, and what each should be answered with where that is known."""

    path: Path
    sources: Sequence[Sequence[int]]
    references: Sequence[str] | None = None


def parse_rivals(text: str, precision: Precision) -> list[Rival]:
    """`ctranslate2:int8,transformers`: names, each with a precision of its own or that of attendo."""
    rivals = []
    for word in filter(None, (each.strip() for each in text.split(","))):
        name, _, own = word.partition(":")
        if name not in RIVALS:
            raise UsageError(
                "unknown_rival", name=name, suggestion=nearest(name, list(RIVALS)), known=", ".join(RIVALS)
            )
        if own and own not in get_args(Precision):
            raise UsageError("unknown_rival_precision", rival=word, precision=own, known=", ".join(get_args(Precision)))
        rivals.append(Rival(name, own or precision))  # type: ignore[arg-type]
    return rivals


def forced_work(
    config: ModelConfig, source_length: int, steps: int, beams: Sequence[int], batches: Sequence[int]
) -> list[Work]:
    """Random sources of one length, eos included, and answers of exactly `steps` tokens."""
    first, size = len(CONTROL_PIECES), config.source_vocab_size or 0
    if size <= first:
        raise UsageError("vocabulary_only_control_tokens", size=size)
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(first, size, (max(batches), max(1, source_length - 1)), generator=generator).tolist()
    works = [Work(ids[:batch], beam, batch, least=steps, most=steps) for beam in beams for batch in batches]
    if works[0].longest > (room := _room(config)):
        raise UsageError("sequences_exceed_positions", limit=room, length=works[0].longest)
    return works


def read_sentences(path: Path, tokenizer: Tokenizer, references: Path | None = None) -> Sentences:
    """The lines of a file that are not empty, each with the line of the references that stands beside it."""
    lines = list(read_lines(path))
    expected = list(read_lines(references)) if references is not None else lines
    if len(expected) != len(lines):
        raise DataError(
            "reference_line_count_mismatch",
            references=references,
            reference_count=len(expected),
            path=path,
            count=len(lines),
        )
    encoded = tokenizer.encode_many([line if line.strip() else "" for line in lines])
    kept = [(ids, reference) for ids, reference in zip(encoded, expected, strict=True) if ids]
    if not kept:
        raise DataError("file_has_no_text", path=path)
    sources, beside = zip(*kept, strict=True)
    return Sentences(path, sources, beside if references is not None else None)


def natural_work(sentences: Sentences, config: ModelConfig, beams: Sequence[int], batches: Sequence[int]) -> list[Work]:
    """For all sentences the same limit, twice the longest source and 20 tokens more."""
    sources = sentences.sources
    longest, room = max(map(len, sources)), _room(config)
    if longest >= room:
        raise DataError("line_exceeds_positions", path=sentences.path, length=longest, limit=room)
    most = int(min(2 * longest + 20, room - 1))
    return [Work(sources, beam, batch, least=0, most=most) for beam in beams for batch in batches]


def _room(config: ModelConfig) -> float:
    return config.max_length if config.positions == "learned" else math.inf
