"""Answers to prompts, whole or bit by bit: the same text either way."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from attendo.serve.continuations import added, added_bits, own_tokens
from attendo.serve.errors import Refusal
from attendo.serve.linking import together
from attendo.serve.office import Office
from attendo.serve.openai.decoding import Decoding
from attendo.serve.openai.prompts import Prompt, by_sentence
from attendo.serve.openai.sharing import Asking, SharedLimit
from attendo.serve.openai.stops import Stops
from attendo.serve.shelf import Served
from attendo.serve.translating import MOST_SENTENCES
from attendo.text_model import Hypothesis, Result

_IN_FLIGHT = 4  # calls of one request: more would crowd out others


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
        self._limit: SharedLimit | None = None
        if decoding.most_tokens is not None and by_sentence(served):
            plain = decoding.is_plain(served.model)
            self._limit = SharedLimit(served.model, office.settings, decoding.most_tokens, plain)

    def prompt_tokens(self, prompts: Sequence[Prompt]) -> int:
        encode = self._served.model.source_tokenizer.encode
        return sum(len(encode(part)) for prompt in prompts for part in prompt.parts)

    def check(self, prompts: Sequence[Prompt]) -> None:
        count = sum(len(prompt.parts) for prompt in prompts)
        if count > MOST_SENTENCES:
            raise Refusal("too_many_sentences", count=count, most=MOST_SENTENCES)

    async def choices(self, prompts: Sequence[Prompt]) -> list[Choice]:
        """As many for each prompt as are asked for, or fewer where a search found fewer."""
        ask = self._asking(self._office.deadline())
        if self._limit is not None:
            found = await self._limit.answers(prompts, ask)
        elif self._decoding.most_tokens is not None and self._served.model.decoder_only:
            found = await together([ask(each.parts, self._most(each.text)) for each in prompts])
        else:
            rest = iter(await ask([part for each in prompts for part in each.parts], self._decoding.most_tokens))
            found = [[next(rest) for _ in each.parts] for each in prompts]
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

    def _asking(self, deadline: float) -> Asking:
        """Answers texts with so many tokens at most: as many in a call as a request may have, few calls at once."""
        size, few = self._office.settings.texts, asyncio.Semaphore(_IN_FLIGHT)

        async def ask(texts: Sequence[str], most: int | None) -> list[Result]:
            options, found = {**self._decoding.options, "max_length": most, "deadline": deadline}, list[Result]()
            for at in range(0, len(texts), size):
                async with few:
                    found += await self._office.answer(self._served, texts[at : at + size], **options)
            return found

        return ask

    async def _bits(self, prompt: Prompt, results: list[Result]) -> AsyncGenerator[str, None]:
        """The text as it comes. Every part has the time of a request: whoever hears something new can wait."""
        said = ""
        for piece in prompt.pieces:
            if piece.asked and self._limit is not None and self._limit.room(results) == 0:
                return
            begin = piece.space(said) + ("" if piece.asked else piece.text)
            said += begin
            yield begin
            if piece.asked:
                most = self._most(piece.text, results)
                options = {**self._decoding.options, "max_length": most, "done": results.append}
                streamed = self._office.stream(self._served, piece.text, **options)
                async with aclosing(streamed), aclosing(added_bits(self._served.model, piece.text, streamed)) as bits:
                    async for bit in bits:
                        said += bit
                        yield bit

    def _most(self, text: str, before: Sequence[Result] = ()) -> int | None:
        """Tokens of its answer, behind others of the same prompt; of a model that goes on with it, with the text."""
        if self._limit is not None:
            return self._limit.for_sentence(text, self._limit.room(before))
        if (most := self._decoding.most_tokens) is None:
            return None
        return min(self._office.settings.answer_tokens, most + own_tokens(self._served.model, text))

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
