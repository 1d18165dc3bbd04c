"""The explorer's endpoint for the faults of an output."""

import pytest
from small_server import TEXT, SmallServer
from tiny import parallel_model, tiny_model, without_source

from attendo.errors import to_text
from attendo.serve.scheduling.registry import ModelSpec

COPY = "the small cat ran home today"


@pytest.fixture(scope="module")
def models() -> SmallServer:
    kinds = [ModelSpec(kind, parallel_model(kind)) for kind in ("masked", "ctc")]
    return SmallServer(ModelSpec("steps", tiny_model()), *kinds, ModelSpec("language", without_source()))


def test_faults_are_those_of_the_model(models: SmallServer) -> None:
    model = tiny_model()
    for target in (COPY, "猫 狗 猫 狗 猫 狗", "我 爱 3"):
        found = models.post("check", model="steps", text=COPY, target=target)
        (expected,) = model.check([COPY], [target], check_detached=True)
        assert [each["kind"] for each in found["faults"]] == [each.kind for each in expected.faults]
        for sent, fault in zip(found["faults"], expected.faults, strict=True):
            assert (tuple(sent["where"]), sent["evidence"], sent["hint"]) == (
                fault.where,
                fault.evidence,
                fault.is_hint,
            )
            assert sent["evidence_zh"] == to_text(fault.evidence, "zh") != sent["evidence"]
        assert (found["confidence"], found["calibrated"], found["detached_checked"]) == (None, False, True)


def test_an_output_at_its_limit_is_truncated(models: SmallServer) -> None:
    found = [models.post("check", model="steps", text=TEXT, target="猫", cut=cut)["faults"] for cut in (True, False)]
    assert ["truncated" in {each["kind"] for each in faults} for faults in found] == [True, False]


def test_models_that_predict_all_tokens_at_once_are_checked(models: SmallServer) -> None:
    for kind in ("masked", "ctc"):
        found = models.post("check", model=kind, text=COPY, target=COPY)
        assert "copy" in {each["kind"] for each in found["faults"]}
        assert found["detached_checked"] == (kind == "ctc")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"text": " "}, "empty_text"),
        ({"target": "猫 " * 3000}, "too_long"),
        ({"model": "language"}, "bad_setting"),
        ({"target": None}, ""),
    ],
    ids=str,
)
def test_requests_that_cannot_be_checked_are_rejected(
    models: SmallServer, fields: dict[str, object], code: str
) -> None:
    response = models.raw("check", **{"model": "steps", "text": TEXT, "target": "猫", **fields})
    assert 400 <= response.status_code < 500
    assert code in ("", response.json()["error"]["code"])
