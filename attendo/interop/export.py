"""From a text model to the files of another system, which are kept only if they answer the same."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from attendo.errors import ModelError, UsageError, require_package
from attendo.interop import argos, exported_files
from attendo.interop.argos import Languages
from attendo.interop.backends import ctranslate2_notes, require_onnx
from attendo.interop.certificate import Bounds, Certificate, Party
from attendo.interop.certify import Sentences, certify, prefixes_of, sentences_of
from attendo.interop.compared_systems import OnnxParty, OurNetwork
from attendo.interop.ctranslate2 import folder as ctranslate2_folder
from attendo.interop.exported_files import Precision, longest_of, write_json
from attendo.interop.huggingface import write_folder
from attendo.model_folder import write_manifest
from attendo.text_model import TextModel

Format = Literal["ctranslate2", "hf", "onnx", "argos"]

_PACKAGES: dict[Format, tuple[str, ...]] = {
    "ctranslate2": ("ctranslate2",),
    "hf": ("transformers",),
    "onnx": ("onnx", "onnxruntime"),
    "argos": ("ctranslate2",),
}

# The bounds on tokens are wide: random networks, and trained ones on random sources, find all words equally good, and
# after the first that differs say other ones.
BOUNDS: dict[Precision, Bounds] = {
    "float32": Bounds(),
    "float16": Bounds(same_tokens=0.9, mean_difference=1e-2, lost_bleu=0.2, agreement=95.0),
    "int8": Bounds(same_tokens=0.6, mean_difference=0.1, lost_bleu=0.5, agreement=85.0),
}
EXACT = (0.0, 0.05, 0.1, 0.2, 0.4)  # shares of the products that stay in float32, tried until int8 is good enough
_ON_RANDOM = "compared on random sources alone, which says little of fewer bits: name sentences of yours for more"


class NotTheSameError(ModelError):
    """The files answer otherwise than the model; nothing of them is left."""

    def __init__(self, goal: Path, certificate: Certificate) -> None:
        lossy = certificate.judged_by == "lost_bleu"
        code = "quantized_model_differs" if lossy else "converted_model_differs"
        super().__init__(code, path=goal, reasons="; ".join(certificate.reasons))
        self.certificate = certificate


@dataclass(frozen=True)
class _Way:
    """How a format is written, and how the two sides are compared then."""

    write: Callable[[TextModel, Path, Precision], list[str]]  # says what the format could not take along
    parties: Callable[[TextModel, Path], tuple[Party, Party]]


def check_packages(to: Format) -> None:
    """Raise a `UsageError` if a package that writes or reads the format is missing: ask before long work."""
    for package in _PACKAGES[to]:
        require_package(package, "hf" if to == "hf" else "export", f"an export to {to}")


def export(
    model: TextModel,
    out: str | Path,
    to: Format,
    precision: Precision = "float32",
    sentences: Sentences | None = None,
    languages: Languages | None = None,
    max_loss: float | None = None,
) -> Certificate:
    """Write `out` in the format of another system, and say how well the two agree; `languages` are for argos.

    A difference beyond the bounds of the precision is a `NotTheSameError`, and then nothing is left behind; for onnx in
    int8, more and more products are left in float32 before that. `max_loss` is the BLEU that may be lost, instead of
    what `BOUNDS` has; it needs sentences with references.
    """
    check_packages(to)
    if len(model.networks) > 1:
        raise UsageError("ensemble_export_unsupported", count=len(model.networks))
    if faulty := [name for name, each in model.network.named_parameters() if not bool(each.isfinite().all())]:
        raise ModelError("weights_not_finite", parameters=", ".join(faulty))
    if (to == "argos") != (languages is not None):
        raise UsageError("export_languages_mismatch")
    goal, sentences = Path(out), sentences or sentences_of(model)
    bounds = _bounds(precision, sentences, max_loss)
    if languages is not None:
        return _package(model, goal, precision, _Proof(goal, bounds, sentences), languages)
    *others, last = _ways(to, precision)
    proof, notes = _Proof(goal, bounds, sentences), list[str]()
    for way in others:
        try:
            return _written(model, way, proof, to, precision, notes)
        except NotTheSameError as error:
            notes = notes or [f"with every product in bytes, {'; '.join(error.certificate.reasons)}"]
    return _written(model, last, proof, to, precision, notes)


def _written(
    model: TextModel, way: "_Way", proof: "_Proof", to: Format, precision: Precision, notes: list[str]
) -> Certificate:
    with exported_files.new_export(proof.goal) as folder:
        notes = [*way.write(model, folder, precision), *notes]
        certificate = proof.of(way.parties(model, folder), notes)
        write_json(folder / "certificate.json", certificate.as_json())
        _write_manifest(folder, {"to": to, "precision": precision, "longest": longest_of(model)})
    return certificate


def _bounds(precision: Precision, sentences: Sentences, max_loss: float | None) -> Bounds:
    bounds = BOUNDS[precision]
    if max_loss is None:
        return bounds
    if bounds.lost_bleu is None:
        raise UsageError("max_loss_not_applicable", precision=precision)
    if sentences.reading is None or not sentences.reading.references:
        raise UsageError("max_loss_references_missing")
    return replace(bounds, lost_bleu=max_loss)


def _write_manifest(folder: Path, facts: dict[str, Any]) -> None:
    """Of all files, the certificate too; what a format has written of itself stays."""
    path = folder / "manifest.json"
    if path.exists():
        facts = {**facts, **json.loads(path.read_text("utf-8"))["facts"]}
        path.unlink()
    write_manifest(folder, exported_files.FORMAT, exported_files.VERSION, facts)


def _package(model: TextModel, goal: Path, precision: Precision, proof: "_Proof", languages: Languages) -> Certificate:
    argos.check(model, goal, languages)
    with exported_files.new_package(goal) as folder:
        tree, notes = argos.write_tree(model, folder, precision, languages)
        parties = ctranslate2_folder.ctranslate2_parties(model, tree / "model")
        certificate = proof.of(parties, notes)
        write_json(tree / "certificate.json", certificate.as_json())
        argos.pack(tree, folder / goal.name)
    return certificate


@dataclass(frozen=True)
class _Proof:
    """What is asked of both sides, and how far they may be apart."""

    goal: Path
    bounds: Bounds
    sentences: Sentences

    def of(self, parties: tuple[Party, Party], notes: list[str]) -> Certificate:
        reading = self.sentences.reading
        certificate = certify(*parties, self.sentences.sources, self.bounds, reading)
        on_random = self.bounds.agreement is not None and (reading is None or not reading.sentences)
        told = (*self.sentences.notes, *notes, *([_ON_RANDOM] if on_random else []), *_references_unused(certificate))
        certificate = replace(certificate, notes=told)
        if not certificate.passed:
            raise NotTheSameError(self.goal, certificate)
        return certificate


def _references_unused(certificate: Certificate) -> list[str]:
    scored = certificate.scored
    if scored is None or scored.telling or certificate.bounds.lost_bleu is None:
        return []
    return [
        f"with {scored.ours_bleu:.1f} BLEU our own answers are too far from the references to tell a loss by: "
        f"{certificate.judged_by.replace('_', ' ')} decided, not the BLEU lost"
    ]


def _ways(to: Format, precision: Precision) -> list[_Way]:
    """One after the other, until the two sides agree."""
    match to:
        case "ctranslate2":
            return [_Way(_write_ctranslate2, ctranslate2_folder.ctranslate2_parties)]
        case "hf":
            return [_Way(write_folder.write_transformers, write_folder.transformers_parties)]
        case _:
            return [_onnx(precision, exact) for exact in (EXACT if precision == "int8" else EXACT[:1])]


def _write_ctranslate2(model: TextModel, folder: Path, precision: Precision) -> list[str]:
    notes = ctranslate2_notes(model.stored.generation)
    return [*notes, *ctranslate2_folder.write_ctranslate2(model, folder, precision)]


def _onnx(precision: Precision, exact: float) -> _Way:
    if precision == "float16":
        raise UsageError("onnx_float16_unsupported")
    from attendo.interop.onnx.folder import to_onnx

    def write(model: TextModel, folder: Path, precision: Precision) -> list[str]:
        require_onnx(model.stored.generation)
        count = to_onnx(model, folder, "int8" if precision == "int8" else "fp32", exact=exact)
        return [f"{count} products stay in float32, those that lose most by rounding"] if count else []

    def parties(model: TextModel, folder: Path) -> tuple[Party, Party]:
        _, prefix = prefixes_of(model)
        return OurNetwork(model.network, None, prefix), OnnxParty(folder, prefix)

    return _Way(write, parties)
