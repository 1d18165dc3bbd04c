"""Faults injected into reference translations are found by a trained model, with few false alarms."""

from random import Random

import pytest
import torch

from attendo.demo_task import AlignedPair, BuiltinTask
from attendo.runs.demo import demo_config
from attendo.runs.run import Run
from attendo.text_model import TextModel, load


@pytest.fixture(scope="module")
def pairs() -> list[AlignedPair]:
    found = BuiltinTask().heldout(1500)
    Random(1).shuffle(found)
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, pairs: list[AlignedPair]) -> TextModel:
    """The demo with fewer steps, calibrated on two thirds of the pairs: about two minutes on a CPU."""
    demo = demo_config()
    train = demo.train.replace(steps=1500, validate_every=500, save_every=500, weight_checkpoints=0)
    run = Run.begin(demo.replace(train=train), tmp_path_factory.mktemp("faults") / "run", torch.device("cpu"))
    for _ in run.prepare():
        pass
    run.build()
    for _ in run.train():
        pass
    trained = load(run.finish(), "cpu")
    trained.calibrate([pair.source for pair in pairs[:1000]], [pair.target for pair in pairs[:1000]])
    return trained


def inject(kind: str, pairs: list[AlignedPair]) -> list[str]:
    outputs = []
    for number, pair in enumerate(pairs):
        words = pair.target_words
        outputs.append(
            {
                "nothing": pair.target,
                "doubled half": " ".join((*words, *words[len(words) // 2 :])),
                "dropped half": " ".join(words[: (len(words) + 1) // 2]),
                "swapped target": pairs[number - 1].target,
                "copied source": pair.source,
            }[kind]
        )
    return outputs


def flagged_share(model: TextModel, kind: str, pairs: list[AlignedPair]) -> float:
    reports = model.check([pair.source for pair in pairs], inject(kind, pairs))
    return sum(bool(each.serious) for each in reports) / len(reports)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["doubled half", "dropped half", "swapped target", "copied source"])
def test_injected_faults_are_found(model: TextModel, pairs: list[AlignedPair], kind: str) -> None:
    assert flagged_share(model, kind, pairs[1000:]) >= 0.95


@pytest.mark.slow
def test_references_are_rarely_flagged(model: TextModel, pairs: list[AlignedPair]) -> None:
    assert flagged_share(model, "nothing", pairs[1000:]) <= 0.01
