"""Parts of a preparation: the result of every window of a pass, in a file of its own.

Each is renamed into place when it is complete. So whichever process computes a window, at whatever time, the bytes are
the same, and a call that was killed continues with the windows that are missing.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attendo import atomic_files
from attendo.data.corpus_windows import Window

Pass = Literal["scan", "encode"]
Arrays = Mapping[str, NDArray[Any]]
IDENTITY_FILE = "identity"


@dataclass(frozen=True)
class Part:
    """Values in JSON, and arrays of numbers."""

    values: Mapping[str, Any]
    arrays: Arrays


@dataclass(frozen=True)
class PartFolder:
    """The parts of a preparation. If they are `durable`, they survive a power failure."""

    path: Path
    durable: bool

    def begin(self, identity: str) -> None:
        """Create the folder. Keep the parts of an earlier call if it had the same text and settings."""
        file = self.path / IDENTITY_FILE
        if not (self.durable and file.is_file() and file.read_text("utf-8") == identity):
            atomic_files.remove(self.path)
        for name in ("scan", "encode"):
            (self.path / name).mkdir(parents=True, exist_ok=True)
        if self.durable:
            atomic_files.replace_file(file, identity.encode())

    def has(self, name: Pass, window: Window) -> bool:
        return self._find(name, window).exists()

    def write(self, name: Pass, window: Window, part: Part) -> None:
        """Write a part atomically. A process that outlived its parent may write the same part."""
        types = {each: [array.dtype.str, array.nbytes] for each, array in part.arrays.items()}
        header = json.dumps([part.values, types]).encode() + b"\n"
        content = b"".join([header, *(array.tobytes() for array in part.arrays.values())])
        path = self._find(name, window)
        new = path.with_name(f"{atomic_files.TEMPORARY_PREFIX}{os.getpid()}-{path.name}")
        atomic_files.write(new, content)
        if self.durable:
            atomic_files.move_into_place(new, path)
        else:
            new.rename(path)

    def read(self, name: Pass, window: Window) -> Part:
        with self._find(name, window).open("rb") as file:
            values, types = json.loads(file.readline())
            arrays = {each: np.frombuffer(file.read(size), dtype) for each, (dtype, size) in types.items()}
        return Part(values, arrays)

    def _find(self, name: Pass, window: Window) -> Path:
        return self.path / name / f"{window.corpus:02d}-{window.number:08d}"
