"""Translates texts sentence by sentence, with alignments and source language detection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from attendo.errors import UsageError
from attendo.pipelines.text_pipeline import most_tokens
from attendo.serve.http.errors import Refusal
from attendo.serve.language_detection import Detected, detect
from attendo.serve.scheduling.gateway import Office
from attendo.serve.translation.segmenter import Reading, TextKind, TextPlan
from attendo.text.markup import CharacterLinks
from attendo.text_model import Hypothesis, Result, TextModel
from attendo.text_model.alignment import aligned, links_of
from attendo.text_model.inputs import prefixes_of

if TYPE_CHECKING:
    from attendo.serve.scheduling.gateway import Office
    from attendo.serve.scheduling.registry import Served

_IN_FLIGHT = 4  # calls of one request side by side: more would crowd out others, or one another
_ALIGNMENT_BATCH_SIZE = 16  # sentences, between two steps of others
Links = CharacterLinks | None
T = TypeVar("T")
_BY_LINES = Reading()
MOST_SENTENCES = 1_000  # of one request; 5,000 characters of what people write have about a hundred
_SURE = 0.8  # that a text is in a language which cannot be translated from: a short one is soon taken for another
_MAX_DETECTION_CHARACTERS = 2_000  # characters of a text with tags


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
    for at in range(0, len(texts), _ALIGNMENT_BATCH_SIZE):
        some = texts[at : at + _ALIGNMENT_BATCH_SIZE]
        ids = [(*before, *source.encode(text)) for text in some]
        with model.runtime.evaluating():
            seen = aligned(results[at : at + _ALIGNMENT_BATCH_SIZE], ids, model.networks, positions, model.scores)
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


async def found_sources(office: Office, texts: Sequence[str], target: str, kind: TextKind) -> list[Detected]:
    """Of each text."""
    found: list[Detected] = []
    for text in texts:
        found.append(found_source(office, text, target, kind))
        await asyncio.sleep(0)  # fifty texts with tags take a while, and others are to be heard meanwhile
    return found


def found_source(office: Office, text: str, target: str, kind: TextKind = "text") -> Detected:
    """The likeliest of the languages that are translated into the target; the target where the text is in that itself.

    It is looked for among all that are served, and refused where it can only be another, or none of them: a model that
    reads what it never learned invents an answer.
    """
    sources = [source for source, targets in office.languages().items() if target in targets]
    if not sources:
        raise Refusal("unknown_language", language=target[:100])
    words = text if kind == "text" else " ".join(TextPlan(text[:_MAX_DETECTION_CHARACTERS], kind).asked)
    found = _among(words, office, sources)
    best, source = found[0], next(each for each in found if each.language in sources)
    if best.language in sources or (best.confidence < _SURE and source.confidence > 0):
        if source.confidence == 0 and any(character.isalpha() for character in words):
            raise Refusal("no_language", languages=", ".join(each.language for each in found))
        return source
    if best.language != target:
        raise Refusal("no_such_pair", source=best.language, target=target)
    return best


def _among(words: str, office: Office, sources: Sequence[str]) -> list[Detected]:
    served = dict.fromkeys([*sources, *(code for pair in office.pairs() for code in pair)])
    try:
        return detect(words, [*served])
    except UsageError:  # some cannot be told apart without a package; those that matter perhaps can
        return detect(words, sources)
