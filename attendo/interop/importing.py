"""From a folder of another system to a model folder of ours, which is kept only if it answers the same."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from attendo import durable, store
from attendo.errors import UsageError
from attendo.interop.certificate import Bounds, Certificate
from attendo.interop.certifying import certify
from attendo.interop.exporting import NotTheSameError
from attendo.interop.foreign_tokenizer import compare_cuts
from attendo.interop.imported import Imported
from attendo.interop.parties import OurNetwork
from attendo.interop.sentences import prefixes_of, sentences_of
from attendo.interop.transformers_party import TransformersParty
from attendo.text_model import TextModel, load

CERTIFICATE = "certificate.json"
_POSITIONS = 1024  # unless config.json tells


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
    with durable.alone(out), durable.new_folder(out) as place:
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
    store.write_manifest(place, store.FORMAT, store.VERSION)
