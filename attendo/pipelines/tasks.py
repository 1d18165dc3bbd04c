"""Tasks by the names that transformers has for them, and which models can do them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attendo.errors import UsageError
from attendo.settings import nearest
from attendo.text_model import TextModel


@dataclass(frozen=True)
class Task:
    name: str
    key: str  # that an answer stands under
    model_is_for: str | None  # what about.json calls a model for it; None: for anything
    languages: tuple[str, str] | None = None

    @property
    def continues(self) -> bool:
        """Whether a text is gone on with, not answered."""
        return self.name == "text-generation"

    @property
    def reads_whole(self) -> bool:
        """Whether a text is never split by default: the answer is to all of it."""
        return self.name in ("summarization", "conversational")

    @property
    def takes_messages(self) -> bool:
        return self.name == "conversational"


TASKS = {
    each.name: each
    for each in (
        Task("translation", "translation_text", "translation"),
        Task("summarization", "summary_text", "summarization"),
        Task("text2text-generation", "generated_text", None),
        Task("text-generation", "generated_text", "generation"),
        Task("conversational", "generated_text", "conversation"),
    )
}
_PAIR = re.compile(r"translation_([A-Za-z-]+)_to_([A-Za-z-]+)")


def task_of(name: str) -> Task:
    """One of `TASKS`; `translation_en_to_de` names the languages too."""
    if not isinstance(name, str):
        raise UsageError("task_not_string", task=name, tasks=", ".join(TASKS))
    if pair := _PAIR.fullmatch(name):
        return Task(name, "translation_text", "translation", (pair[1], pair[2]))
    if name not in TASKS:
        raise UsageError("unknown_task", task=name, suggestion=nearest(name, list(TASKS)), tasks=", ".join(TASKS))
    return TASKS[name]


def check_model(task: Task, model: TextModel) -> None:
    """A model that says it is for something else, or between other languages, is a `UsageError`."""
    if task.continues and not model.decoder_only:
        raise UsageError("task_needs_decoder_only", task=task.name)
    if model.decoder_only and not task.continues:
        raise UsageError("task_needs_encoder", task=task.name)
    own = model.about.get("task")
    if task.model_is_for is not None and own is not None and own != task.model_is_for:
        named = next(name for name, each in TASKS.items() if each.model_is_for == own)
        raise UsageError("task_not_of_model", model_task=own, task=task.name, alternative=named)
    for side, asked in zip(("source", "target"), task.languages or (), strict=False):
        if f"{side}_language" in model.about:
            _check_language(f"the {side} of {task.name}", asked, model.about[f"{side}_language"])


def check_languages(given: Mapping[str, Any], model: TextModel) -> None:
    """src_lang and tgt_lang must be those of the model, which has one of each."""
    for name, side in (("src_lang", "source"), ("tgt_lang", "target")):
        asked, own = given.get(name), model.about.get(f"{side}_language")
        if asked is not None and own is None:
            raise UsageError("model_language_unknown", option=name, value=asked, side=side)
        if asked is not None:
            _check_language(name, str(asked), str(own))


def _check_language(what: str, asked: str, own: str) -> None:
    """By its first part: en is en_XX and en-GB too."""
    if re.split("[-_]", asked)[0].lower() != own.split("-")[0]:
        raise UsageError("language_not_of_model", subject=what, requested=asked, own=own)
