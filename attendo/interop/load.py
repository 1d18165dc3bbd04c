"""Loads a text model from a model folder or from a folder exported to ONNX Runtime or CTranslate2."""

from pathlib import Path
from typing import Any

from attendo import text_model
from attendo.errors import ModelError, UsageError, cut_text
from attendo.interop.backends import drop_machine_settings
from attendo.interop.exported_files import ARGOS_SUFFIX, MANIFEST_FORMAT
from attendo.interop.families import FAMILY_BY_TYPE, find_model_type, refuse_unsupported
from attendo.interop.marian.read_model import is_marian
from attendo.model_files import read_json
from attendo.model_folder import ABOUT, StoredModel, load_model, read_about
from attendo.text_model import Backend, ExportedFolder, TextModel, pick_device
from attendo.text_model.backends import EXTERNAL_ENGINES


def load(folder: str | Path, device: str = "auto") -> TextModel:
    """Load the model in a folder. `device` is cpu, cuda, or auto for a GPU if the folder can use one.

    A model of transformers or Marian is imported in memory. A folder exported to `onnx` or `ctranslate2` runs on that
    engine.
    """
    folder = Path(folder)
    engine = detect_export_format(folder)
    if engine is None:
        return load_torch_model(folder, device)
    if engine not in EXTERNAL_ENGINES:
        raise ModelError(
            "export_format_not_runnable", folder=folder, engine=engine, formats=" or ".join(EXTERNAL_ENGINES)
        )
    exported, backend = _load_onnx(folder, device) if engine == "onnx" else _load_ctranslate2(folder, device)
    about = read_about(folder) if (folder / ABOUT).is_file() else {}
    settings = drop_machine_settings(exported.generation)
    found = ExportedFolder(folder, exported.source_tokenizer, exported.target_tokenizer, settings, about=about)
    try:
        return TextModel(found, backend=backend)
    except UsageError as error:
        raise ModelError("generation_settings_invalid", path=folder / "generation.json", error=error) from None


def load_torch_model(folder: str | Path, device: str = "auto") -> TextModel:
    """Load a model folder, or a supported model of transformers or Marian, which is imported in memory."""
    folder = Path(folder)
    if is_foreign_model(folder):
        from attendo.interop.foreign_folder import load_foreign_folder

        return load_foreign_folder(folder, device)
    return text_model.load(require_model_folder(folder), device)


def load_stored_model(folder: str | Path) -> StoredModel:
    """Load what `load_torch_model` loads, on the CPU, for a training that starts from it."""
    folder = Path(folder)
    if is_foreign_model(folder):
        return load_torch_model(folder, "cpu").stored_model
    return load_model(require_model_folder(folder))


def is_foreign_model(path: Path) -> bool:
    """Return whether a path is a supported model of transformers or Marian, which is imported in memory."""
    return find_foreign_family(path) is not None or is_marian(path)


def find_foreign_family(folder: Path) -> str | None:
    """Return the model type of a folder of transformers that attendo imports; None for any other folder."""
    if (folder / "manifest.json").exists():
        return None
    try:
        kind = find_model_type(read_json(folder / "config.json"))
    except ModelError:
        return None
    return kind if isinstance(kind, str) and kind in FAMILY_BY_TYPE else None


def require_model_folder(folder: str | Path) -> Path:
    """Return the folder as a path. Raise a `ModelError` if it is an export or in another system's format."""
    folder = Path(folder)
    if engine := detect_export_format(folder):
        raise ModelError("folder_is_exported_model", folder=folder, engine=engine)
    if folder.is_dir():
        _reject_other_formats(folder)
    return folder


def detect_export_format(folder: Path) -> str | None:
    """Return the format of a file or folder that `attendo export` wrote; None for anything else."""
    if folder.suffix == ARGOS_SUFFIX and folder.is_file():
        return "argos"
    try:
        manifest = read_json(folder / "manifest.json")
    except ModelError:
        return None  # the caller reports a damaged manifest
    facts = manifest.get("facts")
    engine = facts.get("to") if isinstance(facts, dict) else None
    return cut_text(str(engine)) if engine is not None and manifest.get("format") == MANIFEST_FORMAT else None


def _load_onnx(folder: Path, device: str) -> tuple[Any, Backend]:
    from attendo.interop.backends import OnnxBackend
    from attendo.interop.onnx.folder import open_onnx

    if device != "auto" and pick_device(device).type != "cpu":
        raise UsageError("onnx_device_not_cpu", device=device)
    exported = open_onnx(folder)
    return exported, OnnxBackend(exported.network)


def _load_ctranslate2(folder: Path, device: str) -> tuple[Any, Backend]:
    from attendo.interop.backends import CTranslate2Backend
    from attendo.interop.ctranslate2.folder import open_ctranslate2

    exported = open_ctranslate2(folder, device)
    return exported, CTranslate2Backend(exported)


def _reject_other_formats(folder: Path) -> None:
    """Raise a `ModelError` for common wrong folders: CTranslate2 models, and those of transformers."""
    if (folder / "manifest.json").exists():
        return
    if (folder / "model.bin").is_file() and not (folder / "model.safetensors").is_file():
        raise ModelError("ctranslate2_folder_not_attendo", folder=folder)
    if is_marian(folder):
        raise ModelError("marian_model_not_imported", folder=folder)
    try:
        config = read_json(folder / "config.json")
    except ModelError:
        return
    if (kind := config.get("model_type")) is not None:
        refuse_unsupported(folder, config)
        raise ModelError("transformers_model_not_imported", folder=folder, kind=cut_text(str(kind)))
