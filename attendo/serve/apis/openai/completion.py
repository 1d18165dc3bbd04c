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
from attendo.serve.translation.translator import (
    MAX_CONCURRENT_CALLS,
    MAX_SENTENCES,
    gather_or_cancel,
    generate_in_chunks,
)
from attendo.text_model import Hypothesis, Result, TextModel

# Generates outputs for texts with a maximum length in tokens. None uses the model's own limit.
GenerateCall = Callable[[Sequence[str], int | None], Coroutine[Any, Any, list[Result]]]
_MIN_TEMPERATURE, _MIN_TOP_P = 0.01, 1e-6  # smaller values always sample the most probable token
_NUM_SEEDS = 2**32  # seeds are reduced modulo this


class TokenBudget:
    """Distributes `max_tokens` over the sentences of each prompt.

    No sentence gets more tokens than its own limit, so a budget that is not reached does not change the output.
    `single_hypothesis`: the choices of the search do not depend on the length limit, unlike those of a beam.
    """

    def __init__(self, model: TextModel, settings: ServeSettings, max_tokens: int, single_hypothesis: bool) -> None:
        self._model, self._settings = model, settings
        self._max_tokens, self._single_hypothesis = max_tokens, single_hypothesis

    def remaining(self, results: Sequence[Result]) -> int:
        """Return the tokens left after these results."""
        return max(0, self._max_tokens - sum(map(_longest_hypothesis, results)))

    def sentence_max_length(self, sentence: str, remaining: int) -> int | None:
        """Return `remaining` if it is below the sentence's own limit, else None."""
        (own,) = self._sentence_limits([sentence])
        return remaining if remaining < own else None

    async def generate(self, prompts: Sequence[Prompt], generate_texts: GenerateCall) -> list[list[Result]]:
        """Return the results of each prompt's sentences within the budget, as if generated one after the other.

        Sentences that probably fit are generated in a batch. A sentence whose result the remaining budget would have
        changed is generated again with that budget.
        """
        ahead = [
            prompt.model_inputs[: self._estimate_fitting(prompt.model_inputs, self._max_tokens)] for prompt in prompts
        ]
        results = iter(await generate_texts([part for parts in ahead for part in parts], None) if any(ahead) else [])
        first = [[next(results) for _ in parts] for parts in ahead]
        prompt_results = zip(prompts, first, strict=True)
        return await gather_or_cancel(
            [self._generate_prompt(prompt.model_inputs, known, generate_texts) for prompt, known in prompt_results]
        )

    async def _generate_prompt(
        self, sentences: Sequence[str], known: list[Result], generate_texts: GenerateCall
    ) -> list[Result]:
        """Generate the sentences of one prompt. `known` are results of the first ones, generated without the budget."""
        own, results = self._sentence_limits(sentences), list[Result]()
        while len(results) < len(sentences) and (room := self.remaining(results)):
            at = len(results)
            if not known and (likely := self._estimate_fitting(sentences[at:], room)) > 1:
                known = await generate_texts(sentences[at : at + likely], None)
            if known and self._is_unaffected(known[0], own[at], room):
                results.append(known[0])
            else:
                results += await generate_texts([sentences[at]], room if room < own[at] else None)
            known = known[1:]
        return results

    def _is_unaffected(self, result: Result, sentence_limit: int, remaining: int) -> bool:
        """Return whether a limit of `remaining` tokens would give the same result as `sentence_limit`."""
        uncut = not any(each.cut for each in result.hypotheses)
        return sentence_limit <= remaining or (
            self._single_hypothesis and uncut and _longest_hypothesis(result) + 1 < remaining
        )

    def _estimate_fitting(self, sentences: Sequence[str], remaining: int) -> int:
        """Estimate how many sentences fit, assuming that an output is as long as its source."""
        taken = accumulate(
            tokens + 1 for tokens in self._model.prepare_call(sentences[: self._settings.max_texts]).source_tokens
        )
        return sum(each <= remaining for each in taken)

    def _sentence_limits(self, sentences: Sequence[str]) -> list[int]:
        """Return the maximum output length of each sentence in tokens, without the budget."""
        free = int(self._model.generation.at_limit == "any")
        limits = [
            sum(line.max_length for line in lines) + free
            for lines in self._model.prepare_call(sentences).lines_per_text
        ]
        return [min(each, self._settings.max_output_tokens) for each in limits]


def _longest_hypothesis(result: Result) -> int:
    return max(len(each.ids) for each in result.hypotheses)


@dataclass(frozen=True)
class CompletionOptions:
    """Options of a completion. `generate_options` are those of `TextModel.generate`.

    `max_tokens` limits a whole choice. `echo` returns the prompt before the output.
    """

    generate_options: dict[str, Any]
    max_tokens: int | None
    stop_sequences: tuple[str, ...]
    echo: bool = False

    def is_single_hypothesis(self, model: TextModel) -> bool:
        """Return whether each token depends only on the previous ones, without comparing hypotheses at the end."""
        own = model.generation
        return self.generate_options.get("beam", own.beam) == 1 and self.generate_options.get("mbr", own.mbr) == "none"


def make_completion_options(params: CommonParams, model: TextModel, settings: ServeSettings) -> CompletionOptions:
    """Build the options. Without a temperature, or with 0, the model uses its own search (beam or greedy)."""
    name, most = params.named_token_limit
    if most is not None and most > settings.max_output_tokens:
        raise ApiError("above_limit", {"param": name}, name=name, value=most, most=settings.max_output_tokens)
    count = params.n or 1
    if count > settings.max_beam:
        raise ApiError("above_limit", {"param": "n"}, name="n", value=count, most=settings.max_beam)
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
        "beam_groups": 1,
        "mbr": "none",
        "seed": seed,
        "temperature": max(_MIN_TEMPERATURE, params.temperature or 1.0),
        "top_p": None if params.top_p is None else max(_MIN_TOP_P, params.top_p),
    }


def _search_options(model: TextModel, count: int) -> dict[str, Any]:
    """Return the options of a beam search that yields `count` hypotheses."""
    own = model.generation
    return {} if own.sample or own.beam >= count else {"beam": count, "beam_groups": 1}


@dataclass(frozen=True)
class OpenAIChoice:
    """Text of a choice, its finish reason and its number of tokens."""

    text: str
    finish_reason: Literal["stop", "length"]
    tokens: int


class CompletionRunner:
    """Runs completions on one model with fixed options."""

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
        """Return the `n` choices of each prompt, or fewer if the search found fewer."""
        generate = self._make_generate_call(self._gateway.deadline())
        if self._budget is not None:
            found = await self._budget.generate(prompts, generate)
        elif self._options.max_tokens is not None and self._served.model.continues_text:
            found = await gather_or_cancel(
                [generate(each.model_inputs, self._max_length(each.text)) for each in prompts]
            )
        else:
            inputs = [part for each in prompts for part in each.model_inputs]
            rest = iter(await generate(inputs, self._options.max_tokens))
            found = [[next(rest) for _ in each.model_inputs] for each in prompts]
        prompt_results = zip(prompts, found, strict=True)
        return [choice for prompt, results in prompt_results for choice in self._build_choices(prompt, results)]

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str | OpenAIChoice, None]:
        """Yield the new text each time, then the complete choice."""
        stops, text, results = StopSequenceFilter(self._options.stop_sequences), "", list[Result]()
        if echo := self._echo_text(prompt):
            yield echo
        async with aclosing(self._stream_text(prompt, results)) as bits:
            async for bit in bits:
                if new := stops.push(bit):
                    text += new
                    yield new
                if stops.reached:
                    break
        if rest := stops.flush():
            text += rest
            yield rest
        yield self._build_choice(prompt, text, stops.reached, [self._hypothesis(each, 0) for each in results])

    def _make_generate_call(self, deadline: float) -> GenerateCall:
        room = asyncio.Semaphore(MAX_CONCURRENT_CALLS)

        async def generate(texts: Sequence[str], max_length: int | None) -> list[Result]:
            options = {**self._options.generate_options, "max_length": max_length, "deadline": deadline}
            return await generate_in_chunks(self._gateway, self._served, texts, room, **options)

        return generate

    async def _stream_text(self, prompt: Prompt, results: list[Result]) -> AsyncGenerator[str, None]:
        """Yield the text as it is generated. Every segment has its own deadline, because the client receives text."""
        text = ""
        for piece in prompt.segments:
            if piece.sent_to_model and self._budget is not None and self._budget.remaining(results) == 0:
                return
            begin = piece.separator(text) + ("" if piece.sent_to_model else piece.text)
            text += begin
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
                        text += bit
                        yield bit

    def _max_length(self, text: str, previous: Sequence[Result] = ()) -> int | None:
        """Return the output limit of a text after the `previous` results. Decoder-only models count the prompt too."""
        if self._budget is not None:
            return self._budget.sentence_max_length(text, self._budget.remaining(previous))
        if (most := self._options.max_tokens) is None:
            return None
        return min(self._gateway.settings.max_output_tokens, most + prompt_tokens(self._served.model, text))

    def _build_choices(self, prompt: Prompt, results: Sequence[Result]) -> Iterator[OpenAIChoice]:
        """Yield one choice per rank, from the hypotheses of that rank. A sentence with fewer uses its last one."""
        for number in range(max((len(each.hypotheses) for each in results), default=1)):
            chosen = [self._hypothesis(each, number) for each in results]
            stops = StopSequenceFilter(self._options.stop_sequences)
            text = stops.push(prompt.assemble([each.text for each in chosen]))
            yield self._build_choice(prompt, text + stops.flush(), stops.reached, chosen)

    def _build_choice(self, prompt: Prompt, text: str, stopped: bool, hypotheses: Sequence[Hypothesis]) -> OpenAIChoice:
        """Build a choice. After a stop sequence, count the returned tokens: a stream has no result to count."""
        full_text = self._echo_text(prompt) + text
        if stopped:
            return OpenAIChoice(full_text, "stop", len(self._served.model.target_tokenizer.encode(text)))
        cut = len(hypotheses) < len(prompt.model_inputs) or any(each.cut for each in hypotheses)
        return OpenAIChoice(full_text, "length" if cut else "stop", sum(len(each.ids) for each in hypotheses))

    def _echo_text(self, prompt: Prompt) -> str:
        """Return the prompt if `echo` is set. It is not searched for stop sequences, and counts as prompt tokens."""
        return prompt.text if self._options.echo else ""

    def _hypothesis(self, result: Result, rank: int) -> Hypothesis:
        """Return the hypothesis of a rank, or the last one if there are fewer."""
        found = list(strip_prompt(self._served.model, result))
        return found[min(rank, len(found) - 1)]


class StopSequenceFilter:
    """Cuts streamed text at the first stop sequence. Text that may begin a sequence is held back until decided."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self._sequences, self._pending = sequences, ""
        self.reached = False

    def push(self, text: str) -> str:
        """Add text and return the part that can be sent. After a stop sequence, return nothing."""
        if self.reached:
            return ""
        self._pending += text
        found = [at for at in map(self._pending.find, self._sequences) if at >= 0]
        self.reached = bool(found)
        end = min(found) if found else len(self._pending) - self._possible_prefix_length()
        ready, self._pending = self._pending[:end], self._pending[end:]
        return ready

    def flush(self) -> str:
        """Return the held-back text at the end of the stream."""
        rest, self._pending = "" if self.reached else self._pending, ""
        return rest

    def _possible_prefix_length(self) -> int:
        """Return the number of trailing characters that may begin a stop sequence."""
        longest = max(map(len, self._sequences), default=1) - 1
        tails = (self._pending[-length:] for length in range(min(longest, len(self._pending)), 0, -1))
        return next((len(tail) for tail in tails if any(each.startswith(tail) for each in self._sequences)), 0)
