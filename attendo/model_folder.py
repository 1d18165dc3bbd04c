"""A model folder on disk: weights, configuration, tokenizers, decoding defaults, scores and checksums.

    config.json  weights.safetensors  source.* and target.* (or joint.*)  generation.json  scores.json
    about.json  sample.jsonl  calibration.json  manifest.json

The folder contains no code. It is written to a temporary folder and renamed. Every file is checked against the SHA-256
in the manifest before it is used.
"""

import json
import math
import shutil
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attendo import atomic_files
from attendo.errors import AttendoError, ModelError, UsageError, cut_text, list_names, shorten
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model.transformer import Transformer
from attendo.model_files import checksum_file, json_sha256, parse_json, read_bytes, read_json, write_json
from attendo.tensor_files import StoredTensor, list_tensors
from attendo.text import Tokenizer, load_tokenizer, save_tokenizers
from attendo.text.model_card import TrainedModelCard

FORMAT = "attendo.model"
VERSION = 1
SAMPLE = "sample.jsonl"
ABOUT = "about.json"
CALIBRATION = "calibration.json"
_INITIALISERS = (  # of weights: methods of a tensor, and functions of torch.nn.init
    *("uniform_", "normal_", "trunc_normal_", "zero_", "fill_", "div_", "__itruediv__"),
    *("xavier_uniform_", "kaiming_uniform_", "zeros_", "ones_", "constant_"),
)
_HALF_DTYPES = (torch.bfloat16, torch.float16)  # of stored weights, which are read into float32


@dataclass(frozen=True)
class StoredModel:
    """The content of a model folder. With a joint vocabulary both tokenizers are the same object."""

    network: Transformer
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    generation: dict[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    sample: list[tuple[str, str]] = field(default_factory=list)  # validation pairs to check the model with
    about: dict[str, Any] = field(default_factory=dict)  # the known fields of `TrainedModelCard`
    calibration: dict[str, Any] = field(default_factory=dict)  # the fields of `FaultLimits`


def save_model(folder: Path, model: StoredModel, dtype: torch.dtype | None = torch.float32) -> None:
    """Write the folder. An existing folder is replaced only after the new one is complete and on disk.

    Weights are written in `dtype`, or in their own precision if it is None.
    """
    folder = folder.resolve()
    if folder.exists() and not (folder / "manifest.json").is_file() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("not_a_model_folder", folder=folder)
    size = sum(weight.nbytes for weight in model.network.parameters())
    with atomic_files.temporary_folder(folder, size) as new:
        _write_model(new, model, dtype)
        atomic_files.replace_folder(folder, new)


def _write_model(new: Path, model: StoredModel, dtype: torch.dtype | None) -> None:
    write_json(new / "config.json", model.network.config.model_dump(mode="json"))
    write_json(new / "generation.json", model.generation)
    write_json(new / "scores.json", model.scores)
    if model.sample:
        _write_sample(new / SAMPLE, model.sample)
    if model.about:
        write_json(new / ABOUT, model.about)
    if model.calibration:
        write_json(new / CALIBRATION, model.calibration)
    # named_parameters lists a tied embedding once, so it is stored once.
    weights = {
        name: weight.detach().to(dtype or weight.dtype).cpu().contiguous()
        for name, weight in model.network.named_parameters()
    }
    try:
        save_file(weights, new / "weights.safetensors")
    except SafetensorError as error:
        raise AttendoError("weights_write_failed", path=new / "weights.safetensors", reason=error) from None
    save_tokenizers(new, model.source_tokenizer, model.target_tokenizer)
    write_manifest(new, FORMAT, VERSION)


def load_model(folder: Path, device: torch.device | str = "cpu", into: Transformer | None = None) -> StoredModel:
    """Read a folder written by `save_model`. The weights replace those of `into` if it is given, to save memory.

    Raise a `ModelError` that names the file if anything is missing, damaged or does not match.
    """
    if (folder / "run.toml").is_file() and not (folder / "manifest.json").exists():
        raise ModelError("run_instead_of_model", folder=folder, model_folder=folder / "model")
    names = check_manifest(folder, FORMAT, VERSION)["files"]
    require_listed(folder, names, ("config.json", "weights.safetensors", "generation.json", "scores.json"))
    try:
        config = ModelConfig(**read_json(folder / "config.json"))
    except AttendoError as error:
        raise ModelError("model_config_invalid", path=folder / "config.json", error=error) from None
    network = _load_network(config, folder / "weights.safetensors", into)
    source, target = load_tokenizers(folder, names, config)
    generation, scores = read_json(folder / "generation.json"), read_json(folder / "scores.json")
    sample = _read_sample(folder / SAMPLE) if SAMPLE in names else []
    about = read_about(folder) if ABOUT in names else {}
    calibration = read_json(folder / CALIBRATION) if CALIBRATION in names else {}
    return StoredModel(network.to(device).eval(), source, target, generation, scores, sample, about, calibration)


def update_json(folder: Path, name: str, changes: dict[str, Any]) -> None:
    """Change keys of one JSON file of a model folder, or write a new one. Every other file keeps its content.

    The manifest is checked first, so a damaged file does not get a new checksum. A changed copy of the folder then
    replaces it.
    """
    folder = folder.resolve()
    listed = check_manifest(folder, FORMAT, VERSION)["files"]
    with atomic_files.temporary_folder(folder, sum(path.stat().st_size for path in folder.iterdir())) as new:
        for each in listed:
            shutil.copy2(folder / each, new / each)
        write_json(new / name, {**(read_json(folder / name) if name in listed else {}), **changes})
        write_manifest(new, FORMAT, VERSION)
        # Files outside the manifest are not part of the model. They are copied too.
        for path in folder.iterdir():
            if path.name not in (*listed, name, "manifest.json"):
                (shutil.copytree if path.is_dir() else shutil.copy2)(path, new / path.name)
        atomic_files.replace_folder(folder, new)


def load_tokenizers(
    folder: Path, names: Collection[str], config: ModelConfig | None = None
) -> tuple[Tokenizer, Tokenizer]:
    """Load the source and target tokenizers from files listed in the manifest.

    If `config` is given, the vocabulary sizes must match it.
    """
    joint = any(name.startswith("joint.") for name in names)
    sides = (
        ("joint",) if joint else ("target",) if config is not None and config.continues_text else ("source", "target")
    )
    for side in sides:
        require_listed(folder, names, [f"{side}.tokenizer.json", *(path.name for path in folder.glob(f"{side}.*"))])
    found = {side: load_tokenizer(folder, side) for side in sides}
    source, target = found[sides[0]], found[sides[-1]]
    sizes = (None, None) if config is None else (config.source_vocab_size, config.target_vocab_size)
    for side, tokenizer, size in (("source", source, sizes[0]), ("target", target, sizes[1])):
        if size is not None and tokenizer.vocab_size != size:
            raise ModelError(
                "tokenizer_size_mismatch", folder=folder, side=side, count=tokenizer.vocab_size, expected=size
            )
    return source, target


def require_listed(folder: Path, names: Collection[str], needed: Iterable[str]) -> None:
    """Raise if a file has no checksum in the manifest, so that only verified files are read."""
    for name in needed:
        if name not in names and (folder / name).exists():
            raise ModelError("file_not_in_manifest", path=folder / name)
        if name not in names:
            raise ModelError("folder_file_missing", path=folder / name)


def read_about(folder: Path) -> dict[str, Any]:
    """Read and validate about.json."""
    try:
        return TrainedModelCard(**read_json(folder / ABOUT)).to_dict()
    except UsageError as error:
        raise ModelError("model_about_invalid", path=folder / ABOUT, error=error) from None


def write_manifest(folder: Path, format_name: str, version: int, facts: dict[str, Any] | None = None) -> None:
    """Write the size and SHA-256 of every file in the folder, and optional `facts`."""
    files = {path.name: checksum_file(path) for path in sorted(folder.iterdir())}
    content = {"format": format_name, "version": version, **({"facts": facts} if facts else {}), "files": files}
    write_json(folder / "manifest.json", {**content, "sha256": json_sha256(content)})


def check_manifest(folder: Path, format_name: str, version: int) -> dict[str, Any]:
    """Return the manifest of a folder after checking that every file is present and unchanged."""
    path = folder / "manifest.json"
    atomic_files.restore_folder(folder)
    if not folder.is_dir():
        raise ModelError("model_folder_not_found", folder=folder)
    if format_name == FORMAT and not path.exists() and not (folder / "weights.safetensors").exists():
        found = "it has no manifest.json" if any(folder.iterdir()) else "it is empty"
        raise ModelError("model_manifest_missing", folder=folder, reason=found)
    manifest = read_json(path)
    content = {key: value for key, value in manifest.items() if key != "sha256"}
    if manifest.get("sha256") != json_sha256(content):
        raise ModelError("manifest_checksum_mismatch", path=path)
    if content.get("format") != format_name or content.get("version") != version:
        found = f"{_format_value(content.get('format'))} version {_format_value(content.get('version'))}"
        raise ModelError("manifest_version_mismatch", path=path, kind=format_name, version=version, found=found)
    files = content.get("files")
    if not isinstance(files, dict) or not all(isinstance(expected, dict) for expected in files.values()):
        raise ModelError("manifest_lists_no_files", path=path)
    for name, expected in files.items():
        if Path(name).name != name:
            raise ModelError("manifest_path_outside_folder", path=path, name=shorten(name))
        _check_file(folder / name, expected)
    return manifest


def _check_file(path: Path, expected: dict[str, Any]) -> None:
    if not path.is_file() or path.is_symlink():
        raise ModelError("folder_file_missing", path=path)
    if path.stat().st_size != expected.get("bytes"):
        found, meant = path.stat().st_size, expected.get("bytes")
        raise ModelError("file_size_mismatch", path=path, size=found, expected=_format_value(meant))
    if checksum_file(path) != expected:
        raise ModelError("file_checksum_mismatch", path=path)


@torch.no_grad()
def _load_network(config: ModelConfig, path: Path, into: Transformer | None) -> Transformer:
    """Build the network in float32 with the weights of a file, if the file has enough of them."""
    stored = list_tensors(path)
    numbers, least = sum(math.prod(each.shape) for each in stored.values()), _min_parameters(config)
    if least > numbers or config.num_encoder_layers + config.num_decoder_layers > len(stored):
        raise ModelError("weights_too_few", path=path, count=numbers, tensors=len(stored), needed=min(least, 10**18))
    network = into if into is not None and into.config == config else allocate_network(config)
    parameters = dict(network.named_parameters())
    if faults := tensor_mismatches(parameters, stored, (torch.float32, *_HALF_DTYPES)):
        raise ModelError("weights_do_not_fit", path=path, faults=list_names(faults, 5, "; "), count=len(faults))
    for name, weight in parameters.items():
        weight.data = stored[name].read().float()
    return network


def allocate_network(config: ModelConfig) -> Transformer:
    """Return a network without initial weights, which are set later. The caller's random state does not change.

    The system provides the memory of a weight when it is first written.
    """
    with _SkipInitialisation():
        return make_network(config)


class _SkipInitialisation(TorchFunctionMode):
    """Leaves new weights as they are. A network on the meta device would import sympy, which takes 4 s and 70 MB."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in _INITIALISERS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


@torch.no_grad()
def load_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Copy weights into a network by their names. A tied weight has one name."""
    for name, weight in network.named_parameters():
        weight.copy_(weights[name])


def _min_parameters(config: ModelConfig) -> int:
    """Return a lower bound on the parameter count, of the same order, before memory is allocated."""
    heads = config.num_heads * max(config.head_width, config.d_value or 0)
    layers = config.num_encoder_layers + config.num_decoder_layers
    has_source_table = not config.ties_inputs and not config.decoder_only
    rows = (config.target_vocab_size or 0) + (config.source_vocab_size or 0 if has_source_table else 0)
    positions = config.max_length + config.position_offset if config.positions == "learned" else 0
    return config.d_model * (rows + positions + layers * (config.d_ff + heads))


def tensor_mismatches(
    expected: Mapping[str, Tensor], found: Mapping[str, Tensor | StoredTensor], dtypes: Collection[torch.dtype] = ()
) -> list[str]:
    """List every tensor that is missing, unexpected, or of another dtype or shape. `dtypes` are accepted too."""
    faults = [f"{name} is missing" for name in expected.keys() - found.keys()]
    faults += [f"{name} is not part of the network" for name in found.keys() - expected.keys()]
    for name in expected.keys() & found.keys():
        meant, there = expected[name], found[name]
        if there.dtype != meant.dtype and there.dtype not in dtypes:
            faults.append(f"{name} is {there.dtype}, the network needs {meant.dtype}")
        if tuple(there.shape) != tuple(meant.shape):
            faults.append(f"{name} is {list(there.shape)}, the network needs {list(meant.shape)}")
    return sorted(faults)


def _format_value(value: object) -> str:
    """Format a value without quotes, for a message."""
    return cut_text(value) if isinstance(value, str) else shorten(value)


def _write_sample(path: Path, pairs: list[tuple[str, str]]) -> None:
    lines = (json.dumps({"source": source, "target": target}, ensure_ascii=False) for source, target in pairs)
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="\n")


def _read_sample(path: Path) -> list[tuple[str, str]]:
    try:
        rows = [parse_json(line) for line in read_bytes(path).split(b"\n") if line]
        pairs = [(row["source"], row["target"]) for row in rows]
    except (ValueError, KeyError, TypeError):
        pairs = None
    if pairs is None or not all(isinstance(text, str) for pair in pairs for text in pair):
        raise ModelError("sample_file_damaged", path=path)
    return pairs
