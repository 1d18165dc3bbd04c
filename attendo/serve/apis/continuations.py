"""Models that go on with a text: what is told is what they add to it, and only that is counted."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from attendo.text_model import Hypothesis, Result, TextModel


def prompt_tokens(model: TextModel, text: str) -> int:
    """Those of a text that every answer of the model begins with."""
    return model.prepare_call([text]).source_tokens[0] if model.decoder_only else 0


def strip_prompt(model: TextModel, result: Result) -> Iterator[Hypothesis]:
    """The answers, each without the text that it begins with."""
    own = result.source_tokens if model.decoder_only else 0
    for each in result.hypotheses:
        new = each.text.removeprefix(model.target_tokenizer.decode(each.ids[:own]))
        yield replace(each, text=new, ids=each.ids[own:], pieces=each.pieces[own:]) if own else each


def strip_prompt_from_result(model: TextModel, result: Result) -> Result:
    return replace(result, hypotheses=tuple(strip_prompt(model, result)))


async def strip_prompt_stream(
    model: TextModel, text: str, chunks: AsyncGenerator[str, None]
) -> AsyncGenerator[str, None]:
    """The same of a stream."""
    begin = [line.prefix for line in model.prepare_call([text]).lines] if model.decoder_only else []
    left = sum(len(model.target_tokenizer.decode(each)) for each in begin)
    async for bit in chunks:
        new, left = bit[left:], max(0, left - len(bit))
        if new:
            yield new


def add_prompt_length(
    options: Mapping[str, Any], names: tuple[str, ...], prompt_length: int, max_length: int
) -> dict[str, Any]:
    """Options with these lengths counted from the end of a text that has so many tokens; `max_length` is the server's."""
    new = {
        name: min(max_length, options[name] + prompt_length)
        for name in names
        if prompt_length and options.get(name) is not None
    }
    return {**options, **new}
