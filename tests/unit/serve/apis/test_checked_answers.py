"""The native API reports faults of answers, and /metrics counts them by kind."""

from collections import Counter

import pytest
from small_server import TEXT, SmallServer, parse_events
from three_models import make_server
from tiny import SOURCES

from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel
from attendo.text_model.results import result_to_dict


@pytest.mark.parametrize("options", [{"check": "report"}, {"check": "report", "check_detached": True}], ids=str)
def test_faults_are_those_of_the_model(server: SmallServer, small_model: TextModel, options: dict[str, object]) -> None:
    response = server.raw("generate", texts=list(SOURCES), **options)
    assert response.status_code == 200, response.text
    expected = small_model.generate(SOURCES, **options)  # type: ignore[arg-type]
    assert any(each.faults for each in expected)
    for found, result in zip(response.json()["results"], expected, strict=True):
        plain = result_to_dict(result, all_hypotheses=False)
        assert found.keys() == plain.keys()
        assert [each["kind"] for each in found["faults"]] == [each["kind"] for each in plain["faults"]]
        assert [each["where"] for each in found["faults"]] == [[*each["where"]] for each in plain["faults"]]
        assert found["confidence"] is None


def test_answers_are_repaired(server: SmallServer, small_model: TextModel) -> None:
    found = server.raw("generate", texts=list(SOURCES), check="repair").json()["results"]
    expected = small_model.generate(SOURCES, check="repair")
    assert [each["text"] for each in found] == [each.text for each in expected]
    assert [len(each.get("repairs", [])) for each in found] == [len(each.repairs) for each in expected]
    assert any(each.repairs for each in expected)


def test_answers_without_a_check_have_no_new_fields(server: SmallServer) -> None:
    (found,) = server.raw("generate", texts=[TEXT]).json()["results"]
    assert found.keys().isdisjoint({"faults", "confidence", "repairs"})


def test_a_stream_reports_faults_at_its_end_and_cannot_repair(server: SmallServer) -> None:
    response = server.raw("generate", texts=[TEXT], stream=True, check="report")
    *_, (last, final) = parse_events(response.text)
    assert last == "done"
    assert final == server.raw("generate", texts=[TEXT], check="report").json()
    refused = server.raw("generate", texts=[TEXT], stream=True, check="repair")
    assert (refused.status_code, "check" in refused.text) == (400, True)
    refused = server.raw("generate", texts=[TEXT], check="tell")
    assert (refused.status_code, "check" in refused.text) == (400, True)


def test_faults_are_counted_by_kind(small_model: TextModel) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(metrics_open=True))
    server.raw("generate", texts=list(SOURCES))
    answers = server.raw("generate", texts=list(SOURCES), check="report").json()["results"]
    repaired = server.raw("generate", texts=list(SOURCES), check="repair").json()["results"]
    lines = server.client.get("/metrics").text.splitlines()
    numbers = {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}
    assert numbers['attendo_checked_total{model="small"}'] == 2 * len(SOURCES)
    kinds = Counter(fault["kind"] for each in (*answers, *repaired) for fault in each["faults"])
    assert kinds
    found = {name: value for name, value in numbers.items() if name.startswith("attendo_faults_total")}
    assert found == {f'attendo_faults_total{{kind="{kind}",model="small"}}': count for kind, count in kinds.items()}
    kept = sum(any(step["kept"] for step in each.get("repairs", [])) for each in repaired)
    assert numbers['attendo_repaired_total{model="small"}'] == kept


@pytest.fixture(scope="module")
def translators() -> SmallServer:
    return make_server()


@pytest.mark.parametrize("check", ["report", "repair"])
def test_translation_apis_report_faults_on_request(translators: SmallServer, check: str) -> None:
    body = {"q": list(SOURCES), "source": "en", "target": "zh"}
    plain = translators.client.post("/translate", json=body).json()
    found = translators.client.post("/translate", json={**body, "check": check}).json()
    assert {*found} - {*plain} == {"faults", "confidence"}
    assert any(found["faults"]) == (check == "report")  # all can be repaired
    for text, faults in zip(found["translatedText"], found["faults"], strict=True):
        for fault in faults:
            begin, end = fault["where"]
            assert fault["sentence"].strip() in text
            assert 0 <= begin <= end <= len(fault["sentence"])
    assert (found["translatedText"] == plain["translatedText"]) == (check == "report")
    sent = {"text": list(SOURCES), "source_lang": "EN", "target_lang": "ZH", "check": check}
    translations = translators.client.post("/v2/translate", json=sent).json()["translations"]
    assert [each["faults"] for each in translations] == found["faults"]
    assert [each["text"] for each in translations] == found["translatedText"]
    (single,) = translators.client.post("/v2/translate", json={**sent, "text": TEXT, "check": "off"}).json()[
        "translations"
    ]
    assert "faults" not in single


def test_a_wrong_check_is_rejected(translators: SmallServer) -> None:
    body = {"q": TEXT, "source": "en", "target": "zh", "check": "tell"}
    assert translators.client.post("/translate", json=body).status_code == 400
    sent = {"text": TEXT, "source_lang": "EN", "target_lang": "ZH", "check": "tell"}
    assert translators.client.post("/v2/translate", json=sent).status_code == 400


def test_a_server_may_check_all_requests(small_model: TextModel) -> None:
    spec = ModelSpec("small", small_model)
    reporting, repairing = (SmallServer(spec, settings=ServeSettings(check=check)) for check in ("report", "repair"))  # type: ignore[arg-type]
    expected = small_model.generate(SOURCES, check="repair")
    found = repairing.raw("generate", texts=list(SOURCES)).json()["results"]
    assert [each["text"] for each in found] == [each.text for each in expected]
    assert all("faults" in each for each in reporting.raw("generate", texts=list(SOURCES)).json()["results"])
    (own,) = repairing.raw("generate", texts=[TEXT], check="off").json()["results"]
    assert "faults" not in own
    *_, (_, final) = parse_events(repairing.raw("generate", texts=[TEXT], stream=True).text)
    assert "faults" in final["results"][0]
    kept = repairing.raw("generate", texts=[TEXT], do_not_translate=["x"])  # cannot be repaired, but checked
    assert (kept.status_code, "faults" in kept.json()["results"][0]) == (200, True)
