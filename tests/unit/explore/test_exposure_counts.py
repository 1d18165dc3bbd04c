"""Counts behind the measures of exposure bias: made-up outputs with known answers, keyed choices, bad text."""

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from error_codes import has_code
from tiny import SIZES, SOURCES, TARGETS, tiny_model, without_source

from attendo.errors import DataError, ModelError, UsageError
from attendo.explore.exposure import ExposureSettings, ParallelText, Recovery, measure_exposure
from attendo.explore.exposure.corruptions import corrupt, draw_distractors, draw_positions, draw_replacements
from attendo.explore.exposure.measures import (
    MAX_STEPS,
    compute_accuracy,
    compute_excess,
    compute_gap,
    compute_precision,
)
from attendo.model.config import ModelConfig
from attendo.model.factory import make_network
from attendo.model_folder import StoredModel
from attendo.text import EOS, Words
from attendo.text_model import TextModel
from attendo.text_model.text_model import MissingTagWarning

A, B, C = 4, 5, 6


def test_a_shift_makes_own_tokens_wrong_and_gold_ones_right() -> None:
    """The reason why accuracy after own prefixes is no measure of quality."""
    reference, shifted = (A, B, C, EOS), (B, A, B, C, EOS)
    found = compute_accuracy([reference, (A, EOS)], [reference, (A, A)], [shifted, (A, EOS)])
    assert found.counts == (2, 2, 1, 1)
    assert found.gold == (1.0, 0.5, 1.0, 1.0)
    assert found.own == (0.5, 0.5, 0.0, 0.0)
    assert (found.gold_mean, found.own_mean) == pytest.approx((5 / 6, 2 / 6))


def test_an_output_that_ended_early_has_no_correct_later_token() -> None:
    found = compute_accuracy([(A, A, EOS)], [(A, A, EOS)], [(A,)])
    assert found.own == (1.0, 0.0, 0.0)


def test_precision_is_clipped_within_each_quarter() -> None:
    """Words 0 to 7 are in quarters 1 1 2 2 3 3 4 4; a bigram is in the quarter of its second word."""
    found = compute_precision(["a a b c x c d d"], ["a b c d"])
    assert found.unigrams == (0.5, 1.0, 0.5, 0.5)
    assert found.unigram_counts == (2, 2, 2, 2)
    # a a | a b, b c | c x, x c | c d, d d
    assert found.bigrams == (0.0, 1.0, 0.0, 0.5)
    assert found.bigram_counts == (1, 2, 2, 2)


def test_short_outputs_leave_quarters_empty() -> None:
    found = compute_precision(["a", "", "b c"], ["a", "x", "b c"])
    assert found.unigrams == (1.0, None, 1.0, None)
    assert found.bigrams == (None, None, 1.0, None)


def test_characters_are_words_in_a_script_without_spaces() -> None:
    assert compute_precision(["我爱你们"], ["我爱他们"]).unigrams == (1.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("deltas", "half_life"),
    [
        ((4.0, 2.1, 2.0, 0.0), 3),
        ((4.0, 1.0, 3.0, 3.0), 2),
        ((4.0, 3.0, 2.5, 2.1), None),
        ((0.0, 0.0, 0.0, 0.0), 1),
        ((-1.0, 0.0, 0.0, 0.0), 1),
    ],
)
def test_the_half_life_is_the_least_distance_with_half_the_change(
    deltas: tuple[float, ...], half_life: int | None
) -> None:
    found = Recovery("random", np.array([deltas, deltas]))
    assert (found.deltas, found.half_life, found.max_distance) == (deltas, half_life, 4)
    assert found.standard_errors == (0.0,) * 4


def test_lines_without_a_token_are_counted() -> None:
    found = Recovery("random", np.array([[2.0, 4.0], [1.0, math.nan], [math.nan, math.nan]]))
    assert (found.deltas, found.counts, found.skipped, found.max_distance) == ((1.5, 4.0), (2, 1), 1, 2)
    assert found.standard_errors == (0.5, None)
    empty = Recovery("random", np.full((3, 2), math.nan))
    assert (empty.deltas, empty.half_life, empty.skipped) == ((None, None), None, 3)


def test_excess_error_sums_over_the_tokens_that_a_sentence_has() -> None:
    found = compute_excess("greedy", [np.array([1.0, 2.0, 3.0]), np.array([3.0])], [np.array([1.0, 0.0])] * 2)
    assert found.own[:4] == (2.0, 3.0, 4.5, 4.5)
    assert found.gold[:3] == (1.0, 1.0, 1.0)
    assert found.percent[:3] == (100.0, 200.0, 350.0)
    assert found.accumulated[:3] == (2.0, 6.0, 13.5)
    assert found.own_tokens[:4] == (2, 3, 4, 4)
    assert found.percent_per_token[:2] == pytest.approx((100.0, 300.0))
    assert len(found.percent) == MAX_STEPS


def test_excess_error_without_a_gold_divergence_is_unknown() -> None:
    found = compute_excess("greedy", [np.array([0.0, 1.0])], [np.array([0.0, 0.0])])
    assert found.percent[:2] == (0.0, None)
    assert found.accumulated[:2] == (1.0, None)


def test_the_gap_counts_positions_that_both_texts_have() -> None:
    found = compute_gap(
        [np.array([-1.0, -2.0]), np.array([-3.0]), np.array([-9.0])], [np.array([-4.0]), np.array([-6.0, -7.0]), None]
    )
    assert (found.reference, found.distractor, found.gap) == ((-2.0,), (-5.0,), (3.0,))
    assert (found.counts, found.skipped) == ((2,), 1)


def test_a_corrupted_target_is_replaced_dropped_or_doubled() -> None:
    ids = (A, B, C, EOS)
    assert corrupt(ids, 1, "random", 9) == corrupt(ids, 1, "wrong", 9) == ((A, 9, C, EOS), 0)
    assert corrupt(ids, 1, "dropped", 9) == ((A, C, EOS), -1)
    assert corrupt(ids, 1, "doubled", 9) == ((A, B, B, C, EOS), 1)


def test_positions_are_uniform_and_never_that_of_eos() -> None:
    drawn = Counter(draw_positions([(A, B, C, A, EOS)] * 4000, seed=3))
    assert {*drawn} == {0, 1, 2, 3}
    assert all(abs(count - 1000) < 120 for count in drawn.values())
    assert draw_positions([(EOS,), (A, EOS)], seed=3) == [None, 0]


def test_replacements_have_the_frequencies_of_other_tokens() -> None:
    """Tokens occur in the ratio 1 : 2 : 3, and the token itself and EOS are not drawn."""
    targets = [(A, B, B, C, C, C, EOS)] * 3000
    drawn = Counter(draw_replacements(targets, [0] * 3000, seed=3))
    assert {*drawn} == {B, C}
    assert drawn[C] / 3000 == pytest.approx(3 / 5, abs=0.04)
    assert {*draw_replacements(targets, [3] * 3000, seed=3)} == {A, B}
    assert draw_replacements([(A, A, EOS), (EOS,)], [1, None], seed=3) == [None, None]


def test_a_distractor_is_another_target_of_the_nearest_length() -> None:
    targets = [(A, EOS), (B, EOS), (A, EOS), (A, B, C, EOS), (A, B, C, A, B, EOS)]
    for seed in range(20):
        drawn = draw_distractors(targets, seed)
        assert drawn[0] == drawn[2] == 1  # not the equal target
        assert drawn[1] in (0, 2)
        assert drawn[3] in (0, 1, 2, 4)  # two tokens shorter or longer
        assert drawn[4] == 3
    assert len({draw_distractors(targets, seed)[3] for seed in range(40)}) == 4
    assert draw_distractors([(A, EOS), (A, EOS)], 0) == [None, None]


def test_choices_of_a_line_do_not_depend_on_later_lines() -> None:
    targets = [(A, B, C, EOS), (A, B, C, A, EOS), (B, EOS)]
    assert draw_positions(targets, 1)[:2] == draw_positions(targets[:2], 1)


def test_a_text_without_other_tokens_or_targets_is_counted_as_skipped() -> None:
    report = measure_exposure(tiny_model(), ParallelText(SOURCES[:2], ["猫", "猫"]))
    assert {name: each.skipped for name, each in report.recovery.items()} == {
        "random": 2,
        "wrong": 0,
        "dropped": 0,
        "doubled": 0,
    }
    assert report.recovery["random"].half_life is None
    assert report.recovery["doubled"].counts == (2, 0, 0, 0, 0, 0, 0, 0)  # the token after the only one is EOS
    assert (report.distractor.skipped, report.distractor.gap) == (2, ())


@pytest.mark.parametrize(
    ("sources", "references", "place"),
    [(("a", " "), ("b", "c"), "dev.en line 2"), (("a", "b"), ("", "c"), "dev.de line 1")],
)
def test_a_blank_line_is_an_error_with_file_and_line(
    sources: tuple[str, ...], references: tuple[str, ...], place: str
) -> None:
    with pytest.raises(DataError, check=has_code("exposure_line_blank", text=place)):
        ParallelText(sources, references, "dev.en", "dev.de")


def test_texts_of_different_length_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, check=has_code("source_reference_count_mismatch", sources=2, references=1)):
        ParallelText(("a", "b"), ("c",))
    source, reference = tmp_path / "dev.en", tmp_path / "dev.de"
    source.write_text("a\nb\nc\n")
    reference.write_text("a\nb\n")
    with pytest.raises(DataError, check=has_code("file_line_counts_differ", short=reference, long=source)):
        ParallelText.read(source, reference, limit=1)
    for path in (source, reference):
        path.write_text("")
    with pytest.raises(DataError, check=has_code("file_is_empty", path=source)):
        ParallelText.read(source, reference)


def test_a_limit_keeps_the_first_lines(tmp_path: Path) -> None:
    for name in ("dev.en", "dev.de"):
        (tmp_path / name).write_text("a\nb\n\n")
    assert ParallelText.read(tmp_path / "dev.en", tmp_path / "dev.de", limit=2).sources == ["a", "b"]


def test_lines_that_are_too_long_for_the_model_are_named() -> None:
    """A doubled token needs a position too, so a reference has two positions less than the model."""
    model = tiny_model(positions="learned", max_length=6)
    measure_exposure(model, ParallelText(["the"], ["我 我 我 我"]))
    with pytest.raises(DataError, check=has_code("source_exceeds_model_limit", text="reference line 2", limit=4)):
        measure_exposure(model, ParallelText(["the", "the"], ["我", "我 我 我 我 我"]))
    with pytest.raises(DataError, check=has_code("source_exceeds_model_limit", text="source line 1", tokens=6)):
        measure_exposure(model, ParallelText([" ".join(["the"] * 6)], ["我"]))
    short = tiny_model()
    short.generation = short.generation.override(max_source=2, long_source="truncate")
    with pytest.raises(DataError, check=has_code("source_exceeds_model_limit", text="source line 1", limit=2)):
        measure_exposure(short, ParallelText(["the cat sat"], ["我"]))


@pytest.mark.parametrize("kind", ["masked", "ctc", "graph"])
def test_models_without_a_prefix_are_rejected(kind: str) -> None:
    text, words = ParallelText(SOURCES, TARGETS), Words.build((*SOURCES, *TARGETS))
    parallel = TextModel(make_network(ModelConfig(vocab_size=words.vocab_size, kind=kind, **SIZES)), words)
    with pytest.raises(UsageError, check=has_code("parallel_feature_unsupported", kind=kind)):
        measure_exposure(parallel, text)
    with pytest.raises(UsageError, check=has_code("parallel_feature_unsupported", kind=kind)):
        measure_exposure(tiny_model(joint=True), text, parallel)


def test_models_without_a_source_are_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("exposure_decoder_only")):
        measure_exposure(without_source(), ParallelText(SOURCES, TARGETS))


def test_sources_without_the_tag_of_the_model_give_a_warning() -> None:
    words = Words.build((*SOURCES, *TARGETS), symbols=("<en>",))
    network = tiny_model(joint=True, source_vocab_size=words.vocab_size, target_vocab_size=words.vocab_size).network
    model = TextModel(StoredModel(network, words, words, {}, sample=[("<en> the cat", "猫")]))
    with pytest.warns(MissingTagWarning):
        measure_exposure(model, ParallelText(["the cat"], ["猫"]))


def test_an_oracle_needs_the_same_vocabularies() -> None:
    with pytest.raises(UsageError, check=has_code("oracle_tokenizer_mismatch", side="source")):
        measure_exposure(tiny_model(), ParallelText(SOURCES, TARGETS), tiny_model(joint=True))


def test_weights_that_are_not_numbers_are_an_error() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.network.output.weight.fill_(math.nan)
    with pytest.raises(ModelError, check=has_code("text_log_probability_nan", text="reference line 1")):
        measure_exposure(model, ParallelText(SOURCES, TARGETS))


def test_settings_are_checked() -> None:
    with pytest.raises(UsageError):
        ExposureSettings(seed=-1)
