"""Any folder that can be imported, by what its config.json says it is."""

from pathlib import Path

from attendo.errors import ModelError, UsageError, cut_text, list_names
from attendo.interop.from_bart import from_bart
from attendo.interop.from_m2m100 import from_m2m100
from attendo.interop.from_marian import from_marian
from attendo.interop.huggingface import read_folder
from attendo.interop.imported import SEVERAL_LANGUAGES, Imported

SUPPORTED = {
    "marian": "Marian and OPUS-MT",
    "bart": "BART",
    "m2m_100": "M2M100 and NLLB",
    "mbart": "mBART",
    "pegasus": "with a MarianTokenizer, as attendo exports it",
}


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
