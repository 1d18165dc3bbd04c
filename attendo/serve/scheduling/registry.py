"""Registry of served models: loading, names and a cache of checkpoints."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attendo.errors import AttendoError, LocalizedText, UsageError, join_texts
from attendo.interop.load import load
from attendo.model_folder import StoredModel, allocate_network, load_model, load_weights, tensor_mismatches
from attendo.runs.config import load_run_config
from attendo.runs.load import is_checkpoint
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.scheduler import BatchLimits
from attendo.serve.scheduling.worker import ModelWorker
from attendo.serve.settings import ServeSettings
from attendo.text.languages import language_code
from attendo.text.model_card import ModelCard, TrainedModelCard
from attendo.text_model import TextModel
from attendo.train.checkpoint import Checkpoints, eval_weights


@dataclass(frozen=True)
class ModelSpec:
    """A model to serve. `folder` is the model folder, next to the files of its training run."""

    name: str
    model: TextModel
    folder: Path | None = None
    about: ModelCard | None = None  # replaces the model's own card


class ServedModel:
    """A served model. All work with it, for the page and every API, runs in the threads of its worker."""

    def __init__(self, spec: ModelSpec, settings: ServeSettings) -> None:
        self.name, self.model, self.folder = spec.name, spec.model, spec.folder
        self.about = _with_language_codes(spec.about or TrainedModelCard(**spec.model.about))
        limits = BatchLimits(**settings.model_dump(include={each.name for each in fields(BatchLimits)}))
        # Read once: replacing the folder does not affect the loaded model.
        self.sha256 = None if spec.folder is None else _read_sha256(spec.folder)
        self.worker = ModelWorker(spec.model, limits)
        self.run_folder = None if spec.folder is None else spec.folder.resolve().parent
        self._max_cached, self._checkpoint_cache = settings.checkpoint_cache_size, OrderedDict[str, TextModel]()

    @property
    def sample_text(self) -> str:
        """A valid source text for the model."""
        stored = self.model.stored_model.sample if self.model.backend.name == "torch" else []
        return next((source for source, _ in stored if source.strip()), "a")

    @property
    def checkpoints(self) -> list[str]:
        """Names of the run's weights-only checkpoints, or of its checkpoints if it has none of those, by step."""
        return list(self._list_checkpoints())

    @property
    def metrics_path(self) -> Path | None:
        path = None if self.run_folder is None else self.run_folder / "metrics.jsonl"
        return path if path is not None and path.is_file() else None

    def load_checkpoint(self, checkpoint: str | None) -> TextModel:
        """Return the model, or a checkpoint of its run from an LRU cache."""
        if checkpoint is None:
            return self.model
        if checkpoint not in self._checkpoint_cache:
            self._checkpoint_cache[checkpoint] = self._read_checkpoint(checkpoint)
            while len(self._checkpoint_cache) > self._max_cached:
                self._checkpoint_cache.popitem(last=False)
        self._checkpoint_cache.move_to_end(checkpoint)
        return self._checkpoint_cache[checkpoint]

    @property
    def label_smoothing(self) -> float | None:
        """The label smoothing that the model was trained with; None if it is not known or has no such effect."""
        if self.run_folder is None or not (self.run_folder / "run.toml").is_file():
            return None
        try:
            train = load_run_config(self.run_folder).train
        except AttendoError:  # of another version; the page works without it
            return None
        is_used = train.objective == "likelihood" and self.model.kind in ("autoregressive", "masked")
        return train.label_smoothing if is_used else None

    def _list_checkpoints(self) -> dict[str, Path]:
        if self.run_folder is None:
            return {}
        for name in ("weights", "checkpoints"):
            found = Checkpoints(self.run_folder / name)
            if steps := found.steps():
                return {found.path(step).name: found.path(step) for step in steps}
        return {}

    def _read_checkpoint(self, checkpoint: str) -> TextModel:
        folders = self._list_checkpoints()
        if checkpoint not in folders:
            known = ", ".join(folders) or "–"
            raise ApiError("unknown_checkpoint", model=self.name, name=checkpoint[:100], known=known)
        stored, folder = self.model.stored_model, folders[checkpoint]
        try:
            weights = _read_weights(folder)
        except AttendoError as error:
            raise ApiError("bad_checkpoint", detail=str(error)) from None
        network = allocate_network(stored.network.config)
        if faults := tensor_mismatches(dict(network.named_parameters()), weights):
            raise ApiError("bad_checkpoint", detail="; ".join(faults[:3]))
        load_weights(network, weights)
        network = network.to(self.model.device).eval()
        source, target = stored.source_tokenizer, stored.target_tokenizer
        model = StoredModel(network, source, target, stored.generation, sample=stored.sample, about=stored.about)
        return TextModel(model)


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a checkpoint, or of a weights-only checkpoint, which is a model folder."""
    if is_checkpoint(folder):
        found = Checkpoints(folder.parent)
        return eval_weights(found.load(next(step for step in found.steps() if found.path(step) == folder)))
    return {name: weight.detach() for name, weight in load_model(folder).network.named_parameters()}


class ModelRegistry:
    """All served models by name. The first is the default."""

    def __init__(self, models: Sequence[ModelSpec], settings: ServeSettings) -> None:
        self._models = {each.name: ServedModel(each, settings) for each in models}

    def all(self) -> list[ServedModel]:
        return list(self._models.values())

    def get(self, name: str | None) -> ServedModel:
        if name is None:
            return self.all()[0]
        if name not in self._models:
            raise ApiError("unknown_model", name=name[:100], known=", ".join(self._models))
        return self._models[name]


def _with_language_codes(about: ModelCard) -> ModelCard:
    """Normalise the languages as those of requests are. An unknown language becomes None."""
    codes = {
        name: None if language is None else language_code(language)
        for name, language in (("source_language", about.source_language), ("target_language", about.target_language))
    }
    return about.replace(**codes)


def _read_sha256(folder: Path) -> str | None:
    """Return the SHA-256 over all files in the manifest, or None if it cannot be read."""
    try:
        return str(json.loads((folder / "manifest.json").read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def make_model_specs(folders: Sequence[Path], models: Sequence[TextModel]) -> list[ModelSpec]:
    """Name each model after its run or its folder. Duplicate names get a number."""
    specs: list[ModelSpec] = []
    for folder, model in zip(folders, models, strict=True):
        path = folder.resolve()
        name = first = (path.parent.name if path.name == "model" else path.name) or "model"
        number = 2
        while name in [each.name for each in specs]:
            name, number = f"{first}-{number}", number + 1
        specs.append(ModelSpec(name, model, folder))
    return specs


def load_models(
    folders: Sequence[Path],
    device: str = "auto",
    precision: str | None = None,
    languages: Sequence[str] = (),
    tasks: Sequence[str] = (),
    threads: int | None = None,
) -> list[ModelSpec]:
    """Load the models in these folders. `languages` and `tasks` have one value per model, or none."""
    if threads is not None:
        torch.set_num_threads(threads)  # before a model starts its own threads
    pairs = [
        None if each is None else _parse_language_pair(each)
        for each in _require_one_per_model(folders, languages, "--languages")
    ]
    model_tasks = _require_one_per_model(folders, tasks, "--task")
    specs = make_model_specs(folders, [_with_precision(load(each, device), precision) for each in folders])
    return [
        replace(spec, about=_make_card(spec.model, pair, task))
        for spec, pair, task in zip(specs, pairs, model_tasks, strict=True)
    ]


def describe(served: ServedModel) -> str:
    """Return one line about the model for the terminal."""
    about, model = served.about, served.model
    pair = f"{about.source_language}→{about.target_language}" if about.source_language and about.target_language else ""
    facts: list[str] = [served.name, about.task or "", pair, f"{model.backend.name} on {model.device}"]
    if model.backend.name == "torch":
        facts.append(
            LocalizedText("{count:,} parameters", count=sum(each.numel() for each in model.network.parameters()))
        )
    facts.append(f"sha256 {served.sha256[:16]}" if served.sha256 else "")
    return join_texts((each for each in facts if each), "  ")


def missing_language_warning(served: ServedModel) -> str | None:
    """Return a warning if a translation model has no languages, otherwise None."""
    about = served.about
    if about.task not in (None, "translation") or (about.source_language and about.target_language):
        return None
    return LocalizedText(
        "{name} does not say which languages it translates: requests by languages (LibreTranslate, DeepL) do "
        "not find it; give --languages, such as en-zh",
        name=served.name,
    )


def _require_one_per_model(folders: Sequence[Path], given: Sequence[str], option: str) -> Sequence[str | None]:
    """Return the values of an option, one per model; None for each if the option is not given."""
    if given and len(given) != len(folders):
        raise UsageError("option_model_count_mismatch", option=option, given=len(given), models=len(folders))
    return given or [None] * len(folders)


def _parse_language_pair(given: str) -> tuple[str, str]:
    """Parse a pair such as en-zh or zh-Hans-en: split at the hyphen that leaves two known languages."""
    parts = given.split("-")
    for index in range(1, len(parts)):
        source, target = language_code("-".join(parts[:index])), language_code("-".join(parts[index:]))
        if source is not None and target is not None:
            return source, target
    raise UsageError("invalid_language_pair", value=given)


def _make_card(model: TextModel, pair: tuple[str, str] | None, task: str | None) -> ModelCard:
    card: dict[str, Any] = dict(model.about)
    if pair is not None:
        card |= {"source_language": pair[0], "target_language": pair[1]}
        card.setdefault("task", "translation")
    if task is not None:
        card["task"] = task
    return TrainedModelCard(**card)


def _with_precision(model: TextModel, precision: str | None) -> TextModel:
    """Return the model in this precision, without torch.compile: compiling takes a minute and looks like a hang."""
    changes: dict[str, Any] = {"compile": False} if model.generation.compile else {}
    if precision is not None:
        changes["precision"] = precision
    if not changes:
        return model
    if model.backend.name != "torch":
        raise UsageError("precision_for_exported_model", format=model.backend.name)
    stored: StoredModel = model.stored_model
    return TextModel(replace(stored, generation={**stored.generation, **changes}))
