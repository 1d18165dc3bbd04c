"""Translates texts sentence by sentence, with alignments and source language detection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

from attendo.errors import UsageError
from attendo.pipelines.text_pipeline import max_source_tokens
from attendo.serve.http.errors import ApiError
from attendo.serve.language_detection import LanguagePrediction, detect_language
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.translation.segmenter import SegmentationOptions, SegmentedText, TextFormat
from attendo.text.markup import CharacterLinks
from attendo.text_model import Hypothesis, Result, TextModel
from attendo.text_model.alignment import align, link_characters
from attendo.text_model.inputs import encode_prefixes

if TYPE_CHECKING:
    from attendo.serve.scheduling.gateway import ModelGateway
    from attendo.serve.scheduling.registry import ServedModel

_MAX_CONCURRENT_CALLS = 4  # calls of one request side by side: more would crowd out others, or one another
_ALIGNMENT_BATCH_SIZE = 16  # sentences, between two steps of others
Links = CharacterLinks | None
T = TypeVar("T")
_DEFAULT_SEGMENTATION = SegmentationOptions()
MAX_SENTENCES = 1_000  # of one request; 5,000 characters of what people write have about a hundred
_MIN_CONFIDENCE = (
    0.8  # that a text is in a language which cannot be translated from: a short one is soon taken for another
)
_MAX_DETECTION_CHARACTERS = 2_000  # characters of a text with tags


@dataclass(frozen=True)
class SentenceHypothesis:
    """One way to say a sentence in the other language."""

    text: str
    source_tokens: int
    target_tokens: int
    cut: bool
    links: Links


async def translate_sentences(
    gateway: "ModelGateway", served: "ServedModel", texts: Sequence[str], with_links: bool, **options: Any
) -> list[list[SentenceHypothesis]]:
    """To each text the best answer and, where n_best asks for more, others that read differently."""
    deadline = gateway.deadline()
    results = await _generate_in_chunks(gateway, served, texts, {**options, "deadline": deadline})
    links = [list[Links]([None] * len(each.hypotheses)) for each in results]
    if with_links and _supports_alignment(served.model):
        # With alignments=True all would be answered in one go while everybody else waits. So they are answered among
        # the others, and what is known then is looked at a few at a time.
        looks = served.worker.iterate(lambda: _align_in_batches(served.model, texts, results), deadline)
        links = [each async for group in looks for each in group]
    return [
        unique_hypotheses(
            _make_hypothesis(*each, result.source_tokens) for each in zip(result.hypotheses, known, strict=True)
        )
        for result, known in zip(results, links, strict=True)
    ]


async def gather_or_cancel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What each of them finds, in order. When one fails, nobody waits for the others: they end."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def _generate_in_chunks(
    gateway: "ModelGateway", served: "ServedModel", texts: Sequence[str], options: dict[str, Any]
) -> list[Result]:
    """As many in a call as a request may have texts."""
    size, room = gateway.settings.texts, asyncio.Semaphore(_MAX_CONCURRENT_CALLS)

    async def asked(at: int) -> list[Result]:
        async with room:
            return await gateway.generate(served, texts[at : at + size], **options)

    groups = await gather_or_cancel([asked(at) for at in range(0, len(texts), size)])
    return [result for group in groups for result in group]


def _supports_alignment(model: TextModel) -> bool:
    """Not what was exported to a runtime that tells nothing of its attention."""
    try:
        model.settings(alignments=True)
    except UsageError:
        return False
    return True


def _align_in_batches(model: TextModel, texts: Sequence[str], results: Sequence[Result]) -> Iterator[list[list[Links]]]:
    """The links of every hypothesis of every text, in groups."""
    source, target = model.source_tokenizer, model.target_tokenizer
    before, _ = encode_prefixes(model.generation, source, target)
    positions = model.generation.resolve_batch_tokens(model.device.type == "cuda")
    for at in range(0, len(texts), _ALIGNMENT_BATCH_SIZE):
        some = texts[at : at + _ALIGNMENT_BATCH_SIZE]
        ids = [(*before, *source.encode(text)) for text in some]
        with model.runtime.inference_mode():
            seen = align(results[at : at + _ALIGNMENT_BATCH_SIZE], ids, model.networks, positions, model.scores)
        yield [
            [link_characters(each, text, source, target) for each in result.hypotheses]
            for text, result in zip(some, seen, strict=True)
        ]


def unique_hypotheses(hypotheses: Iterable[SentenceHypothesis]) -> list[SentenceHypothesis]:
    """The first, whatever it is, and of the others those that say something else, and anything."""
    kept: list[SentenceHypothesis] = []
    told = {""}
    for each in hypotheses:
        if not kept or each.text.strip() not in told:
            kept.append(each)
        told.add(each.text.strip())
    return kept


def _make_hypothesis(hypothesis: Hypothesis, links: Links, source_tokens: int) -> SentenceHypothesis:
    return SentenceHypothesis(hypothesis.text, source_tokens, len(hypothesis.ids), hypothesis.cut, links)


@dataclass(frozen=True)
class TextTranslation:
    """Of one text. `alternatives` differ from it and from each other; `cut`: the length limit came before an end."""

    text: str
    alternatives: tuple[str, ...]
    source_tokens: int
    target_tokens: int
    cut: bool


async def translate(
    gateway: "ModelGateway",
    served: "ServedModel",
    texts: Sequence[str],
    segmentation: SegmentationOptions = _DEFAULT_SEGMENTATION,
    alternatives: int = 0,
    **options: Any,
) -> list[TextTranslation]:
    """One translation of each text, in order, with at most so many alternatives; `options` as of `generate`.

    Lines stay lines, with the white space around them, unless sentences go on over them; tags stay too. Each line, or
    run of text between tags that divide, is translated sentence by sentence, unless the model is known to have learned
    from longer texts: one that learned from sentences leaves out what comes behind the first. What has no letters stays
    as it is, and a text without any takes no model.
    """
    gateway.check_texts(texts)
    plans = [plan async for plan in _segment_texts(texts, segmentation, make_fit_check(served.model))]
    asked = [sentence for plan in plans for sentence in plan.sentences]
    if len(asked) > MAX_SENTENCES:
        raise ApiError("too_many_sentences", count=len(asked), most=MAX_SENTENCES)
    options = {**options, "split": False}  # which is done
    searches = _plan_searches(served, alternatives, gateway.settings.beam, options) if asked else []
    found = await gather_or_cancel(
        [translate_sentences(gateway, served, asked, segmentation.text_format != "text", **each) for each in searches]
    )
    answers = (unique_hypotheses(chain(*each)) for each in zip(*found, strict=True))
    return [_assemble(plan, [*islice(answers, len(plan.sentences))], alternatives) for plan in plans]


async def translate_detected(
    gateway: "ModelGateway",
    sources: Sequence[str],
    target: str,
    texts: Sequence[str],
    segmentation: SegmentationOptions,
    alternatives: int = 0,
) -> list[TextTranslation]:
    """Each from its own language, by the model for it, in order. What is in the target's already stays as it is."""
    told = {place: _keep_untranslated(text) for place, text in enumerate(texts)}
    places = {
        source: [place for place, each in enumerate(sources) if each == source]
        for source in sources
        if source != target
    }
    served = {source: gateway.get_model_for_pair(source, target) for source in places}
    done = await gather_or_cancel(
        [
            translate(gateway, served[source], [texts[place] for place in there], segmentation, alternatives)
            for source, there in places.items()
        ]
    )
    for there, found in zip(places.values(), done, strict=True):
        told |= zip(there, found, strict=True)
    return [told[place] for place in range(len(texts))]


def _keep_untranslated(text: str) -> TextTranslation:
    return TextTranslation(text, (), 0, 0, cut=False)


def make_fit_check(model: TextModel) -> Callable[[str], bool] | None:
    """Whether the model reads a line with all its sentences at once; None where it is given single sentences."""
    if model.reads_single_sentences is not False:
        return None
    most, encode = max_source_tokens(model, model.generation), model.source_tokenizer.encode
    return lambda text: len(encode(text)) <= most


async def _segment_texts(
    texts: Sequence[str], segmentation: SegmentationOptions, fits: Callable[[str], bool] | None
) -> AsyncIterator[SegmentedText]:
    for text in texts:
        yield SegmentedText(text, segmentation, fits)
        await asyncio.sleep(0)  # 5,000 characters take milliseconds, and others are to be heard meanwhile


def _assemble(
    segmented: SegmentedText, hypotheses: Sequence[Sequence[SentenceHypothesis]], alternatives: int
) -> TextTranslation:
    """`hypotheses` to each sentence that was asked, the best first."""
    best = [each[0] for each in hypotheses]
    text = segmented.assemble(best)
    return TextTranslation(
        text=text,
        alternatives=tuple(islice(_assemble_alternatives(segmented, hypotheses, text), alternatives)),
        source_tokens=sum(each.source_tokens for each in best),
        target_tokens=sum(each.target_tokens for each in best),
        cut=any(each.cut for each in best),
    )


def _assemble_alternatives(
    segmented: SegmentedText, hypotheses: Sequence[Sequence[SentenceHypothesis]], text: str
) -> Iterator[str]:
    """The text with the second answer to each sentence, with the third ...; where there is none, with the best."""
    told = {text}
    for number in range(1, max(map(len, hypotheses), default=0)):
        other = segmented.assemble([each[number] if number < len(each) else each[0] for each in hypotheses])
        if other not in told:
            told.add(other)
            yield other


def _plan_searches(
    served: "ServedModel", alternatives: int, max_beam: int, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """The one that the translation comes from, and one more for alternatives where it cannot find enough of them.

    So a translation is the same whether or not alternatives are asked for. Two hypotheses are wanted for each of them:
    many a text is found in several ways, with other pieces.
    """
    if not alternatives:
        return [options]
    settings, wanted = served.model.settings(**options), min(max_beam, 2 * alternatives + 1)
    if settings.sample or settings.beam >= wanted:
        return [{**options, "n_best": wanted}]
    beam = wanted - wanted % settings.groups  # which the groups share evenly
    return [options, {**options, "beam": beam, "n_best": beam}]


async def detect_source_languages(
    gateway: ModelGateway, texts: Sequence[str], target: str, text_format: TextFormat
) -> list[LanguagePrediction]:
    """Of each text."""
    found: list[LanguagePrediction] = []
    for text in texts:
        found.append(detect_source_language(gateway, text, target, text_format))
        await asyncio.sleep(0)  # fifty texts with tags take a while, and others are to be heard meanwhile
    return found


def detect_source_language(
    gateway: ModelGateway, text: str, target: str, text_format: TextFormat = "text"
) -> LanguagePrediction:
    """The likeliest of the languages that are translated into the target; the target where the text is in that itself.

    It is looked for among all that are served, and refused where it can only be another, or none of them: a model that
    reads what it never learned invents an answer.
    """
    sources = [source for source, targets in gateway.languages().items() if target in targets]
    if not sources:
        raise ApiError("unknown_language", language=target[:100])
    words = (
        text
        if text_format == "text"
        else " ".join(SegmentedText(text[:_MAX_DETECTION_CHARACTERS], text_format).sentences)
    )
    found = _rank_languages(words, gateway, sources)
    best, source = found[0], next(each for each in found if each.language in sources)
    if best.language in sources or (best.confidence < _MIN_CONFIDENCE and source.confidence > 0):
        if source.confidence == 0 and any(character.isalpha() for character in words):
            raise ApiError("no_language", languages=", ".join(each.language for each in found))
        return source
    if best.language != target:
        raise ApiError("no_such_pair", source=best.language, target=target)
    return best


def _rank_languages(words: str, gateway: ModelGateway, sources: Sequence[str]) -> list[LanguagePrediction]:
    served = dict.fromkeys([*sources, *(code for pair in gateway.pairs() for code in pair)])
    try:
        return detect_language(words, [*served])
    except UsageError:  # some cannot be told apart without a package; those that matter perhaps can
        return detect_language(words, sources)
