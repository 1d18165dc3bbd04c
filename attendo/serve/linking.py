"""Answers to sentences, and where needed which character of a sentence each of their characters goes back to."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from attendo.errors import UsageError
from attendo.text.markup import CharacterLinks
from attendo.text_model import Hypothesis, Result, TextModel
from attendo.text_model.links import links_of
from attendo.text_model.looking import aligned
from attendo.text_model.prefixes import prefixes_of

if TYPE_CHECKING:
    from attendo.serve.office import Office
    from attendo.serve.shelf import Served

_IN_FLIGHT = 4  # calls of one request side by side: more would crowd out others, or one another
_LOOKED_AT = 16  # sentences, between two steps of others

Links = CharacterLinks | None
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """One way to say a sentence in the other language."""

    text: str
    source_tokens: int
    target_tokens: int
    cut: bool
    links: Links


async def answers_of(
    office: "Office", served: "Served", texts: Sequence[str], linked: bool, **options: Any
) -> list[list[Answer]]:
    """To each text the best answer and, where n_best asks for more, others that read differently."""
    deadline = office.deadline()
    results = await _results(office, served, texts, {**options, "deadline": deadline})
    links = [list[Links]([None] * len(each.hypotheses)) for each in results]
    if linked and _can_look(served.model):
        # With alignments=True all would be answered in one go while everybody else waits. So they are answered among
        # the others, and what is known then is looked at a few at a time.
        looks = served.batcher.each(lambda: _looks(served.model, texts, results), deadline)
        links = [each async for group in looks for each in group]
    return [
        distinct(_answer(*each, result.source_tokens) for each in zip(result.hypotheses, known, strict=True))
        for result, known in zip(results, links, strict=True)
    ]


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each of them finds, in order. When one fails, nobody waits for the others: they end."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _results(office: "Office", served: "Served", texts: Sequence[str], options: dict[str, Any]) -> list[Result]:
    """As many in a call as a request may have texts."""
    size, room = office.settings.texts, asyncio.Semaphore(_IN_FLIGHT)

    async def asked(at: int) -> list[Result]:
        async with room:
            return await office.answer(served, texts[at : at + size], **options)

    groups = await together([asked(at) for at in range(0, len(texts), size)])
    return [result for group in groups for result in group]


def _can_look(model: TextModel) -> bool:
    """Not what was exported to a runtime that tells nothing of its attention."""
    try:
        model.settings(alignments=True)
    except UsageError:
        return False
    return True


def _looks(model: TextModel, texts: Sequence[str], results: Sequence[Result]) -> Iterator[list[list[Links]]]:
    """The links of every hypothesis of every text, in groups."""
    source, target = model.source_tokenizer, model.target_tokenizer
    before, _ = prefixes_of(model.generation, source, target)
    positions = model.generation.positions(model.device.type == "cuda")
    for at in range(0, len(texts), _LOOKED_AT):
        some = texts[at : at + _LOOKED_AT]
        ids = [(*before, *source.encode(text)) for text in some]
        with model.runtime.evaluating():
            seen = aligned(results[at : at + _LOOKED_AT], ids, model.networks, positions, model.scores)
        yield [
            [links_of(each, text, source, target) for each in result.hypotheses]
            for text, result in zip(some, seen, strict=True)
        ]


def distinct(answers: Iterable[Answer]) -> list[Answer]:
    """The first, whatever it is, and of the others those that say something else, and anything."""
    kept: list[Answer] = []
    told = {""}
    for each in answers:
        if not kept or each.text.strip() not in told:
            kept.append(each)
        told.add(each.text.strip())
    return kept


def _answer(hypothesis: Hypothesis, links: Links, source_tokens: int) -> Answer:
    return Answer(hypothesis.text, source_tokens, len(hypothesis.ids), hypothesis.cut, links)
