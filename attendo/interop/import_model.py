"""Import of another system's model as a model folder, which is kept only if its certificate passes."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attendo import atomic_files, model_folder
from attendo.errors import MessagePart, ModelError, UsageError, cut_text, list_names, require_package
from attendo.interop.certificate import CERTIFICATE_FILE, Bounds, Certificate
from attendo.interop.certify import certify, collect_sentences, fit_source_length, model_prefix_ids
from attendo.interop.compared_systems import TorchSystem, TransformersSystem
from attendo.interop.export import ModelMismatchError
from attendo.interop.huggingface.folder import read_folder
from attendo.interop.huggingface.imported import MULTILINGUAL_MODEL_TYPES, SUPPORTED, ImportedModel
from attendo.interop.huggingface.read_models import from_bart, from_m2m100, from_marian
from attendo.interop.huggingface.read_tokenizers import compare_tokenizations
from attendo.interop.marian.certify_import import certify_marian_import
from attendo.interop.marian.imported import ImportedMarian
from attendo.interop.marian.marian_process import require_marian
from attendo.interop.marian.read_model import is_marian, read_marian
from attendo.model_files import write_json
from attendo.text_model import TextModel, load

_DEFAULT_POSITIONS = 1024  # if config.json has no max_position_embeddings


def require_other_system(path: str | Path) -> None:
    """Raise a `UsageError` if the system that checks an import of this path is not installed."""
    if is_marian(path):
        require_marian()
    else:
        require_package("transformers", "hf", "the check of an import (skipped with --no-proof)")


def import_model(
    imported: ImportedModel | ImportedMarian, out: str | Path, texts: Sequence[str] | None = None, prove: bool = True
) -> Certificate | None:
    """Write the model folder `out` and return its certificate, or None without `prove`.

    The written folder is loaded again and compared with the original on `texts` or on random sentences.
    A difference beyond the bounds raises a `ModelMismatchError` and removes the folder.
    """
    out = Path(out).resolve()
    if out.exists():
        raise UsageError("output_path_exists", path=out)
    with atomic_files.exclusive_target(out), atomic_files.new_folder(out) as folder:
        folder.rmdir()
        imported.build_text_model().save(folder)
        if not prove:
            return None
        certificate = _certify(imported, load(folder, "cpu"), texts)
        if not certificate.passed:
            raise ModelMismatchError(out, certificate)
        _write_certificate(folder, certificate)
    return certificate


def _certify(imported: ImportedModel | ImportedMarian, model: TextModel, texts: Sequence[str] | None) -> Certificate:
    if isinstance(imported, ImportedMarian):
        return certify_marian_import(imported, model, texts)
    before, begin = model_prefix_ids(model)
    max_length = _max_source_length(imported, len(begin))
    collected = collect_sentences(model, texts)
    sentences = collected.sources
    prefix = None if "source" in imported.sides_without_language() else before
    texts = texts or [model.source_tokenizer.decode(source[len(before) :]) for source in sentences]
    comparison = compare_tokenizations(
        (imported.folder.path, imported.folder.model_type), imported.source, model.source_tokenizer, prefix, texts
    )
    theirs = TransformersSystem.from_import(imported, begin)
    sources = [source[:max_length] for source in sentences]
    certificate = certify(TorchSystem(model.network, "hf", begin), theirs, sources, Bounds())
    return replace(
        certificate,
        notes=(*collected.notes, *imported.remarks(), *([comparison.summary] if comparison.agrees else [])),
        reasons=(
            *certificate.reasons,
            *([] if comparison.agrees else [MessagePart("tokenizer_differs", comparison=comparison.summary)]),
        ),
    )


def _max_source_length(imported: ImportedModel, prefix_length: int) -> int:
    """Return the longest source, in tokens, whose output limit (10 + 3/2 of it) fits the original's positions."""
    field = imported.folder.setting("max_position_embeddings")
    positions = field.count() or _DEFAULT_POSITIONS
    max_length = fit_source_length(positions, prefix_length)
    if max_length < 1:
        raise field.make_error("needs_positions_for_proof", least=prefix_length + 14)
    return max_length


def _write_certificate(folder: Path, certificate: Certificate) -> None:
    """Write certificate.json into the model folder and add it to the manifest."""
    write_json(folder / CERTIFICATE_FILE, certificate.as_json())
    (folder / "manifest.json").unlink()
    model_folder.write_manifest(folder, model_folder.FORMAT, model_folder.VERSION)


def read_import(
    path: str | Path, source_language: str | None = None, target_language: str | None = None
) -> ImportedModel | ImportedMarian:
    """Read a model of Marian or of transformers. The languages are for multilingual models of transformers."""
    if not is_marian(path):
        return from_folder(path, source_language=source_language, target_language=target_language)
    if source_language or target_language:
        raise UsageError("marian_languages_are_labels", path=path)
    return read_marian(path)


def from_folder(
    path: str | Path,
    with_tokenizers: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
) -> ImportedModel:
    """Read a model folder of transformers. The languages are for multilingual models."""
    folder = read_folder(path)
    if folder.model_type in MULTILINGUAL_MODEL_TYPES:
        return from_m2m100(folder, with_tokenizers, source_language, target_language)
    if source_language or target_language:
        raise UsageError("model_without_languages", path=folder.path, kind=folder.model_type)
    match folder.model_type:
        case "marian" | "pegasus":
            return from_marian(folder, with_tokenizers)
        case "bart":
            return from_bart(folder, with_tokenizers)
        case kind:
            known = ", ".join(f"{name} ({description})" for name, description in SUPPORTED.items())
            field = folder.setting("architectures")
            names = [field.value] if isinstance(field.value, str) else map(str, field.items())
            architectures = list_names(names) or "nothing"
            raise ModelError(
                "import_model_type_unsupported",
                path=folder.path,
                kind=cut_text(kind),
                architectures=architectures,
                known=known,
            )
