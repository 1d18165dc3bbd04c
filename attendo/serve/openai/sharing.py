"""A limit that the sentences of an answer share: each may take what those before it have left."""

from collections.abc import Callable, Coroutine, Sequence
from itertools import accumulate
from typing import Any

from attendo.serve.linking import together
from attendo.serve.openai.prompts import Prompt
from attendo.serve.settings import ServeSettings
from attendo.text_model import Result, TextModel

# To sentences, each with so many tokens at most; None: as many as the model has for it.
Asking = Callable[[Sequence[str], int | None], Coroutine[Any, Any, list[Result]]]


class SharedLimit:
    """No sentence takes more than it would without the limit, so one that is not reached changes nothing.

    `plain`: a search whose choices do not depend on how far it could have gone, as those of a beam may.
    """

    def __init__(self, model: TextModel, settings: ServeSettings, most: int, plain: bool) -> None:
        self._model, self._settings, self._most, self._plain = model, settings, most, plain

    def room(self, results: Sequence[Result]) -> int:
        """Tokens that are left behind these answers."""
        return max(0, self._most - sum(map(_longest, results)))

    def for_sentence(self, sentence: str, room: int) -> int | None:
        """What to ask for it with, where so much is left."""
        (own,) = self._own([sentence])
        return room if room < own else None

    async def answers(self, prompts: Sequence[Prompt], ask: Asking) -> list[list[Result]]:
        """Of each prompt those to its sentences, as far as the limit goes: the same as one after the other.

        As many as are likely to have room are asked side by side; one that a lack of room would have changed is asked
        again with what is left.
        """
        ahead = [prompt.parts[: self._likely(prompt.parts, self._most)] for prompt in prompts]
        found = iter(await ask([part for parts in ahead for part in parts], None) if any(ahead) else [])
        first = [[next(found) for _ in parts] for parts in ahead]
        told = zip(prompts, first, strict=True)
        return await together([self._of(prompt.parts, known, ask) for prompt, known in told])

    async def _of(self, parts: Sequence[str], known: list[Result], ask: Asking) -> list[Result]:
        """`known` are answers to the first of them, found as if there were room enough."""
        own, told = self._own(parts), list[Result]()
        while len(told) < len(parts) and (room := self.room(told)):
            at = len(told)
            if not known and (likely := self._likely(parts[at:], room)) > 1:
                known = await ask(parts[at : at + likely], None)
            if known and self._had_room(known[0], own[at], room):
                told.append(known[0])
            else:
                told += await ask([parts[at]], room if room < own[at] else None)
            known = known[1:]
        return told

    def _had_room(self, result: Result, own: int, room: int) -> bool:
        """Whether this is the answer also with so much room, of a sentence that may have `own` tokens."""
        uncut = not any(each.cut for each in result.hypotheses)
        return own <= room or (self._plain and uncut and _longest(result) + 1 < room)

    def _likely(self, parts: Sequence[str], room: int) -> int:
        """How many probably have room: an answer is about as long as its sentence."""
        taken = accumulate(tokens + 1 for tokens in self._model.call(parts[: self._settings.texts]).source_tokens)
        return sum(each <= room for each in taken)

    def _own(self, parts: Sequence[str]) -> list[int]:
        """The most tokens that each may have by itself."""
        free = int(self._model.generation.at_limit == "free")
        limits = [sum(line.limit for line in lines) + free for lines in self._model.call(parts).made]
        return [min(each, self._settings.answer_tokens) for each in limits]


def _longest(result: Result) -> int:
    return max(len(each.ids) for each in result.hypotheses)
