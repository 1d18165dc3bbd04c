"""Removes the prompt from the output of decoder-only models."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from attendo.text_model import Hypothesis, Result, TextModel


def prompt_tokens(model: TextModel, text: str) -> int:
    """Return the prompt tokens in each output: those of the text for a decoder-only model, else 0."""
    return model.prepare_call([text]).source_tokens[0] if model.continues_text else 0


def strip_prompt(model: TextModel, result: Result) -> Iterator[Hypothesis]:
    """Yield the hypotheses without the prompt."""
    own = result.source_tokens if model.continues_text else 0
    for each in result.hypotheses:
        new = each.text.removeprefix(model.target_tokenizer.decode(each.ids[:own]))
        yield replace(each, text=new, ids=each.ids[own:], pieces=each.pieces[own:]) if own else each


def strip_prompt_from_result(model: TextModel, result: Result) -> Result:
    return replace(result, hypotheses=tuple(strip_prompt(model, result)))


async def strip_prompt_stream(
    model: TextModel, text: str, chunks: AsyncGenerator[str, None]
) -> AsyncGenerator[str, None]:
    """Yield the chunks of a stream without the prompt."""
    begin = [line.prefix for line in model.prepare_call([text]).lines] if model.continues_text else []
    left = sum(len(model.target_tokenizer.decode(each)) for each in begin)
    async for bit in chunks:
        new, left = bit[left:], max(0, left - len(bit))
        if new:
            yield new


def add_prompt_length(
    options: Mapping[str, Any], names: tuple[str, ...], prompt_length: int, max_length: int
) -> dict[str, Any]:
    """Add the prompt length to the length options in `names`, up to `max_length`, the server's limit."""
    new = {
        name: min(max_length, options[name] + prompt_length)
        for name in names
        if prompt_length and options.get(name) is not None
    }
    return {**options, **new}
