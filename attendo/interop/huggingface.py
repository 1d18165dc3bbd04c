"""A model folder of transformers as it lies on disk: config.json, generation_config.json, safetensors."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from attendo import store
from attendo.errors import ModelError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CONVERT = (
    "python -c \"from transformers import AutoModelForSeq2SeqLM as M; M.from_pretrained('{0}').save_pretrained('{0}')\""
)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.npz", "*.h5", "*.msgpack")


@dataclass(frozen=True)
class HuggingFaceFolder:
    """What is in it, not yet understood. Names of weights are without the `model.` that most of them begin with."""

    path: Path
    kind: str  # model_type of config.json
    settings: Mapping[str, Any]
    generation: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Tensor] = field(default_factory=dict, repr=False)

    def setting(self, name: str, default: Any = None) -> Any:
        """Of the generation's file where it has one, else of config.json; null is as if left out."""
        for settings in (self.generation, self.settings):
            if settings.get(name) is not None:
                return settings[name]
        return default

    def file(self, name: str) -> Path:
        """One that must be there."""
        path = self.path / name
        if not path.is_file():
            there = ", ".join(sorted(each.name for each in self.path.iterdir()))
            raise ModelError(f"{self.path} has no {name}, which a {self.kind} model needs; it holds {there}")
        return path

    def json(self, name: str) -> dict[str, Any]:
        """The content of a file, or nothing where there is none."""
        return read_json(self.path / name) if (self.path / name).is_file() else {}


def read_folder(path: str | Path) -> HuggingFaceFolder:
    """Anything missing or damaged is a `ModelError`; so are weights in a file that could run code."""
    path = Path(path)
    if not path.is_dir():
        raise ModelError(f"{path} is not a folder: give the one that holds config.json and {WEIGHTS}")
    _refuse_ours(path)
    if not (path / "config.json").is_file():
        there = ", ".join(sorted(each.name for each in path.iterdir())) or "nothing"
        raise ModelError(f"{path} is no model of transformers: it has no config.json, but {there}")
    settings = read_json(path / "config.json")
    kind = settings.get("model_type")
    if not isinstance(kind, str):
        raise ModelError(f"{path / 'config.json'} does not say what it is: model_type is {kind!r}")
    generation = path / "generation_config.json"
    return HuggingFaceFolder(
        path, kind, settings, read_json(generation) if generation.is_file() else {}, _read_weights(path)
    )


def _refuse_ours(path: Path) -> None:
    """What attendo wrote itself has its manifest, and a config.json of another kind."""
    try:
        kind = json.loads((path / "manifest.json").read_text("utf-8"))["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if kind == store.FORMAT:
        raise ModelError(f"{path} is a model folder of attendo: there is nothing to import, take it as it is")
    if not (path / WEIGHTS).is_file():
        raise ModelError(f"{path} is what attendo exported to another system: take the model folder it was made from")


def read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is damaged: it is not JSON ({error}); copy the folder again") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} is damaged: it is not a JSON object; copy the folder again")
    return content


def _read_weights(path: Path) -> dict[str, Tensor]:
    """In full precision."""
    weights: dict[str, Tensor] = {}
    for file in _weight_files(path):
        found = store.read_tensors(file)
        weights |= {name.removeprefix("model."): weight.float() for name, weight in found.items()}
    return weights


def _weight_files(path: Path) -> list[Path]:
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        places = read_json(path / INDEX).get("weight_map")
        if not isinstance(places, dict) or not all(Path(str(name)).name == name for name in places.values()):
            raise ModelError(f"{path / INDEX} is damaged: it names no files of this folder")
        files = [path / str(name) for name in dict.fromkeys(places.values())]
        if missing := [file.name for file in files if not file.is_file()]:
            raise ModelError(f"{path} lacks {', '.join(missing)}, which {INDEX} names: copy the folder again")
        return files
    pickles = sorted(file.name for pattern in _PICKLES for file in path.glob(pattern))
    if pickles:
        raise ModelError(
            f"{path} has its weights in {', '.join(pickles)}, which may run code when read: turn them into {WEIGHTS} "
            f"where that is safe, by {CONVERT.format(path)}"
        )
    there = ", ".join(sorted(each.name for each in path.iterdir()))
    raise ModelError(f"{path} has neither {WEIGHTS} nor {INDEX}; it holds {there}")
