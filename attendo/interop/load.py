"""Any folder that answers: a model folder, or one that was exported to an engine from outside."""

from pathlib import Path
from typing import Any

from attendo import text_model
from attendo.errors import ModelError, UsageError, cut_text
from attendo.interop.backends import portable
from attendo.interop.exported_files import FORMAT, SUFFIX
from attendo.interop.import_model import SUPPORTED
from attendo.model_files import read_json
from attendo.model_folder import ABOUT, read_about
from attendo.text_model import ExportedFolder, Runtime, TextModel, pick_device
from attendo.text_model.backends import OUTSIDE


def load(folder: str | Path, device: str = "auto") -> TextModel:
    """The model in a folder; `device` is cpu, cuda, or auto for a GPU where there is one that the folder can use.

    A folder that was exported to `onnx` or `ctranslate2` answers by that engine.
    """
    folder = Path(folder)
    engine = exported_to(folder)
    if engine is None:
        _refuse_foreign(folder)
        return text_model.load(folder, device)
    if engine not in OUTSIDE:
        raise ModelError("export_format_not_runnable", folder=folder, engine=engine, formats=" or ".join(OUTSIDE))
    opened, runtime = _onnx(folder, device) if engine == "onnx" else _ctranslate2(folder, device)
    about = read_about(folder) if (folder / ABOUT).is_file() else {}
    settings = portable(opened.generation)
    found = ExportedFolder(folder, opened.source_tokenizer, opened.target_tokenizer, settings, about=about)
    try:
        return TextModel(found, runtime=runtime)
    except UsageError as error:
        raise ModelError("generation_settings_invalid", path=folder / "generation.json", error=error) from None


def model_folder(folder: str | Path) -> Path:
    """The same, unless it holds no network that could be trained or looked into."""
    folder = Path(folder)
    if engine := exported_to(folder):
        raise ModelError("folder_is_exported_model", folder=folder, engine=engine)
    if folder.is_dir():
        _refuse_foreign(folder)
    return folder


def exported_to(folder: Path) -> str | None:
    """What something that `attendo export` wrote is for; None for anything else."""
    if folder.suffix == SUFFIX and folder.is_file():
        return "argos"
    try:
        manifest = read_json(folder / "manifest.json")
    except ModelError:
        return None  # whoever reads on tells what is wrong with it
    facts = manifest.get("facts")
    engine = facts.get("to") if isinstance(facts, dict) else None
    return cut_text(str(engine)) if engine is not None and manifest.get("format") == FORMAT else None


def _onnx(folder: Path, device: str) -> tuple[Any, Runtime]:
    from attendo.interop.backends import OnnxRuntime
    from attendo.interop.onnx.folder import open_onnx

    if device != "auto" and pick_device(device).type != "cpu":
        raise UsageError("onnx_device_not_cpu", device=device)
    opened = open_onnx(folder)
    return opened, OnnxRuntime(opened.network)


def _ctranslate2(folder: Path, device: str) -> tuple[Any, Runtime]:
    from attendo.interop.backends import CTranslate2Runtime
    from attendo.interop.ctranslate2.folder import open_exported

    opened = open_exported(folder, device)
    return opened, CTranslate2Runtime(opened)


def _refuse_foreign(folder: Path) -> None:
    """Folders that people take for ours."""
    if (folder / "manifest.json").exists():
        return
    if (folder / "model.bin").is_file() and not (folder / "model.safetensors").is_file():
        raise ModelError("ctranslate2_folder_not_attendo", folder=folder)
    try:
        kind = read_json(folder / "config.json").get("model_type")
    except ModelError:
        return
    if isinstance(kind, str) and kind not in SUPPORTED:
        raise ModelError("model_type_unsupported", folder=folder, kind=cut_text(kind), supported=", ".join(SUPPORTED))
    if kind is not None:
        raise ModelError("transformers_model_not_imported", folder=folder, kind=cut_text(str(kind)))
