"""Which model is asked, what may be asked of it, and until when."""

import asyncio
import sys
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from batcher_users import LONG, until
from error_codes import fragment, has_code
from polyglot import ENGLISH, models, served
from small_server import random_model
from tiny import PATIENCE

from attendo.errors import ModelError, UsageError
from attendo.serve.http.errors import ApiError
from attendo.serve.http.metrics import ServerMetrics
from attendo.serve.scheduling.gateway import ModelGateway
from attendo.serve.scheduling.registry import ModelRegistry, ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard
from attendo.text_model import Result

T = TypeVar("T")


class Counting(ServerMetrics):
    """Remembers what it was told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, int, int]] = []
        self.firsts = 0

    def count_tokens(self, model: str, source: int, target: int) -> None:
        self.told.append((model, source, target))

    def observe_first_token(self, seconds: float) -> None:
        self.firsts += 1


def office(*models: ModelSpec, **settings: Any) -> ModelGateway:
    made = ServeSettings(**settings)
    return ModelGateway(ModelRegistry(models or served(), made), made, Counting())


def run(office: ModelGateway, work: Coroutine[Any, Any, T]) -> T:
    """With the threads of all models ended behind it."""

    async def main() -> T:
        try:
            return await work
        finally:
            await asyncio.gather(*(each.worker.drain() for each in office.registry.all()))

    return asyncio.run(main())


def refused(code: str, asking: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(ApiError) as told:
        asking(*arguments, **options)
    assert told.value.code == code
    return told.value.english


def test_what_tells_languages_apart_is_loaded_before_anybody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    package = SimpleNamespace(rank=lambda text: asked.append(text) or [("en", -1.0)])
    monkeypatch.setitem(sys.modules, "py3langid", package)
    german = ModelSpec("german", models()["back"], about=ModelCard(source_language="de", target_language="en"))
    for names, needed in ((served("forth"), False), ([*served("forth"), german], True)):
        here = office(*names)
        run(here, here.warm_up())
        assert bool(asked) == needed


def test_a_model_is_found_by_its_name_and_the_first_without_one() -> None:
    here = office()
    assert here.get_model(None) is here.registry.all()[0]
    assert here.get_model("back").name == "back"
    assert "forth, back" in refused("unknown_model", here.get_model, "sideways")


def test_a_model_is_found_by_its_languages() -> None:
    here = office()
    assert here.get_model_for_pair("en", "zh").name == "forth"
    assert here.get_model_for_pair("zh", "en").name == "back"
    assert here.get_model_for_pair(None, "zh").name == "forth"
    assert here.pairs() == [("en", "zh"), ("zh", "en")]
    assert here.languages() == {"en": ["zh"], "zh": ["en"]}


@pytest.mark.parametrize(
    ("source", "target", "code", "named"),
    [
        ("de", "zh", "unknown_language", "de"),
        ("en", "de", "unknown_language", "de"),
        (None, "de", "unknown_language", "de"),
        ("en", "en", "no_such_pair", "from en to en"),
    ],
)
def test_languages_that_no_model_has_are_refused(source: str | None, target: str, code: str, named: str) -> None:
    assert named in refused(code, office().get_model_for_pair, source, target)


def test_only_what_translates_is_found_by_languages() -> None:
    model = models()["plain"]
    about = {"source_language": "en", "target_language": "de"}
    summaries = ModelSpec("summaries", model, about=ModelCard(task="summarization", **about))
    unnamed = ModelSpec("unnamed", model, about=ModelCard(**about))
    assert office(summaries).pairs() == []
    assert office(unnamed).pairs() == [("en", "de")]


def test_languages_are_known_by_the_codes_that_requests_are_understood_by() -> None:
    about = ModelCard(task="translation", source_language="zh-Hant", target_language="en-GB")
    assert office(ModelSpec("one", models()["plain"], about=about)).pairs() == [("zt", "en")]
    unheard_of = ModelCard(task="translation", source_language="qxx", target_language="en")
    assert office(ModelSpec("one", models()["plain"], about=unheard_of)).pairs() == []


def test_what_a_model_folder_says_of_itself_holds_unless_something_else_is_given() -> None:
    model = random_model()
    model.about.update(task="translation", source_language="en", target_language="zh")
    assert office(ModelSpec("one", model)).pairs() == [("en", "zh")]
    assert office(ModelSpec("one", model, about=ModelCard(task="generation"))).pairs() == []


def test_the_number_of_texts_and_their_lengths_have_an_end() -> None:
    here = office(max_texts=3, max_characters=10)
    here.check_texts(["a" * 10] * 3)
    assert "4 texts" in refused("too_many_texts", here.check_texts, ["a"] * 4)
    assert "11 characters" in refused("text_too_long", here.check_texts, ["a", "b" * 11])


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
def test_what_takes_time_or_room_has_an_end(name: str, most: int) -> None:
    here = office()
    here.check_options(**{name: most})
    here.check_options(**{name: None})
    assert fragment("above_limit", name=name, value=most + 1, most=most) in refused(
        "above_limit", here.check_options, **{name: most + 1}
    )


def test_phrases_have_an_end() -> None:
    here = office(max_phrases=3, max_characters=10)
    here.check_options(constraints=[["a", "b"], ["c"]], banned_phrases=["a"] * 3, prefix=["a", "b"])
    for options in ({"constraints": [["a", "b"], ["c", "d"]]}, {"banned_phrases": ["a"] * 4}):
        refused("above_limit", here.check_options, **options)
    for options in (
        {"constraints": ["a" * 11]},
        {"banned_phrases": ["a" * 11]},
        {"prefix": "a" * 11},
        {"prefix": ["a" * 11]},
    ):
        refused("text_too_long", here.check_options, **options)


@pytest.mark.parametrize("option", [{"engine": "textbook"}, {"compile": True}, {"batch_tokens": 9}])
def test_the_machine_is_not_for_requests_to_choose(option: dict[str, Any]) -> None:
    refused("of_the_server", office().check_options, **option)


def test_answers_are_those_of_the_model_and_counted() -> None:
    here = office()
    forth = here.get_model("forth")
    results = run(here, here.generate(forth, [ENGLISH, ""], beam=2, n_best=2))
    assert results == models()["forth"].generate([ENGLISH, ""], beam=2, n_best=2)
    assert [each.source_tokens for each in results] == [3, 0]
    said = [sum(len(each.ids) for each in result.hypotheses) for result in results]
    assert isinstance(here.metrics, Counting)
    assert here.metrics.told == [("forth", 3, said[0]), ("forth", 0, 0)]


def test_limits_are_looked_at_before_a_model_hears_of_a_request() -> None:
    here = office(max_texts=1)
    forth = here.get_model("forth")
    for texts, options in ((["a", "b"], {}), (["a"], {"beam": 13})):
        with pytest.raises(ApiError):
            run(here, here.generate(forth, texts, **options))
    with pytest.raises(ApiError):
        run(here, _read(here.stream(forth, "a", beam=13)))
    assert forth.worker._batch_thread._thread is None


def test_a_source_has_so_many_tokens_at_most() -> None:
    here = office(max_source_tokens=4)
    with pytest.raises(ApiError) as refused:
        run(here, here.generate(here.get_model("forth"), ["a dog", "I saw the small cat"]))
    assert (refused.value.code, refused.value.status_code) == ("source_too_long", 413)
    assert "5 tokens" in refused.value.english


@pytest.mark.parametrize(
    "options", [{"banned_phrases": ["zebra"]}, {"beam": 2}, {"mbr": "chrf", "mbr_candidates": 2}, {}]
)
def test_an_answer_has_so_many_tokens_at_most_also_where_nobody_asked_for_fewer(options: dict[str, Any]) -> None:
    here = office(max_output_tokens=2)
    asked = {"min_length": 2, "max_length_factor": 10.0, **options}
    (result,) = run(here, here.generate(here.get_model("forth"), [ENGLISH], **asked))
    assert (len(result.ids), result.cut) == (2, True)


@pytest.mark.parametrize("options", [{}, {"beam": 3}, {"banned_phrases": ["zebra"]}, {"split": True}])
def test_a_stream_joined_is_the_result_that_is_told_at_its_end(options: dict[str, Any]) -> None:
    here = office()
    found: list[Result] = []
    parts = run(here, _read(here.stream(here.get_model("forth"), ENGLISH, on_result=found.append, **options)))
    assert found == models()["forth"].generate([ENGLISH], **options)
    assert "".join(parts) == found[0].text
    assert isinstance(here.metrics, Counting)
    assert here.metrics.told == [("forth", 3, len(found[0].ids))]
    assert here.metrics.firsts == 1


async def _read(parts: Any) -> list[str]:
    return [part async for part in parts]


def test_the_deadline_is_that_of_the_settings_unless_the_request_has_its_own() -> None:
    here = office(deadline_seconds=0.02, max_output_tokens=10_000)
    forth = here.get_model("forth")

    async def main() -> None:
        with pytest.raises(ApiError) as refused:
            await here.generate(forth, [ENGLISH], **LONG)
        assert refused.value.code == "too_late"
        assert await here.generate(forth, [ENGLISH], deadline=time.monotonic() + PATIENCE)

    run(here, main())


def test_S7_work_that_cannot_be_taken_apart_is_ended_by_its_deadline_too() -> None:
    here = office(deadline_seconds=0.05, max_output_tokens=100_000)
    forth = here.get_model("forth")

    async def main() -> None:
        with pytest.raises(ApiError) as refused:
            await here.generate(
                forth, [ENGLISH], max_length_extra=19_000, min_length_extra=19_000, banned_phrases=["zebra"]
            )
        assert refused.value.code == "too_late"
        await until(lambda: not forth.worker._scheduler.busy)

    run(here, main())


def test_models_are_warm_when_each_has_answered() -> None:
    here = office(*served("forth", "back"))
    assert not here.is_warm
    run(here, here.warm_up())
    assert here.is_warm


def test_a_model_that_cannot_answer_is_told_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    here = office(*served("forth"))

    def fails(*_: Any, **__: Any) -> None:
        raise UsageError("settings_invalid", faults="there is nothing in it")

    monkeypatch.setattr(here.get_model("forth").model, "prepare_call", fails)
    with pytest.raises(
        ModelError, check=has_code("model_warm_up_failed", model="forth", reason="there is nothing in it")
    ):
        run(here, here.warm_up())
    assert not here.is_warm
