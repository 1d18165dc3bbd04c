"""Gateway between the APIs and the models: model selection, limits, deadlines."""

import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from attendo.errors import AttendoError, ModelError
from attendo.serve import language_detection
from attendo.serve.http.errors import ApiError
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.scheduling.registry import ModelRegistry, ServedModel
from attendo.serve.settings import ServeSettings
from attendo.text_model import Result

# Options that only the server may set: in a request they could slow down all other requests.
_SERVER_OPTIONS = ("engine", "compile", "precision", "batch_tokens")


class ModelGateway:
    """Gateway of one server. Requests above a limit are rejected before they reach a model."""

    def __init__(self, registry: ModelRegistry, settings: ServeSettings, metrics: ServerMetrics) -> None:
        self.registry, self.settings, self.metrics = registry, settings, metrics
        self.is_warm = False  # every model has generated once
        self.draining = False  # new requests are rejected
        self.pending_results: list[Callable[[], bool]] = []  # each returns True while a result may still be fetched

    async def warm_up(self) -> None:
        """Generate once with every model, so that no request waits for its initialisation."""
        for served in self.registry.all():
            try:
                await served.worker.generate([served.sample_text])
            except (ApiError, AttendoError) as error:
                reason = error.english if isinstance(error, ApiError) else str(error)
                raise ModelError(
                    "model_warm_up_failed", model=served.name, text=served.sample_text, reason=reason
                ) from None
        language_detection.load_detector([*dict.fromkeys(code for pair in self.pairs() for code in pair)])
        self.is_warm = True

    @property
    def has_pending_results(self) -> bool:
        """True if a client that is not connected may still fetch a result, so the server must keep listening."""
        return any(awaited() for awaited in self.pending_results)

    @property
    def is_full(self) -> bool:
        """True if every model would reject a new request."""
        return all(served.worker.is_full for served in self.registry.all())

    @property
    def num_waiting(self) -> int:
        """Number of requests in the shortest queue of all models."""
        return min(served.worker.num_waiting for served in self.registry.all())

    def get_model(self, name: str | None) -> ServedModel:
        """Return the model with this name, or the first model if the name is None."""
        return self.registry.get(name)

    def get_model_for_pair(self, source: str | None, target: str) -> ServedModel:
        """Return the first model for these language codes. A source of None matches any language."""
        for served in self._translation_models():
            if served.about.target_language == target and source in (None, served.about.source_language):
                return served
        languages = self.languages()
        if source is not None and source not in languages:
            raise ApiError("unknown_language", language=source[:100])
        if source is None or not any(target in targets for targets in languages.values()):
            raise ApiError("unknown_language", language=target[:100])
        raise ApiError("no_such_pair", source=source, target=target)

    def pairs(self) -> list[tuple[str, str]]:
        """Return the (source, target) language pairs served, in the order of the models."""
        found = [(each.about.source_language, each.about.target_language) for each in self._translation_models()]
        return list(dict.fromkeys((source, target) for source, target in found if source and target))

    def languages(self) -> dict[str, list[str]]:
        """Return the target languages of every source language."""
        found: dict[str, list[str]] = {}
        for source, target in self.pairs():
            found.setdefault(source, []).append(target)
        return found

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise `ApiError` if there are too many texts or one is too long."""
        if len(texts) > self.settings.max_texts:
            raise ApiError("too_many_texts", count=len(texts), most=self.settings.max_texts)
        for text in texts:
            if len(text) > self.settings.max_characters:
                raise ApiError("text_too_long", characters=len(text), most=self.settings.max_characters)

    def check_options(self, **options: Any) -> None:
        """Raise `ApiError` for options above a limit or reserved for the server. The model validates the rest."""
        for name, most in self._option_limits().items():
            value = options.get(name)
            if isinstance(value, int | float) and value > most:
                raise ApiError("above_limit", name=name, value=value, most=most)
        for name in ("constraints", "banned_phrases", "do_not_translate"):
            phrases = _flatten(options.get(name) or ())
            if len(phrases) > self.settings.max_phrases:
                raise ApiError("above_limit", name=name, value=len(phrases), most=self.settings.max_phrases)
            self._check_text_lengths(phrases)
        self._check_text_lengths(_flatten(options.get("prefix") or ()))
        for name in _SERVER_OPTIONS:
            if options.get(name) is not None:
                raise ApiError("of_the_server", name=name)

    def deadline(self) -> float:
        """Return the deadline of a request that arrives now, as `time.monotonic`."""
        return time.monotonic() + self.settings.deadline_seconds

    async def generate(
        self, served: ServedModel, texts: Sequence[str], *, deadline: float | None = None, **options: Any
    ) -> list[Result]:
        """Return one result per text. Pass `deadline` if a request makes several calls."""
        self.check_texts(texts)
        self.check_options(**options)
        options = self._with_check(served, options)
        results = await served.worker.generate(texts, deadline or self.deadline(), **options)
        for each in results:
            self._count_result(served, each)
        return results

    async def stream(
        self,
        served: ServedModel,
        text: str,
        *,
        deadline: float | None = None,
        on_result: Callable[[Result], None] | None = None,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        """Yield the new text of each step. `on_result` receives the whole result at the end."""
        self.check_texts([text])
        self.check_options(**options)
        options = self._with_check(served, options, streams=True)
        begin, started, results = time.monotonic(), False, list[Result]()
        until = deadline or self.deadline()
        async with aclosing(served.worker.stream(text, until, on_result=results.append, **options)) as parts:
            async for new in parts:
                if not started:
                    self.metrics.observe_first_token(time.monotonic() - begin)
                started = True
                yield new
        for each in results:
            self._count_result(served, each)
            if on_result is not None:
                on_result(each)

    def _with_check(self, served: ServedModel, options: dict[str, Any], streams: bool = False) -> dict[str, Any]:
        """Return the options with the check of the server, if they have none and the model has a source."""
        check = self.settings.check
        if check == "off" or options.get("check") or served.model.continues_text:
            return options
        repairs = not streams and not any(options.get(name) for name in ("glossary", "keep", "do_not_translate"))
        return {**options, "check": check if repairs else "report"}

    def _translation_models(self) -> list[ServedModel]:
        named = [each for each in self.registry.all() if each.about.source_language and each.about.target_language]
        return [each for each in named if each.about.task in (None, "translation")]

    def _option_limits(self) -> Mapping[str, int]:
        beam, tokens = self.settings.max_beam, self.settings.max_output_tokens
        return {
            "beam": beam,
            "beam_groups": beam,
            "n_best": beam,
            "mbr_candidates": self.settings.max_mbr_candidates,
            "max_length": tokens,
            "min_length": tokens,
        }

    def _check_text_lengths(self, texts: Sequence[Any]) -> None:
        self.check_texts([text for text in texts if isinstance(text, str)])

    def _count_result(self, served: ServedModel, result: Result) -> None:
        target_tokens = sum(len(each.ids) for each in result.hypotheses)
        self.metrics.count_tokens(served.name, result.source_tokens, target_tokens)
        if result.report is not None:
            kinds = [each.kind for each in result.faults]
            self.metrics.count_faults(served.name, kinds, any(each.kept for each in result.repairs))


def _flatten(texts: Any) -> list[Any]:
    """Flatten one text, a list of texts, or nested lists of texts."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        return [texts]
    return [inner for each in texts for inner in _flatten(each)]
