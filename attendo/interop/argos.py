"""Text model as an Argos Translate package: a zip file with the suffix `.argosmodel` that holds one folder.

metadata.json  README.md  sentencepiece.model  model/ (CTranslate2's files)
"""

import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from attendo.errors import MessagePart, ModelError, UsageError, require_package
from attendo.interop.backends import drop_machine_settings
from attendo.interop.certify import model_symbols
from attendo.interop.ctranslate2.converter import to_ctranslate2
from attendo.interop.exported_files import ARGOS_SUFFIX, ExportPrecision, model_max_length
from attendo.interop.huggingface.vocabulary import sentencepiece_bytes, vocabulary_names
from attendo.model_files import write_json
from attendo.text import BOS, PAD
from attendo.text_model import TextModel

_VERSION = "1.0"  # of the package, and the minimum version of Argos Translate


@dataclass(frozen=True)
class LanguagePair:
    """ISO 639 codes and display names of the languages. The names default to the codes."""

    source: str
    target: str
    source_name: str = ""
    target_name: str = ""

    def __post_init__(self) -> None:
        for code in (self.source, self.target):
            if not code.replace("-", "").isalnum():
                raise UsageError("language_code_invalid", language_code=code)


def check_argos_package(model: TextModel, goal: Path) -> None:
    """Raise an error if a package cannot hold the model. Argos needs SentencePiece tokenizers and no prefixes."""
    if goal.suffix != ARGOS_SUFFIX:
        raise UsageError("argos_file_name_invalid", suffix=ARGOS_SUFFIX, name=goal.name)
    for side, tokenizer in (("source", model.source_tokenizer), ("target", model.target_tokenizer)):
        if sentencepiece_bytes(tokenizer) is None:
            raise ModelError("argos_tokenizer_not_sentencepiece", side=side, kind=tokenizer.kind)
    if model_symbols(model):
        raise ModelError("argos_prefix_unsupported")


def write_package_tree(
    model: TextModel, folder: Path, precision: ExportPrecision, languages: LanguagePair
) -> tuple[Path, list[MessagePart]]:
    """Write the folder to pack. Return its path and notes on limitations."""
    require_package("ctranslate2", "export", "an export to argos")
    tree = folder / f"translate-{languages.source}_{languages.target}-{_VERSION.replace('.', '_')}"
    file = sentencepiece_bytes(model.source_tokenizer)
    assert file is not None  # `check_argos_package` guarantees it
    names = vocabulary_names(model.source_tokenizer), vocabulary_names(model.target_tokenizer)
    (tree / "model").mkdir(parents=True)
    # Argos suppresses no tokens.
    to_ctranslate2(model.network, tree / "model", precision, model_max_length(model), names, suppress_tokens=(PAD, BOS))
    (tree / "sentencepiece.model").write_bytes(file)
    from_name, to_name = languages.source_name or languages.source, languages.target_name or languages.target
    metadata = {
        "package_version": _VERSION,
        "argos_version": _VERSION,
        "from_code": languages.source,
        "from_name": from_name,
        "to_code": languages.target,
        "to_name": to_name,
    }
    write_json(tree / "metadata.json", metadata)
    (tree / "README.md").write_text(
        f"# {from_name} to {to_name}\n\nTrained and exported ({precision}) with attendo. What the export was compared "
        "with is in certificate.json.\n",
        "utf-8",
    )
    notes = [MessagePart("argos_shows_byte_pieces")]
    if settings := drop_machine_settings(model.stored_model.generation):
        listing = ", ".join(f"{name} {value}" for name, value in settings.items())
        notes.append(MessagePart("argos_ignores_settings", settings=listing))
    return tree, notes


def pack_tree(tree: Path, file: Path) -> None:
    """Zip all files of a folder under its name. Entries have a fixed date, so equal models give equal files."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted(tree.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(str(path.relative_to(tree.parent)))
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                with path.open("rb") as content, package.open(entry, "w", force_zip64=True) as archived:
                    shutil.copyfileobj(content, archived)
