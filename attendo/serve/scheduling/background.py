"""Work that cannot be taken apart into steps, done piece by piece between the steps of others."""

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from attendo.decode.step_hook import looked_on_by
from attendo.serve.scheduling.jobs import Job, Texts, Work
from attendo.text_model import Result, TextModel

_GATHERED = 64  # texts that are given to the model in one call
_GATHERED_CHARACTERS = 16_384  # of all of them, so that no call takes long


class _NobodyWaits(Exception):  # noqa: N818  (it is no error)
    """What goes on would be for nothing."""


class Pieces:
    """By turns whoever has waited longest and whoever asks for least, so that neither the long nor the short starve.

    Whoever has more than one piece goes behind the others after each. `meanwhile` is called all the time within a
    piece, wherever it goes step by step.
    """

    def __init__(self, model: TextModel, meanwhile: Callable[[], None]) -> None:
        self._model, self._meanwhile = model, meanwhile
        self._jobs: deque[Job] = deque()  # who has waited longest first
        self._least_next = False
        self._begun: dict[Job, Iterator[Any]] = {}
        self._found: dict[Job, list[Result]] = {}  # of those of whose texts some are answered
        self._alone: set[Job] = set()  # after trouble in a call for several
        self._under_way: Sequence[Job] = ()

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def add(self, job: Job) -> None:
        self._jobs.append(job)

    def remove(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
        self._alone.discard(job)
        self._found.pop(job, None)
        if (begun := self._begun.pop(job, None)) is not None and hasattr(begun, "close"):
            begun.close()

    def step(self) -> None:
        """One piece."""
        job = self._next()
        shares = self._shares(job)
        self._under_way = [*shares] or [job]
        with looked_on_by(lambda: self._look(self._under_way)):
            self._do(self._under_way, lambda: self._call(shares) if shares else self._piece(job))
        self._under_way = ()

    def aside(self) -> None:
        """While a piece is under way: an item of other work, which is never long."""
        others = [job for job in self._jobs if job.listened_to and job not in self._under_way]
        if (job := next((each for each in others if isinstance(each.asked, Work)), None)) is not None:
            self._do([job], lambda: self._piece(job))

    def _next(self) -> Job:
        first = self._jobs[0]
        if isinstance(first.asked, Work):  # whose items are never long
            return first
        least_now, self._least_next = self._least_next, not self._least_next
        texts = [job for job in self._jobs if isinstance(job.asked, Texts)]
        return min(texts, key=lambda job: job.tokens) if least_now else first

    def _go_behind(self, job: Job) -> None:
        self._jobs.remove(job)
        self._jobs.append(job)

    def _do(self, jobs: Sequence[Job], work: Callable[[], None]) -> None:
        for each in jobs:
            each.begin()
        try:
            work()
        except _NobodyWaits:
            for each in jobs:
                self.remove(each)
        except Exception as error:  # whatever it is, the others are to be answered
            if len(jobs) > 1:
                self._alone.update(jobs)
                return
            self.remove(jobs[0])
            jobs[0].fail(error)

    def _look(self, jobs: Sequence[Job]) -> None:
        """Ends what is for nobody any more: their time is over, or they have left."""
        self._meanwhile()
        now = time.monotonic()
        lost = [job.over or job.lost(now) for job in jobs]  # everybody whose time is over hears so
        if all(lost):
            raise _NobodyWaits

    def _piece(self, job: Job) -> None:
        """The next item of whatever it is."""
        if job not in self._begun:
            self._begun[job] = self._items(job.asked)
        try:
            item = next(self._begun[job])
        except StopIteration as end:
            self.remove(job)
            job.finish([end.value])  # of a stream, the whole result
            return
        job.tell(item)
        self._go_behind(job)

    def _items(self, asked: Texts | Work) -> Iterator[Any]:
        return asked.begin() if isinstance(asked, Work) else self._model.stream(asked.texts[0], **asked.options)

    def _shares(self, first: Job) -> dict[Job, Sequence[str]]:
        """What one call can answer: texts of the first, and of those behind it; nothing where it is no call."""
        key, shares, room = _key(first), dict[Job, Sequence[str]](), _Room()
        if key is None:
            return {}
        for job in (first, *(each for each in self._jobs if each is not first)):
            if _key(job) != key or (shares and job in self._alone) or not isinstance(job.asked, Texts):
                continue
            rest = job.asked.texts[len(self._found.get(job, ())) :]
            share = room.taken(rest) if _plain(job.asked) else rest
            if shares and rest and not share:
                break
            shares[job] = share
            if len(share) < len(rest) or job in self._alone:
                break
        return shares

    def _call(self, shares: dict[Job, Sequence[str]]) -> None:
        """Whoever has more texts than that goes behind the others."""
        asked = next(iter(shares)).asked
        assert isinstance(asked, Texts)
        results = iter(self._model.generate([text for share in shares.values() for text in share], **asked.options))
        for job, share in shares.items():
            found = self._found.setdefault(job, [])
            found += [next(results) for _ in share]
            if isinstance(job.asked, Texts) and len(found) == len(job.asked.texts):
                self.remove(job)
                job.finish(found)
            else:
                self._go_behind(job)


class _Room:
    """Of one call."""

    def __init__(self) -> None:
        self._texts, self._characters = _GATHERED, _GATHERED_CHARACTERS

    def taken(self, texts: Sequence[str]) -> Sequence[str]:
        """As many as fit, and at least one into an empty room."""
        for count, text in enumerate(texts):
            empty = self._texts == _GATHERED
            if not empty and (self._texts == 0 or len(text) > self._characters):
                return texts[:count]
            self._texts, self._characters = self._texts - 1, self._characters - len(text)
        return texts


def _key(job: Job) -> Hashable | None:
    """The same for jobs that one call can answer."""
    asked = job.asked
    if isinstance(asked, Work) or asked.streamed:
        return None
    return repr(sorted(asked.options.items())) if _plain(asked) else id(job)


def _plain(asked: Texts) -> bool:
    """Whether all is asked for all texts alike, so that they need not be answered together."""
    prefix, constraints = asked.options.get("prefix"), asked.options.get("constraints")
    return isinstance(prefix, str | None) and all(isinstance(each, str) for each in constraints or ())
