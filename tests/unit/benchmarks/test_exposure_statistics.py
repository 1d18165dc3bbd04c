"""Measures as sums over lines, and paired tests over one seed and several."""

import numpy as np
import pytest

from attendo.metrics.significance import compare as compare_texts
from benchmarks.exposure_study.paired_statistics import (
    Measure,
    average,
    compare,
    measure_outputs,
    measure_recovery,
    share,
)

SOURCES = [f"the {letter} is here" for letter in "abcdefghij"]
REFERENCES = [f"{word} ist hier und {word} bleibt hier" for word in "abcdefghij"]
GOOD = [text.replace("bleibt", "ist") for text in REFERENCES]
BAD = ["ganz etwas anderes steht hier", *GOOD[1:5], *(text.replace("hier", "dort") for text in GOOD[5:])]
CONTRASTS = np.ones(len(SOURCES))


def measure(outputs: list[str], limit: float = 0.0) -> dict[str, Measure]:
    return measure_outputs(SOURCES, REFERENCES, outputs, CONTRASTS, limit)


@pytest.mark.parametrize("name", ["bleu", "chrf"])
def test_a_test_of_one_seed_equals_that_of_the_library(name: str) -> None:
    found = compare([measure(GOOD)[name]], [measure(BAD)[name]])
    expected = compare_texts(name, GOOD, BAD, REFERENCES)
    assert found["difference"] == pytest.approx(expected.difference, abs=1e-4)
    assert (found["low"], found["high"]) == pytest.approx(expected.interval, abs=1e-4)
    assert found["p"] == pytest.approx(expected.p_value, abs=1e-4)
    assert found["significant"] == expected.significant


def test_a_test_of_two_seeds_takes_the_mean_of_differences() -> None:
    good, bad, same = (measure(each)["chrf"] for each in (GOOD, BAD, REFERENCES))
    found = compare([good, same], [bad, bad])
    assert found["seeds"] == pytest.approx([good.value - bad.value, same.value - bad.value], abs=1e-4)
    assert found["difference"] == pytest.approx(sum(found["seeds"]) / 2, abs=1e-4)
    assert found["low"] < found["difference"] < found["high"]
    equal = compare([good, good], [bad, bad])  # two equal seeds are as certain as one
    alone = compare([good], [bad])
    assert (equal["low"], equal["high"], equal["p"]) == (alone["low"], alone["high"], alone["p"])


def test_seeds_with_opposite_signs_are_not_significant() -> None:
    rows = np.stack([np.linspace(0, 1, 50), np.ones(50)], axis=1)
    low, middle, high = (Measure(rows + np.array([more, 0]), lambda sums: sums[0] / sums[1]) for more in (0, 1, 10))
    assert compare([high, high], [low, middle])["significant"]
    assert not compare([high, low], [low, middle])["significant"]
    assert compare([low], [high])["significant"]
    assert not compare([low], [low])["significant"]


def test_a_mean_leaves_out_unknown_values() -> None:
    assert average(np.array([1.0, np.nan, 3.0])).value == 2.0
    assert share(np.array([True, False, False, True])).value == 50.0


def test_outputs_are_measured_by_length_repetition_and_faults() -> None:
    outputs = ["hier hier hier hier", *REFERENCES[1:]]
    found = {name: each.value for name, each in measure(outputs).items()}
    assert found["length"] == pytest.approx((4 + 7 * 9) / 70)
    assert found["repeated"] == pytest.approx(100 * 3 / (4 + 7 * 9))
    assert (found["loop"], found["detached"], found["hallucinated"]) == (10.0, 0.0, 10.0)
    strange = [REFERENCES[5].upper(), *REFERENCES[1:]]
    found = {name: each.value for name, each in measure(strange, limit=1.0).items()}
    assert (found["loop"], found["detached"], found["hallucinated"]) == (0.0, 10.0, 10.0)


def test_recovery_is_averaged_over_lines_and_distances() -> None:
    lines = [[4.0, 1.0, 2.0, 3.0, 9.0], [2.0, 4.0, None, None, None], [None] * 5]
    found = measure_recovery([[-6.0, 3], [-2.0, 1]], {"random": lines})
    assert {name: each.value for name, each in found.items()} == {"nll": 2.0, "random_1": 3.0, "random_2_to_4": 2.5}
