"""Models that go on with a text: what is told is what they add to it, and only that is counted."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import replace
from typing import Any

from attendo.text_model import Hypothesis, Result, TextModel


def own_tokens(model: TextModel, text: str) -> int:
    """Those of a text that every answer of the model begins with."""
    return model.call([text]).source_tokens[0] if model.decoder_only else 0


def added(model: TextModel, result: Result) -> Iterator[Hypothesis]:
    """The answers, each without the text that it begins with."""
    own = result.source_tokens if model.decoder_only else 0
    for each in result.hypotheses:
        new = each.text.removeprefix(model.target_tokenizer.decode(each.ids[:own]))
        yield replace(each, text=new, ids=each.ids[own:], pieces=each.pieces[own:]) if own else each


def without_text(model: TextModel, result: Result) -> Result:
    return replace(result, hypotheses=tuple(added(model, result)))


async def added_bits(model: TextModel, text: str, bits: AsyncGenerator[str, None]) -> AsyncGenerator[str, None]:
    """The same of a stream."""
    begin = [line.prefix for line in model.call([text]).lines] if model.decoder_only else []
    left = sum(len(model.target_tokenizer.decode(each)) for each in begin)
    async for bit in bits:
        new, left = bit[left:], max(0, left - len(bit))
        if new:
            yield new


def grown(options: Mapping[str, Any], names: tuple[str, ...], own: int, most: int) -> dict[str, Any]:
    """Options with these lengths counted from the end of a text that has so many tokens; `most` is the server's."""
    new = {name: min(most, options[name] + own) for name in names if own and options.get(name) is not None}
    return {**options, **new}
