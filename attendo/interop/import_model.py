"""Import of another system's model as a model folder, which is kept only if its certificate passes."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from attendo import atomic_files, model_folder
from attendo.errors import MessagePart, UsageError, require_package
from attendo.interop.certificate import CERTIFICATE_FILE, Bounds, Certificate
from attendo.interop.certify import MIN_SENTENCES, certify, collect_sentences, fit_source_length, model_symbols
from attendo.interop.compared_systems import TransformersSystem
from attendo.interop.export import ModelMismatchError
from attendo.interop.families import FAMILY_BY_TYPE
from attendo.interop.huggingface.folder import HuggingFaceFolder, read_folder
from attendo.interop.huggingface.imported import ImportedModel
from attendo.interop.huggingface.read_bart import from_bart
from attendo.interop.huggingface.read_m2m100 import from_m2m100
from attendo.interop.huggingface.read_marian import from_marian
from attendo.interop.huggingface.read_pegasus import from_pegasus
from attendo.interop.huggingface.read_t5 import from_t5
from attendo.interop.huggingface.read_t5gemma2 import from_t5gemma2
from attendo.interop.huggingface.read_tokenizers import compare_tokenizations
from attendo.interop.marian.certify_import import certify_marian_import
from attendo.interop.marian.imported import ImportedMarian
from attendo.interop.marian.marian_process import MODULE, PACKAGE, require_marian
from attendo.interop.marian.read_model import is_marian, read_marian
from attendo.interop.recorded_system import record_system
from attendo.model_files import write_json
from attendo.text import CONTROL_PIECES, UNK
from attendo.text_model import TextModel
from attendo.text_model.constraints import Ids
from attendo.text_model.inputs import ModelSymbols

# Of the families without languages.
_READERS: dict[str, Callable[[HuggingFaceFolder, bool], ImportedModel]] = {
    "marian": from_marian,
    "bart": from_bart,
    "mvp": from_bart,
    "blenderbot": from_bart,
    "pegasus": from_pegasus,
    "t5": from_t5,
    "mt5": from_t5,
    "umt5": from_t5,
    "t5gemma2": from_t5gemma2,
}
_LONG_TOKENS = 150  # tokens of the long source and target
_DEFAULT_POSITIONS = 1024  # if config.json has no max_position_embeddings


def require_other_system(path: str | Path) -> None:
    """Raise a `UsageError` if the system that checks an import of this path is not installed."""
    if is_marian(path):
        require_marian()
    else:
        require_package("transformers", "hf", "the check of an import (skipped with --no-proof)")


def find_missing_system(imported: ImportedModel | ImportedMarian) -> str | None:
    """Return the package that checks an import if it is not installed."""
    package, module = (PACKAGE, MODULE) if isinstance(imported, ImportedMarian) else ("transformers",) * 2
    return package if find_spec(module) is None else None


def import_model(
    imported: ImportedModel | ImportedMarian,
    out: str | Path,
    texts: Sequence[str] | None = None,
    prove: bool = True,
    min_sentences: int = MIN_SENTENCES,
) -> Certificate | None:
    """Write the model folder `out` and return its certificate, or None without `prove`.

    The folder has the precision of the imported weights.

    The written folder is loaded again and compared with the original on `texts` or on random sentences.
    A difference beyond the bounds raises a `ModelMismatchError` and removes the folder.
    """
    out = Path(out).resolve()
    if out.exists():
        raise UsageError("output_path_exists", path=out)
    with atomic_files.exclusive_target(out), atomic_files.new_folder(out) as folder:
        folder.rmdir()
        imported.build_text_model().save(folder, keep_dtype=True)
        if not prove:
            return None
        model = TextModel(model_folder.load_model(folder, into=imported.network))
        certificate = certify_import(imported, model, texts, min_sentences)
        if not certificate.passed:
            raise ModelMismatchError(out, certificate)
        model_folder.load_model(folder, into=imported.network)  # the comparison drops the weights
        _write_certificate(folder, certificate)
    return certificate


def certify_import(
    imported: ImportedModel | ImportedMarian,
    model: TextModel,
    texts: Sequence[str] | None,
    min_sentences: int = MIN_SENTENCES,
) -> Certificate:
    """Compare the model with its original.

    To save memory, the weights of the model are dropped before the original is loaded. Marian's models are small and
    stay.
    """
    if isinstance(imported, ImportedMarian):
        return certify_marian_import(imported, model, texts, min_sentences)
    symbols = model_symbols(model)
    max_length = _max_source_length(imported, symbols)
    collected = collect_sentences(model, texts, min_count=min_sentences)
    added = None if "source" in imported.missing_languages else symbols
    texts = texts or [model.source_tokenizer.decode(source) for source in collected.without_symbols]
    comparison = compare_tokenizations(
        (imported.folder.path, imported.folder.model_type), imported.source, model.source_tokenizer, added, texts
    )
    sources = [symbols.wrap_source(source[:max_length]) for source in collected.without_symbols]
    pairs, notes = collected.pairs, list(collected.notes)
    if not pairs:
        long_pair, length = _make_long_pair(imported, symbols)
        pairs, notes = [long_pair], [*notes, MessagePart("long_pair_compared", length=length)]
    ours = record_system(model.network, "hf", sources, pairs, symbols.begin)
    theirs = TransformersSystem.from_import(imported, symbols.begin)
    certificate = certify(ours, theirs, sources, Bounds(), pairs=pairs)
    return replace(
        certificate,
        notes=(*notes, *imported.remarks(), *([comparison.summary] if comparison.agrees else [])),
        reasons=(
            *certificate.reasons,
            *([] if comparison.agrees else [MessagePart("tokenizer_differs", comparison=comparison.summary)]),
        ),
    )


def _make_long_pair(imported: ImportedModel, symbols: ModelSymbols) -> tuple[tuple[Ids, Ids], int]:
    """Return a source and a target of random tokens, and their length: 150 if the original has the positions."""
    positions = imported.folder.setting("max_position_embeddings").count() or _DEFAULT_POSITIONS
    added = max(len(symbols.wrap_source(())), len(symbols.begin)) + 1
    length = min(_LONG_TOKENS, positions - added)
    dice = random.Random(1)
    source, target = (
        tuple(dice.choices(range(len(CONTROL_PIECES), order.size) or [UNK], k=length))
        for order in (imported.source, imported.target)
    )
    return (symbols.wrap_source(source), target), length


def _max_source_length(imported: ImportedModel, symbols: ModelSymbols) -> int:
    """Return the longest text, in tokens, whose output limit (10 + 3/2 of it) fits the original's positions."""
    field = imported.folder.setting("max_position_embeddings")
    positions = field.count() or _DEFAULT_POSITIONS
    added, begin = len(symbols.wrap_source(())), len(symbols.begin)
    max_length = fit_source_length(positions, begin) - added
    if max_length < 1:
        raise field.make_error("needs_positions_for_proof", least=begin + 12 + (3 * added + 4) // 2)
    return max_length


def _write_certificate(folder: Path, certificate: Certificate) -> None:
    """Write certificate.json into the model folder and add it to the manifest."""
    write_json(folder / CERTIFICATE_FILE, certificate.as_json())
    (folder / "manifest.json").unlink()
    model_folder.write_manifest(folder, model_folder.FORMAT, model_folder.VERSION)


def read_import(
    path: str | Path,
    source_language: str | None = None,
    target_language: str | None = None,
    keep_dtype: bool = False,
) -> ImportedModel | ImportedMarian:
    """Read a model of Marian or of transformers. The languages and `keep_dtype` are for models of transformers."""
    if not is_marian(path):
        return from_folder(
            path, source_language=source_language, target_language=target_language, keep_dtype=keep_dtype
        )
    if source_language or target_language:
        raise UsageError("marian_languages_are_labels", path=path)
    return read_marian(path)


def from_folder(
    path: str | Path,
    with_tokenizers: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
    keep_dtype: bool = False,
) -> ImportedModel:
    """Read a model folder of transformers. The languages are for multilingual models.

    Weights are converted to float32, or stay in half precision with `keep_dtype`.
    """
    folder = read_folder(path, keep_dtype)
    kind = folder.model_type
    if FAMILY_BY_TYPE[kind].has_languages:
        return from_m2m100(folder, with_tokenizers, source_language, target_language)
    if source_language or target_language:
        raise UsageError("model_without_languages", path=folder.path, kind=kind)
    return _READERS[kind](folder, with_tokenizers)
