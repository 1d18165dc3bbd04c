"""Runs a completion: generation options, shared token budget, stop sequences, streaming."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from attendo.serve.apis.continuations import added, added_bits, own_tokens
from attendo.serve.apis.openai.prompts import Prompt, by_sentence
from attendo.serve.apis.openai.requests import Wanted
from attendo.serve.http.errors import Refusal
from attendo.serve.scheduling.gateway import Office
from attendo.serve.scheduling.registry import Served
from attendo.serve.settings import ServeSettings
from attendo.serve.translation.translator import MOST_SENTENCES, together
from attendo.text_model import Hypothesis, Result, TextModel

# To sentences, each with so many tokens at most; None: as many as the model has for it.
Asking = Callable[[Sequence[str], int | None], Coroutine[Any, Any, list[Result]]]
_LEAST_TEMPERATURE, _LEAST_SHARE = 0.01, 1e-6  # below these the most probable token is drawn anyway
_SEEDS = 2**32  # any seed stands for one of these
_IN_FLIGHT = 4  # calls of one request: more would crowd out others


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


@dataclass(frozen=True)
class Decoding:
    """`options` as of `TextModel.generate`; `most_tokens` of a whole answer; where it ends before its time.

    `echo`: the prompt is said again before it.
    """

    options: dict[str, Any]
    most_tokens: int | None
    stops: tuple[str, ...]
    echo: bool = False

    def is_plain(self, model: TextModel) -> bool:
        """Whether every token is chosen by what stands before it alone, not by how hypotheses compare at the end."""
        own = model.generation
        return self.options.get("beam", own.beam) == 1 and self.options.get("mbr", own.mbr) == "none"


def decoding_of(asked: Wanted, model: TextModel, settings: ServeSettings) -> Decoding:
    """Without a temperature, or with 0, a model decodes as it always does: its beam, or greedily."""
    name, most = asked.most_tokens
    if most is not None and most > settings.answer_tokens:
        raise Refusal("above_limit", {"param": name}, name=name, value=most, most=settings.answer_tokens)
    count = asked.n or 1
    if count > settings.beam:
        raise Refusal("above_limit", {"param": "n"}, name="n", value=count, most=settings.beam)
    options = _sampling(asked) if _samples(asked) else _searching(model, count)
    return Decoding({**options, "n_best": count}, most, asked.stops, asked.echoes)


def _samples(asked: Wanted) -> bool:
    if asked.temperature is None:
        return asked.top_p is not None and asked.top_p < 1
    return asked.temperature > 0


def _sampling(asked: Wanted) -> dict[str, Any]:
    seed = secrets.randbelow(_SEEDS) if asked.seed is None else asked.seed % _SEEDS
    return {
        "sample": True,
        "beam": 1,
        "groups": 1,
        "mbr": "none",
        "seed": seed,
        "temperature": max(_LEAST_TEMPERATURE, asked.temperature or 1.0),
        "top_p": None if asked.top_p is None else max(_LEAST_SHARE, asked.top_p),
    }


def _searching(model: TextModel, count: int) -> dict[str, Any]:
    """The best of a beam that is wide enough."""
    own = model.generation
    return {} if own.sample or own.beam >= count else {"beam": count, "groups": 1}


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


class Stops:
    """Takes a text bit by bit. What may be the beginning of a sequence is held back until it is known whether it is."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._sequences, self._held = sequences, ""
        self.reached = False

    def new(self, text: str) -> str:
        """What can be told with this text behind all before it; once a sequence was reached, nothing."""
        if self.reached:
            return ""
        self._held += text
        found = [at for at in map(self._held.find, self._sequences) if at >= 0]
        self.reached = bool(found)
        end = min(found) if found else len(self._held) - self._doubtful()
        told, self._held = self._held[:end], self._held[end:]
        return told

    def rest(self) -> str:
        """What was held back, where the text ends with it after all."""
        rest, self._held = "" if self.reached else self._held, ""
        return rest

    def _doubtful(self) -> int:
        """How many of the last characters a sequence may begin with."""
        lengths = range(max(map(len, self._sequences), default=1) - 1, 0, -1)
        return next((n for n in lengths if self._begins(self._held[-n:], n)), 0)

    def _begins(self, tail: str, length: int) -> bool:
        return len(tail) == length and any(
            length < len(sequence) and sequence.startswith(tail) for sequence in self._sequences
        )
