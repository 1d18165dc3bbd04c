"""A certificate reports the differences between two systems, and fails if they exceed the bounds."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code, message
from torch import Tensor

from attendo.errors import MessagePart, UsageError
from attendo.interop.certificate import (
    Bounds,
    Certificate,
    ComparedSystem,
    SystemOutput,
    TextEvaluation,
    format_beside_bound,
)
from attendo.interop.certify import certify
from attendo.interop.export import ModelMismatchError
from attendo.text import BOS, PAD

SOURCES = [[4, 5, 6, 7, 8], [7], [8, 9]]


def logits_differ(kind: str, value: str, bound: str) -> str:
    return message("logit_difference_too_large", kind=kind, value=value, bound=bound)


def lost(value: str, bound: float) -> str:
    return message("lost_bleu_too_large", value=value, bound=bound)


def texts(parts: Sequence[MessagePart]) -> list[str]:
    return [str(part) for part in parts]


@dataclass(frozen=True)
class FakeSystem:
    """A system with fixed answers: the source by greedy search, the reversed source by a beam."""

    name: str = "one"
    added: float = 0.0  # to all logits except those of PAD and BOS
    changed: int = 0  # number of replaced tokens in the answers for the first source
    score: float | None = -2.0
    has_logits: bool = True

    def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
        if not self.has_logits:
            return None
        logits = torch.arange(12.0).repeat(len(target) + 1, 1) + self.added
        logits[:, [PAD, BOS]] = 1e6 * self.added
        return logits

    def generate(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[SystemOutput]:
        return [SystemOutput(self._ids(source, beam), self.score) for source in sources]

    def _ids(self, source: Sequence[int], beam: int) -> tuple[int, ...]:
        ids = tuple(source) if beam == 1 else tuple(reversed(source))
        return (*ids[: len(ids) - self.changed], *[11] * self.changed) if len(source) == 5 else ids


def test_equal_systems_pass() -> None:
    found = certify(FakeSystem("ours"), FakeSystem("theirs", added=5e-5, score=-2.25), SOURCES, Bounds())
    assert found.passed
    assert (found.ours, found.theirs, found.sentences) == ("ours", "theirs", 3)
    assert found.mean_difference == pytest.approx(5e-5, rel=0.1)
    assert found.largest_difference == pytest.approx(5e-5, rel=0.1)  # PAD and BOS are excluded
    assert [each.beam for each in found.searches] == [1, 4]
    for each in found.searches:
        assert (each.same_tokens, each.same_answers, each.score_difference) == (1.0, 3, 0.25)
        assert each.ours_per_second > 0
        assert each.theirs_per_second > 0


@pytest.mark.parametrize(
    ("theirs", "bounds", "reason"),
    [
        (FakeSystem(added=1e-3), Bounds(), logits_differ("mean", "1.00e-03", "1e-04")),
        (FakeSystem(added=math.nan), Bounds(), logits_differ("mean", "nan", "1e-04")),
        (FakeSystem(added=5e-5), Bounds(largest_difference=1e-5), logits_differ("largest", "5.01e-05", "1e-05")),
        (
            FakeSystem(changed=1),
            Bounds(),
            message("same_tokens_too_few", value="87.50%", search="greedy", bound="99.5%"),
        ),
    ],
)
def test_exceeded_bounds_fail_with_the_reason(theirs: FakeSystem, bounds: Bounds, reason: str) -> None:
    found = certify(FakeSystem(), theirs, SOURCES, bounds)
    assert not found.passed
    assert str(found.reasons[0]) == reason
    assert f"FAILED: {reason}" in found.as_table()


def test_nan_is_reported_and_the_json_is_valid() -> None:
    @dataclass(frozen=True)
    class NanSystem(FakeSystem):
        """The logits of the first source are NaN."""

        def logits(self, source: Sequence[int], target: Sequence[int]) -> Tensor | None:
            logits = super().logits(source, target)
            return logits if logits is None or len(source) != 5 else logits * math.nan

    found = certify(FakeSystem(), NanSystem(score=math.nan), SOURCES, Bounds())
    assert found.largest_difference is not None
    assert math.isnan(found.largest_difference)
    content = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert (content["largest_difference"], content["mean_difference"], content["passed"]) == ("nan", "nan", False)
    assert content["searches"][0]["score_difference"] == "nan"


def test_wider_bounds_pass() -> None:
    assert certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(same_tokens=0.8)).passed
    assert certify(FakeSystem(), FakeSystem(added=1.0), SOURCES, Bounds(mean_difference=None)).passed


def test_missing_tokens_count_as_different() -> None:
    class Longer(FakeSystem):
        def _ids(self, source: Sequence[int], beam: int) -> tuple[int, ...]:
            return (*source, 11) if beam == 1 else tuple(reversed(source))

    greedy, beam = certify(FakeSystem(), Longer(), SOURCES, Bounds()).searches
    assert (greedy.same_tokens, greedy.same_answers) == (8 / 11, 0)
    assert (beam.same_tokens, beam.same_answers) == (1.0, 3)


def test_missing_logits_and_scores_are_reported() -> None:
    found = certify(FakeSystem(), FakeSystem(has_logits=False, score=None), SOURCES, Bounds())
    assert found.passed
    assert (found.mean_difference, found.largest_difference) == (None, None)
    assert {each.score_difference for each in found.searches} == {None}
    assert found.as_table().count("not available") == 4


def test_with_references_bleu_decides_instead_of_tokens() -> None:
    pytest.importorskip("sacrebleu")
    evaluation = TextEvaluation(as_text, 1, ["8 7 6 5 4"])
    bounds = Bounds(lost_bleu=1.0, agreement=100.0)
    found = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, bounds, evaluation)
    assert found.scored is not None
    assert (found.scored.sentences, found.scored.ours_chrf) == (1, pytest.approx(100.0))
    assert found.scored.lost_bleu > 10
    assert texts(found.reasons) == [lost(f"{found.scored.lost_bleu:.2f}", 1.0)]
    assert certify(FakeSystem(), FakeSystem(changed=1), SOURCES, replace(bounds, lost_bleu=100.0), evaluation).passed
    assert not certify(
        FakeSystem(), FakeSystem(changed=1), SOURCES, bounds
    ).passed  # without references the tokens decide


@pytest.mark.parametrize(
    ("found", "bound", "kind", "shown"),
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
def test_digits_show_the_side_of_the_bound(found: float, bound: float | None, kind: str, shown: str) -> None:
    assert format_beside_bound(found, bound, 2, kind) == shown


def test_values_just_beyond_a_bound_are_not_rounded_to_it() -> None:
    pytest.importorskip("sacrebleu")
    evaluation = TextEvaluation(as_text, 1, ["8 7 6 5 4"])
    scored = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(), evaluation).scored
    assert scored is not None
    max_loss = math.floor(10_000 * scored.lost_bleu) / 10_000
    found = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(lost_bleu=max_loss), evaluation)
    shown = format_beside_bound(scored.lost_bleu, max_loss, 2, "f")
    assert len(shown.split(".")[1]) > 2
    assert texts(found.reasons) == [lost(shown, max_loss)]
    assert any(
        line.split() == ["lost", "BLEU", shown, "at", "most", str(max_loss)] for line in found.as_table().split("\n")
    )

    found = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(agreement=66.88), TextEvaluation(as_text, 1))
    assert texts(found.reasons) == [message("agreement_too_small", value="66.87", bound="66.88")]
    found = certify(FakeSystem(), FakeSystem(added=1.0006e-4), SOURCES, Bounds())
    assert str(found.reasons[0]) == logits_differ("mean", "1.001e-04", "1e-04")
    found = certify(FakeSystem(), FakeSystem(changed=1), [SOURCES[0], [7] * 194], Bounds())
    assert has_code("same_tokens_too_few", value="99.497%", search="greedy", bound="99.5%")(found.reasons[0])
    assert "99.497%  at least 99.5%" in found.as_table()


def test_unrelated_references_are_ignored() -> None:
    pytest.importorskip("sacrebleu")
    evaluation = TextEvaluation(as_text, 1, ["quite another thing indeed"])
    found = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(lost_bleu=1.0, agreement=85.0), evaluation)
    assert found.scored is not None
    assert found.scored.lost_bleu < 1
    assert texts(found.reasons) == [message("agreement_too_small", value="66.9", bound="85")], "as without references"
    found = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(lost_bleu=1.0), evaluation)
    assert has_code("same_tokens_too_few", search="greedy")(found.reasons[0])
    assert "at least 99.5%" in found.as_table()


def test_without_references_our_answers_are_the_references() -> None:
    pytest.importorskip("sacrebleu")
    evaluation = TextEvaluation(as_text, 1)
    found = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(lost_bleu=1.0, agreement=85.0), evaluation)
    assert found.scored is None
    assert found.agreement == pytest.approx(66.87, abs=0.01)  # BLEU of five tokens with a different last one
    assert texts(found.reasons) == [message("agreement_too_small", value="66.9", bound="85")]
    assert "at least 85" in found.as_table()
    assert "at least 99.5%" not in found.as_table()
    assert certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(agreement=60.0), evaluation).passed
    assert certify(FakeSystem(), FakeSystem(), SOURCES, Bounds(agreement=60.0), evaluation).agreement == pytest.approx(
        100.0
    )


def test_without_text_the_tokens_decide() -> None:
    found = certify(FakeSystem(), FakeSystem(changed=1), SOURCES, Bounds(agreement=1.0), TextEvaluation(as_text, 0))
    assert (found.agreement, found.criterion, found.passed) == (None, "same_tokens", False)


def test_with_answers_too_short_for_bleu_the_tokens_decide() -> None:
    pytest.importorskip("sacrebleu")
    found = certify(FakeSystem(), FakeSystem(), [[4, 5, 6]], Bounds(agreement=85.0), TextEvaluation(as_text, 1))
    assert (found.agreement, found.criterion, found.passed) == (None, "same_tokens", True)


def test_json_and_table_have_the_bounds() -> None:
    found = certify(FakeSystem("ours"), FakeSystem("theirs"), SOURCES, Bounds())
    content: dict[str, Any] = json.loads(json.dumps(found.as_json()))
    assert content["passed"] is True
    assert content["bounds"]["same_tokens"] == 0.995
    assert content["searches"][1]["same_answers"] == 3
    lines = found.as_table().split("\n")
    assert lines[0] == "theirs beside ours"
    assert lines[-1] == "passed"
    assert any(line.startswith("mean logit difference") and line.endswith("at most 1e-04") for line in lines)
    note = MessagePart("products_kept_in_float32", count=3)
    noted = replace(found, notes=(note,))
    assert str(note) in noted.as_table()
    assert noted.as_json()["notes"] == [str(note)]
    assert ModelMismatchError(Path("out"), replace(found, reasons=(note,))).text("zh").endswith(note.text("zh"))


def test_sources_are_grouped_by_length() -> None:
    calls: list[tuple[list[int], int]] = []

    class RecordingSystem(FakeSystem):
        def generate(self, sources: Sequence[Sequence[int]], beam: int, limit: int) -> list[SystemOutput]:
            calls.append(([len(source) for source in sources], limit))
            return super().generate(sources, beam, limit)

    sources = [[4] * (1 + n % 50) for n in range(100)]
    found = certify(FakeSystem(), RecordingSystem(), sources, Bounds())
    assert found.passed
    first, *groups = calls[: len(calls) // 2]
    assert first == ([1], 2)  # the warm-up call
    assert [max(lengths) for lengths, _ in groups] == [16, 32, 48, 50]
    assert [limit for _, limit in groups] == [34, 58, 82, 85]


def test_without_sentences_an_error_is_raised() -> None:
    with pytest.raises(UsageError, check=has_code("certificate_sentences_missing")):
        certify(FakeSystem(), FakeSystem(), [], Bounds())


def test_the_fake_system_implements_the_interface() -> None:
    assert isinstance(FakeSystem(), ComparedSystem)
    assert isinstance(certify(FakeSystem(), FakeSystem(), SOURCES, Bounds()), Certificate)


def as_text(ids: Sequence[int]) -> str:
    return " ".join(map(str, ids))
