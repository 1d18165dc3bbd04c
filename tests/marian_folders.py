"""The models that Marian trained (`parity/marian_models/`), as folders and as zip files."""

import shutil
import zipfile
from pathlib import Path

from attendo.interop.marian.imported import ImportedMarian
from attendo.interop.marian.read_model import read_marian

FOLDER = Path(__file__).parent / "parity" / "marian_models"
NAMES = ("tied_all", "separate", "untied", "sentencepiece", "pre_norm", "rms_norm", "student")
ANSWERS = "answers.json"


def load_marian(name: str) -> ImportedMarian:
    return read_marian(FOLDER / name)


def copy_folder(name: str, folder: Path, *omitted: str) -> Path:
    """A copy without Marian's answers and without the `omitted` files."""
    folder.mkdir()
    for file in (FOLDER / name).iterdir():
        if file.name not in (ANSWERS, *omitted):
            shutil.copy(file, folder)
    return folder


def write_zip(name: str, path: Path, prefix: str = "") -> Path:
    """A zip file as OPUS-MT publishes it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted((FOLDER / name).iterdir()):
            if file.name != ANSWERS:
                archive.write(file, f"{prefix}{file.name}")
        archive.writestr(f"{prefix}README.md", "# opus-2020-01-01.zip\n")
    return path
