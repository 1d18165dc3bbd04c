"""Runs a completion: generation options, shared token budget, stop sequences, streaming."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from attendo.serve.apis.continuations import prompt_tokens, strip_prompt, strip_prompt_stream
from attendo.serve.apis.openai.prompts import Prompt, splits_sentences
from attendo.serve.apis.openai.requests import CommonParams
from attendo.serve.http.errors import ApiError
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.settings import ServeSettings
from attendo.serve.translation.translator import MAX_SENTENCES, gather_or_cancel
from attendo.text_model import Hypothesis, Result, TextModel

# To sentences, each with so many tokens at most; None: as many as the model has for it.
GenerateCall = Callable[[Sequence[str], int | None], Coroutine[Any, Any, list[Result]]]
_MIN_TEMPERATURE, _MIN_TOP_P = 0.01, 1e-6  # below these the most probable token is drawn anyway
_NUM_SEEDS = 2**32  # any seed stands for one of these
_MAX_CONCURRENT_CALLS = 4  # calls of one request: more would crowd out others


class TokenBudget:
    """No sentence takes more than it would without the limit, so one that is not reached changes nothing.

    `single_hypothesis`: a search whose choices do not depend on how far it could have gone, as those of a beam may.
    """

    def __init__(self, model: TextModel, settings: ServeSettings, max_tokens: int, single_hypothesis: bool) -> None:
        self._model, self._settings, self._max_tokens, self._single_hypothesis = (
            model,
            settings,
            max_tokens,
            single_hypothesis,
        )

    def remaining(self, results: Sequence[Result]) -> int:
        """Tokens that are left behind these answers."""
        return max(0, self._max_tokens - sum(map(_longest_hypothesis, results)))

    def sentence_max_length(self, sentence: str, remaining: int) -> int | None:
        """What to ask for it with, where so much is left."""
        (own,) = self._sentence_limits([sentence])
        return remaining if remaining < own else None

    async def generate(self, prompts: Sequence[Prompt], generate_texts: GenerateCall) -> list[list[Result]]:
        """Of each prompt those to its sentences, as far as the limit goes: the same as one after the other.

        As many as are likely to have room are asked side by side; one that a lack of room would have changed is asked
        again with what is left.
        """
        ahead = [
            prompt.model_inputs[: self._estimate_fitting(prompt.model_inputs, self._max_tokens)] for prompt in prompts
        ]
        found = iter(await generate_texts([part for parts in ahead for part in parts], None) if any(ahead) else [])
        first = [[next(found) for _ in parts] for parts in ahead]
        told = zip(prompts, first, strict=True)
        return await gather_or_cancel(
            [self._generate_prompt(prompt.model_inputs, known, generate_texts) for prompt, known in told]
        )

    async def _generate_prompt(
        self, sentences: Sequence[str], known: list[Result], generate_texts: GenerateCall
    ) -> list[Result]:
        """`known` are answers to the first of them, found as if there were room enough."""
        own, told = self._sentence_limits(sentences), list[Result]()
        while len(told) < len(sentences) and (room := self.remaining(told)):
            at = len(told)
            if not known and (likely := self._estimate_fitting(sentences[at:], room)) > 1:
                known = await generate_texts(sentences[at : at + likely], None)
            if known and self._is_unaffected(known[0], own[at], room):
                told.append(known[0])
            else:
                told += await generate_texts([sentences[at]], room if room < own[at] else None)
            known = known[1:]
        return told

    def _is_unaffected(self, result: Result, sentence_limit: int, remaining: int) -> bool:
        """Whether this is the answer also with so much room, of a sentence that may have `sentence_limit` tokens."""
        uncut = not any(each.cut for each in result.hypotheses)
        return sentence_limit <= remaining or (
            self._single_hypothesis and uncut and _longest_hypothesis(result) + 1 < remaining
        )

    def _estimate_fitting(self, sentences: Sequence[str], remaining: int) -> int:
        """How many probably have room: an answer is about as long as its sentence."""
        taken = accumulate(
            tokens + 1 for tokens in self._model.prepare_call(sentences[: self._settings.texts]).source_tokens
        )
        return sum(each <= remaining for each in taken)

    def _sentence_limits(self, sentences: Sequence[str]) -> list[int]:
        """The most tokens that each may have by itself."""
        free = int(self._model.generation.at_limit == "free")
        limits = [
            sum(line.max_length for line in lines) + free
            for lines in self._model.prepare_call(sentences).lines_per_text
        ]
        return [min(each, self._settings.answer_tokens) for each in limits]


def _longest_hypothesis(result: Result) -> int:
    return max(len(each.ids) for each in result.hypotheses)


@dataclass(frozen=True)
class CompletionOptions:
    """`generate_options` as of `TextModel.generate`; `max_tokens` of a whole answer; where it ends before its time.

    `echo`: the prompt is said again before it.
    """

    generate_options: dict[str, Any]
    max_tokens: int | None
    stop_sequences: tuple[str, ...]
    echo: bool = False

    def is_single_hypothesis(self, model: TextModel) -> bool:
        """Whether every token is chosen by what stands before it alone, not by how hypotheses compare at the end."""
        own = model.generation
        return self.generate_options.get("beam", own.beam) == 1 and self.generate_options.get("mbr", own.mbr) == "none"


def make_completion_options(params: CommonParams, model: TextModel, settings: ServeSettings) -> CompletionOptions:
    """Without a temperature, or with 0, a model decodes as it always does: its beam, or greedily."""
    name, most = params.named_token_limit
    if most is not None and most > settings.answer_tokens:
        raise ApiError("above_limit", {"param": name}, name=name, value=most, most=settings.answer_tokens)
    count = params.n or 1
    if count > settings.beam:
        raise ApiError("above_limit", {"param": "n"}, name="n", value=count, most=settings.beam)
    options = _sampling_options(params) if _is_sampling(params) else _search_options(model, count)
    return CompletionOptions({**options, "n_best": count}, most, params.stop_sequences, params.echoes)


def _is_sampling(params: CommonParams) -> bool:
    if params.temperature is None:
        return params.top_p is not None and params.top_p < 1
    return params.temperature > 0


def _sampling_options(params: CommonParams) -> dict[str, Any]:
    seed = secrets.randbelow(_NUM_SEEDS) if params.seed is None else params.seed % _NUM_SEEDS
    return {
        "sample": True,
        "beam": 1,
        "groups": 1,
        "mbr": "none",
        "seed": seed,
        "temperature": max(_MIN_TEMPERATURE, params.temperature or 1.0),
        "top_p": None if params.top_p is None else max(_MIN_TOP_P, params.top_p),
    }


def _search_options(model: TextModel, count: int) -> dict[str, Any]:
    """The best of a beam that is wide enough."""
    own = model.generation
    return {} if own.sample or own.beam >= count else {"beam": count, "groups": 1}


@dataclass(frozen=True)
class OpenAIChoice:
    """An answer, why it ended there, and how many tokens it has."""

    text: str
    finish_reason: Literal["stop", "length"]
    tokens: int


class CompletionRunner:
    """Asks one model, always in the same way."""

    def __init__(self, gateway: ModelGateway, served: ServedModel, options: CompletionOptions) -> None:
        self._gateway, self._served, self._options = gateway, served, options
        self._budget: TokenBudget | None = None
        if options.max_tokens is not None and splits_sentences(served):
            plain = options.is_single_hypothesis(served.model)
            self._budget = TokenBudget(served.model, gateway.settings, options.max_tokens, plain)

    def count_prompt_tokens(self, prompts: Sequence[Prompt]) -> int:
        encode = self._served.model.source_tokenizer.encode
        return sum(len(encode(part)) for prompt in prompts for part in prompt.model_inputs)

    def check(self, prompts: Sequence[Prompt]) -> None:
        count = sum(len(prompt.model_inputs) for prompt in prompts)
        if count > MAX_SENTENCES:
            raise ApiError("too_many_sentences", count=count, most=MAX_SENTENCES)

    async def complete(self, prompts: Sequence[Prompt]) -> list[OpenAIChoice]:
        """As many for each prompt as are asked for, or fewer where a search found fewer."""
        ask = self._make_generate_call(self._gateway.deadline())
        if self._budget is not None:
            found = await self._budget.generate(prompts, ask)
        elif self._options.max_tokens is not None and self._served.model.decoder_only:
            found = await gather_or_cancel([ask(each.model_inputs, self._max_length(each.text)) for each in prompts])
        else:
            rest = iter(await ask([part for each in prompts for part in each.model_inputs], self._options.max_tokens))
            found = [[next(rest) for _ in each.model_inputs] for each in prompts]
        told = zip(prompts, found, strict=True)
        return [choice for prompt, results in told for choice in self._build_choices(prompt, results)]

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str | OpenAIChoice, None]:
        """What is new each time, and behind it the whole choice."""
        stops, told, results = StopSequenceFilter(self._options.stop_sequences), "", list[Result]()
        if said := self._echo_text(prompt):
            yield said
        async with aclosing(self._stream_text(prompt, results)) as bits:
            async for bit in bits:
                if new := stops.push(bit):
                    told += new
                    yield new
                if stops.reached:
                    break
        if rest := stops.flush():
            told += rest
            yield rest
        yield self._build_choice(prompt, told, stops.reached, [self._hypothesis(each, 0) for each in results])

    def _make_generate_call(self, deadline: float) -> GenerateCall:
        """Answers texts with so many tokens at most: as many in a call as a request may have, few calls at once."""
        size, few = self._gateway.settings.texts, asyncio.Semaphore(_MAX_CONCURRENT_CALLS)

        async def ask(texts: Sequence[str], most: int | None) -> list[Result]:
            options, found = (
                {**self._options.generate_options, "max_length": most, "deadline": deadline},
                list[Result](),
            )
            for at in range(0, len(texts), size):
                async with few:
                    found += await self._gateway.generate(self._served, texts[at : at + size], **options)
            return found

        return ask

    async def _stream_text(self, prompt: Prompt, results: list[Result]) -> AsyncGenerator[str, None]:
        """The text as it comes. Every part has the time of a request: whoever hears something new can wait."""
        said = ""
        for piece in prompt.segments:
            if piece.sent_to_model and self._budget is not None and self._budget.remaining(results) == 0:
                return
            begin = piece.separator(said) + ("" if piece.sent_to_model else piece.text)
            said += begin
            yield begin
            if piece.sent_to_model:
                most = self._max_length(piece.text, results)
                options = {**self._options.generate_options, "max_length": most, "on_result": results.append}
                streamed = self._gateway.stream(self._served, piece.text, **options)
                async with (
                    aclosing(streamed),
                    aclosing(strip_prompt_stream(self._served.model, piece.text, streamed)) as bits,
                ):
                    async for bit in bits:
                        said += bit
                        yield bit

    def _max_length(self, text: str, previous: Sequence[Result] = ()) -> int | None:
        """Tokens of its answer, behind others of the same prompt; of a model that goes on with it, with the text."""
        if self._budget is not None:
            return self._budget.sentence_max_length(text, self._budget.remaining(previous))
        if (most := self._options.max_tokens) is None:
            return None
        return min(self._gateway.settings.answer_tokens, most + prompt_tokens(self._served.model, text))

    def _build_choices(self, prompt: Prompt, results: Sequence[Result]) -> Iterator[OpenAIChoice]:
        """The text with the best answer to each part, with the second ...; where there is none, with the last."""
        for number in range(max((len(each.hypotheses) for each in results), default=1)):
            chosen = [self._hypothesis(each, number) for each in results]
            stops = StopSequenceFilter(self._options.stop_sequences)
            text = stops.push(prompt.assemble([each.text for each in chosen]))
            yield self._build_choice(prompt, text + stops.flush(), stops.reached, chosen)

    def _build_choice(self, prompt: Prompt, text: str, stopped: bool, hypotheses: Sequence[Hypothesis]) -> OpenAIChoice:
        """Where a stop sequence came, how many tokens that took is not known of a stream: those told are counted."""
        whole = self._echo_text(prompt) + text
        if stopped:
            return OpenAIChoice(whole, "stop", len(self._served.model.target_tokenizer.encode(text)))
        cut = len(hypotheses) < len(prompt.model_inputs) or any(each.cut for each in hypotheses)
        return OpenAIChoice(whole, "length" if cut else "stop", sum(len(each.ids) for each in hypotheses))

    def _echo_text(self, prompt: Prompt) -> str:
        """Before what is new; no stop sequence is looked for in it, and its tokens are those of the prompt."""
        return prompt.text if self._options.echo else ""

    def _hypothesis(self, result: Result, rank: int) -> Hypothesis:
        """Of those that a text has, the last where there are fewer."""
        found = list(strip_prompt(self._served.model, result))
        return found[min(rank, len(found) - 1)]


class StopSequenceFilter:
    """Takes a text bit by bit. What may be the beginning of a sequence is held back until it is known whether it is."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._sequences, self._pending = sequences, ""
        self.reached = False

    def push(self, text: str) -> str:
        """What can be told with this text behind all before it; once a sequence was reached, nothing."""
        if self.reached:
            return ""
        self._pending += text
        found = [at for at in map(self._pending.find, self._sequences) if at >= 0]
        self.reached = bool(found)
        end = min(found) if found else len(self._pending) - self._possible_prefix_length()
        told, self._pending = self._pending[:end], self._pending[end:]
        return told

    def flush(self) -> str:
        """What was held back, where the text ends with it after all."""
        rest, self._pending = "" if self.reached else self._pending, ""
        return rest

    def _possible_prefix_length(self) -> int:
        """How many of the last characters a sequence may begin with."""
        lengths = range(max(map(len, self._sequences), default=1) - 1, 0, -1)
        return next((n for n in lengths if self._is_prefix(self._pending[-n:], n)), 0)

    def _is_prefix(self, tail: str, length: int) -> bool:
        return len(tail) == length and any(
            length < len(sequence) and sequence.startswith(tail) for sequence in self._sequences
        )
