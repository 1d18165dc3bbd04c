"""Rules for hallucinated outputs: definitions, independent answers, and recall on injected faults."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sacrebleu import sentence_chrf

from attendo.keyed_random import permutation
from benchmarks.exposure_study.faults import (
    FAULTS,
    SIMILAR_SHARE,
    compute_contrasts,
    contrast_limit,
    draw_other_lines,
    find_detached,
    find_loops,
    find_paraphrases,
    inject_fault,
    repeated_bigrams,
    score_per_token,
    share_of_similar,
)

NOUNS = ["dog", "cat", "bird", "horse", "lamp", "garden", "river", "bridge", "town", "house"]
VERBS = ["sees", "finds", "draws", "knows", "follows", "carries"]
ORDERED = [f"{one} {verb} {other}" for one in NOUNS for verb in VERBS for other in NOUNS if one != other]
SOURCES = [ORDERED[line] for line in permutation(len(ORDERED), "order").tolist()]
REFERENCES = [" ".join(word[::-1] for word in source.split()) for source in SOURCES]


@dataclass
class Scored:
    log_probabilities: tuple[float, ...]


class Judge:
    """A judge whose log-probability of a word is -1 if its source has the word reversed, else -5. EOS has -1."""

    def score_tokens(self, sources: Sequence[str], targets: Sequence[str]) -> list[Scored]:
        found = []
        for source, target in zip(sources, targets, strict=True):
            known = {word[::-1] for word in source.split()}
            found.append(Scored((*(-1.0 if word in known else -5.0 for word in target.split()), -1.0)))
        return found


JUDGE: Any = Judge()


@pytest.mark.parametrize(
    ("text", "value"), [("a b c", 0), ("a a a a", 2 / 3), ("a b a b", 1 / 3), ("one", 0), ("", 0), ("a  b\ta b", 1 / 3)]
)
def test_repeated_bigrams(text: str, value: float) -> None:
    assert repeated_bigrams(text) == pytest.approx(value)


def test_a_repetition_of_the_source_is_no_loop() -> None:
    sources, outputs = ["go go go go", "I go home", "I go home"], ["los los los los", "los los los los", "ich gehe los"]
    assert find_loops(sources, outputs).tolist() == [False, True, False]


def test_similarity_equals_a_count_of_sentence_chrf() -> None:
    outputs = [*REFERENCES[1:], REFERENCES[0]]
    found = share_of_similar(outputs, REFERENCES)
    other = [*range(len(REFERENCES))]
    sampled = share_of_similar(outputs[:40], REFERENCES[:40])  # fewer than 200: all others are compared
    for line in range(5):
        chrf = [sentence_chrf(outputs[line], [REFERENCES[each]]).score for each in other[:40]]
        expected = np.mean([chrf[each] >= chrf[line] for each in other[:40] if each != line])
        assert sampled[line] == pytest.approx(expected)
    assert len(found) == len(REFERENCES) > 250  # several chunks
    assert (share_of_similar(REFERENCES, REFERENCES) == 0).all()


def test_equal_references_are_not_other_ones() -> None:
    assert share_of_similar(["Nein.", "Nein."], ["Nein.", "Nein."]).tolist() == [0.0, 0.0]
    assert share_of_similar(["Ja.", "Ja."], ["Nein.", "Ja."]).tolist() == [1.0, 0.0]


def test_other_lines_have_another_source_of_similar_length() -> None:
    sources = ["a", "a", "b", *(f"{number} words of a text" for number in range(200))]
    found = draw_other_lines(sources)
    assert all(len(set(others)) == 4 for others in found)
    assert all(sources[other] != sources[line] for line, others in enumerate(found) for other in others)
    assert all(other > 2 for line, others in enumerate(found) for other in others if line > 60)
    assert draw_other_lines(sources) == found
    assert draw_other_lines(["a", "a"]) == [(), ()]


def test_the_contrast_is_the_mean_difference_of_log_probabilities() -> None:
    others = draw_other_lines(SOURCES[:6])
    found = compute_contrasts(JUDGE, SOURCES[:6], REFERENCES[:6])
    for line, several in enumerate(others):
        own = score_per_token(JUDGE, [SOURCES[line]], [REFERENCES[line]])[0]
        rest = [score_per_token(JUDGE, [SOURCES[other]], [REFERENCES[line]])[0] for other in several]
        assert own == -1.0
        assert found[line] == pytest.approx(own - np.mean(rest))
        assert found[line] > 0
    assert compute_contrasts(JUDGE, ["a", "a"], ["b", "c"]).tolist() == [np.inf, np.inf]


def test_an_empty_output_has_a_contrast() -> None:
    assert compute_contrasts(JUDGE, SOURCES[:6], [""] * 6).tolist() == [0.0] * 6


def find_all(outputs: list[str]) -> dict[str, float]:
    limit = contrast_limit(compute_contrasts(JUDGE, SOURCES, REFERENCES))
    detached = find_detached(
        compute_contrasts(JUDGE, SOURCES, outputs), limit, share_of_similar(outputs, REFERENCES)
    ).mean()
    return {"loop": float(find_loops(SOURCES, outputs).mean()), "detached": float(detached)}


@pytest.mark.parametrize("name", FAULTS)
def test_injected_faults_are_found_by_the_rule_that_should_find_them(name: str) -> None:
    found = find_all(inject_fault(name, SOURCES, REFERENCES))
    assert all(found[rule] >= 0.85 for rule in FAULTS[name].expected)
    assert all(found[rule] <= 0.1 for rule in found.keys() - set(FAULTS[name].expected))


def test_references_raise_no_alarm() -> None:
    assert find_all(REFERENCES) == {"loop": 0.0, "detached": 0.0}


def test_both_rules_must_agree_that_an_output_is_detached() -> None:
    contrasts, similar = np.array([0.1, 0.1, 0.9]), np.array([SIMILAR_SHARE, 0.0, 1.0])
    assert find_detached(contrasts, 0.1, similar).tolist() == [True, False, False]


def test_paraphrases_are_other_references_of_the_same_source() -> None:
    assert find_paraphrases(["a", "b", "a", "c", "c"], ["1", "2", "3", "4", "4"]) == {0: "3", 2: "1"}


def test_injected_faults_are_made_from_the_reference() -> None:
    sources, references = ["p q", "r s"], ["a b c", "d e f g"]
    assert inject_fault("reference of another line", sources, references) == ["d e f g", "a b c"]
    assert inject_fault("second half of another reference", sources, references) == ["a b f g", "d e b c"]
    assert inject_fault("second half is missing", sources, references) == ["a b", "d e"]
    assert inject_fault("last two words 4 times", sources, references)[0] == "a b c b c b c b c"
