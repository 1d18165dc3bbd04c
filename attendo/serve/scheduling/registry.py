"""Registry of served models: loading, names and a cache of checkpoints."""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from attendo.errors import AttendoError, UsageError
from attendo.interop.load import load
from attendo.model.transformer import Transformer
from attendo.model_folder import StoredModel, misfits
from attendo.serve.http.errors import Refusal
from attendo.serve.languages import code_of
from attendo.serve.scheduling.scheduler import BatchLimits
from attendo.serve.scheduling.worker import Batcher
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import About, ModelAbout
from attendo.text_model import TextModel
from attendo.train.checkpoint import Checkpoints


@dataclass(frozen=True)
class NamedModel:
    """A model to serve; `folder` is where it lies, beside what its run left, `about` what it says of itself."""

    name: str
    model: TextModel
    folder: Path | None = None
    about: About | None = None  # where it is to be served as something else than it says


class Served:
    """One model. Whatever needs it, for the page or for any API, is done in the one thread of its batcher."""

    def __init__(self, named: NamedModel, settings: ServeSettings) -> None:
        self.name, self.model, self.folder = named.name, named.model, named.folder
        self.about = _with_known_codes(named.about or ModelAbout(**named.model.about))
        limits = BatchLimits(
            waiting=settings.waiting,
            queue_seconds=settings.queue_seconds,
            tokens=settings.queue_tokens,
            drain_seconds=settings.drain_seconds,
            source_tokens=settings.source_tokens,
            answer_tokens=settings.answer_tokens,
        )
        # A folder that is replaced meanwhile goes on being served as it was.
        self.sha256 = None if named.folder is None else _sha256(named.folder)
        self.batcher = Batcher(named.model, limits)
        self.run_folder = None if named.folder is None else named.folder.resolve().parent
        self._most_kept, self._kept = settings.checkpoints, OrderedDict[str, TextModel]()

    @property
    def sample(self) -> str:
        """A text that it can answer."""
        stored = self.model.stored.sample if self.model.runtime.name == "torch" else []
        return next((source for source, _ in stored if source.strip()), "a")

    @property
    def checkpoints(self) -> list[str]:
        found = self._found_checkpoints()
        return [] if found is None else [found.path(step).name for step in found.steps()]

    @property
    def metrics(self) -> Path | None:
        path = None if self.run_folder is None else self.run_folder / "metrics.jsonl"
        return path if path is not None and path.is_file() else None

    def at(self, checkpoint: str | None) -> TextModel:
        """The model as it is, or as it was at a checkpoint; the last few of those are kept."""
        if checkpoint is None:
            return self.model
        if checkpoint not in self._kept:
            self._kept[checkpoint] = self._read(checkpoint)
            while len(self._kept) > self._most_kept:
                self._kept.popitem(last=False)
        self._kept.move_to_end(checkpoint)
        return self._kept[checkpoint]

    def _read(self, checkpoint: str) -> TextModel:
        found = self._found_checkpoints()
        steps = {} if found is None else {found.path(step).name: step for step in found.steps()}
        if found is None or checkpoint not in steps:
            known = ", ".join(steps) or "–"
            raise Refusal("unknown_checkpoint", model=self.name, name=checkpoint[:100], known=known)
        try:
            weights = found.load(steps[checkpoint]).model
        except AttendoError as error:
            raise Refusal("bad_checkpoint", detail=str(error)) from None
        stored = self.model.stored
        with torch.random.fork_rng(devices=[]):
            network = Transformer(stored.network.config)
        expected = dict(network.named_parameters())
        if faults := misfits(expected, {name: weights[name] for name in expected.keys() & weights.keys()}):
            raise Refusal("bad_checkpoint", detail="; ".join(faults[:3]))
        with torch.no_grad():
            for name, weight in expected.items():
                weight.copy_(weights[name])
        network = network.to(self.model.device).eval()
        source, target = stored.source_tokenizer, stored.target_tokenizer
        return TextModel(StoredModel(network, source, target, stored.generation, about=stored.about))

    def _found_checkpoints(self) -> Checkpoints | None:
        return None if self.run_folder is None else Checkpoints(self.run_folder / "checkpoints")


class Shelf:
    """All of them; the first is the one that is meant where none is named."""

    def __init__(self, models: Sequence[NamedModel], settings: ServeSettings) -> None:
        self._served = {each.name: Served(each, settings) for each in models}

    def all(self) -> list[Served]:
        return list(self._served.values())

    def named(self, name: str | None) -> Served:
        if name is None:
            return self.all()[0]
        if name not in self._served:
            raise Refusal("unknown_model", name=name[:100], known=", ".join(self._served))
        return self._served[name]


def _with_known_codes(about: About) -> About:
    """Languages as requests are understood too; one that nobody can ask for is none."""
    codes = {
        name: None if told is None else code_of(told)
        for name, told in (("source_language", about.source_language), ("target_language", about.target_language))
    }
    return about.replace(**codes)


def _sha256(folder: Path) -> str | None:
    """Of all that the manifest names."""
    try:
        return str(json.loads((folder / "manifest.json").read_bytes())["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def named_models(folders: Sequence[Path], models: Sequence[TextModel]) -> list[NamedModel]:
    """Called after their run, or their own folder; those that would have the same name are numbered."""
    found: list[NamedModel] = []
    for folder, model in zip(folders, models, strict=True):
        place = folder.resolve()
        name = first = (place.parent.name if place.name == "model" else place.name) or "model"
        number = 2
        while name in [each.name for each in found]:
            name, number = f"{first}-{number}", number + 1
        found.append(NamedModel(name, model, folder))
    return found


def opened(
    folders: Sequence[Path],
    device: str = "auto",
    precision: str | None = None,
    languages: Sequence[str] = (),
    tasks: Sequence[str] = (),
    threads: int | None = None,
) -> list[NamedModel]:
    """The models in these folders; languages and tasks are one for each, in order, or none."""
    if threads is not None:
        torch.set_num_threads(threads)  # before any of them makes threads of its own
    pairs = [_pair(each) for each in _for_each(folders, languages, "--languages")]
    given = _for_each(folders, tasks, "--task")
    found = named_models(folders, [_served_as(load(each, device), precision) for each in folders])
    return [
        replace(each, about=_about(each.model, pairs[place : place + 1], given[place : place + 1]))
        for place, each in enumerate(found)
    ]


def described(served: Served) -> str:
    """A line for a person: what is served, and which it is."""
    about, model = served.about, served.model
    pair = f"{about.source_language}→{about.target_language}" if about.source_language and about.target_language else ""
    facts = [served.name, about.task or "", pair, f"{model.runtime.name} on {model.device}"]
    if model.runtime.name == "torch":
        facts.append(f"{sum(each.numel() for each in model.network.parameters()):,} parameters")
    facts.append(f"sha256 {served.sha256[:16]}" if served.sha256 else "")
    return "  ".join(each for each in facts if each)


def unfindable(served: Served) -> str | None:
    """Why nobody who asks for a language will find it; None where they will, or it is for something else."""
    about = served.about
    if about.task not in (None, "translation") or (about.source_language and about.target_language):
        return None
    return (
        f"{served.name} does not say which languages it translates: requests by languages (LibreTranslate, DeepL) do "
        "not find it; give --languages, such as en-zh"
    )


def _for_each(folders: Sequence[Path], given: Sequence[str], option: str) -> Sequence[str]:
    if given and len(given) != len(folders):
        raise UsageError("option_model_count_mismatch", option=option, given=len(given), models=len(folders))
    return given


def _pair(given: str) -> tuple[str, str]:
    """en-zh, or zh-Hans-en: where both sides are languages."""
    parts = given.split("-")
    for place in range(1, len(parts)):
        source, target = code_of("-".join(parts[:place])), code_of("-".join(parts[place:]))
        if source is not None and target is not None:
            return source, target
    raise UsageError("invalid_language_pair", value=given)


def _about(model: TextModel, pair: Sequence[tuple[str, str]], task: Sequence[str]) -> About:
    told: dict[str, Any] = dict(model.about)
    for source, target in pair:
        told |= {"source_language": source, "target_language": target}
        told.setdefault("task", "translation")
    for each in task:
        told["task"] = each
    return ModelAbout(**told)


def _served_as(model: TextModel, precision: str | None) -> TextModel:
    """In this precision, and never compiled: what takes a minute would look as if it hung."""
    changes: dict[str, Any] = {"compile": False} if model.generation.compile else {}
    if precision is not None:
        changes["precision"] = precision
    if not changes:
        return model
    if model.runtime.name != "torch":
        raise UsageError("precision_for_exported_model", format=model.runtime.name)
    stored: StoredModel = model.stored
    return TextModel(replace(stored, generation={**stored.generation, **changes}))
