"""Export of a text model to another system's files, which are kept only if the certificate passes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from attendo.errors import MessagePart, ModelError, UsageError, list_names, require_package
from attendo.interop import argos, exported_files
from attendo.interop.argos import LanguagePair
from attendo.interop.backends import check_onnx_defaults, describe_ctranslate2_changes
from attendo.interop.certificate import CERTIFICATE_FILE, Bounds, Certificate, ComparedSystem
from attendo.interop.certify import CertificateSentences, certify, collect_sentences, model_symbols
from attendo.interop.compared_systems import OnnxSystem, TorchSystem
from attendo.interop.ctranslate2 import folder as ctranslate2_folder
from attendo.interop.errors import join_reasons
from attendo.interop.exported_files import ExportPrecision, model_max_length
from attendo.interop.huggingface import write_folder
from attendo.interop.marian import write_model
from attendo.interop.marian.compared_marian import open_exported_model
from attendo.interop.marian.marian_process import require_marian
from attendo.interop.marian.write_model import without_pad_and_bos
from attendo.model_files import read_json, write_json
from attendo.model_folder import write_manifest
from attendo.text_model import TextModel

ExportFormat = Literal["ctranslate2", "hf", "onnx", "argos", "marian"]

_PACKAGES: dict[ExportFormat, tuple[str, ...]] = {
    "ctranslate2": ("ctranslate2",),
    "hf": ("transformers",),
    "onnx": ("onnx", "onnxruntime"),
    "argos": ("ctranslate2",),
    "marian": (),
}

# The bounds on tokens are wide. Random networks, and trained ones on random sources, give all words similar
# probabilities, and outputs diverge after the first different token.
BOUNDS: dict[ExportPrecision, Bounds] = {
    "float32": Bounds(),
    "float16": Bounds(same_tokens=0.9, mean_difference=1e-2, lost_bleu=0.2, agreement=95.0),
    "int8": Bounds(same_tokens=0.6, mean_difference=0.1, lost_bleu=0.5, agreement=85.0),
}
FLOAT32_SHARES = (0.0, 0.05, 0.1, 0.2, 0.4)  # of matrix products kept in float32, tried until int8 passes


class ModelMismatchError(ModelError):
    """The converted model differs from the original beyond the bounds. The files have been removed."""

    def __init__(self, goal: Path, certificate: Certificate) -> None:
        lossy = certificate.criterion == "lost_bleu"
        code = "quantized_model_differs" if lossy else "converted_model_differs"
        super().__init__(code, path=goal, reasons=join_reasons(certificate.reasons))
        self.certificate = certificate


@contextmanager
def _open_systems(to: ExportFormat, model: TextModel, folder: Path) -> Iterator[tuple[ComparedSystem, ComparedSystem]]:
    """Open both sides of the comparison. Marian runs in its own process."""
    if to != "marian":
        yield _LOAD_SYSTEMS[to](model, folder)
        return
    with open_exported_model(model, folder) as marian:
        yield TorchSystem(without_pad_and_bos(model.network), "marian"), marian


def _load_onnx_systems(model: TextModel, folder: Path) -> tuple[ComparedSystem, ComparedSystem]:
    prefix = model_symbols(model).begin
    return TorchSystem(model.network, None, prefix), OnnxSystem(folder, prefix)


_Writer = Callable[[TextModel, Path, ExportPrecision], list[MessagePart]]  # returns notes on limitations
_LOAD_SYSTEMS: dict[ExportFormat, Callable[[TextModel, Path], tuple[ComparedSystem, ComparedSystem]]] = {
    "ctranslate2": ctranslate2_folder.load_ctranslate2_systems,
    "hf": write_folder.load_transformers_systems,
    "onnx": _load_onnx_systems,
}


def check_packages(to: ExportFormat) -> None:
    """Raise a `UsageError` if a package for the format is missing. Call it before long work.

    Marian is large, so `export` asks for it only after it has checked the network.
    """
    for package in _PACKAGES[to]:
        require_package(package, "hf" if to == "hf" else "export", f"an export to {to}")


def export(
    model: TextModel,
    out: str | Path,
    to: ExportFormat,
    precision: ExportPrecision = "float32",
    sentences: CertificateSentences | None = None,
    languages: LanguagePair | None = None,
    max_loss: float | None = None,
) -> Certificate:
    """Write `out` in the format of another system and return the certificate. `languages` are for argos.

    A difference beyond the bounds of the precision raises a `ModelMismatchError` and removes the files. For onnx in
    int8, the shares of `FLOAT32_SHARES` are tried first. `max_loss` replaces the bound on lost BLEU in `BOUNDS` and
    needs sentences with references.
    """
    check_packages(to)
    if len(model.networks) > 1:
        raise UsageError("ensemble_export_unsupported", count=len(model.networks))
    model.require_autoregressive("an export")
    if faulty := [name for name, each in model.network.named_parameters() if not bool(each.isfinite().all())]:
        raise ModelError("weights_not_finite", parameters=list_names(faulty))
    if (to == "argos") != (languages is not None):
        raise UsageError("export_languages_mismatch")
    if to == "marian":
        write_model.check_marian_export(model)
        require_marian("export_proof_needs_marian")
    if to == "onnx" and precision == "float16":
        raise UsageError("onnx_float16_unsupported")
    goal, sentences = Path(out), sentences or collect_sentences(model)
    bounds = _bounds(precision, sentences, max_loss)
    if languages is not None:
        return _export_argos(model, goal, precision, _Certifier(goal, bounds, sentences), languages)
    *others, last = _writers(to, precision)
    proof, notes = _Certifier(goal, bounds, sentences), list[MessagePart]()
    for write in others:
        try:
            return _write_and_certify(model, write, proof, to, precision, notes)
        except ModelMismatchError as error:
            notes = notes or [MessagePart("all_int8_failed", reasons=join_reasons(error.certificate.reasons))]
    return _write_and_certify(model, last, proof, to, precision, notes)


def _write_and_certify(
    model: TextModel,
    write: _Writer,
    certifier: "_Certifier",
    to: ExportFormat,
    precision: ExportPrecision,
    notes: list[MessagePart],
) -> Certificate:
    with exported_files.new_export(certifier.goal) as folder:
        notes = [*write(model, folder, precision), *notes]
        with _open_systems(to, model, folder) as systems:
            certificate = certifier.certify(systems, notes)
        write_json(folder / CERTIFICATE_FILE, certificate.as_json())
        _write_manifest(folder, {"to": to, "precision": precision, "longest": model_max_length(model)})
    return certificate


def _bounds(precision: ExportPrecision, sentences: CertificateSentences, max_loss: float | None) -> Bounds:
    bounds = BOUNDS[precision]
    if max_loss is None:
        return bounds
    if bounds.lost_bleu is None:
        raise UsageError("max_loss_not_applicable", precision=precision)
    if sentences.evaluation is None or not sentences.evaluation.references:
        raise UsageError("max_loss_references_missing")
    return replace(bounds, lost_bleu=max_loss)


def _write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Write the manifest of all files, the certificate included. Facts in an existing manifest are kept."""
    path = folder / "manifest.json"
    if path.exists():
        facts = {**facts, **read_json(path)["facts"]}
        path.unlink()
    write_manifest(folder, exported_files.MANIFEST_FORMAT, exported_files.MANIFEST_VERSION, facts)


def _export_argos(
    model: TextModel, goal: Path, precision: ExportPrecision, certifier: "_Certifier", languages: LanguagePair
) -> Certificate:
    argos.check_argos_package(model, goal)
    with exported_files.new_export(goal, packed=True) as folder:
        tree, notes = argos.write_package_tree(model, folder, precision, languages)
        systems = ctranslate2_folder.load_ctranslate2_systems(model, tree / "model")
        certificate = certifier.certify(systems, notes)
        write_json(tree / CERTIFICATE_FILE, certificate.as_json())
        argos.pack_tree(tree, folder / goal.name)
    return certificate


@dataclass(frozen=True)
class _Certifier:
    """Sentences and bounds of the comparison."""

    goal: Path
    bounds: Bounds
    sentences: CertificateSentences

    def certify(self, systems: tuple[ComparedSystem, ComparedSystem], notes: list[MessagePart]) -> Certificate:
        evaluation = self.sentences.evaluation
        certificate = certify(*systems, self.sentences.sources, self.bounds, evaluation, self.sentences.pairs)
        on_random = self.bounds.agreement is not None and (evaluation is None or not evaluation.sentences)
        all_notes = (
            *self.sentences.notes,
            *notes,
            *([MessagePart("compared_on_random_sources")] if on_random else []),
            *_note_unused_references(certificate),
        )
        certificate = replace(certificate, notes=all_notes)
        if not certificate.passed:
            raise ModelMismatchError(self.goal, certificate)
        return certificate


def _note_unused_references(certificate: Certificate) -> list[MessagePart]:
    scored = certificate.scored
    if scored is None or scored.is_meaningful or certificate.bounds.lost_bleu is None:
        return []
    return [MessagePart("references_ignored", bleu=f"{scored.ours_bleu:.1f}", criterion=certificate.criterion)]


def _writers(to: ExportFormat, precision: ExportPrecision) -> list[_Writer]:
    """Return the functions to try in order until a certificate passes."""
    match to:
        case "ctranslate2":
            return [_write_ctranslate2]
        case "hf":
            return [write_folder.write_transformers]
        case "marian":
            return [write_model.write_marian]
        case _:
            shares = FLOAT32_SHARES if precision == "int8" else FLOAT32_SHARES[:1]
            return [partial(_write_onnx, float32_share=share) for share in shares]


def _write_ctranslate2(model: TextModel, folder: Path, precision: ExportPrecision) -> list[MessagePart]:
    notes = describe_ctranslate2_changes(model.stored_model.generation)
    return [*notes, *ctranslate2_folder.write_ctranslate2(model, folder, precision)]


def _write_onnx(model: TextModel, folder: Path, precision: ExportPrecision, float32_share: float) -> list[MessagePart]:
    from attendo.interop.onnx.folder import to_onnx

    check_onnx_defaults(model.stored_model.generation)
    count = to_onnx(model, folder, "int8" if precision == "int8" else "fp32", float32_share=float32_share)
    return [MessagePart("products_kept_in_float32", count=count)] if count else []
