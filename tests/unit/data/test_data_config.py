"""Data settings and their usage errors."""

import re
from pathlib import Path
from typing import Any

import pytest
from error_codes import fragment

from attendo.data.config import CorpusConfig, DataConfig
from attendo.errors import UsageError

TEXT: dict[str, Any] = {"source": "a.en", "target": "a.de"}


def test_two_files_are_one_corpus_of_weight_one() -> None:
    (corpus,) = DataConfig(**TEXT, tag="<2de>").training
    assert corpus == CorpusConfig(source=Path("a.en"), target=Path("a.de"), tag="<2de>")
    assert (corpus.weight, corpus.format, corpus.name) == (1.0, "text", "a.en + a.de")


@pytest.mark.parametrize(
    ("name", "form"),
    [("a.tsv", "tsv"), ("a.tsv.gz", "tsv"), ("a.b.jsonl.xz", "jsonl"), ("a.json", "jsonl"), ("a.gz.tsv", "tsv")],
)
def test_the_file_suffix_sets_the_format(name: str, form: str) -> None:
    fields = {"source_field": "s", "target_field": "t"} if form == "jsonl" else {}
    assert CorpusConfig(file=name, **fields).format == form


def test_validation_files_share_fields_and_tag_with_the_training_file() -> None:
    fields = {"source_field": "s", "target_field": "t"}
    config = DataConfig(file="a.jsonl", valid_file="b.jsonl", tag="<2de>", **fields)
    assert config.validation == (CorpusConfig(file=Path("b.jsonl"), tag="<2de>", **fields),)
    (valid,) = DataConfig(**TEXT, tag="<2de>", valid_source="v", valid_target="w", valid_tag="<2fr>").validation
    assert valid.tag == "<2fr>"


def test_validation_of_several_corpora_can_name_fields() -> None:
    corpora = (CorpusConfig(**TEXT),)
    config = DataConfig(corpora=corpora, valid_file="b.jsonl", source_field="s", target_field="t")
    (valid,) = config.validation
    assert valid.source_field == "s"
    assert config.training == corpora


def test_several_file_pairs_are_corpora_in_order() -> None:
    several = DataConfig(source=["a.en", "b.en"], target=["a.de", "b.de"], tag="<2de>", folder="d")
    assert [corpus.name for corpus in several.training] == ["d/a.en + d/a.de", "d/b.en + d/b.de"]
    assert {(corpus.weight, corpus.tag) for corpus in several.training} == {(1.0, "<2de>")}
    valid = DataConfig(**TEXT, valid_source=["v", "w"], valid_target=["x", "y"]).validation
    assert [corpus.name for corpus in valid] == ["v + x", "w + y"]
    assert [corpus.name for corpus in DataConfig(file=["a.tsv", "b.csv"]).training] == ["a.tsv", "b.csv"]


def test_a_list_of_one_file_equals_the_file() -> None:
    assert DataConfig(source=["a.en"], target=["a.de"]) == DataConfig(**TEXT)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"source": ["a", "b"], "target": ["c"]},
            fragment("source_target_file_count_mismatch", prefix="", sources=2, targets=1),
        ),
        (
            {**TEXT, "valid_source": ["a", "b"], "valid_target": "c"},
            fragment("source_target_file_count_mismatch", prefix="valid_", sources=2, targets=1),
        ),
        ({"source": 3, "target": "b"}, "source must be a file or a list of files, not 3"),
        ({"source": [], "target": "b"}, "source must be a file or a list of files"),
        ({"text": "a", "text_field": 3}, "text_field"),
        ({**TEXT, "text_field": "body"}, fragment("text_setting_without_text", option="text_field")),
        ({"file": "a.csv", "source_field": "en", "target_field": "2"}, fragment("invalid_column_settings")),
        ({}, fragment("training_files_missing")),
        ({"source": "a"}, fragment("corpus_files_missing")),
        ({**TEXT, "file": "a.tsv"}, fragment("data_pair_file_conflict", prefix="")),
        ({**TEXT, "prepared": "data"}, fragment("multiple_data_sources")),
        ({"file": "a.txt"}, fragment("unsupported_data_file_suffix")),
        ({"file": "a.gz"}, fragment("unsupported_data_file_suffix")),
        ({"file": "a.tsv", "source_field": "0"}, fragment("invalid_column_settings")),
        ({"file": "a.tsv", "source_field": "text"}, fragment("column_setting_missing")),
        ({**TEXT, "source_field": "1"}, fragment("fields_without_table_file")),
        ({"file": "a.tsv", "features_field": "features"}, fragment("column_setting_missing")),
        ({"file": "a.tsv", "turns_field": "turns"}, fragment("turns_field_without_jsonl")),
        ({"file": "a.jsonl", "turns_field": "turns", "source_field": "s"}, fragment("turns_and_fields_conflict")),
        ({"prepared": "data", "turns_field": "turns"}, fragment("corpus_setting_without_files", option="turns_field")),
        (
            {"corpora": (TEXT,), "without_spaces": True},
            fragment("corpus_setting_without_files", option="without_spaces"),
        ),
        ({**TEXT, "text": "c.txt"}, fragment("multiple_data_sources")),
        ({**TEXT, "valid_text": "c.txt"}, fragment("valid_text_without_text")),
        ({"text": "c.txt", "valid_source": "v", "valid_target": "w"}, fragment("text_with_validation_pairs")),
        ({**TEXT, "valid_source": "v"}, fragment("validation_side_missing")),
        ({**TEXT, "valid_tag": "<2de>"}, fragment("valid_tag_without_files")),
        ({"corpora": (TEXT,), "tag": "<2de>"}, fragment("corpus_setting_without_files")),
        ({"prepared": "data", "cut_source": 9}, fragment("setting_fixed_in_prepared_data", option="cut_source")),
        ({**TEXT, "context_turns": 9}, fragment("turn_setting_without_turns", option="context_turns")),
        ({**TEXT, "answers": "second"}, fragment("turn_setting_without_turns", option="answers")),
        ({**TEXT, "pairs": 9}, fragment("pairs_without_builtin_task", count=9)),
        ({"prepared": "data", "source_field": "s"}, fragment("corpus_setting_without_files")),
        ({"prepared": "data", "valid_file": "b.tsv"}, fragment("prepared_data_with_validation_files")),
        ({"task": "builtin", **TEXT}, fragment("builtin_task_with_files")),
        ({"task": "builtin", "valid_file": "b.tsv"}, fragment("builtin_task_with_files")),
        ({**TEXT, "max_bad_ratio": 1.5}, "max_bad_ratio"),
    ],
)
def test_invalid_settings_are_usage_errors(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        DataConfig(**values)


def test_a_column_can_be_a_number() -> None:
    config = DataConfig(file="a.tsv", source_field=2, target_field=1, features_field=3)
    assert config.training[0].source_field == "2"
    assert config.training[0].features_field == "3"


def test_resolved_paths_do_not_depend_on_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    relative = [DataConfig(**TEXT), DataConfig(text="a"), DataConfig(**TEXT, folder="x"), DataConfig(corpora=(TEXT,))]
    assert [each.resolve_paths().folder for each in relative] == [tmp_path, tmp_path, tmp_path / "x", tmp_path]
    assert DataConfig(prepared="p").resolve_paths().prepared == tmp_path / "p"
    for found in (DataConfig(source="/a", target="/b"), DataConfig(**TEXT, folder="/x"), DataConfig(task="builtin")):
        assert found.resolve_paths() == found
    half = DataConfig(source="/a", target="/b", valid_source="/c", valid_target="d").resolve_paths()
    assert (half.training[0].source, half.validation[0].target) == (Path("/a"), tmp_path / "d")
