"""Where the pairs of a run come from."""

from itertools import islice
from pathlib import Path

import pytest

from attendo.errors import DataError
from attendo.recipes.corpus import VALID_AT_MOST, read_corpus
from attendo.recipes.run_config import DataConfig


def write(folder: Path, name: str, lines: list[str]) -> Path:
    (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder / name


def files(folder: Path, lines: list[str], prefix: str = "") -> dict[str, Path]:
    return {
        f"{prefix}source": write(folder, f"{prefix}source", lines),
        f"{prefix}target": write(folder, f"{prefix}target", [line.upper() for line in lines]),
    }


def test_a_twentieth_is_kept_back_where_there_are_no_validation_files(tmp_path: Path) -> None:
    lines = [f"line {n}" for n in range(100)]
    corpus = read_corpus(DataConfig(**files(tmp_path, lines)), seed=1)
    assert len(corpus.valid) == 5
    assert sorted([*corpus.sample, *corpus.valid]) == sorted((line, line.upper()) for line in lines)


def test_the_seed_decides_what_is_kept_back(tmp_path: Path) -> None:
    config = DataConfig(**files(tmp_path, [f"line {n}" for n in range(100)]))
    assert read_corpus(config, 1).valid == read_corpus(config, 1).valid
    assert read_corpus(config, 1).valid != read_corpus(config, 2).valid


def test_of_many_pairs_only_so_many_are_kept_back(tmp_path: Path) -> None:
    corpus = read_corpus(DataConfig(**files(tmp_path, [str(n) for n in range(20 * VALID_AT_MOST + 100)])), seed=1)
    assert len(corpus.valid) == VALID_AT_MOST


def test_validation_files_are_used_whole_and_nothing_is_kept_back(tmp_path: Path) -> None:
    train, valid = files(tmp_path, ["a", "b"] * 20), files(tmp_path, ["c", "d"], "valid_")
    corpus = read_corpus(DataConfig(**train, **valid), seed=1)
    assert corpus.valid == [("c", "C"), ("d", "D")]
    assert len(corpus.sample) == 40


def test_every_epoch_has_every_pair_once_in_another_order(tmp_path: Path) -> None:
    corpus = read_corpus(DataConfig(**files(tmp_path, [f"line {n}" for n in range(15)])), seed=1)
    first, second = (list(epoch) for epoch in islice(corpus.epochs(), 2))
    assert sorted(first) == sorted(second) == sorted(corpus.sample)
    assert first != second
    assert [list(epoch) for epoch in islice(corpus.epochs(), 2)] == [first, second]


def test_pairs_without_text_on_one_side_are_left_out_and_counted(tmp_path: Path) -> None:
    source, target = write(tmp_path, "s", ["a", "", "c", " "]), write(tmp_path, "t", ["A", "B", "\t", ""])
    corpus = read_corpus(DataConfig(source=source, target=target), seed=1)
    assert corpus.sample == [("a", "A")]
    assert corpus.empty == 3


def test_those_of_the_validation_files_are_counted_too(tmp_path: Path) -> None:
    valid = files(tmp_path, ["c", "", "d"], "valid_")
    corpus = read_corpus(DataConfig(**files(tmp_path, ["a", ""]), **valid), seed=1)
    assert corpus.valid == [("c", "C"), ("d", "D")]
    assert corpus.empty == 2


def test_files_without_any_pair_of_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="hold no pair with text on both sides"):
        read_corpus(DataConfig(**files(tmp_path, ["", " "])), seed=1)


def test_the_builtin_task_has_no_end_and_validates_on_what_is_never_trained() -> None:
    corpus = read_corpus(DataConfig(task="builtin"), seed=1)
    sources = {source for source, _ in islice(next(corpus.epochs()), 3000)}
    assert len(corpus.valid) == VALID_AT_MOST
    assert not sources & {source for source, _ in corpus.valid}
    assert corpus.sample[:50] == list(islice(next(corpus.epochs()), 50))
