"""Work that cannot be taken apart into steps, done piece by piece between the steps of others."""

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Any

from attendo.serve.jobs import Job, Texts, Work
from attendo.text_model import TextModel

_GATHERED = 64  # texts that are given to the model in one call


class Pieces:
    """First come, first served, but whoever has more than one piece goes behind the others after each."""

    def __init__(self, model: TextModel) -> None:
        self._model = model
        self._jobs: deque[Job] = deque()
        self._begun: dict[Job, Iterator[Any]] = {}
        self._alone: set[Job] = set()  # after trouble in a call for several

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def remove(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        self._alone.discard(job)
        if (begun := self._begun.pop(job, None)) is not None and hasattr(begun, "close"):
            begun.close()

    def step(self) -> None:
        """One piece."""
        job = self._jobs[0]
        together = self._alike(job)
        for each in together:
            each.begun = True
        try:
            self._call(together) if together else self._piece(job)
        except Exception as error:  # whatever it is, the others are to be answered
            if len(together) > 1:
                self._alone.update(together)
                return
            self.remove(job)
            job.fail(error)

    def _piece(self, job: Job) -> None:
        """The next item of whatever it is."""
        if job not in self._begun:
            job.begun = True
            self._begun[job] = self._items(job.asked)
        try:
            item = next(self._begun[job])
        except StopIteration:
            self.remove(job)
            job.finish()
            return
        job.tell(item)
        self._jobs.rotate(-1)

    def _items(self, asked: Texts | Work) -> Iterator[Any]:
        return asked.begin() if isinstance(asked, Work) else self._model.stream(asked.texts[0], **asked.options)

    def _alike(self, first: Job) -> list[Job]:
        """The first and those behind it that one call can answer with it; nobody where it is no call."""
        key, found, texts = _key(first), list[Job](), 0
        if key is None:
            return []
        for job in self._jobs:
            alone = job in self._alone
            if _key(job) == key and (not found or not alone) and isinstance(job.asked, Texts):
                texts += len(job.asked.texts)
                if found and texts > _GATHERED:
                    break
                found.append(job)
                if alone:
                    break
        return found

    def _call(self, jobs: list[Job]) -> None:
        asked = [job.asked for job in jobs if isinstance(job.asked, Texts)]
        results = iter(self._model.generate([text for each in asked for text in each.texts], **asked[0].options))
        for job, each in zip(jobs, asked, strict=True):
            self.remove(job)
            job.finish([next(results) for _ in each.texts])


def _key(job: Job) -> Hashable | None:
    """The same for jobs that one call can answer. What is a list may hold one for each text, so it goes alone."""
    asked = job.asked
    if isinstance(asked, Work) or asked.streamed:
        return None
    options = tuple(sorted(asked.options.items()))
    plain = all(isinstance(value, str | int | float | None) for _, value in options)
    return options if plain else id(job)
