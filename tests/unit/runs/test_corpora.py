"""The corpora of a run and their measured size."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from prepared_data import ListCorpus, prepare_all, sentences
from tiny import write_pairs

from attendo.data.config import DataConfig
from attendo.data.corpus_files import Corpus
from attendo.demo_task import BuiltinTask
from attendo.runs.corpora import BUILTIN_VALID_PAIRS, BuiltinCorpus, make_corpora, measure_data
from attendo.text.config import TokenizerConfig


def texts(corpus: Corpus) -> list[tuple[str, str]]:
    return [(row.source, row.target) for row in corpus.rows() if row.fault is None]


def test_the_built_in_task_gives_the_same_pairs_each_time() -> None:
    (corpus,), _ = make_corpora(DataConfig(task="builtin", pairs=300), seed=1)
    rows = list(corpus.rows())
    assert [row.number for row in rows] == list(range(1, 301))
    assert (
        texts(corpus) == texts(corpus) == [(pair.source, pair.target) for pair in islice(BuiltinTask(1).train(), 300)]
    )
    (other,), _ = make_corpora(DataConfig(task="builtin", pairs=300), seed=2)
    assert texts(other) != texts(corpus)


@pytest.mark.slow
def test_built_in_validation_pairs_are_not_in_training() -> None:
    (training,), valid = make_corpora(DataConfig(task="builtin", pairs=3000), seed=1)
    assert valid is not None
    held_out = texts(valid)
    assert len(held_out) == BUILTIN_VALID_PAIRS
    assert not {source for source, _ in texts(training)} & {source for source, _ in held_out}
    assert valid.name != training.name


def test_built_in_corpora_implement_the_corpus_interface() -> None:
    for heldout in (False, True):
        corpus = BuiltinCorpus(1, 5, heldout)
        assert isinstance(corpus, Corpus)
        assert corpus.weight == 1.0


def test_files_become_corpora_with_their_weights_and_tags(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    (tmp_path / "more.tsv").write_text("a dog\t狗\n", "utf-8")
    more = {"file": "more.tsv", "weight": 2.5, "tag": "<2zh>"}
    config = DataConfig(
        folder=tmp_path,
        corpora=({"source": source.name, "target": target.name}, more),
        valid_file="more.tsv",
        valid_tag="<2zh>",
    )
    (first, second), valid = make_corpora(config, seed=1)
    assert (first.weight, second.weight) == (1.0, 2.5)
    assert len(texts(first)) == 40
    assert valid is not None
    assert texts(second) == texts(valid) == [("<2zh> a dog", "狗")]


def test_without_validation_files_there_is_no_validation_corpus(tmp_path: Path) -> None:
    source, target = write_pairs(tmp_path)
    assert make_corpora(DataConfig(source=source, target=target), seed=1)[1] is None


def test_good_lines_of_all_corpora_are_measured(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(b"a dog\tein Hund\nno second column\nbroken \xff\tx\nthe cat\tdie Katze\n")
    (tmp_path / "b.tsv").write_text("the house\tdas Haus\n")
    found = measure_data(DataConfig(corpora=({"file": tmp_path / "a.tsv"}, {"file": tmp_path / "b.tsv"})), seed=1)
    assert found.pairs == 3
    assert found.kind is None
    assert 0.5 < found.alphabets_overlap < 1


def test_the_built_in_task_is_measured() -> None:
    found = measure_data(DataConfig(task="builtin", pairs=200), seed=1)
    assert found.pairs == 200
    assert found.alphabets_overlap < 0.1


@pytest.mark.parametrize(
    ("tokenizer", "overlap", "kind"),
    [
        ({"kind": "words", "size": 20}, 0.0, "words"),  # equal size does not make two vocabularies one
        ({"kind": "words", "joint": True}, 1.0, "words"),
        ({"kind": "bpe", "size": 300, "joint": True}, 1.0, "bpe"),
    ],
)
def test_prepared_data_is_measured_from_its_index(
    tmp_path: Path, tokenizer: dict[str, Any], overlap: float, kind: str
) -> None:
    made = prepare_all(tmp_path / "data", ListCorpus(sentences(100)), tokenizer=TokenizerConfig(**tokenizer))
    found = measure_data(DataConfig(prepared=tmp_path / "data"), seed=1)
    assert (found.pairs, found.tokens) == (made.pairs, made.target_tokens + made.pairs)
    assert (found.alphabets_overlap, found.kind) == (overlap, kind)


def test_alphabet_overlap_of_real_languages(shared: Path) -> None:
    german = DataConfig(folder=shared / "data/multi30k", source="val.en.gz", target="val.de.gz")
    chinese = DataConfig(folder=shared / "data/tatoeba_en_zh", source="valid.en.gz", target="valid.zh.gz")
    assert measure_data(german, seed=1).alphabets_overlap > 0.9
    assert measure_data(chinese, seed=1).alphabets_overlap < 0.1
