"""The manifest of a generated corpus: JSON lines, appended while the work goes on.

    {"format": "attendo.corpus", "version": 1, "settings": {...}}    model, options and fields
    {"shard": "a.txt", "input": {...}}                                a shard that was found: its lines and checksum
    {"shard": "a.txt", "input": {...}, "output": {...}}               the same shard when it is finished

The last line of a shard counts. At the end, every shard has one line. A crash may cut the last line; it is dropped.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attendo import atomic_files
from attendo.errors import DataError

FILE_NAME = "manifest.jsonl"
_FORMAT, _VERSION = "attendo.corpus", 1  # a new version if the lines of a window change


@dataclass(frozen=True)
class ShardInput:
    """A shard as it was read: it must not change until the work is done."""

    path: str
    lines: int
    bytes: int
    modified: int  # nanoseconds
    sha256: str


@dataclass(frozen=True)
class Counts:
    """Sums over the lines of a window, a shard or a corpus."""

    lines: int = 0
    tokens: int = 0  # generated
    cut: int = 0  # outputs cut at the length limit
    unknown: int = 0  # lines with words that are not in the vocabulary

    def __add__(self, other: "Counts") -> "Counts":
        sums = {name: value + getattr(other, name) for name, value in asdict(self).items()}
        return Counts(**sums)


@dataclass(frozen=True)
class ShardOutput:
    """A finished shard."""

    counts: Counts
    bytes: int
    sha256: str


class Manifest:
    """Inputs and finished outputs by the name of the shard."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self.settings: Mapping[str, Any] | None = None  # None before `begin`
        self.inputs: dict[str, ShardInput] = {}
        self.outputs: dict[str, ShardOutput] = {}
        if atomic_files.truncate_to_lines(self._path):
            self._read()

    def begin(self, settings: Mapping[str, Any]) -> None:
        self.settings = json.loads(json.dumps(settings))  # as it is read again: lists, not tuples
        atomic_files.replace_file(self._path, self._header())

    def add_input(self, shard: str, read: ShardInput) -> None:
        self.inputs[shard] = read
        atomic_files.append(self._path, self._line(shard))

    def add_output(self, shard: str, written: ShardOutput) -> None:
        self.outputs[shard] = written
        atomic_files.append(self._path, self._line(shard))

    def compact(self) -> None:
        """Write one line per shard, in the order of their names."""
        atomic_files.replace_file(self._path, self._header() + b"".join(map(self._line, sorted(self.inputs))))

    def _header(self) -> bytes:
        return _to_json({"format": _FORMAT, "version": _VERSION, "settings": self.settings})

    def _line(self, shard: str) -> bytes:
        content: dict[str, Any] = {"shard": shard, "input": asdict(self.inputs[shard])}
        if (output := self.outputs.get(shard)) is not None:
            content["output"] = {**asdict(output.counts), "bytes": output.bytes, "sha256": output.sha256}
        return _to_json(content)

    def _read(self) -> None:
        number = 0
        try:
            with self._path.open(encoding="utf-8") as file:
                for number, line in enumerate(file, start=1):
                    content = json.loads(line)
                    if number > 1:
                        self._read_shard(content)
                    elif (content["format"], content["version"]) == (_FORMAT, _VERSION):
                        self.settings = dict(content["settings"])
                    else:
                        raise DataError("corpus_manifest_damaged", path=self._path, line=number)
        except (ValueError, TypeError, KeyError):
            raise DataError("corpus_manifest_damaged", path=self._path, line=number) from None

    def _read_shard(self, content: Mapping[str, Any]) -> None:
        name = content["shard"]
        self.inputs[name] = ShardInput(**content["input"])
        if output := dict(content.get("output", {})):
            size, checksum = output.pop("bytes"), output.pop("sha256")
            self.outputs[name] = ShardOutput(Counts(**output), size, checksum)


def read_shard_input(path: Path, lines: int) -> ShardInput:
    """Return what identifies a shard: its size, time and checksum."""
    with path.open("rb") as file:
        checksum = hashlib.file_digest(file, "sha256").hexdigest()
    found = path.stat()
    return ShardInput(str(path), lines, found.st_size, found.st_mtime_ns, checksum)


def _to_json(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False) + "\n").encode("utf-8", "surrogateescape")
