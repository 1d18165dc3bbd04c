"""The index of a folder of prepared data: its contents, its settings and a checksum of every file."""

import json
from pathlib import Path
from typing import Any, Literal

from attendo import atomic_files
from attendo.data.shards import DamagedDataError, ShardRecord
from attendo.errors import DataError, UsageError
from attendo.model_files import checksum_file, json_sha256
from attendo.settings import Settings

INDEX_FILE = "index.json"
_SHARD_COUNTS = ("pairs", "source_tokens", "target_tokens")


class FileRecord(Settings):
    """Index entry of a file that is not a shard."""

    bytes: int
    sha256: str


class CorpusRecord(Settings):
    """One corpus, with the counts of its lines."""

    name: str
    weight: float
    lines: int
    pairs: int
    source_tokens: int
    target_tokens: int
    bad: dict[str, int]  # skipped lines, by reason
    cut: int = 0  # number of truncated sources
    unlinked: int = 0  # pairs whose links were dropped: the tokenizer changes the words
    shards: tuple[ShardRecord, ...]
    links: tuple[ShardRecord, ...] = ()  # of words, if the corpus has alignments

    @property
    def all_shards(self) -> tuple[ShardRecord, ...]:
        return (*self.shards, *self.links)

    @classmethod
    def from_shards(cls, shards: tuple[ShardRecord, ...], **facts: Any) -> "CorpusRecord":
        """Return the record of these shards, with their sums."""
        counts = {name: sum(getattr(shard, name) for shard in shards) for name in _SHARD_COUNTS}
        return cls(shards=shards, **counts, **facts)


class ValidRecord(Settings):
    """The validation pairs: from their own corpus, or held out from training."""

    name: str | None
    pairs: int
    bad: dict[str, int]
    shards: tuple[ShardRecord, ...] = ()  # contiguous windows of language-model text


class Index(Settings):
    """The content of index.json except its checksum."""

    format: Literal["attendo.data"] = "attendo.data"
    version: Literal[1] = 1
    pairs: int
    source_tokens: int
    target_tokens: int
    source_vocab_size: int
    target_vocab_size: int
    sample_pairs: int  # used to train the tokenizer
    max_length: int  # maximum tokens per side
    window: int | None = None  # tokens per example of language-model text, which has no source
    corpora: tuple[CorpusRecord, ...]
    valid: ValidRecord
    files: dict[str, FileRecord]
    settings: dict[str, Any]
    settings_sha256: str


def write_index(folder: Path, index: Index) -> None:
    content = index.model_dump(mode="json")
    text = json.dumps({**content, "sha256": json_sha256(content)}, indent=1, ensure_ascii=False)
    (folder / INDEX_FILE).write_text(text + "\n", "utf-8")


def read_index(folder: Path) -> tuple[Index, str]:
    """Return the index and its checksum. Raise `DataError` if it is missing, damaged or of another version."""
    path = folder / INDEX_FILE
    atomic_files.restore_folder(folder)
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError("index_read_failed", path=path, reason=error.strerror) from None
    except (ValueError, RecursionError):
        content = None
    checksum = content.pop("sha256", None) if isinstance(content, dict) else None
    if checksum is None or checksum != json_sha256(content):
        raise DamagedDataError("index_checksum_mismatch", path=path)
    try:
        index = Index(**content)
    except UsageError as error:
        raise DamagedDataError("index_incompatible", path=path, error=error) from None
    shards = [*(shard for corpus in index.corpora for shard in corpus.all_shards), *index.valid.shards]
    for name in (*index.files, *(shard.file for shard in shards)):
        if Path(name).name != name:
            raise DataError("index_file_outside_folder", path=path, name=name)
    return index, str(checksum)


def make_file_record(path: Path) -> FileRecord:
    return FileRecord(**checksum_file(path))


def check_file(path: Path, expected: FileRecord) -> None:
    try:
        found = make_file_record(path)
    except OSError as error:
        raise DamagedDataError("prepared_file_read_failed", path=path, reason=error.strerror) from None
    if found != expected:
        raise DamagedDataError("prepared_file_checksum_mismatch", path=path)
