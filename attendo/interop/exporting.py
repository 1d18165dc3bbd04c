"""From a text model to the files of another system, which are kept only if they answer the same."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from attendo.errors import ModelError, UsageError
from attendo.interop import argos, ctranslate2_folder, marian_folder, place
from attendo.interop.argos import Languages
from attendo.interop.certificate import Bounds, Certificate, Party, certify
from attendo.interop.ctranslate2_folder import Precision, longest_of, write_json
from attendo.interop.parties import OurNetwork
from attendo.interop.sentences import Sentences, sentences_of
from attendo.store import write_manifest
from attendo.text_model import TextModel

Format = Literal["ctranslate2", "hf", "onnx", "argos"]

# With fewer bits a network says another word where two are close, and a random one, for which all are, says other
# words from there on. So what has references is judged by what its answers are worth.
BOUNDS: dict[Precision, Bounds] = {
    "float32": Bounds(),
    "float16": Bounds(same_tokens=0.9, mean_difference=1e-2, lost_bleu=0.5),
    "int8": Bounds(same_tokens=0.6, mean_difference=0.1, lost_bleu=1.0),
}


class NotTheSameError(ModelError):
    """The files answer otherwise than the model; nothing of them is left."""

    def __init__(self, goal: Path, certificate: Certificate) -> None:
        super().__init__(f"{goal} is not written, it would not be the same model: {'; '.join(certificate.reasons)}")
        self.certificate = certificate


@dataclass(frozen=True)
class _Way:
    """How a format is written, and how the two sides are compared then."""

    write: Callable[[TextModel, Path, Precision], list[str]]  # says what the format could not take along
    parties: Callable[[TextModel, Path], tuple[Party, Party]]


def export(
    model: TextModel,
    out: str | Path,
    to: Format,
    precision: Precision = "float32",
    sentences: Sentences | None = None,
    languages: Languages | None = None,
) -> Certificate:
    """Write `out` in the format of another system, and say how well the two agree; `languages` are for argos.

    A difference beyond the bounds of the precision is a `NotTheSameError`, and then nothing is left behind.
    """
    if len(model.networks) > 1:
        raise UsageError(f"an ensemble of {len(model.networks)} models cannot be exported: export its members")
    if (to == "argos") != (languages is not None):
        raise UsageError("languages are for argos, and it needs them: en and de, for example")
    goal, sentences = Path(out), sentences or sentences_of(model)
    if languages is not None:
        return _package(model, goal, precision, sentences, languages)
    way = _way(to, precision)
    with place.new_export(goal) as folder:
        notes = way.write(model, folder, precision)
        certificate = _proven(goal, way.parties(model, folder), precision, sentences, notes)
        write_json(folder / "certificate.json", certificate.as_json())
        if not (folder / "manifest.json").exists():
            facts = {"to": to, "precision": precision, "longest": longest_of(model)}
            write_manifest(folder, place.FORMAT, place.VERSION, facts)
    return certificate


def _package(
    model: TextModel, goal: Path, precision: Precision, sentences: Sentences, languages: Languages
) -> Certificate:
    argos.check(model, goal, languages)
    with place.new_package(goal) as folder:
        tree, notes = argos.write_tree(model, folder, precision, languages)
        parties = ctranslate2_folder.ctranslate2_parties(model, tree / "model")
        certificate = _proven(goal, parties, precision, sentences, notes)
        write_json(tree / "certificate.json", certificate.as_json())
        argos.pack(tree, folder / goal.name)
    return certificate


def _proven(
    goal: Path, parties: tuple[Party, Party], precision: Precision, sentences: Sentences, notes: list[str]
) -> Certificate:
    certificate = certify(*parties, sentences.sources, BOUNDS[precision], sentences.references)
    certificate = replace(certificate, notes=tuple(notes))
    if not certificate.passed:
        raise NotTheSameError(goal, certificate)
    return certificate


def _way(to: Format, precision: Precision) -> _Way:
    match to:
        case "ctranslate2":
            return _Way(ctranslate2_folder.write_ctranslate2, ctranslate2_folder.ctranslate2_parties)
        case "hf":
            return _Way(marian_folder.write_marian, marian_folder.marian_parties)
        case _:
            return _onnx(precision)


def _onnx(precision: Precision) -> _Way:
    if precision == "float16":
        raise UsageError("precision float16 is not for onnx: take float32 or int8")
    from attendo.interop.onnx_files import OnnxParty, to_onnx

    def write(model: TextModel, folder: Path, precision: Precision) -> list[str]:
        to_onnx(model, folder, "int8" if precision == "int8" else "fp32")
        return []

    return _Way(write, lambda model, folder: (OurNetwork(model.network, None), OnnxParty(folder)))
