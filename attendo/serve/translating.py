"""Texts of many lines, or with tags, translated by a model of sentences: what surrounds the sentences stays."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from attendo.pipelines.turns import most_tokens
from attendo.serve.errors import Refusal
from attendo.serve.linking import Answer, answers_of, distinct, together
from attendo.serve.sentences import Reading, TextPlan
from attendo.text_model import TextModel

if TYPE_CHECKING:
    from attendo.serve.office import Office
    from attendo.serve.shelf import Served

_BY_LINES = Reading()
MOST_SENTENCES = 1_000  # of one request; 5,000 characters of what people write have about a hundred


@dataclass(frozen=True)
class Translation:
    """Of one text. `alternatives` differ from it and from each other; `cut`: the length limit came before an end."""

    text: str
    alternatives: tuple[str, ...]
    source_tokens: int
    target_tokens: int
    cut: bool


async def translated(
    office: "Office",
    served: "Served",
    texts: Sequence[str],
    how: Reading = _BY_LINES,
    alternatives: int = 0,
    **options: Any,
) -> list[Translation]:
    """One translation of each text, in order, with at most so many alternatives; `options` as of `generate`.

    Lines stay lines, with the white space around them, unless sentences go on over them; tags stay too. Each line, or
    run of text between tags that divide, is translated sentence by sentence, unless the model is known to have learned
    from longer texts: one that learned from sentences leaves out what comes behind the first. What has no letters stays
    as it is, and a text without any takes no model.
    """
    office.check(texts)
    plans = [plan async for plan in _plans(texts, how, reads_whole(served.model))]
    asked = [sentence for plan in plans for sentence in plan.asked]
    if len(asked) > MOST_SENTENCES:
        raise Refusal("too_many_sentences", count=len(asked), most=MOST_SENTENCES)
    options = {**options, "split": False}  # which is done
    searches = _searches(served, alternatives, office.settings.beam, options) if asked else []
    found = await together([answers_of(office, served, asked, how.kind != "text", **each) for each in searches])
    answers = (distinct(chain(*each)) for each in zip(*found, strict=True))
    return [_translation(plan, [*islice(answers, len(plan.asked))], alternatives) for plan in plans]


async def translated_from(
    office: "Office", sources: Sequence[str], target: str, texts: Sequence[str], how: Reading, alternatives: int = 0
) -> list[Translation]:
    """Each from its own language, by the model for it, in order. What is in the target's already stays as it is."""
    told = {place: _untouched(text) for place, text in enumerate(texts)}
    places = {
        source: [place for place, each in enumerate(sources) if each == source]
        for source in sources
        if source != target
    }
    served = {source: office.for_pair(source, target) for source in places}
    done = await together(
        [
            translated(office, served[source], [texts[place] for place in there], how, alternatives)
            for source, there in places.items()
        ]
    )
    for there, found in zip(places.values(), done, strict=True):
        told |= zip(there, found, strict=True)
    return [told[place] for place in range(len(texts))]


def _untouched(text: str) -> Translation:
    return Translation(text, (), 0, 0, cut=False)


def reads_whole(model: TextModel) -> Callable[[str], bool] | None:
    """Whether the model reads a line with all its sentences at once; None where it is given single sentences."""
    if model.reads_single_sentences is not False:
        return None
    most, encode = most_tokens(model, model.generation), model.source_tokenizer.encode
    return lambda text: len(encode(text)) <= most


async def _plans(texts: Sequence[str], how: Reading, whole: Callable[[str], bool] | None) -> AsyncIterator[TextPlan]:
    for text in texts:
        yield TextPlan(text, how, whole)
        await asyncio.sleep(0)  # 5,000 characters take milliseconds, and others are to be heard meanwhile


def _translation(plan: TextPlan, answers: Sequence[Sequence[Answer]], alternatives: int) -> Translation:
    """`answers` to each sentence that was asked, the best first."""
    best = [each[0] for each in answers]
    text = plan.written(best)
    return Translation(
        text=text,
        alternatives=tuple(islice(_others(plan, answers, text), alternatives)),
        source_tokens=sum(each.source_tokens for each in best),
        target_tokens=sum(each.target_tokens for each in best),
        cut=any(each.cut for each in best),
    )


def _others(plan: TextPlan, answers: Sequence[Sequence[Answer]], text: str) -> Iterator[str]:
    """The text with the second answer to each sentence, with the third ...; where there is none, with the best."""
    told = {text}
    for number in range(1, max(map(len, answers), default=0)):
        other = plan.written([each[number] if number < len(each) else each[0] for each in answers])
        if other not in told:
            told.add(other)
            yield other


def _searches(served: "Served", alternatives: int, most: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The one that the translation comes from, and one more for alternatives where it cannot find enough of them.

    So a translation is the same whether or not alternatives are asked for. Two hypotheses are wanted for each of them:
    many a text is found in several ways, with other pieces.
    """
    if not alternatives:
        return [options]
    settings, wanted = served.model.settings(**options), min(most, 2 * alternatives + 1)
    if settings.sample or settings.beam >= wanted:
        return [{**options, "n_best": wanted}]
    beam = wanted - wanted % settings.groups  # which the groups share evenly
    return [options, {**options, "beam": beam, "n_best": beam}]
