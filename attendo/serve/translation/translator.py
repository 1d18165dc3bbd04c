"""Translates texts sentence by sentence, with alignments and source language detection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, TypeVar

from attendo.errors import UsageError
from attendo.pipelines.text_pipeline import max_source_tokens
from attendo.serve.http.errors import ApiError
from attendo.serve.language_detection import LanguagePrediction, detect_language
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ServedModel
from attendo.serve.translation.segmenter import SegmentationOptions, SegmentedText, TextFormat
from attendo.text.markup import CharacterLinks
from attendo.text_model import Hypothesis, Result, TextModel
from attendo.text_model.alignment import align, link_characters
from attendo.text_model.inputs import encode_symbols
from attendo.text_model.results import CheckReport

MAX_CONCURRENT_CALLS = 4  # of one request; more would slow down other requests and each other
_ALIGNMENT_BATCH_SIZE = 16  # sentences aligned between two decoding steps
Links = CharacterLinks | None
T = TypeVar("T")
_DEFAULT_SEGMENTATION = SegmentationOptions()
MAX_SENTENCES = 1_000  # of one request; 5,000 characters of normal text have about 100
_MIN_CONFIDENCE = 0.8  # for rejecting a text because of its language: short texts are often misdetected
_MAX_DETECTION_CHARACTERS = 2_000  # of a text with tags


@dataclass(frozen=True)
class SentenceHypothesis:
    """One translation of a sentence."""

    text: str
    source_tokens: int
    target_tokens: int
    cut: bool
    links: Links
    report: CheckReport | None = None  # of the best one, with `check`


async def translate_sentences(
    gateway: ModelGateway, served: ServedModel, texts: Sequence[str], with_links: bool, **options: Any
) -> list[list[SentenceHypothesis]]:
    """Return the translations of each text, best first. There are several if `n_best` > 1, all different."""
    deadline, room = gateway.deadline(), asyncio.Semaphore(MAX_CONCURRENT_CALLS)
    results = await generate_in_chunks(gateway, served, texts, room, deadline=deadline, **options)
    links = [list[Links]([None] * len(each.hypotheses)) for each in results]
    if with_links and _supports_alignment(served.model):
        # With alignments=True the whole call would be an unbatched job, which delays other requests. So the texts are
        # decoded in the batch, and the hypotheses are aligned afterwards in small groups.
        link_groups = served.worker.iterate(lambda: _align_in_batches(served.model, texts, results), deadline)
        links = [each async for group in link_groups for each in group]
    return [
        unique_hypotheses(
            _make_hypothesis(hypothesis, each, result.source_tokens, None if number else result.report)
            for number, (hypothesis, each) in enumerate(zip(result.hypotheses, known, strict=True))
        )
        for result, known in zip(results, links, strict=True)
    ]


async def gather_or_cancel(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of all calls, in order. If one fails, cancel the others."""
    tasks = [asyncio.ensure_future(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def generate_in_chunks(
    gateway: ModelGateway, served: ServedModel, texts: Sequence[str], room: asyncio.Semaphore, **options: Any
) -> list[Result]:
    """Generate in calls of at most `max_texts` texts. `room` limits the number of concurrent calls."""
    size = gateway.settings.max_texts

    async def generate_chunk(at: int) -> list[Result]:
        async with room:
            return await gateway.generate(served, texts[at : at + size], **options)

    groups = await gather_or_cancel([generate_chunk(at) for at in range(0, len(texts), size)])
    return [result for group in groups for result in group]


def _supports_alignment(model: TextModel) -> bool:
    """Return False for exported models whose runtime does not return attention weights."""
    try:
        model.settings(alignments=True)
    except UsageError:
        return False
    return True


def _align_in_batches(model: TextModel, texts: Sequence[str], results: Sequence[Result]) -> Iterator[list[list[Links]]]:
    """Yield the links of every hypothesis of every text, in groups of texts."""
    source, target = model.source_tokenizer, model.target_tokenizer
    symbols = encode_symbols(model.generation, source, target)
    positions = model.generation.resolve_batch_tokens(model.device.type == "cuda")
    for at in range(0, len(texts), _ALIGNMENT_BATCH_SIZE):
        some = texts[at : at + _ALIGNMENT_BATCH_SIZE]
        ids = [symbols.wrap_source(source.encode(text)) for text in some]
        with model.backend.inference_mode():
            seen = align(results[at : at + _ALIGNMENT_BATCH_SIZE], ids, model.networks, positions, model.scores)
        yield [
            [link_characters(each, text, source, target) for each in result.hypotheses]
            for text, result in zip(some, seen, strict=True)
        ]


def unique_hypotheses(hypotheses: Iterable[SentenceHypothesis]) -> list[SentenceHypothesis]:
    """Return the first hypothesis, then those with a new, non-empty text."""
    unique: list[SentenceHypothesis] = []
    texts = {""}
    for each in hypotheses:
        if not unique or each.text.strip() not in texts:
            unique.append(each)
        texts.add(each.text.strip())
    return unique


def _make_hypothesis(
    hypothesis: Hypothesis, links: Links, source_tokens: int, report: CheckReport | None
) -> SentenceHypothesis:
    return SentenceHypothesis(hypothesis.text, source_tokens, len(hypothesis.ids), hypothesis.cut, links, report)


@dataclass(frozen=True)
class TextTranslation:
    """Translation of one text, with distinct alternatives. `cut`: a sentence reached the length limit."""

    text: str
    alternatives: tuple[str, ...]
    source_tokens: int
    target_tokens: int
    cut: bool
    reports: tuple[tuple[str, CheckReport], ...] = ()  # of each translated sentence with a report

    @property
    def confidence(self) -> float | None:
        """The lowest confidence of a sentence. None without `check` or calibration."""
        return min((each.confidence for _, each in self.reports if each.confidence is not None), default=None)

    def list_faults(self) -> list[dict[str, Any]]:
        """Return the faults of each sentence. `where` is a span of characters of `sentence`."""
        return [{"sentence": text, **fault.to_dict()} for text, report in self.reports for fault in report.faults]


async def translate(
    gateway: ModelGateway,
    served: ServedModel,
    texts: Sequence[str],
    segmentation: SegmentationOptions = _DEFAULT_SEGMENTATION,
    alternatives: int = 0,
    **options: Any,
) -> list[TextTranslation]:
    """Translate each text, with at most `alternatives` alternatives. `options` are those of `generate`.

    Line breaks, surrounding white space and tags are kept, unless sentences continue over line ends. Each line, or text
    between splitting tags, is translated sentence by sentence: a model trained on single sentences omits all but the
    first. A model known to be trained on longer texts reads whole lines. Sentences without letters are not translated.
    """
    gateway.check_texts(texts)
    plans = [plan async for plan in _segment_texts(texts, segmentation, make_fit_check(served.model))]
    sentences = [sentence for plan in plans for sentence in plan.sentences]
    if len(sentences) > MAX_SENTENCES:
        raise ApiError("too_many_sentences", count=len(sentences), most=MAX_SENTENCES)
    options = {**options, "split": False}  # already split
    searches = _plan_searches(served, alternatives, gateway.settings.max_beam, options) if sentences else []
    found = await gather_or_cancel(
        [
            translate_sentences(gateway, served, sentences, segmentation.text_format != "text", **each)
            for each in searches
        ]
    )
    answers = (unique_hypotheses(chain(*each)) for each in zip(*found, strict=True))
    return [_assemble(plan, [*islice(answers, len(plan.sentences))], alternatives) for plan in plans]


async def translate_from(
    gateway: ModelGateway,
    source: str | None,
    target: str,
    texts: Sequence[str],
    segmentation: SegmentationOptions,
    alternatives: int = 0,
    **options: Any,
) -> tuple[list[TextTranslation], list[LanguagePrediction]]:
    """Return the translations and the source language of each text, which is detected if `source` is None.

    A text in the target language is returned unchanged.
    """
    languages = [LanguagePrediction(source, 1.0)] * len(texts) if source is not None else []
    if source is None:
        for text in texts:
            languages.append(detect_source_language(gateway, text, target, segmentation.text_format))
            await asyncio.sleep(0)  # yield to the event loop: 50 texts with tags take a while
    translations = {index: TextTranslation(text, (), 0, 0, cut=False) for index, text in enumerate(texts)}
    indices_by_source: dict[str, list[int]] = {}
    for index, (language, _) in enumerate(languages):
        if language != target:
            indices_by_source.setdefault(language, []).append(index)
    served = {language: gateway.get_model_for_pair(language, target) for language in indices_by_source}
    groups = await gather_or_cancel(
        [
            translate(
                gateway, served[language], [texts[index] for index in indices], segmentation, alternatives, **options
            )
            for language, indices in indices_by_source.items()
        ]
    )
    for indices, group in zip(indices_by_source.values(), groups, strict=True):
        translations |= zip(indices, group, strict=True)
    return [translations[index] for index in range(len(texts))], languages


def make_fit_check(model: TextModel) -> Callable[[str], bool] | None:
    """Return a test whether the model can read a whole line; None if it reads single sentences."""
    if model.reads_single_sentences is not False:
        return None
    most, encode = max_source_tokens(model, model.generation), model.source_tokenizer.encode
    return lambda text: len(encode(text)) <= most


async def _segment_texts(
    texts: Sequence[str], segmentation: SegmentationOptions, fits: Callable[[str], bool] | None
) -> AsyncIterator[SegmentedText]:
    for text in texts:
        yield SegmentedText(text, segmentation, fits)
        await asyncio.sleep(0)  # yield to the event loop: 5,000 characters take milliseconds


def _assemble(
    segmented: SegmentedText, hypotheses: Sequence[Sequence[SentenceHypothesis]], alternatives: int
) -> TextTranslation:
    """Assemble the text from the `hypotheses` of each sentence, best first."""
    best = [each[0] for each in hypotheses]
    text = segmented.assemble(best)
    return TextTranslation(
        text=text,
        alternatives=tuple(islice(_assemble_alternatives(segmented, hypotheses, text), alternatives)),
        source_tokens=sum(each.source_tokens for each in best),
        target_tokens=sum(each.target_tokens for each in best),
        cut=any(each.cut for each in best),
        reports=tuple((each.text, each.report) for each in best if each.report is not None),
    )


def _assemble_alternatives(
    segmented: SegmentedText, hypotheses: Sequence[Sequence[SentenceHypothesis]], text: str
) -> Iterator[str]:
    """Yield the text from the second hypotheses, from the third, and so on; missing ones are replaced by the best."""
    texts = {text}
    for number in range(1, max(map(len, hypotheses), default=0)):
        other = segmented.assemble([each[number] if number < len(each) else each[0] for each in hypotheses])
        if other not in texts:
            texts.add(other)
            yield other


def _plan_searches(
    served: ServedModel, alternatives: int, max_beam: int, options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the options of the search for the translation, and of a second, wider one for alternatives if needed.

    So the translation does not depend on the number of alternatives. Two hypotheses are generated per alternative,
    because different token sequences often give the same text.
    """
    if not alternatives:
        return [options]
    settings, wanted = served.model.settings(**options), min(max_beam, 2 * alternatives + 1)
    if settings.sample or settings.beam >= wanted:
        return [{**options, "n_best": wanted}]
    beam = wanted - wanted % settings.beam_groups  # a multiple of the number of groups
    return [options, {**options, "beam": beam, "n_best": beam}]


def detect_source_language(
    gateway: ModelGateway, text: str, target: str, text_format: TextFormat = "text"
) -> LanguagePrediction:
    """Return the likeliest source language for the target, or the target if the text is already in it.

    Detection considers all served languages. A text in none of them, or in one without a model for the target, raises
    `ApiError`: a model invents a translation for a language that it was not trained on.
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
    except UsageError:  # some need py3langid; the source languages alone may not
        return detect_language(words, sources)
