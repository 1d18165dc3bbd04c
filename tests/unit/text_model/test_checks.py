"""Checks of outputs: `check` adds a report and changes nothing else; repairs replace outputs with faults only."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from error_codes import has_code
from tiny import SOURCES, parallel_model, tiny_model
from varied_models import sentences, varied_model

from attendo.demo_task import BuiltinTask
from attendo.errors import ModelError, UsageError
from attendo.metrics.fault_limits import FaultLimits
from attendo.metrics.faults import Fault
from attendo.model_folder import CALIBRATION, update_json
from attendo.text_model import Result, TextModel, load
from attendo.text_model.repairing import Repairer, split_clauses
from attendo.text_model.results import CheckReport, result_to_dict

TEXTS = sentences(24)
PAIRS = BuiltinTask().heldout(260)


def without_report(results: list[Result]) -> list[Result]:
    return [
        replace(each, report=None, sentences=tuple(replace(sentence, report=None) for sentence in each.sentences))
        for each in results
    ]


@pytest.mark.parametrize("options", [{}, {"beam": 3, "n_best": 2}, {"sample": True}, {"alignments": True}])
def test_a_report_changes_nothing_else(options: dict[str, Any]) -> None:
    model = varied_model()
    plain, checked = model.generate(TEXTS, **options), model.generate(TEXTS, **options, check="report")
    assert all(each.report is None and each.faults == () and each.confidence is None for each in plain)
    assert all(each.report is not None for each in checked)
    assert without_report(checked) == plain
    assert any(each.faults for each in checked)
    for one, other in zip(plain, checked, strict=True):
        content = result_to_dict(other, all_hypotheses=True)
        assert content.pop("faults") == [each.to_dict() for each in other.faults]
        assert content.pop("confidence") is None
        assert content == result_to_dict(one, all_hypotheses=True)


def test_each_text_has_the_report_that_it_has_alone() -> None:
    model = varied_model()
    together = model.generate(TEXTS[:6], check="report", check_detached=True)
    for text, result in zip(TEXTS[:6], together, strict=True):
        (alone,) = model.generate([text], check="report", check_detached=True)
        assert [each.kind for each in alone.faults] == [each.kind for each in result.faults]


def test_a_blank_text_has_an_empty_report() -> None:
    (result,) = varied_model().generate([" "], check="repair")
    assert result.report is not None
    assert (result.text, result.faults, result.repairs) == ("", (), ())


def test_faults_of_sentences_have_places_in_the_joined_text() -> None:
    model = varied_model()
    text = "I love NLP. The cat sat. A dog ran home. " * 3
    (result,) = model.generate([text], check="report", split=True)
    assert len(result.sentences) == 9
    of_sentences = [fault for each in result.sentences for fault in each.faults]
    assert sorted(each.kind for each in result.faults) == sorted(each.kind for each in of_sentences)
    loops = [each for each in result.faults if each.kind == "loop"]
    for fault in loops:
        start, end = fault.where
        assert result.text[start:end] in fault.evidence or "…" in fault.evidence
    assert loops


def test_the_contrast_is_the_gain_of_the_source_per_token() -> None:
    model = varied_model()
    for text in SOURCES:
        (result,) = model.generate([text], check="report", check_detached=True)
        one, other = model.score_tokens([text, ""], [result.text] * 2)
        tokens = len(result.ids) + (not result.cut)
        gain = sum(one.log_probabilities[:tokens]) - sum(other.log_probabilities[:tokens])
        found = {each.kind: each.value for each in result.faults}.get("detached_from_source")
        assert (found is not None) == (gain / tokens < FaultLimits().contrast.low)
        if found is not None:
            assert found == pytest.approx(gain / tokens, abs=1e-4)


def test_given_outputs_are_checked_as_generated_ones() -> None:
    model = varied_model()
    results = [each for each in model.generate(TEXTS, check="report", check_detached=True) if not each.cut]
    texts = [text for text, each in zip(TEXTS, model.generate(TEXTS), strict=True) if not each.cut]
    reports = model.check(texts, [each.text for each in results], check_detached=True)
    same = [each.ids for each in results if "⁇" not in each.text]
    assert same
    for report, result in zip(reports, results, strict=True):
        if "⁇" not in result.text:
            assert [each.kind for each in report.faults] == [each.kind for each in result.faults]


def test_repairs_leave_outputs_without_faults_unchanged() -> None:
    model = varied_model()
    plain, repaired = model.generate(TEXTS), model.generate(TEXTS, check="repair")
    reported = model.generate(TEXTS, check="report")
    right = [number for number, each in enumerate(reported) if not (each.report and each.report.serious)]
    assert right
    assert [without_report([repaired[number]])[0] for number in right] == [plain[number] for number in right]
    assert all(repaired[number].repairs == () for number in right)


def test_a_repaired_output_has_fewer_faults() -> None:
    model = varied_model()
    before, after = model.generate(TEXTS, check="report"), model.generate(TEXTS, check="repair")
    kept = 0
    for old, new in zip(before, after, strict=True):
        assert old.report is not None
        assert new.report is not None
        if any(each.kept for each in new.repairs):
            kept += 1
            assert len(new.report.serious) < len(old.report.serious)
            assert new.repairs[0].faults_before == old.report.serious
            last = next(each for each in reversed(new.repairs) if each.kept)
            assert last.faults_after == new.report.serious
        else:
            assert new.text == old.text
            assert new.faults == old.faults
    assert kept > 2


def test_a_repair_does_not_depend_on_the_batch() -> None:
    model = varied_model()
    together = model.generate(TEXTS[:8], check="repair")
    for text, result in zip(TEXTS[:8], together, strict=True):
        (alone,) = model.generate([text], check="repair")
        assert (alone.text, alone.repairs) == (result.text, result.repairs)


@pytest.mark.parametrize(
    "options",
    [
        {"beam": 3, "n_best": 3},
        {"sample": True, "n_best": 2},
        {"alignments": True},
        {"beam": 2, "constraints": ["狗"]},
        {"prefix": "猫"},
        {"mbr": "chrf", "mbr_candidates": 4},
        {"beam": 4, "beam_groups": 2},
    ],
    ids=str,
)
def test_repairs_work_with_other_options(options: dict[str, Any]) -> None:
    model = varied_model()
    plain = model.generate(TEXTS, **options)
    results = model.generate(TEXTS, **options, check="repair", check_detached=True)
    assert any(each.repairs for each in results)
    for one, other in zip(plain, results, strict=True):
        assert len(other.hypotheses) <= options.get("n_best", 1)
        assert len(other.constraints) == len(one.constraints)
        assert (other.alignment is not None) == ("alignments" in options)
        assert other.text.startswith(options.get("prefix", ""))


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
def test_kinds_that_predict_all_tokens_at_once_are_checked(kind: str) -> None:
    model = parallel_model(kind)
    plain = model.generate(SOURCES)
    assert without_report(model.generate(SOURCES, check="report")) == plain
    assert all(each.report is not None for each in model.generate(SOURCES, check="repair"))


def test_a_masked_model_has_no_likelihood_for_the_contrast() -> None:
    with pytest.raises(UsageError, check=has_code("masked_model_has_no_likelihood")):
        parallel_model("masked").generate(SOURCES, check="report", check_detached=True)


def test_invalid_options_are_rejected() -> None:
    model = varied_model()
    with pytest.raises(UsageError, check=has_code("unknown_check", value="'tell'")):
        model.generate(TEXTS, check="tell")
    with pytest.raises(UsageError, check=has_code("check_detached_without_check")):
        model.generate(TEXTS, check_detached=True)
    for options in ({"check": "repair"}, {"check": "report", "check_detached": True}):
        with pytest.raises(UsageError, check=has_code("stream_option_unsupported")):
            next(model.stream(TEXTS[0], **options))


def test_a_stream_ends_with_the_report() -> None:
    model = varied_model()
    results: list[Result] = []

    def read() -> Iterator[str]:
        results.append((yield from model.stream(TEXTS[0], check="report")))

    parts = "".join(read())
    (expected,) = model.generate([TEXTS[0]], check="report")
    assert parts == expected.text
    assert [each.faults for each in results] == [expected.faults]


def test_calibration_is_stored_with_the_model(tmp_path: Path) -> None:
    model = tiny_model()
    sources, references = [pair.source for pair in PAIRS], [pair.target for pair in PAIRS]
    limits = model.calibrate(sources, references)
    assert limits.pairs == len(PAIRS)
    assert limits.scores
    assert limits.min_length_factor <= limits.max_length_factor
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", "cpu")
    assert loaded.fault_limits == limits
    confidences = [each.confidence for each in loaded.generate(sources[:50], check="report")]
    assert all(each is not None and 0 <= each <= 1 for each in confidences)
    assert len(set(confidences)) > 5
    assert [each.confidence for each in model.generate(sources[:50], check="report")] == confidences


def test_damaged_limits_are_named(tmp_path: Path) -> None:
    tiny_model().save(tmp_path / "model")
    update_json(tmp_path / "model", CALIBRATION, {"loop": "much"})
    with pytest.raises(ModelError, check=has_code("calibration_invalid", path=tmp_path / "model" / CALIBRATION)):
        load(tmp_path / "model", "cpu")


def test_too_few_pairs_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("too_few_calibration_pairs", count=3, least=200)):
        tiny_model().calibrate(["a"] * 3, ["b"] * 3)


def test_validation_pairs_of_the_model_are_the_default_limits() -> None:
    model = tiny_model()
    assert model.fault_limits == FaultLimits()
    stored = replace(model.stored_model, sample=[(pair.source, pair.target) for pair in PAIRS])
    limits = TextModel(stored).fault_limits
    assert limits.knows_languages
    assert limits.pairs == len(PAIRS)
    assert not limits.scores


def test_long_texts_are_split_at_clauses() -> None:
    assert split_clauses("the cat sat, and the dog ran") == []
    text = "when the cat sat down, the dog ran, yes, and because it was late: we all went home after the meal"
    assert split_clauses(text) == [
        "when the cat sat down,",
        "the dog ran,",
        "yes, and because it was late:",
        "we all went home after the meal",
    ]
    assert split_clauses("因为他很饿，所以他吃了一根香蕉，然后回家。再见") == [
        "因为他很饿，",
        "所以他吃了一根香蕉，",
        "然后回家。 再见",
    ]


def test_random_weights_of_a_network_do_not_change_by_checks() -> None:
    model = varied_model()
    before = {name: weight.clone() for name, weight in model.network.named_parameters()}
    model.generate(TEXTS, check="repair")
    assert all(torch.equal(before[name], weight) for name, weight in model.network.named_parameters())


def test_a_worse_output_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proposals with as many faults, or with fewer but a much lower probability, do not replace an output."""
    model = varied_model()
    before = [each for each in model.generate(TEXTS, check="report") if each.report and len(each.report.serious) == 1]
    worse = replace(before[0].best, text="猫 狗 猫 狗 猫 狗 猫 狗")
    unlikely = replace(before[0].best, text="猫 坐 着", parts=replace(before[0].best.parts, log_probability=-1e6))
    for proposal in (worse, unlikely):
        monkeypatch.setattr(Repairer, "_use_rules", lambda self, lines, config, found=proposal: [(found,)] * len(lines))
        monkeypatch.setattr(Repairer, "_sample", lambda self, lines, config, found=proposal: [(found,)] * len(lines))
        monkeypatch.setattr(Repairer, "_split", lambda self, lines, config: [()] * len(lines))
        after = model.generate(TEXTS, check="repair")
        plain = model.generate(TEXTS)
        of_one = [
            number for number, each in enumerate(after) if each.repairs and len(each.repairs[0].faults_before) == 1
        ]
        assert of_one
        assert all(after[number].text == plain[number].text for number in of_one)
        assert not any(step.kept for number in of_one for step in after[number].repairs)


@pytest.mark.parametrize(("kind", "kept"), [("length_outlier", False), ("loop", True)])
def test_an_output_with_less_evidence_replaces_only_a_certain_fault(
    monkeypatch: pytest.MonkeyPatch, kind: str, kept: bool
) -> None:
    """An unusual length may be right. A loop is wrong, however probable it is."""
    model, text = varied_model(), "the small cat ran home"
    line = model.prepare_call([text], check="repair", split=False)
    (old,) = model.generate([text], split=False)
    other = replace(old.best, text="猫 坐", parts=replace(old.best.parts, log_probability=old.log_probability - 1.0))
    fault = Fault(kind, 9.0, 1.0, (0, 1), "")  # type: ignore[arg-type]
    monkeypatch.setattr(Repairer, "_compute_contrasts", lambda *_: [None, None])
    monkeypatch.setattr(
        Repairer, "_check", lambda self, line, found, *_: CheckReport((fault,) if found.text == old.text else ())
    )
    repairer = Repairer(line, lambda *_: [], lambda *_: [], line.source_encoder)
    result = repairer._choose("candidates", line.lines[0], replace(old, report=CheckReport((fault,))), [other])
    assert [each.kept for each in result.repairs] == [kept]
    assert result.text == (other.text if kept else old.text)
