"""Hugging Face model folder on disk: config, generation config, safetensors, and validated JSON fields."""

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from attendo import model_files, model_folder
from attendo.errors import MessagePart, ModelError, cut_text, list_names, shorten
from attendo.interop.families import find_model_type, refuse_unsupported
from attendo.tensor_files import StoredTensor, list_tensors

T = TypeVar("T")
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
CONFIG, GENERATION = "config.json", "generation_config.json"
_LFS_POINTER = b"version https://git-lfs"
_TORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_UNSAFE_SUFFIXES = (*_TORCH_SUFFIXES, ".npz", ".h5", ".msgpack")


@dataclass(frozen=True)
class JsonField:
    """A value of a JSON file, with its path and name. null counts as missing: None or empty."""

    path: Path
    name: str
    value: Any

    def text(self) -> str | None:
        return self._validate(lambda value: isinstance(value, str), "needs_text")

    def flag(self) -> bool:
        return bool(self._validate(lambda value: isinstance(value, bool), "needs_flag"))

    def count(self) -> int | None:
        return self._validate(_is_id, "needs_count")

    def number(self) -> float | None:
        return self._validate(_is_number, "needs_number")

    def token(self) -> int | None:
        """Return a token id. A list must have exactly one id."""
        if isinstance(self.value, list) and len(self.value) == 1:
            return JsonField(self.path, self.name, self.value[0]).token()
        return self._validate(_is_id, "needs_token")

    def tokens(self) -> list[int]:
        return self._validate(_make_list_check(_is_id), "needs_tokens") or []

    def sequences(self) -> list[list[int]]:
        return self._validate(_make_list_check(_make_list_check(_is_id)), "needs_token_lists") or []

    def items(self) -> list[Any]:
        return self._validate(_make_list_check(lambda each: True), "needs_list") or []

    def fields(self) -> dict[str, "JsonField"]:
        """Return the fields of an object by name."""
        return json_fields(self.path, self.content(), f"{self.name}.")

    def content(self) -> dict[str, Any]:
        return self._validate(lambda value: isinstance(value, dict), "needs_object") or {}

    def look_up(self, known: Mapping[Any, T], default: T) -> T:
        """Return the entry of `known` for the value. Raise a `ModelError` for other values."""
        if self.value is None:
            return default
        # no dict lookup: 1 equals true, and lists are not hashable
        found = [meaning for value, meaning in known.items() if type(value) is type(self.value) and value == self.value]
        if not found:
            raise self.make_error("needs_one_of", known=", ".join(map(shorten, known)))
        return found[0]

    def make_error(self, code: str, **values: object) -> ModelError:
        """Return the error for a wrong value. `code` is the message of what the field needs."""
        name, value, needed = cut_text(self.name), shorten(self.value), MessagePart(code, **values)
        return ModelError("json_field_invalid", path=self.path, field=name, value=value, needed=needed)

    def _validate(self, fits: Callable[[Any], bool], code: str) -> Any:
        if self.value is None or fits(self.value):
            return self.value
        raise self.make_error(code)


def json_fields(path: Path, content: Mapping[str, Any], prefix: str = "") -> dict[str, JsonField]:
    return {name: JsonField(path, f"{prefix}{name}", value) for name, value in content.items()}


def _is_id(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _make_list_check(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


class FolderWeights(Mapping[str, Tensor]):
    """Weights of a folder by name. Each is read from its file when it is looked up.

    They are converted to float32, or keep their precision with `keep_dtype`.
    """

    def __init__(self, stored: Mapping[str, StoredTensor], keep_dtype: bool = False) -> None:
        self.stored, self._keep_dtype = stored, keep_dtype

    def dtype(self, name: str) -> torch.dtype:
        stored = self.stored[name].dtype
        return stored if self._keep_dtype and stored in (torch.bfloat16, torch.float16) else torch.float32

    def rename(self, prefix: str, replacement: str) -> "FolderWeights":
        """Return the weights with another prefix in their names."""
        names = {name: replacement + name[len(prefix) :] if name.startswith(prefix) else name for name in self.stored}
        return FolderWeights({names[name]: each for name, each in self.stored.items()}, self._keep_dtype)

    def __getitem__(self, name: str) -> Tensor:
        return self.stored[name].read().to(self.dtype(name))

    def __contains__(self, name: object) -> bool:
        return name in self.stored  # the inherited method would read the weight

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)


@dataclass(frozen=True)
class HuggingFaceFolder:
    """Raw contents of a folder. The prefix `model.` is removed from names of weights."""

    path: Path
    model_type: str  # from config.json
    settings: Mapping[str, Any]
    generation: Mapping[str, Any] | None = None  # generation_config.json; None if missing
    weights: FolderWeights = field(default_factory=lambda: FolderWeights({}), repr=False)

    def setting(self, name: str) -> JsonField:
        """Return a setting from generation_config.json if it is set there, else from config.json."""
        is_set = (self.generation or {}).get(name) is not None
        return self.generation_setting(name) if is_set else JsonField(self.path / CONFIG, name, self.settings.get(name))

    def generation_setting(self, name: str) -> JsonField:
        """Return a decoding setting. As in transformers, config.json is used only without generation_config.json."""
        if self.generation is None:
            return JsonField(self.path / CONFIG, name, self.settings.get(name))
        return JsonField(self.path / GENERATION, name, self.generation.get(name))

    def require_file(self, name: str) -> Path:
        """Return the path of a required file. Raise a `ModelError` if it is missing or a Git LFS pointer."""
        path = self.path / name
        if not path.is_file():
            files = _list_files(self.path)
            raise ModelError("required_file_missing", path=self.path, file=name, kind=self.model_type, files=files)
        _refuse_lfs_pointer(path)
        return path

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the content of a file; empty if it is missing."""
        return read_json(self.path / name) if (self.path / name).is_file() else {}

    def json_field(self, file: str, name: str) -> JsonField:
        """Return a value of a JSON file of the folder."""
        return JsonField(self.path / file, name, self.read_json(file).get(name))

    def json_fields(self, file: str) -> dict[str, JsonField]:
        return json_fields(self.path / file, self.read_json(file))


def read_folder(path: str | Path, keep_dtype: bool = False) -> HuggingFaceFolder:
    """Read a folder. Missing or damaged files, and weights in formats that can run code, raise a `ModelError`.

    Weights are in float32, or with `keep_dtype` in the precision of their file.
    """
    path = Path(path)
    if not path.is_dir():
        raise ModelError("import_path_not_folder", path=path, weights=WEIGHTS)
    _refuse_attendo_folder(path)
    if not (path / CONFIG).is_file():
        raise ModelError("transformers_config_missing", path=path, files=_list_files(path))
    settings = read_json(path / CONFIG)
    kind = find_model_type(settings)
    if not isinstance(kind, str):
        raise ModelError("model_type_missing", path=path / CONFIG, value=shorten(kind))
    refuse_unsupported(path, {**settings, "model_type": kind})
    generation = read_json(path / GENERATION) if (path / GENERATION).is_file() else None
    return HuggingFaceFolder(path, kind, settings, generation, _list_weights(path, keep_dtype))


def _refuse_attendo_folder(path: Path) -> None:
    """Raise a `ModelError` for folders with attendo's manifest, except exports to transformers."""
    try:
        kind = read_json(path / "manifest.json").get("format")
    except ModelError:
        return
    if kind == model_folder.FORMAT:
        raise ModelError("import_of_attendo_model", path=path)
    if not (path / WEIGHTS).is_file():
        raise ModelError("import_of_exported_model", path=path)


def read_json(path: Path) -> dict[str, Any]:
    return model_files.read_json(path, model_files.COPY_AGAIN)


def _list_files(path: Path) -> str:
    """Return the names of the files in a folder."""
    return list_names(sorted(each.name for each in path.iterdir())) or "nothing"


def _list_weights(path: Path, keep_dtype: bool) -> FolderWeights:
    weights: dict[str, StoredTensor] = {}
    for file in weight_files(path):
        _refuse_lfs_pointer(file)
        found = list_tensors(file)
        if integers := [
            f"{cut_text(name)} ({weight.dtype})" for name, weight in found.items() if not weight.dtype.is_floating_point
        ]:
            raise ModelError("weights_not_floating_point", path=file, weight=integers[0])
        weights |= {name.removeprefix("model."): weight for name, weight in found.items()}
    return FolderWeights(weights, keep_dtype)


def _refuse_lfs_pointer(path: Path) -> None:
    """Raise a `ModelError` for a pointer file, which Git writes for large files if LFS is not installed."""
    with path.open("rb") as content:
        if content.read(len(_LFS_POINTER)) == _LFS_POINTER:
            raise ModelError("file_is_lfs_pointer", path=path)


def weight_files(path: Path) -> list[Path]:
    """Return the safetensors files of the weights."""
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    if (path / INDEX).is_file():
        weight_map = read_json(path / INDEX).get("weight_map")
        if not isinstance(weight_map, dict) or not all(Path(str(name)).name == name for name in weight_map.values()):
            raise ModelError("weight_index_damaged", path=path / INDEX)
        files = [path / str(name) for name in dict.fromkeys(weight_map.values())]
        if missing := [file.name for file in files if not file.is_file()]:
            raise ModelError("weight_files_missing", path=path, files=list_names(missing), index=INDEX)
        return files
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in _UNSAFE_SUFFIXES)
    if pickles:
        raise ModelError(
            "weights_format_unsafe", path=path, files=list_names(pickles), fix=_conversion_hint(path.resolve(), pickles)
        )
    raise ModelError("weights_file_missing", path=path, weights=WEIGHTS, index=INDEX, files=_list_files(path))


def _conversion_hint(path: Path, names: Sequence[str]) -> MessagePart:
    """Return a hint, a shell command if possible, for converting these files to safetensors."""
    of_torch = [name for name in names if Path(name).suffix in _TORCH_SUFFIXES]
    if not of_torch:
        return MessagePart("convert_weights_elsewhere", weights=WEIGHTS)
    if any(name.startswith("pytorch_model") for name in of_torch):  # the only name that transformers loads
        quoted = _quote_path(path)
        code = (
            "from transformers import AutoModelForSeq2SeqLM as M; "
            f"M.from_pretrained({quoted}).save_pretrained({quoted})"
        )
    else:
        code = (
            "import torch; from safetensors.torch import save_file; "
            f'found = torch.load({_quote_path(path / of_torch[0])}, map_location="cpu"); '
            "weights = {name: weight.clone() for name, weight in found.items()}; "
            f'save_file(weights, {_quote_path(path / WEIGHTS)}, {{"format": "pt"}})'
        )
    return MessagePart("convert_weights_by_command", weights=WEIGHTS, command=f"python -c {shlex.quote(code)}")


def _quote_path(path: Path) -> str:
    """Return a Python string literal in double quotes; the shell command uses single quotes."""
    return json.dumps(str(path), ensure_ascii=False)


@contextmanager
def no_progress_bars() -> Iterator[None]:
    from transformers.utils import logging

    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
