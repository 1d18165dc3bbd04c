"""Answers to prompts, whole or bit by bit: the same text either way."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from attendo.serve.continuations import added, added_bits, grown, own_tokens
from attendo.serve.errors import Refusal
from attendo.serve.office import Office
from attendo.serve.openai.decoding import Decoding
from attendo.serve.openai.prompts import Prompt
from attendo.serve.openai.stops import Stops
from attendo.serve.shelf import Served
from attendo.serve.translating import MOST_SENTENCES
from attendo.text_model import Hypothesis, Result


@dataclass(frozen=True)
class Choice:
    """An answer, why it ended there, and how many tokens it has."""

    text: str
    finish_reason: Literal["stop", "length"]
    tokens: int


class Answering:
    """Asks one model, always in the same way."""

    def __init__(self, office: Office, served: Served, decoding: Decoding) -> None:
        self._office, self._served, self._decoding = office, served, decoding

    def prompt_tokens(self, prompts: Sequence[Prompt]) -> int:
        encode = self._served.model.source_tokenizer.encode
        return sum(len(encode(part)) for prompt in prompts for part in prompt.parts)

    def check(self, prompts: Sequence[Prompt]) -> None:
        count = sum(len(prompt.parts) for prompt in prompts)
        if count > MOST_SENTENCES:
            raise Refusal("too_many_sentences", count=count, most=MOST_SENTENCES)

    async def choices(self, prompts: Sequence[Prompt]) -> list[Choice]:
        """As many for each prompt as are asked for, or fewer where a search found fewer."""
        deadline = self._office.deadline()
        # What one part may take depends on what those before it took, or on how long it is itself.
        model, limited = self._served.model, self._decoding.most_tokens is not None
        shared = limited and (model.decoder_only or any(len(prompt.parts) > 1 for prompt in prompts))
        found = [await self._in_turn(each, deadline) for each in prompts] if shared else []
        found = found or await self._together(prompts, deadline)
        told = zip(prompts, found, strict=True)
        return [choice for prompt, results in told for choice in self._choices(prompt, results)]

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str | Choice, None]:
        """What is new each time, and behind it the whole choice."""
        stops, told, results = Stops(self._decoding.stops), "", list[Result]()
        if said := self._said_again(prompt):
            yield said
        async with aclosing(self._bits(prompt, results)) as bits:
            async for bit in bits:
                if new := stops.new(bit):
                    told += new
                    yield new
                if stops.reached:
                    break
        if rest := stops.rest():
            told += rest
            yield rest
        yield self._choice(prompt, told, stops.reached, [self._hypothesis(each, 0) for each in results])

    async def _together(self, prompts: Sequence[Prompt], deadline: float) -> list[list[Result]]:
        parts = [part for prompt in prompts for part in prompt.parts]
        size = self._office.settings.texts
        options = {**self._options(self._decoding.most_tokens), "deadline": deadline}
        found: list[Result] = []
        for at in range(0, len(parts), size):
            found += await self._office.answer(self._served, parts[at : at + size], **options)
        rest = iter(found)
        return [[next(rest) for _ in prompt.parts] for prompt in prompts]

    async def _in_turn(self, prompt: Prompt, deadline: float) -> list[Result]:
        """As long as there are tokens left for another part."""
        results: list[Result] = []
        for part in prompt.parts:
            if (room := self._room(results)) == 0:
                break
            results += await self._office.answer(self._served, [part], deadline=deadline, **self._options(room, part))
        return results

    async def _bits(self, prompt: Prompt, results: list[Result]) -> AsyncGenerator[str, None]:
        """The text as it comes. Every part has the time of a request: whoever hears something new can wait."""
        said = ""
        for piece in prompt.pieces:
            if (room := self._room(results)) == 0 and piece.asked:
                return
            begin = piece.space(said) + ("" if piece.asked else piece.text)
            said += begin
            yield begin
            if piece.asked:
                options = self._options(room, piece.text)
                streamed = self._office.stream(self._served, piece.text, done=results.append, **options)
                async with aclosing(streamed), aclosing(added_bits(self._served.model, piece.text, streamed)) as bits:
                    async for bit in bits:
                        said += bit
                        yield bit

    def _room(self, results: Sequence[Result]) -> int | None:
        """Tokens that are left for what comes behind these answers; None: there is no limit."""
        most = self._decoding.most_tokens
        return None if most is None else max(0, most - sum(map(self._longest, results)))

    def _options(self, room: int | None, text: str = "") -> dict[str, Any]:
        """For a text with so much room for what is new."""
        options = {**self._decoding.options, "max_length": room}
        own = own_tokens(self._served.model, text) if room is not None else 0
        return grown(options, ("max_length",), own, self._office.settings.answer_tokens)

    def _choices(self, prompt: Prompt, results: Sequence[Result]) -> Iterator[Choice]:
        """The text with the best answer to each part, with the second ...; where there is none, with the last."""
        for number in range(max((len(each.hypotheses) for each in results), default=1)):
            chosen = [self._hypothesis(each, number) for each in results]
            stops = Stops(self._decoding.stops)
            text = stops.new(prompt.written([each.text for each in chosen]))
            yield self._choice(prompt, text + stops.rest(), stops.reached, chosen)

    def _choice(self, prompt: Prompt, text: str, stopped: bool, chosen: Sequence[Hypothesis]) -> Choice:
        """Where a stop sequence came, how many tokens that took is not known of a stream: those told are counted."""
        whole = self._said_again(prompt) + text
        if stopped:
            return Choice(whole, "stop", len(self._served.model.target_tokenizer.encode(text)))
        cut = len(chosen) < len(prompt.parts) or any(each.cut for each in chosen)
        return Choice(whole, "length" if cut else "stop", sum(len(each.ids) for each in chosen))

    def _said_again(self, prompt: Prompt) -> str:
        """Before what is new; no stop sequence is looked for in it, and its tokens are those of the prompt."""
        return prompt.text if self._decoding.echo else ""

    def _hypothesis(self, result: Result, number: int) -> Hypothesis:
        """Of those that a text has, the last where there are fewer."""
        found = list(added(self._served.model, result))
        return found[min(number, len(found) - 1)]

    def _longest(self, result: Result) -> int:
        return max(len(each.ids) for each in added(self._served.model, result))
