"""Prepared data on disk, opened for training: tokenizers, shards of ids, validation texts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.index import check_file, read_index
from attendo.data.shards import DamagedDataError, ShardSet
from attendo.text import Tokenizer, load_tokenizer

VALID_FILE = "valid.jsonl"
_READ_PAIRS = 65_536  # pairs


@dataclass(frozen=True)
class PreparedCorpus:
    """One corpus as ids."""

    name: str
    weight: float  # how often an epoch uses it
    shards: ShardSet
    tokens: int  # of both sides
    bad: dict[str, int]  # skipped lines, by reason
    cut: int = 0  # number of truncated sources


@dataclass(frozen=True)
class PreparedData:
    """The output of `prepare`. With a joint vocabulary both tokenizers are the same object."""

    folder: Path
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    corpora: tuple[PreparedCorpus, ...]
    valid: list[tuple[str, str]]
    pairs: int
    source_tokens: int
    target_tokens: int
    max_length: int  # maximum tokens per side
    settings_hash: str  # SHA-256 of the settings
    fingerprint: str  # SHA-256 of the index, which covers all files
    cut_source: int | None = None  # tokens that longer sources were truncated to
    context_sentences: int = 0  # preceding sentences in the sources
    window: int | None = None  # tokens per example of language-model text; None for pairs
    valid_windows: ShardSet | None = None  # the whole validation text; `valid` then holds some prompts from it


def measure_longest_side(corpus: PreparedCorpus) -> int:
    """Return the token count of the longest sentence on either side. Reads all data, in parts."""
    longest = 0
    for first in range(0, len(corpus.shards), _READ_PAIRS):
        sides = corpus.shards.read(first, min(first + _READ_PAIRS, len(corpus.shards)))
        longest = max(longest, *(int(side.lengths.max()) for side in sides))
    return longest


def open_prepared(folder: Path, verify: bool = False) -> PreparedData:
    """Open prepared data. Shards are checked by header, size and sampled chunks, or fully with `verify`."""
    index, fingerprint = read_index(folder)
    for name, expected in index.files.items():
        check_file(folder / name, expected)
    joint = any(name.startswith("joint.") for name in index.files)
    source = load_tokenizer(folder, "joint" if joint else "source")
    target = source if joint else load_tokenizer(folder, "target")
    sizes = (index.source_vocab_size, index.target_vocab_size)
    corpora = tuple(
        PreparedCorpus(
            name=corpus.name,
            weight=corpus.weight,
            shards=ShardSet(folder, corpus.shards, sizes, verify),
            tokens=corpus.source_tokens + corpus.target_tokens,
            bad=corpus.bad,
            cut=corpus.cut,
        )
        for corpus in index.corpora
    )
    return PreparedData(
        folder=folder,
        source_tokenizer=source,
        target_tokenizer=target,
        corpora=corpora,
        valid=_read_valid_pairs(folder / VALID_FILE),
        pairs=index.pairs,
        source_tokens=index.source_tokens,
        target_tokens=index.target_tokens,
        max_length=index.max_length,
        settings_hash=index.settings_sha256,
        fingerprint=fingerprint,
        cut_source=index.settings["data"].get("cut_source"),
        context_sentences=_find_context(index.settings["data"]),
        window=index.window,
        valid_windows=ShardSet(folder, index.valid.shards, sizes, verify) if index.window else None,
    )


def _find_context(data: Mapping[str, Any]) -> int:
    """Return the greatest `context_sentences` of the corpora. Folders of earlier versions have none."""
    return max(each.get("context_sentences", 0) for each in (data, *data.get("corpora", ())))


def _read_valid_pairs(path: Path) -> list[tuple[str, str]]:
    try:
        with path.open("rb") as file:
            rows = [json.loads(line) for line in file]
        return [(row["source"], row["target"]) for row in rows]
    except (OSError, ValueError, KeyError, TypeError):
        raise DamagedDataError("validation_pairs_unreadable", path=path) from None
