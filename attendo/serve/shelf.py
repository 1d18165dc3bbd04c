"""The models of a server, by name, each with its worker, and the checkpoints of its run, read when asked for."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from attendo.errors import AttendoError
from attendo.model.transformer import Transformer
from attendo.serve.errors import Refusal
from attendo.serve.settings import ServeSettings
from attendo.serve.worker import Worker
from attendo.store import StoredModel, misfits
from attendo.text_model import TextModel
from attendo.train.checkpoint import Checkpoints


@dataclass(frozen=True)
class NamedModel:
    """A model to serve; `folder` is where it lies, beside what its run left."""

    name: str
    model: TextModel
    folder: Path | None = None


class Served:
    """One model. What is not named async runs in the worker's thread."""

    def __init__(self, named: NamedModel, settings: ServeSettings) -> None:
        self.name, self.model = named.name, named.model
        self.worker = Worker(settings.waiting)
        self.run_folder = None if named.folder is None else named.folder.resolve().parent
        self._most_kept, self._kept = settings.checkpoints, OrderedDict[str, TextModel]()

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
        return TextModel(StoredModel(network, source, target, stored.generation))

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
