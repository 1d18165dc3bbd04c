"""S2: every response matches the OpenAPI description, which also lists the routes that require a key."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from late_import import LateModule, needs
from small_server import API, TEXT, SmallServer, random_model
from starlette.testclient import TestClient

from attendo.serve.app import create_app
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text.model_card import ModelCard

pytestmark = needs("schemathesis")
schemathesis: Any = LateModule("schemathesis")

EN_ZH = ModelCard(task="translation", source_language="en", target_language="zh")
CHAT = {"model": "small", "messages": [{"role": "user", "content": TEXT}]}
# Valid requests, because random strings rarely name a language.
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
    ("/api/v1/operations", {"text": TEXT}),
    ("/api/v1/calculation", {"text": TEXT, "operation": "decoder.0.cross.scores"}),
    ("/api/v1/ablate", {"text": TEXT, "heads": {"decoder.0.cross": {"0": 0.0}}}),
]
KNOWN = {"source": "en", "target": "zh", "source_lang": "EN", "target_lang": "ZH", "model": "small", "checkpoint": None}
# Some rules relate two fields and are not in the schema. All other data that fits the schema must be accepted.
STATUSES = {
    "positive_data_acceptance": {"expected-statuses": ["2xx", "400", "403", "404", "413"]},
    "negative_data_rejection": {"expected-statuses": ["400", "403", "404", "405", "413", "415"]},
}


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("documents")
    # Other tests check the time. Here shape checks at every step take long.
    limits = ServeSettings(allowed_hosts=("testserver",), documents_folder=folder, deadline_seconds=600)
    app = create_app([ModelSpec("small", random_model(), about=EN_ZH)], limits)
    app.gateway.is_warm = True
    config = schemathesis.Config.from_dict({"checks": STATUSES, "request-timeout": 600})
    return schemathesis.openapi.from_asgi(f"{API}/openapi.json", app, config=config)


def list_operations(schema: Any) -> Iterator[Any]:
    for found in schema.get_all_operations():
        yield found.ok()


def set_known_names(case: Any) -> None:
    """Random data rarely names a language or a model and would be rejected early."""
    if isinstance(case.body, dict):
        case.body.update({name: value for name, value in KNOWN.items() if name in case.body})


def run_examples(operation: Any, mode: Any, examples: int, check: Callable[[Any], None]) -> None:
    """Calls `check` with random data that fits the description, or does not."""
    run = given(case=operation.as_strategy(generation_mode=mode))(check)
    configure = settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    configure(run)()


def find_faults(schema: Any, examples: int) -> tuple[str, Counter[int]]:
    """Responses that contradict the description, as text, and the count of each status."""
    positive, negative = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE
    found = ""
    statuses: Counter[int] = Counter()

    def check(case: Any) -> None:
        response = case.call()
        statuses[response.status_code] += 1
        case.validate_response(response)

    def check_with_known_names(case: Any) -> None:
        set_known_names(case)
        check(case)

    for operation in list_operations(schema):
        more = [(positive, check_with_known_names)] if operation.body else []
        more += [(negative, check)] if operation.body or operation.query else []
        for mode, each in ((positive, check), *more):
            try:
                run_examples(operation, mode, examples, each)
            except (Exception, BaseExceptionGroup) as error:
                found += f"{operation.label}, {mode.value} data, {each.__name__}: {str(error)[:2000]}\n\n"
    return found, statuses


def test_responses_match_the_description(schema: Any) -> None:
    found, statuses = find_faults(schema, examples=1)
    assert not found, found
    assert {200, 400, 404} <= set(statuses)
    assert max(statuses) < 500


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_responses_match_in_100_examples_per_operation(schema: Any) -> None:
    found, statuses = find_faults(schema, examples=100)
    assert not found, found
    assert max(statuses) < 500


@pytest.mark.short(6)
@pytest.mark.parametrize(("path", "body"), GOOD)
def test_successful_responses_match_the_schema(schema: Any, path: str, body: dict[str, Any]) -> None:
    case = schema[path]["POST"].Case(body=body, media_type="application/json")
    response = case.call()
    assert response.status_code == 200, response.text
    case.validate_response(response)


def test_every_operation_describes_its_errors(schema: Any) -> None:
    for operation in list_operations(schema):
        responses = operation.definition.raw["responses"]
        assert {"400", "408", "413", "415", "431", "500"} <= set(responses), operation.label
        assert "422" not in responses
        for status, response in responses.items():
            assert response["description"]
            assert status[0] == "2" or "application/json" in response["content"], (operation.label, status)
            for kind, content in response.get("content", {}).items():
                assert content.get("schema") or content.get("itemSchema"), (operation.label, status, kind)


def test_the_security_entry_marks_routes_with_keys() -> None:
    server = SmallServer(ModelSpec("small", random_model()), settings=ServeSettings(keys=("right",)))
    description = server.client.get(f"{API}/openapi.json").json()
    remote = TestClient(server.app, base_url="http://localhost", client=("192.0.2.1", 1))
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            status = remote.request(method, path, json={} if method == "post" else None).status_code
            assert (status in (401, 403)) == ("security" in operation), (method, path, status)
            assert status not in (401, 403) or str(status) in operation["responses"]
    assert description["components"]["securitySchemes"]["key"] == {"type": "http", "scheme": "bearer"}
    open_description = SmallServer(ModelSpec("small", random_model())).get("openapi.json")
    assert "security" not in str(open_description)


def test_document_routes_match_the_description(schema: Any) -> None:
    form = {"target_lang": "ZH", "source_lang": "EN", "file": TEXT.encode(), "filename": "text.txt"}
    sent = schema["/v2/document"]["POST"].Case(body=form, media_type="multipart/form-data")
    given = sent.call_and_validate().json()
    for path in ("/v2/document/{document_id}", "/v2/document/{document_id}/result"):
        key = {"document_key": given["document_key"]}
        case = schema[path]["POST"].Case(
            path_parameters={"document_id": given["document_id"]}, body=key, media_type="application/json"
        )
        response = case.call()
        assert response.status_code == 200, response.text
        case.validate_response(response)
