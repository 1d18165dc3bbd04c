"""`pipeline("translation", "runs/demo/model")`."""

from pathlib import Path
from typing import Any

import torch

from attendo.errors import UsageError
from attendo.interop.opening import load
from attendo.pipelines.asking import Pipeline
from attendo.pipelines.messages import shown
from attendo.pipelines.tasks import task_of
from attendo.text_model import TextModel

Device = str | int | torch.device


def pipeline(
    task: str,
    model: str | Path | TextModel,
    *,
    device: Device | None = None,
    batch_size: int | None = None,
    **defaults: Any,
) -> Pipeline:
    """A model for one task: translation (also translation_en_to_de), summarization, text2text-generation,
    text-generation or conversational.

    `model` is a folder or what `attendo.load` made of one. `device` is as for `load`, or transformers' number of a GPU,
    -1 for the CPU. `batch_size` texts are decoded together at most. `defaults` are options of `TextModel.generate`, or
    of transformers where those mean the same; a call may say otherwise.
    """
    asked = task_of(task)
    if isinstance(model, TextModel):
        _check_device(model, device)
        return Pipeline(asked, model, batch_size, defaults)
    if not isinstance(model, str | Path):
        raise UsageError("invalid_pipeline_model", value=shown(model))
    return Pipeline(asked, load(model, _name(device)), batch_size, defaults)


def _name(device: Device | None) -> str:
    if device is None:
        return "auto"
    if isinstance(device, int) and not isinstance(device, bool):
        return "cpu" if device == -1 else f"cuda:{device}"
    return str(device)


def _check_device(model: TextModel, device: Device | None) -> None:
    """A model that is there stays where it is."""
    if device is None or _name(device) in ("auto", str(model.device), model.device.type):
        return
    raise UsageError("model_on_other_device", device=model.device, requested=device)
