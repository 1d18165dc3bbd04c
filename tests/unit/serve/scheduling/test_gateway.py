"""The gateway: model selection, limits, deadlines and token counts."""

import asyncio
import sys
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from error_codes import fragment, has_code
from four_models import ENGLISH, make_specs, models
from small_server import random_model
from tiny import PATIENCE
from worker_helpers import ENDLESS, wait_until

from attendo.errors import ModelError, UsageError
from attendo.serve.http.errors import ApiError
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ModelRegistry, ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard
from attendo.text_model import Result

T = TypeVar("T")


class RecordingMetrics(ServerMetrics):
    """Records token counts and first tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.token_counts: list[tuple[str, int, int]] = []
        self.firsts = 0

    def count_tokens(self, model: str, source: int, target: int) -> None:
        self.token_counts.append((model, source, target))

    def observe_first_token(self, seconds: float) -> None:
        self.firsts += 1


def make_gateway(*models: ModelSpec, **changes: Any) -> ModelGateway:
    settings = ServeSettings(**changes)
    return ModelGateway(ModelRegistry(models or make_specs(), settings), settings, RecordingMetrics())


def run(gateway: ModelGateway, work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` and then ends the threads of all models."""

    async def main() -> T:
        try:
            return await work
        finally:
            await asyncio.gather(*(each.worker.drain() for each in gateway.registry.all()))

    return asyncio.run(main())


def rejection_text(code: str, call: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ApiError) as raised:
        call(*arguments, **options)
    assert raised.value.code == code
    return raised.value.english


def test_warm_up_loads_the_language_detector_if_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked: list[str] = []
    package = SimpleNamespace(rank=lambda text: ranked.append(text) or [("en", -1.0)])
    monkeypatch.setitem(sys.modules, "py3langid", package)
    german = ModelSpec("german", models()["back"], about=ModelCard(source_language="de", target_language="en"))
    for specs, needed in ((make_specs("forth"), False), ([*make_specs("forth"), german], True)):
        gateway = make_gateway(*specs)
        run(gateway, gateway.warm_up())
        assert bool(ranked) == needed


def test_a_model_is_found_by_name_and_defaults_to_the_first() -> None:
    gateway = make_gateway()
    assert gateway.get_model(None) is gateway.registry.all()[0]
    assert gateway.get_model("back").name == "back"
    assert "forth, back" in rejection_text("unknown_model", gateway.get_model, "sideways")


def test_a_model_is_found_by_its_languages() -> None:
    gateway = make_gateway()
    assert gateway.get_model_for_pair("en", "zh").name == "forth"
    assert gateway.get_model_for_pair("zh", "en").name == "back"
    assert gateway.get_model_for_pair(None, "zh").name == "forth"
    assert gateway.pairs() == [("en", "zh"), ("zh", "en")]
    assert gateway.languages() == {"en": ["zh"], "zh": ["en"]}


@pytest.mark.parametrize(
    ("source", "target", "code", "named"),
    [
        ("de", "zh", "unknown_language", "de"),
        ("en", "de", "unknown_language", "de"),
        (None, "de", "unknown_language", "de"),
        ("en", "en", "no_such_pair", "from en to en"),
    ],
)
def test_unknown_languages_are_rejected(source: str | None, target: str, code: str, named: str) -> None:
    assert named in rejection_text(code, make_gateway().get_model_for_pair, source, target)


def test_only_translation_models_have_language_pairs() -> None:
    model = models()["plain"]
    about = {"source_language": "en", "target_language": "de"}
    summaries = ModelSpec("summaries", model, about=ModelCard(task="summarization", **about))
    unnamed = ModelSpec("unnamed", model, about=ModelCard(**about))
    assert make_gateway(summaries).pairs() == []
    assert make_gateway(unnamed).pairs() == [("en", "de")]


def test_language_pairs_use_normalised_codes() -> None:
    about = ModelCard(task="translation", source_language="zh-Hant", target_language="en-GB")
    assert make_gateway(ModelSpec("one", models()["plain"], about=about)).pairs() == [("zt", "en")]
    unknown = ModelCard(task="translation", source_language="qxx", target_language="en")
    assert make_gateway(ModelSpec("one", models()["plain"], about=unknown)).pairs() == []


def test_a_given_model_card_overrides_the_folder() -> None:
    model = random_model()
    model.about.update(task="translation", source_language="en", target_language="zh")
    assert make_gateway(ModelSpec("one", model)).pairs() == [("en", "zh")]
    assert make_gateway(ModelSpec("one", model, about=ModelCard(task="generation"))).pairs() == []


def test_number_and_length_of_texts_are_limited() -> None:
    gateway = make_gateway(max_texts=3, max_characters=10)
    gateway.check_texts(["a" * 10] * 3)
    assert "4 texts" in rejection_text("too_many_texts", gateway.check_texts, ["a"] * 4)
    assert "11 characters" in rejection_text("text_too_long", gateway.check_texts, ["a", "b" * 11])


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("beam", 12),
        ("n_best", 12),
        ("beam_groups", 12),
        ("max_length", 512),
        ("min_length", 512),
        ("mbr_candidates", 32),
    ],
)
def test_expensive_options_are_limited(name: str, most: int) -> None:
    gateway = make_gateway()
    gateway.check_options(**{name: most})
    gateway.check_options(**{name: None})
    assert fragment("above_limit", name=name, value=most + 1, most=most) in rejection_text(
        "above_limit", gateway.check_options, **{name: most + 1}
    )


def test_phrases_are_limited() -> None:
    gateway = make_gateway(max_phrases=3, max_characters=10)
    gateway.check_options(constraints=[["a", "b"], ["c"]], banned_phrases=["a"] * 3, prefix=["a", "b"])
    for options in ({"constraints": [["a", "b"], ["c", "d"]]}, {"banned_phrases": ["a"] * 4}):
        rejection_text("above_limit", gateway.check_options, **options)
    for options in (
        {"constraints": ["a" * 11]},
        {"banned_phrases": ["a" * 11]},
        {"prefix": "a" * 11},
        {"prefix": ["a" * 11]},
    ):
        rejection_text("text_too_long", gateway.check_options, **options)


@pytest.mark.parametrize("option", [{"engine": "textbook"}, {"compile": True}, {"batch_tokens": 9}])
def test_requests_cannot_set_server_options(option: dict[str, Any]) -> None:
    rejection_text("of_the_server", make_gateway().check_options, **option)


def test_results_equal_the_model_and_are_counted() -> None:
    gateway = make_gateway()
    forth = gateway.get_model("forth")
    results = run(gateway, gateway.generate(forth, [ENGLISH, ""], beam=2, n_best=2))
    assert results == models()["forth"].generate([ENGLISH, ""], beam=2, n_best=2)
    assert [each.source_tokens for each in results] == [3, 0]
    target_tokens = [sum(len(each.ids) for each in result.hypotheses) for result in results]
    assert isinstance(gateway.metrics, RecordingMetrics)
    assert gateway.metrics.token_counts == [("forth", 3, target_tokens[0]), ("forth", 0, 0)]


def test_limits_are_checked_before_the_worker_starts() -> None:
    gateway = make_gateway(max_texts=1)
    forth = gateway.get_model("forth")
    for texts, options in ((["a", "b"], {}), (["a"], {"beam": 13})):
        with pytest.raises(ApiError):
            run(gateway, gateway.generate(forth, texts, **options))
    with pytest.raises(ApiError):
        run(gateway, _read(gateway.stream(forth, "a", beam=13)))
    assert forth.worker._batch_thread._thread is None


def test_source_tokens_are_limited() -> None:
    gateway = make_gateway(max_source_tokens=4)
    with pytest.raises(ApiError) as raised:
        run(gateway, gateway.generate(gateway.get_model("forth"), ["a dog", "I saw the small cat"]))
    assert (raised.value.code, raised.value.status_code) == ("source_too_long", 413)
    assert "5 tokens" in raised.value.english


@pytest.mark.parametrize(
    "options", [{"banned_phrases": ["zebra"]}, {"beam": 2}, {"mbr": "chrf", "mbr_candidates": 2}, {}]
)
def test_output_tokens_are_limited_for_every_search(options: dict[str, Any]) -> None:
    gateway = make_gateway(max_output_tokens=2)
    request = {"min_length": 2, "max_length_factor": 10.0, **options}
    (result,) = run(gateway, gateway.generate(gateway.get_model("forth"), [ENGLISH], **request))
    assert (len(result.ids), result.cut) == (2, True)


@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"banned_phrases": ["zebra"]}, {"split": True}])
def test_a_joined_stream_equals_its_result(options: dict[str, Any]) -> None:
    gateway = make_gateway()
    found: list[Result] = []
    parts = run(gateway, _read(gateway.stream(gateway.get_model("forth"), ENGLISH, on_result=found.append, **options)))
    assert found == models()["forth"].generate([ENGLISH], **options)
    assert "".join(parts) == found[0].text
    assert isinstance(gateway.metrics, RecordingMetrics)
    assert gateway.metrics.token_counts == [("forth", 3, len(found[0].ids))]
    assert gateway.metrics.firsts == 1


async def _read(parts: Any) -> list[str]:
    return [part async for part in parts]


def test_a_request_deadline_overrides_the_settings() -> None:
    gateway = make_gateway(deadline_seconds=0.02, max_output_tokens=10_000)
    forth = gateway.get_model("forth")

    async def main() -> None:
        with pytest.raises(ApiError) as raised:
            await gateway.generate(forth, [ENGLISH], **ENDLESS)
        assert raised.value.code == "too_late"
        assert await gateway.generate(forth, [ENGLISH], deadline=time.monotonic() + PATIENCE)

    run(gateway, main())


def test_S7_unbatched_jobs_end_at_their_deadline() -> None:
    gateway = make_gateway(deadline_seconds=0.05, max_output_tokens=100_000)
    forth = gateway.get_model("forth")

    async def main() -> None:
        with pytest.raises(ApiError) as raised:
            await gateway.generate(
                forth, [ENGLISH], max_length_extra=19_000, min_length_extra=19_000, banned_phrases=["zebra"]
            )
        assert raised.value.code == "too_late"
        await wait_until(lambda: not forth.worker._scheduler.busy)

    run(gateway, main())


def test_warm_up_runs_every_model() -> None:
    gateway = make_gateway(*make_specs("forth", "back"))
    assert not gateway.is_warm
    run(gateway, gateway.warm_up())
    assert gateway.is_warm


def test_a_failing_model_fails_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = make_gateway(*make_specs("forth"))

    def fails(*_: Any, **__: Any) -> None:
        raise UsageError("settings_invalid", faults="there is nothing in it")

    monkeypatch.setattr(gateway.get_model("forth").model, "prepare_call", fails)
    with pytest.raises(
        ModelError, check=has_code("model_warm_up_failed", model="forth", reason="there is nothing in it")
    ):
        run(gateway, gateway.warm_up())
    assert not gateway.is_warm
