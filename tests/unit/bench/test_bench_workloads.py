"""Benchmark options: baselines by name, forced lengths, sentences of a file with references."""

from pathlib import Path

import pytest
from error_codes import ErrorCheck, has_code
from tiny import tiny_model

from attendo.bench.comparison import (
    Baseline,
    BenchmarkSentences,
    make_forced_workloads,
    make_natural_workloads,
    parse_baselines,
    read_sentences,
)
from attendo.bench.random_network import make_random_network
from attendo.errors import DataError, UsageError
from attendo.model.config import ModelConfig


def test_baselines_can_have_a_precision() -> None:
    assert parse_baselines(" ctranslate2:int8, transformers ,ctranslate2", "bf16") == [
        Baseline("ctranslate2", "int8"),
        Baseline("transformers", "bf16"),
        Baseline("ctranslate2", "bf16"),
    ]
    assert parse_baselines("", "fp32") == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ctranslate", has_code("unknown_rival", name="ctranslate", suggestion=" (did you mean ctranslate2?)")),
        ("ctranslate2:fp8", has_code("unknown_rival_precision", precision="fp8")),
    ],
)
def test_an_unknown_baseline_or_precision_is_rejected(text: str, error: ErrorCheck) -> None:
    with pytest.raises(UsageError, check=error):
        parse_baselines(text, "fp32")


def test_there_is_a_workload_for_each_beam_and_batch() -> None:
    works = make_forced_workloads(make_random_network("tiny", 50).config, 5, 6, beams=[1, 4], batches=[2, 3])
    assert [(work.beam, work.batch, len(work.sources)) for work in works] == [
        (1, 2, 2),
        (1, 3, 3),
        (4, 2, 2),
        (4, 3, 3),
    ]
    assert all(work.has_fixed_length for work in works)
    assert works[0].sources == works[1].sources[:2]
    assert works[0].max_positions == 7


def test_natural_lengths_skip_empty_lines(tmp_path: Path) -> None:
    model = tiny_model()
    path = tmp_path / "lines"
    path.write_text("I love NLP\n\n  \nthe cat sat home\n", "utf-8")
    sentences = read_sentences(path, model.source_tokenizer)
    assert sentences.references is None
    (work,) = make_natural_workloads(sentences, model.network.config, [5], [64])
    assert [len(source) for source in work.sources] == [3, 4]
    assert (work.min_tokens, work.max_tokens, work.has_fixed_length) == (0, 28, False)


def test_learned_positions_limit_the_lengths(tmp_path: Path) -> None:
    model = tiny_model(positions="learned", max_length=8)
    path = tmp_path / "lines"
    (work,) = make_natural_workloads(BenchmarkSentences(path, [[5, 6, 7]]), model.network.config, [5], [64])
    assert work.max_tokens == 7
    with pytest.raises(DataError, check=has_code("line_exceeds_positions", length=9, limit=8)):
        make_natural_workloads(BenchmarkSentences(path, [[5] * 9]), model.network.config, [5], [64])
    with pytest.raises(UsageError, check=has_code("sequences_exceed_positions", limit=8, length=10)):
        make_forced_workloads(model.network.config, 5, 9, [1], [1])


def test_a_file_without_text_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("\n \n")
    with pytest.raises(DataError, check=has_code("file_has_no_text")):
        read_sentences(tmp_path / "lines", tiny_model().source_tokenizer)


def test_references_of_empty_sources_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("I love NLP\n\nthe cat\n", "utf-8")
    (tmp_path / "right").write_text("one\ntwo\nthree\n", "utf-8")
    sentences = read_sentences(tmp_path / "lines", tiny_model().source_tokenizer, tmp_path / "right")
    assert [len(source) for source in sentences.sources] == [3, 2]
    assert sentences.references == ("one", "three")


def test_reference_and_source_line_counts_must_match(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("I love NLP\n\nthe cat\n", "utf-8")
    (tmp_path / "right").write_text("one\ntwo\n", "utf-8")
    with pytest.raises(DataError, check=has_code("file_line_counts_differ", short_lines=2, long_lines=3)):
        read_sentences(tmp_path / "lines", tiny_model().source_tokenizer, tmp_path / "right")


def test_a_vocabulary_of_control_tokens_is_rejected() -> None:
    with pytest.raises(UsageError, check=has_code("vocabulary_only_control_tokens")):
        make_forced_workloads(ModelConfig(vocab_size=4), 5, 5, [1], [1])
