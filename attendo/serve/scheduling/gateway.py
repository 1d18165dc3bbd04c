"""Where the requests of all APIs meet the models: which one is asked, what may be asked of it, and until when."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from attendo.errors import AttendoError, ModelError
from attendo.serve import language_detection
from attendo.serve.http.errors import Refusal
from attendo.serve.http.metrics import Tally
from attendo.serve.scheduling.registry import Served, Shelf
from attendo.serve.settings import ServeSettings
from attendo.text_model import Result

# Of the machine, not of an answer: who asks could make everybody else wait with them.
_OF_THE_SERVER = ("engine", "compile", "precision", "batch_tokens")


class Office:
    """One for a server. Whatever is above a limit is refused before any model hears of it."""

    def __init__(self, shelf: Shelf, settings: ServeSettings, tally: Tally) -> None:
        self.shelf, self.settings, self.tally = shelf, settings, tally
        self.warm = False  # every model has answered once
        self.draining = False  # nothing new is taken
        self.awaited: list[Callable[[], bool]] = []  # each says whether somebody may still come for what was done

    async def warm_up(self) -> None:
        """Has every model answer once: what is prepared for the first answer nobody has to wait for."""
        for served in self.shelf.all():
            try:
                await served.batcher.generate([served.sample])
            except (Refusal, AttendoError) as error:
                told = error.english if isinstance(error, Refusal) else str(error)
                raise ModelError("model_warm_up_failed", model=served.name, text=served.sample, reason=told) from None
        language_detection.warm_up([*dict.fromkeys(code for pair in self.pairs() for code in pair)])
        self.warm = True

    @property
    def to_be_fetched(self) -> bool:
        """Whether somebody who is not connected now may come for an answer: it is too soon to stop listening."""
        return any(awaited() for awaited in self.awaited)

    @property
    def full(self) -> bool:
        """Whether no model would take a text now."""
        return all(served.batcher.full for served in self.shelf.all())

    @property
    def waiting(self) -> int:
        """How many wait for the model with the shortest queue."""
        return min(served.batcher.waiting for served in self.shelf.all())

    def served(self, name: str | None) -> Served:
        """By its name; the first where none is given."""
        return self.shelf.named(name)

    def for_pair(self, source: str | None, target: str) -> Served:
        """The first that translates between these languages, by their codes; from any where no source is given."""
        for served in self._translating():
            if served.about.target_language == target and source in (None, served.about.source_language):
                return served
        languages = self.languages()
        if source is not None and source not in languages:
            raise Refusal("unknown_language", language=source[:100])
        if source is None or not any(target in targets for targets in languages.values()):
            raise Refusal("unknown_language", language=target[:100])
        raise Refusal("no_such_pair", source=source, target=target)

    def pairs(self) -> list[tuple[str, str]]:
        """(source, target) of every pair of languages that is served, as the models stand."""
        found = [(each.about.source_language, each.about.target_language) for each in self._translating()]
        return list(dict.fromkeys((source, target) for source, target in found if source and target))

    def languages(self) -> dict[str, list[str]]:
        """Every language that is translated from, with those it is translated to."""
        found: dict[str, list[str]] = {}
        for source, target in self.pairs():
            found.setdefault(source, []).append(target)
        return found

    def check(self, texts: Sequence[str]) -> None:
        """How many, and how long each."""
        if len(texts) > self.settings.texts:
            raise Refusal("too_many_texts", count=len(texts), most=self.settings.texts)
        for text in texts:
            if len(text) > self.settings.characters:
                raise Refusal("text_too_long", characters=len(text), most=self.settings.characters)

    def check_options(self, **options: Any) -> None:
        """Those of `TextModel.generate` that take time or room; values that cannot be meant are the model's to tell."""
        for name, most in self._most().items():
            value = options.get(name)
            if isinstance(value, int | float) and value > most:
                raise Refusal("above_limit", name=name, value=value, most=most)
        for name in ("constraints", "ban"):
            phrases = _flat(options.get(name) or ())
            if len(phrases) > self.settings.phrases:
                raise Refusal("above_limit", name=name, value=len(phrases), most=self.settings.phrases)
            self._check_lengths(phrases)
        self._check_lengths(_flat(options.get("prefix") or ()))
        for name in _OF_THE_SERVER:
            if options.get(name) is not None:
                raise Refusal("of_the_server", name=name)

    def deadline(self) -> float:
        """The moment at which a request that comes now must have been answered."""
        return time.monotonic() + self.settings.deadline_seconds

    async def answer(
        self, served: Served, texts: Sequence[str], *, deadline: float | None = None, **options: Any
    ) -> list[Result]:
        """One for each text. `deadline`: of the whole request, where it asks several times."""
        self.check(texts)
        self.check_options(**options)
        results = await served.batcher.generate(texts, deadline or self.deadline(), **options)
        for each in results:
            self._count(served, each)
        return results

    async def stream(
        self,
        served: Served,
        text: str,
        *,
        deadline: float | None = None,
        done: Callable[[Result], None] | None = None,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        """What is new each time; `done` hears the whole result, after the last of it."""
        self.check([text])
        self.check_options(**options)
        begin, told, found = time.monotonic(), False, list[Result]()
        until = deadline or self.deadline()
        async with aclosing(served.batcher.stream(text, until, done=found.append, **options)) as parts:
            async for new in parts:
                if not told:
                    self.tally.first_token(time.monotonic() - begin)
                told = True
                yield new
        for each in found:
            self._count(served, each)
            if done is not None:
                done(each)

    def _translating(self) -> list[Served]:
        named = [each for each in self.shelf.all() if each.about.source_language and each.about.target_language]
        return [each for each in named if each.about.task in (None, "translation")]

    def _most(self) -> Mapping[str, int]:
        beam, tokens = self.settings.beam, self.settings.answer_tokens
        return {
            "beam": beam,
            "groups": beam,
            "n_best": beam,
            "mbr_candidates": self.settings.candidates,
            "max_length": tokens,
            "min_length": tokens,
        }

    def _check_lengths(self, texts: Sequence[Any]) -> None:
        self.check([text for text in texts if isinstance(text, str)])

    def _count(self, served: Served, result: Result) -> None:
        said = sum(len(each.ids) for each in result.hypotheses)
        self.tally.tokens(served.name, result.source_tokens, said)


def _flat(texts: Any) -> list[Any]:
    """One text, several, or several for each of several."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        return [texts]
    return [inner for each in texts for inner in _flat(each)]
