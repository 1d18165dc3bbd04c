"""A certificate says how far two parties are apart, and fails when that is too far."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from error_codes import has_code
from torch import Tensor

from attendo.errors import UsageError
from attendo.interop.certificate import (
    Bounds,
    Certificate,
    ComparedSystem,
    SystemOutput,
    TextEvaluation,
    format_beside_bound,
)
from attendo.interop.certify import certify
from attendo.text import BOS, PAD

SOURCES = [[4, 5, 6, 7, 8], [7], [8, 9]]


@dataclass(frozen=True)
class Said:
    """A party that says what it is told to: by greedy the source, by a beam the source backwards."""

    name: str = "one"
    added: float = 0.0  # to all logits but those of pad and bos
    changed: int = 0  # tokens of the first source's answers that are other ones
    score: float | None = -2.0
    tells_logits: bool = True

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
        if not self.tells_logits:
            return None
        logits = torch.arange(12.0).repeat(len(target) + 1, 1) + self.added
        logits[:, [PAD, BOS]] = 1e6 * self.added
        return logits

    def generate(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[SystemOutput]:
        return [SystemOutput(self._ids(source, beam), self.score) for source in sources]

    def _ids(self, source: Sequence[int], beam: int) -> tuple[int, ...]:
        ids = tuple(source) if beam == 1 else tuple(reversed(source))
        return (*ids[: len(ids) - self.changed], *[11] * self.changed) if len(source) == 5 else ids


def test_the_same_passes_with_all_numbers() -> None:
    found = certify(Said("ours"), Said("theirs", added=5e-5, score=-2.25), SOURCES, Bounds())
    assert found.passed
    assert (found.ours, found.theirs, found.sentences) == ("ours", "theirs", 3)
    assert found.mean_difference == pytest.approx(5e-5, rel=0.1)
    assert found.largest_difference == pytest.approx(5e-5, rel=0.1)  # pad and bos do not count
    assert [each.beam for each in found.searches] == [1, 4]
    for each in found.searches:
        assert (each.same_tokens, each.same_answers, each.score_difference) == (1.0, 3, 0.25)
        assert each.ours_per_second > 0
        assert each.theirs_per_second > 0


@pytest.mark.parametrize(
    ("theirs", "bounds", "reason"),
    [
        (Said(added=1e-3), Bounds(), "the mean difference of logits is 1.00e-03, more than 1e-04"),
        (Said(added=math.nan), Bounds(), "the mean difference of logits is nan, more than 1e-04"),
        (Said(added=5e-5), Bounds(largest_difference=1e-5), "the largest difference of logits is 5.0"),
        (Said(changed=1), Bounds(), "87.50% of the tokens of greedy are the same, fewer than 99.5%"),
    ],
)
def test_too_far_apart_fails_with_the_reason(theirs: Said, bounds: Bounds, reason: str) -> None:
    found = certify(Said(), theirs, SOURCES, bounds)
    assert not found.passed
    assert found.reasons[0].startswith(reason)
    assert f"FAILED: {reason}" in found.as_table()


def test_what_is_no_number_is_told_as_such_and_in_json_that_all_can_read() -> None:
    @dataclass(frozen=True)
    class Lost(Said):
        """Its first logits, and the score of its first answers, are no numbers."""

        def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
            logits = super().logits(source, target)
            return logits if logits is None or len(source) != 5 else logits * math.nan

    found = certify(Said(), Lost(score=math.nan), SOURCES, Bounds())
    assert found.largest_difference is not None
    assert math.isnan(found.largest_difference)
    content = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert (content["largest_difference"], content["mean_difference"], content["passed"]) == ("nan", "nan", False)
    assert content["searches"][0]["score_difference"] == "nan"


def test_within_other_bounds_it_passes() -> None:
    assert certify(Said(), Said(changed=1), SOURCES, Bounds(same_tokens=0.8)).passed
    assert certify(Said(), Said(added=1.0), SOURCES, Bounds(mean_difference=None)).passed


def test_answers_of_other_lengths_differ_in_the_places_that_one_lacks() -> None:
    class Longer(Said):
        def _ids(self, source: Sequence[int], beam: int) -> tuple[int, ...]:
            return (*source, 11) if beam == 1 else tuple(reversed(source))

    greedy, beam = certify(Said(), Longer(), SOURCES, Bounds()).searches
    assert (greedy.same_tokens, greedy.same_answers) == (8 / 11, 0)
    assert (beam.same_tokens, beam.same_answers) == (1.0, 3)


def test_what_a_system_does_not_tell_is_told_as_such() -> None:
    found = certify(Said(), Said(tells_logits=False, score=None), SOURCES, Bounds())
    assert found.passed
    assert (found.mean_difference, found.largest_difference) == (None, None)
    assert {each.score_difference for each in found.searches} == {None}
    assert found.as_table().count("not told") == 4


def test_with_references_the_lost_bleu_is_judged_and_not_the_tokens() -> None:
    pytest.importorskip("sacrebleu")
    reading = TextEvaluation(as_text, 1, ["8 7 6 5 4"])
    bounds = Bounds(lost_bleu=1.0, agreement=100.0)
    found = certify(Said(), Said(changed=1), SOURCES, bounds, reading)
    assert found.scored is not None
    assert (found.scored.sentences, found.scored.ours_chrf) == (1, pytest.approx(100.0))
    assert found.scored.lost_bleu > 10
    assert found.reasons == (f"{found.scored.lost_bleu:.2f} BLEU are lost, more than 1.0",)
    assert certify(Said(), Said(changed=1), SOURCES, replace(bounds, lost_bleu=100.0), reading).passed
    assert not certify(Said(), Said(changed=1), SOURCES, bounds).passed  # without them the tokens are


@pytest.mark.parametrize(
    ("found", "bound", "kind", "told"),
    [
        (0.7, 0.2, "f", "0.70"),
        (0.2004, 0.2, "f", "0.2004"),
        (0.2000001, 0.2, "f", "0.2000001"),
        (0.1996, 0.2, "f", "0.1996"),
        (0.2, 0.2, "f", "0.20"),
        (0.2004, None, "f", "0.20"),
        (1.0004e-4, 1e-4, "e", "1.0004e-04"),
        (0.994999, 0.995, "%", "99.4999%"),
        (math.nan, 0.2, "f", "nan"),
    ],
)
def test_as_many_digits_are_told_as_show_the_side_of_the_bound(
    found: float, bound: float | None, kind: str, told: str
) -> None:
    assert format_beside_bound(found, bound, 2, kind) == told


def test_what_is_a_little_beyond_its_bound_is_not_told_as_equal_to_it() -> None:
    pytest.importorskip("sacrebleu")
    reading = TextEvaluation(as_text, 1, ["8 7 6 5 4"])
    scored = certify(Said(), Said(changed=1), SOURCES, Bounds(), reading).scored
    assert scored is not None
    most = math.floor(10_000 * scored.lost_bleu) / 10_000
    found = certify(Said(), Said(changed=1), SOURCES, Bounds(lost_bleu=most), reading)
    told = format_beside_bound(scored.lost_bleu, most, 2, "f")
    assert len(told.split(".")[1]) > 2
    assert found.reasons == (f"{told} BLEU are lost, more than {most}",)
    assert any(line.split() == ["lost", "BLEU", told, "at", "most", str(most)] for line in found.as_table().split("\n"))

    found = certify(Said(), Said(changed=1), SOURCES, Bounds(agreement=66.88), TextEvaluation(as_text, 1))
    assert found.reasons == ("answers have 66.87 BLEU with ours as references, fewer than 66.88",)
    found = certify(Said(), Said(added=1.0006e-4), SOURCES, Bounds())
    assert found.reasons[0] == "the mean difference of logits is 1.001e-04, more than 1e-04"
    found = certify(Said(), Said(changed=1), [SOURCES[0], [7] * 194], Bounds())
    assert found.reasons[0] == "99.497% of the tokens of greedy are the same, fewer than 99.5%"
    assert "99.497%  at least 99.5%" in found.as_table()


def test_references_that_neither_comes_near_say_nothing() -> None:
    pytest.importorskip("sacrebleu")
    reading = TextEvaluation(as_text, 1, ["quite another thing indeed"])
    found = certify(Said(), Said(changed=1), SOURCES, Bounds(lost_bleu=1.0, agreement=85.0), reading)
    assert found.scored is not None
    assert found.scored.lost_bleu < 1
    assert found.reasons == ("answers have 66.9 BLEU with ours as references, fewer than 85",), "as without references"
    found = certify(Said(), Said(changed=1), SOURCES, Bounds(lost_bleu=1.0), reading)
    assert "of the tokens of greedy are the same" in found.reasons[0]
    assert "at least 99.5%" in found.as_table()


def test_without_references_our_answers_are_theirs() -> None:
    pytest.importorskip("sacrebleu")
    reading = TextEvaluation(as_text, 1)
    found = certify(Said(), Said(changed=1), SOURCES, Bounds(lost_bleu=1.0, agreement=85.0), reading)
    assert found.scored is None
    assert found.agreement == pytest.approx(66.87, abs=0.01)  # BLEU of five tokens, of which the last is another one
    assert found.reasons == ("answers have 66.9 BLEU with ours as references, fewer than 85",)
    assert "at least 85" in found.as_table()
    assert "at least 99.5%" not in found.as_table()
    assert certify(Said(), Said(changed=1), SOURCES, Bounds(agreement=60.0), reading).passed
    assert certify(Said(), Said(), SOURCES, Bounds(agreement=60.0), reading).agreement == pytest.approx(100.0)


def test_sources_that_say_nothing_are_judged_by_their_tokens() -> None:
    found = certify(Said(), Said(changed=1), SOURCES, Bounds(agreement=1.0), TextEvaluation(as_text, 0))
    assert (found.agreement, found.criterion, found.passed) == (None, "same_tokens", False)


def test_answers_too_short_for_a_bleu_are_judged_by_their_tokens() -> None:
    pytest.importorskip("sacrebleu")
    found = certify(Said(), Said(), [[4, 5, 6]], Bounds(agreement=85.0), TextEvaluation(as_text, 1))
    assert (found.agreement, found.criterion, found.passed) == (None, "same_tokens", True)


def test_it_is_json_and_a_table_with_its_bounds() -> None:
    found = certify(Said("ours"), Said("theirs"), SOURCES, Bounds())
    content: dict[str, Any] = json.loads(json.dumps(found.as_json()))
    assert content["passed"] is True
    assert content["bounds"]["same_tokens"] == 0.995
    assert content["searches"][1]["same_answers"] == 3
    lines = found.as_table().split("\n")
    assert lines[0] == "theirs beside ours"
    assert lines[-1] == "passed"
    assert any(line.startswith("mean logit difference") and line.endswith("at most 1e-04") for line in lines)
    assert "the rest stays behind" in replace(found, notes=("the rest stays behind",)).as_table()


def test_order_is_kept_and_like_lengths_go_together() -> None:
    asked: list[tuple[list[int], int]] = []

    class Listening(Said):
        def generate(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[SystemOutput]:
            asked.append(([len(source) for source in sources], limit))
            return super().generate(sources, beam, limit)

    sources = [[4] * (1 + n % 50) for n in range(100)]
    found = certify(Said(), Listening(), sources, Bounds())
    assert found.passed
    first, *groups = asked[: len(asked) // 2]
    assert first == ([1], 2)  # the one that sets things up
    assert [max(lengths) for lengths, _ in groups] == [16, 32, 48, 50]
    assert [limit for _, limit in groups] == [34, 58, 82, 85]


def test_without_sentences_there_is_none() -> None:
    with pytest.raises(UsageError, check=has_code("certificate_sentences_missing")):
        certify(Said(), Said(), [], Bounds())


def test_these_are_parties() -> None:
    assert isinstance(Said(), ComparedSystem)
    assert isinstance(certify(Said(), Said(), SOURCES, Bounds()), Certificate)


def as_text(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))
