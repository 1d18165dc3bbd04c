"""S2: whatever is asked, the OpenAPI file has said what comes; and what it says of keys is so."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from late_import import LateModule, needs
from small_server import API, TEXT, Asking, random_model
from starlette.testclient import TestClient

from attendo.serve.app import create_app
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard

pytestmark = needs("schemathesis")
schemathesis: Any = LateModule("schemathesis")

EN_ZH = ModelCard(task="translation", source_language="en", target_language="zh")
CHAT = {"model": "small", "messages": [{"role": "user", "content": TEXT}]}
# What is well asked: strings that are drawn rarely name a language.
GOOD: list[tuple[str, dict[str, Any]]] = [
    ("/translate", {"q": TEXT, "source": "en", "target": "zh", "alternatives": 2}),
    ("/translate", {"q": [TEXT, ""], "source": "auto", "target": "zh", "format": "html"}),
    ("/v2/translate", {"text": [TEXT], "target_lang": "ZH", "source_lang": "EN", "show_billed_characters": True}),
    ("/v2/translate", {"text": [f"<p>{TEXT}</p>"], "target_lang": "ZH", "tag_handling": "html"}),
    ("/v1/chat/completions", CHAT),
    ("/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"model": "small", "prompt": TEXT, "n": 2}),
    ("/hf/translation", {"inputs": TEXT, "parameters": {"src_lang": "en", "tgt_lang": "zh"}}),
    ("/", {"inputs": TEXT}),
    ("/api/v1/generate", {"texts": [TEXT, ""], "beam": 2, "n_best": 2, "alignments": True}),
    ("/api/v1/generate", {"texts": [TEXT], "mbr": "chrf", "mbr_candidates": 2, "sample": True}),
    ("/api/v1/generate", {"texts": [TEXT], "beam": 2, "constraints": ["猫"]}),
    ("/api/v1/generate", {"texts": [TEXT], "beam": 2, "stream": True}),
    ("/api/v1/score", {"pairs": [{"source": TEXT, "target": "猫"}], "tokens": True}),
    ("/api/v1/answer", {"text": TEXT, "decoder": {"kind": "beam", "n_best": 2}, "stream": True}),
    ("/api/v1/tree", {"text": TEXT, "decoder": {"kind": "beam", "beam_groups": 2}}),
    ("/api/v1/ledger", {"text": TEXT, "step": 1}),
    ("/api/v1/ablate", {"text": TEXT, "heads": {"decoder.0.cross": {"0": 0.0}}}),
]
KNOWN = {"source": "en", "target": "zh", "source_lang": "EN", "target_lang": "ZH", "model": "small", "checkpoint": None}
# Some rules are between fields, where no schema can tell them; all else that is drawn to fit must be taken.
STATUSES = {
    "positive_data_acceptance": {"expected-statuses": ["2xx", "400", "403", "404", "413"]},
    "negative_data_rejection": {"expected-statuses": ["400", "403", "404", "405", "413", "415"]},
}


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("documents")
    # How long it takes is asked elsewhere: here shapes are checked at every step, and that takes long.
    limits = ServeSettings(allowed_hosts=("testserver",), documents_folder=folder, deadline_seconds=600)
    app = create_app([ModelSpec("small", random_model(), about=EN_ZH)], limits)
    app.gateway.is_warm = True
    config = schemathesis.Config.from_dict({"checks": STATUSES, "request-timeout": 600})
    return schemathesis.openapi.from_asgi(f"{API}/openapi.json", app, config=config)


def operations(described: Any) -> Iterator[Any]:
    for found in described.get_all_operations():
        yield found.ok()


def with_known_names(case: Any) -> None:
    """What is drawn rarely names a language or a model, and would come no further than that."""
    if isinstance(case.body, dict):
        case.body.update({name: value for name, value in KNOWN.items() if name in case.body})


def draw(operation: Any, mode: Any, examples: int, tried: Callable[[Any], None]) -> None:
    """With data that fits what the file says, or that does not."""
    drawn = given(case=operation.as_strategy(generation_mode=mode))(tried)
    quiet = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    quiet(drawn)()


def faults(described: Any, examples: int) -> tuple[str, Counter[int]]:
    """What came that the file had not said, in words; and how often each status came."""
    positive, negative = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    found = ""
    statuses: Counter[int] = Counter()

    def tried(case: Any) -> None:
        answered = case.call()
        statuses[answered.status_code] += 1
        case.validate_response(answered)

    def tried_with_known_names(case: Any) -> None:
        with_known_names(case)
        tried(case)

    for operation in operations(described):
        more = [(positive, tried_with_known_names)] if operation.body else []
        more += [(negative, tried)] if operation.body or operation.query else []
        for mode, each in ((positive, tried), *more):
            try:
                draw(operation, mode, examples, each)
            except (Exception, BaseExceptionGroup) as error:
                found += f"{operation.label}, {mode.value} data, {each.__name__}: {str(error)[:2000]}\n\n"
    return found, statuses


def test_nothing_comes_that_the_file_has_not_said(described: Any) -> None:
    found, statuses = faults(described, examples=1)
    assert not found, found
    assert {200, 400, 404} <= set(statuses)
    assert max(statuses) < 500


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_comes_that_the_file_has_not_said_in_a_hundred_tries_of_each(described: Any) -> None:
    found, statuses = faults(described, examples=100)
    assert not found, found
    assert max(statuses) < 500


@pytest.mark.short(6)
@pytest.mark.parametrize(("path", "body"), GOOD)
def test_good_answers_have_the_shape_that_the_file_says(described: Any, path: str, body: dict[str, Any]) -> None:
    case = described[path]["POST"].Case(body=body, media_type="application/json")
    answered = case.call()
    assert answered.status_code == 200, answered.text
    case.validate_response(answered)


def test_every_operation_says_what_it_does_and_how_it_is_refused(described: Any) -> None:
    for operation in operations(described):
        responses = operation.definition.raw["responses"]
        assert {"400", "408", "413", "415", "431", "500"} <= set(responses), operation.label
        assert "422" not in responses
        for status, told in responses.items():
            assert told["description"]
            assert status[0] == "2" or "application/json" in told["content"], (operation.label, status)
            for kind, content in told.get("content", {}).items():
                assert content.get("schema") or content.get("itemSchema"), (operation.label, status, kind)


def test_the_file_says_who_wants_a_key() -> None:
    server = Asking(ModelSpec("small", random_model()), settings=ServeSettings(keys=("right",)))
    file = server.client.get(f"{API}/openapi.json").json()
    stranger = TestClient(server.app, base_url="http://localhost", client=("192.0.2.1", 1))
    for path, methods in file["paths"].items():
        for method, operation in methods.items():
            status = stranger.request(method, path, json={} if method == "post" else None).status_code
            assert (status in (401, 403)) == ("security" in operation), (method, path, status)
            assert status not in (401, 403) or str(status) in operation["responses"]
    assert file["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
    open_file = Asking(ModelSpec("small", random_model())).get("openapi.json")
    assert "security" not in str(open_file)


def test_a_document_goes_through_as_the_file_says(described: Any) -> None:
    form = {"target_lang": "ZH", "source_lang": "EN", "file": TEXT.encode(), "filename": "text.txt"}
    sent = described["/v2/document"]["POST"].Case(body=form, media_type="multipart/form-data")
    given = sent.call_and_validate().json()
    for path in ("/v2/document/{document_id}", "/v2/document/{document_id}/result"):
        key = {"document_key": given["document_key"]}
        asked = described[path]["POST"].Case(
            path_parameters={"document_id": given["document_id"]}, body=key, media_type="application/json"
        )
        answered = asked.call()
        assert answered.status_code == 200, answered.text
        asked.validate_response(answered)
