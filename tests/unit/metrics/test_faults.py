"""Detectors of faults: each finds its fault with its place, and right outputs have none."""

import math
from collections.abc import Callable
from random import Random

import pytest

from attendo.demo_task import AlignedPair, BuiltinTask
from attendo.metrics.fault_limits import FaultLimits, OutputScore, measure_texts, split_words
from attendo.metrics.faults import CheckedOutput, Fault, find_faults

SOURCE = "the cat that they bought on Monday sat in the garden"
RIGHT = "die Katze, die sie am Montag kauften, saß im Garten"


def find(text: str, source: str = SOURCE, limits: FaultLimits | None = None, **details: object) -> dict[str, Fault]:
    output = CheckedOutput(source, text, **details)  # type: ignore[arg-type]
    return {each.kind: each for each in find_faults(output, limits or FaultLimits())}


def test_right_outputs_have_no_fault() -> None:
    assert find(RIGHT, score=OutputScore(12, -0.4, 3.0)) == {}
    assert find("嗨！", "Hi!") == {}
    assert find("…", "?!") == {}  # a source without words has any output


def test_a_loop_is_found_with_its_place() -> None:
    loop = "im Garten im Garten im Garten"
    found = find(f"die Katze saß {loop}")
    assert found.keys() == {"loop"}
    start, end = found["loop"].where
    assert f"die Katze saß {loop}"[start:end] == "im Garten im Garten"  # the repeated words, without the first ones
    assert found["loop"].value >= found["loop"].limit
    assert "im Garten" in found["loop"].evidence
    assert find("很 好 很 好 很 好", "very good")["loop"].value > 0.5


def test_repetition_of_the_source_is_no_loop() -> None:
    source = "ha ha ha ha ha ha, he said"
    assert "loop" not in find("ho ho ho ho ho ho, sagte er", source)
    assert "loop" in find("ho ho ho ho ho ho, sagte er", "they laughed, he said")


def test_copied_words_are_a_copy_or_a_segment() -> None:
    assert find(SOURCE)["copy"].value == 1
    found = find("die Katze, they bought on Monday, saß im Garten neben dem Haus")
    assert found.keys() == {"untranslated_segment"}
    start, end = found["untranslated_segment"].where
    text = "die Katze, they bought on Monday, saß im Garten neben dem Haus"
    assert text[start:end] == "they bought on Monday"


def test_numbers_are_rightly_copied() -> None:
    assert find("die Zahlen 3 1 4 1 5 9", "the numbers 3 1 4 1 5 9") == {}


def test_an_output_without_words_is_empty() -> None:
    assert find("").keys() == {"empty"}
    assert find(" … ").keys() == {"empty"}


def test_outputs_that_are_cut_short_or_long_are_found() -> None:
    assert find(RIGHT, truncated=True).keys() == {"truncated"}
    assert find("die Katze")["length_outlier"].limit == pytest.approx(12 / 3 - 1)
    letters = "abcdefghijklmnopqrstuvwxyzäöü"
    many = " ".join([*letters, *(2 * letter for letter in letters)])
    assert find(many).keys() == {"length_outlier"}
    assert find("Hallo, ihr da draußen alle", "Hi") == {}  # short sources may have any length


def test_changed_numbers_are_a_hint() -> None:
    found = find("Es kostet 13 Euro", "It costs 30 euros")
    assert found.keys() == {"number_changed"}
    assert found["number_changed"].is_hint
    assert found["number_changed"].evidence == "numbers only in the source: 30; only in the output: 13"
    assert find("Es kostet 1.000 Euro", "It costs 1,000 euros") == {}
    assert find("有 ３０ 本", "there are 30") == {}


def test_scores_below_the_limits_are_found() -> None:
    found = find(RIGHT, score=OutputScore(12, -3.0, 0.1))
    assert found.keys() == {"low_probability", "detached_from_source"}
    assert found["low_probability"].value == -3.0
    assert list(found) == ["detached_from_source", "low_probability"]  # worst first


@pytest.fixture(scope="module")
def pairs() -> list[AlignedPair]:
    found = BuiltinTask().heldout(1600)
    Random(1).shuffle(found)
    return found


@pytest.fixture(scope="module")
def limits(pairs: list[AlignedPair]) -> FaultLimits:
    measured = pairs[:800]
    return measure_texts([pair.source for pair in measured], [pair.target for pair in measured])


def share(pairs: list[AlignedPair], limits: FaultLimits, make: Callable[[AlignedPair], str]) -> float:
    """The share of outputs with a fault."""
    return sum(bool(find(make(pair), pair.source, limits)) for pair in pairs) / len(pairs)


def double_half(pair: AlignedPair) -> str:
    words = pair.target_words
    return " ".join((*words, *words[len(words) // 2 :]))


def test_injected_loops_and_copies_are_found_in_the_text_alone(pairs: list[AlignedPair], limits: FaultLimits) -> None:
    """Dropped halves and swapped targets need the log-probability: tests/learning/test_fault_injection.py."""
    test = pairs[800:]
    assert share(test, limits, lambda pair: pair.target) <= 0.01
    assert share(test, limits, double_half) >= 0.95
    assert share(test, limits, lambda pair: pair.source) >= 0.95


def test_the_wrong_language_is_found_by_its_characters(limits: FaultLimits) -> None:
    assert find("she was very tired", "他 很 累", limits).keys() >= {"wrong_language"}
    assert find("xqzv wvkx pyyq zzxw", "the cat sat here", limits).keys() >= {"wrong_language"}  # unseen trigrams
    assert "wrong_language" not in find("我 爱 NLP", "I love NLP", limits)
    assert limits.language_log_odds("123") == 0


def test_limits_are_read_again_as_they_were_written(limits: FaultLimits) -> None:
    stored = limits.model_dump(mode="json", exclude_defaults=True)
    assert FaultLimits(**stored) == limits


def test_words_are_characters_in_scripts_without_spaces() -> None:
    assert split_words("我爱NLP, 3 Äpfel!") == ["我", "爱", "nlp", "3", "äpfel"]


def test_places_are_within_the_text_for_any_letters() -> None:
    draw = Random(3)
    for _ in range(300):
        words = draw.choices(["İstanbul", "ß", "我爱", "a", "b", "1", "¿que?", "ﬁn", "\u0301x", "…"], k=12)
        text, source = " ".join(words), " ".join(draw.sample(words, 9))
        for fault in find(text, source, FaultLimits(copied_words=1, loop=0.01)).values():
            start, end = fault.where
            assert 0 <= start <= end <= len(text)
            assert math.isfinite(fault.value)
