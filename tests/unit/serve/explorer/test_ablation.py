"""/ablate and /rank return the scores of the model without these heads."""

import time

import pytest
from small_server import POSTS, TEXT, SmallServer

from attendo.model.head_scaling import sites
from attendo.serve.scheduling.registry import ModelSpec
from attendo.serve.settings import ServeSettings
from attendo.text_model import TextModel

TARGET = "猫 坐 着"


def test_ablate_scores_the_target_without_some_heads(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("ablate", target=TARGET, heads={"decoder.1.cross": {"0": 0.0}, "encoder.0.self": {"1": 0.5}})
    without = small_model.with_heads({"decoder.1.cross": {0: 0.0}, "encoder.0.self": {1: 0.5}})
    old, new = small_model.score([TEXT], [TARGET])[0], without.score([TEXT], [TARGET])[0]
    assert answer["before"]["text"] == TARGET
    assert answer["before"]["log_probability"] == pytest.approx(old, abs=1e-5)
    assert answer["after"]["log_probability_of_old"] == pytest.approx(new, abs=1e-5)
    assert answer["delta"] == pytest.approx(new - old, abs=1e-5)
    assert answer["after"]["text"] == without.generate([TEXT])[0].text
    (scored,) = without.score_tokens([TEXT], [TARGET])
    assert [each["piece"] for each in answer["after"]["tokens"]] == list(scored.pieces)
    log_probabilities = [each["log_probability"] for each in answer["after"]["tokens"]]
    assert log_probabilities == pytest.approx(scored.log_probabilities, abs=1e-5)


def test_ablate_scores_the_full_model_answer_by_default(server: SmallServer, small_model: TextModel) -> None:
    answer = server.post("ablate", heads={"decoder.0.cross": {"0": 0.0, "1": 0.0}})
    assert answer["before"]["text"] == small_model.generate([TEXT])[0].text
    assert server.post("ablate")["delta"] == 0


def test_rank_scores_every_head(server: SmallServer, small_model: TextModel) -> None:
    *heads, (last, done) = server.events("rank", target=TARGET)
    config = small_model.network.config
    expected = [(site, head) for site in sites(config) for head in range(config.num_heads)]
    assert [(each["site"], each["head"]) for _, each in heads] == expected
    assert (last, done["heads"], done["text"]) == ("done", len(expected), TARGET)
    old = small_model.score([TEXT], [TARGET])[0]
    for name, each in heads:
        assert name == "head"
        without = small_model.with_heads({each["site"]: {each["head"]: 0.0}})
        assert each["delta"] == pytest.approx(without.score([TEXT], [TARGET])[0] - old, abs=1e-5)


def test_each_head_has_its_own_deadline(server: SmallServer, monkeypatch: pytest.MonkeyPatch) -> None:
    gateway, deadlines = server.app.gateway, list[float]()

    def deadline() -> float:
        deadlines.append(time.monotonic() + 60)
        return deadlines[-1]

    monkeypatch.setattr(gateway, "deadline", deadline)
    heads = [each for name, each in server.events("rank") if name == "head"]
    assert len(deadlines) == 1 + len(heads)


@pytest.mark.short(2)
@pytest.mark.parametrize("path", POSTS)
def test_inspection_requests_have_a_deadline(small_model: TextModel, path: str) -> None:
    server = SmallServer(ModelSpec("small", small_model), settings=ServeSettings(deadline_seconds=1e-6))
    server.post_error(path, 504, "too_late", text=TEXT)


def test_rank_keeps_disabled_heads_disabled(server: SmallServer, small_model: TextModel) -> None:
    heads = {
        (each["site"], each["head"]): each["delta"]
        for name, each in server.events("rank", target=TARGET, heads={"decoder.0.self": {"0": 0.0}})
        if name == "head"
    }
    assert heads["decoder.0.self", 0] == pytest.approx(0, abs=1e-6)
    both = small_model.with_heads({"decoder.0.self": {0: 0.0, 1: 0.0}}).score([TEXT], [TARGET])[0]
    one = small_model.with_heads({"decoder.0.self": {0: 0.0}}).score([TEXT], [TARGET])[0]
    assert heads["decoder.0.self", 1] == pytest.approx(both - one, abs=1e-5)
