"""Prepared data on disk, opened for training: tokenizers, shards of ids, validation texts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attendo.data.index import CorpusRecord, check_file, read_index
from attendo.data.pharaoh import Link, parse_links
from attendo.data.shards import MAX_LINKED_WORDS, DamagedDataError, ShardSet
from attendo.errors import DataError
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
    links: ShardSet | None = None  # links of words, if the corpus has alignments
    unlinked: int = 0  # pairs whose links were dropped


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
    valid_links: tuple[frozenset[Link] | None, ...] = ()  # links of words of each validation pair, if any has some

    @property
    def has_links(self) -> bool:
        """Whether any corpus has alignments."""
        return any(corpus.links is not None for corpus in self.corpora)


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
    corpora = tuple(_open_corpus(folder, corpus, sizes, verify) for corpus in index.corpora)
    valid, valid_links = _read_valid_pairs(folder / VALID_FILE)
    return PreparedData(
        folder=folder,
        source_tokenizer=source,
        target_tokenizer=target,
        corpora=corpora,
        valid=valid,
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
        valid_links=valid_links,
    )


def _open_corpus(folder: Path, corpus: CorpusRecord, sizes: tuple[int, int], verify: bool) -> PreparedCorpus:
    return PreparedCorpus(
        name=corpus.name,
        weight=corpus.weight,
        shards=ShardSet(folder, corpus.shards, sizes, verify),
        tokens=corpus.source_tokens + corpus.target_tokens,
        bad=corpus.bad,
        cut=corpus.cut,
        links=ShardSet(folder, corpus.links, (MAX_LINKED_WORDS, 1), verify) if corpus.links else None,
        unlinked=corpus.unlinked,
    )


def _find_context(data: Mapping[str, Any]) -> int:
    """Return the greatest `context_sentences` of the corpora. Folders of earlier versions have none."""
    return max(each.get("context_sentences", 0) for each in (data, *data.get("corpora", ())))


def _read_valid_pairs(path: Path) -> tuple[list[tuple[str, str]], tuple[frozenset[Link] | None, ...]]:
    """Return the validation pairs and their links, if any pair has some."""
    try:
        with path.open("rb") as file:
            rows = [json.loads(line) for line in file]
        pairs = [(row["source"], row["target"]) for row in rows]
        aligned = [row.get("alignment") for row in rows]
        if not any(each is not None for each in aligned):
            return pairs, ()
        return pairs, tuple(None if each is None else parse_links(each, path.name)[0] for each in aligned)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, DataError):
        raise DamagedDataError("validation_pairs_unreadable", path=path) from None
