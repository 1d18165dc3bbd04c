"""The models that a server is started with, from what a person has typed: folders, and what they are for."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from attendo.errors import UsageError
from attendo.interop.opening import load
from attendo.serve.languages import code_of
from attendo.serve.shelf import NamedModel, Served, named_models
from attendo.store import StoredModel
from attendo.text.about import About, ModelAbout
from attendo.text_model import TextModel


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
