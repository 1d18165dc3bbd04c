"""Loads a model of transformers or Marian as it is: imported in memory, with a certificate.

The weights are read from the original files at every start, so nothing is copied to the disk, a read-only folder
works, and a change of the original applies. Only the certificate is cached, by the contents of the files:
`~/.cache/attendo/certificates/SHA-256.json` (or in `XDG_CACHE_HOME`).
"""

import hashlib
import json
import os
import warnings
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from attendo import atomic_files
from attendo.errors import AttendoError, MessagePart, ModelError
from attendo.interop.errors import join_reasons
from attendo.interop.import_model import certify_import, find_missing_system, read_import
from attendo.model_files import read_json
from attendo.text_model import TextModel, pick_device

_SENTENCES = 16  # enough to notice a wrong network; `attendo import` compares 200
# Of the files that an import reads.
_READ_SUFFIXES = (".json", ".txt", ".model", ".spm", ".safetensors", ".npz", ".bin", ".gz", ".yml", ".vocab", ".zip")
_CACHED_FIELDS = ("theirs", "sentences", "same_answers", "largest_difference")


class ForeignFolderWarning(UserWarning):
    """The result of the comparison of a foreign model that was loaded directly, or a remark of its import."""


def load_foreign_folder(folder: Path, device: str) -> TextModel:
    """Import a folder or zip file in memory. The certificate and the remarks are warnings.

    A failed comparison is an error.
    """
    imported = read_import(folder)
    kind = imported.folder.model_type
    if (missing := find_missing_system(imported)) is not None:
        _warn("foreign_folder_not_compared", folder=folder, kind=kind, package=missing)
    else:
        cache = _cache_path(folder)
        found = _read_certificate(cache)
        if found is None:
            certificate = certify_import(imported, imported.build_text_model(), None, _SENTENCES)
            if not certificate.passed:
                reasons = join_reasons(certificate.reasons)
                raise ModelError("foreign_folder_differs", folder=folder, reasons=reasons)
            # Marian's searches are not compared with pre-norm, and it shows scores, not logits.
            same = min((search.same_answers for search in certificate.searches), default=0)
            scores = certificate.token_scores
            largest = scores.largest_difference if scores else certificate.largest_difference
            values = certificate.theirs, certificate.sentences, same, largest
            found = dict(zip(_CACHED_FIELDS, values, strict=True))
            _write_certificate(cache, {**found, "certificate": certificate.as_json()})
            imported = read_import(folder)  # the comparison drops the weights
        difference = f"{float(found['largest_difference']):.1e}"
        _warn("foreign_folder_loaded", folder=folder, kind=kind, **{**found, "largest_difference": difference})
    for remark in imported.remarks():
        warnings.warn(str(remark), ForeignFolderWarning, stacklevel=2)
    imported.network.to(pick_device(device))
    return imported.build_text_model()


def _warn(code: str, **values: object) -> None:
    warnings.warn(str(MessagePart(code, **values)), ForeignFolderWarning, stacklevel=3)


def _cache_path(folder: Path) -> Path | None:
    """Return the path of the certificate, or None without a home folder. Its name changes with every file."""
    packages = ("attendo", "transformers", "pymarian", "torch", "safetensors", "sentencepiece")
    versions = {name: version(name) for name in packages if find_spec(name) is not None}
    content = hashlib.sha256(json.dumps([_SENTENCES, versions]).encode())
    for path in list_read_files(folder):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        content.update(f"\n{path.name}\n{digest}".encode("utf-8", "surrogateescape"))
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return base / "attendo" / "certificates" / f"{content.hexdigest()}.json"


def list_read_files(folder: Path) -> list[Path]:
    """Return the files that an import may read."""
    paths = [folder] if folder.is_file() else folder.iterdir()
    return sorted(each for each in paths if each.suffix in _READ_SUFFIXES and each.is_file())


def _read_certificate(path: Path | None) -> dict[str, Any] | None:
    """Return the numbers of a cached certificate, or None if there is none. A damaged file is ignored."""
    if path is None:
        return None
    try:
        content = read_json(path)
    except AttendoError:
        return None
    found = {name: content.get(name) for name in _CACHED_FIELDS}
    kinds = {"theirs": str, "sentences": int, "same_answers": int, "largest_difference": float}
    return found if all(isinstance(found[name], kind) for name, kind in kinds.items()) else None


def _write_certificate(path: Path | None, content: dict[str, Any]) -> None:
    """Write the file in one step: two processes may start together. Without a writable cache there is no file."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_files.replace_file(path, json.dumps(content).encode())
    except (OSError, AttendoError):
        return
