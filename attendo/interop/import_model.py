"""Imports a Hugging Face folder as a model folder and keeps it only if its certificate passes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attendo import atomic_files, model_folder
from attendo.errors import ModelError, UsageError, cut_text, list_names
from attendo.interop.certificate import Bounds, Certificate
from attendo.interop.certify import certify, prefixes_of, sentences_of
from attendo.interop.compared_systems import OurNetwork, TransformersParty
from attendo.interop.export import NotTheSameError
from attendo.interop.huggingface.folder import read_folder
from attendo.interop.huggingface.imported import SEVERAL_LANGUAGES, Imported
from attendo.interop.huggingface.read_models import from_bart, from_m2m100, from_marian
from attendo.interop.huggingface.read_tokenizers import compare_cuts
from attendo.text_model import TextModel, load

CERTIFICATE = "certificate.json"
_POSITIONS = 1024  # unless config.json tells
SUPPORTED = {
    "marian": "Marian and OPUS-MT",
    "bart": "BART",
    "m2m_100": "M2M100 and NLLB",
    "mbart": "mBART",
    "pegasus": "with a MarianTokenizer, as attendo exports it",
}


def import_model(
    imported: Imported, out: str | Path, texts: Sequence[str] | None = None, prove: bool = True
) -> Certificate | None:
    """Write the model folder `out`, and say how well it agrees with the model it was made from.

    What is compared is what was written, read again, on `texts` or on random sentences. A difference beyond the bounds
    is a `NotTheSameError`, and then nothing is left behind.
    """
    out = Path(out).resolve()
    if out.exists():
        raise UsageError("output_path_exists", path=out)
    with atomic_files.alone(out), atomic_files.new_folder(out) as place:
        place.rmdir()
        imported.model().save(place)
        if not prove:
            return None
        certificate = _proven(out, imported, load(place, "cpu"), texts)
        _write(place, certificate)
    return certificate


def _proven(out: Path, imported: Imported, model: TextModel, texts: Sequence[str] | None) -> Certificate:
    before, begin = prefixes_of(model)
    room = _room(imported, len(begin))
    asked = sentences_of(model, texts)
    sentences = asked.sources
    told = None if "source" in imported.unnamed_languages() else before
    texts = texts or [model.source_tokenizer.decode(source[len(before) :]) for source in sentences]
    cuts = compare_cuts(
        (imported.folder.path, imported.folder.kind), imported.source, model.source_tokenizer, told, texts
    )
    theirs = TransformersParty.of(imported, begin)
    sources = [source[:room] for source in sentences]
    certificate = certify(OurNetwork(model.network, "hf", begin), theirs, sources, Bounds())
    certificate = replace(
        certificate,
        notes=(*asked.notes, *imported.remarks(), *([cuts.told] if cuts.same else [])),
        reasons=(*certificate.reasons, *([] if cuts.same else [f"the tokenizer is another one: {cuts.told}"])),
    )
    if not certificate.passed:
        raise NotTheSameError(out, certificate)
    return certificate


def _room(imported: Imported, begun: int) -> int:
    """Tokens of a source whose answer still has positions there: at most 10, and 3 for every 2 of the source."""
    field = imported.folder.setting("max_position_embeddings")
    positions = field.count() or _POSITIONS
    room = (positions - begun - 12) * 2 // 3
    if room < 1:
        raise field.wrong(f"at least {begun + 14} for a proof (--no-proof leaves it out)")
    return room


def _write(place: Path, certificate: Certificate) -> None:
    """Beside the model, and in its manifest."""
    text = json.dumps(certificate.as_json(), indent=2, ensure_ascii=False)
    (place / CERTIFICATE).write_text(f"{text}\n", "utf-8")
    (place / "manifest.json").unlink()
    model_folder.write_manifest(place, model_folder.FORMAT, model_folder.VERSION)


def from_folder(
    path: str | Path,
    with_tokenizers: bool = True,
    source_language: str | None = None,
    target_language: str | None = None,
) -> Imported:
    """What a model folder of transformers holds, as ours. Languages are for models that have several."""
    folder = read_folder(path)
    if folder.kind in SEVERAL_LANGUAGES:
        return from_m2m100(folder, with_tokenizers, source_language, target_language)
    if source_language or target_language:
        raise UsageError("model_without_languages", path=folder.path, kind=folder.kind)
    match folder.kind:
        case "marian" | "pegasus":
            return from_marian(folder, with_tokenizers)
        case "bart":
            return from_bart(folder, with_tokenizers)
        case kind:
            known = ", ".join(f"{name} ({what})" for name, what in SUPPORTED.items())
            told = folder.setting("architectures")
            names = [told.value] if isinstance(told.value, str) else map(str, told.items())
            architectures = list_names(names) or "nothing"
            raise ModelError(
                "import_model_type_unsupported",
                path=folder.path,
                kind=cut_text(kind),
                architectures=architectures,
                known=known,
            )
