"""Tables as corpora: Parquet and Arrow files, and the folders of `datasets.save_to_disk`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from error_codes import has_code

from attendo.data.config import CorpusConfig
from attendo.data.corpus_files import CorpusRow, read_rows
from attendo.data.table_files import list_table_files
from attendo.errors import DataError, UsageError

pyarrow = pytest.importorskip("pyarrow")

PAIRS = [("one", "eins"), ("two", "zwei"), ("three\nlines", "drei"), (None, "vier"), ("five", "fünf 五")]


def write_parquet(path: Path, table: Any) -> Path:
    from pyarrow import parquet

    parquet.write_table(table, path, row_group_size=2)
    return path


def write_stream(path: Path, table: Any) -> Path:
    """Write what `datasets` calls an Arrow file: a stream of record batches."""
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return path


def write_saved_dataset(folder: Path, tables: Sequence[Any]) -> Path:
    """Write the files of `Dataset.save_to_disk`, whose order is not that of their names."""
    folder.mkdir(parents=True)
    names = [f"data-{len(tables) - number:05d}-of-{len(tables):05d}.arrow" for number in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        write_stream(folder / name, table)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def pairs_table(pairs: Sequence[tuple[str | None, str]] = PAIRS) -> Any:
    return pyarrow.table(
        {"id": list(range(len(pairs))), "source": [s for s, _ in pairs], "target": [t for _, t in pairs]}
    )


EXPECTED = [
    CorpusRow(1, "one", "eins", None),
    CorpusRow(2, "two", "zwei", None),
    CorpusRow(3, "three\nlines", "drei", None),
    CorpusRow(4, "", "", "field is not text"),
    CorpusRow(5, "five", "fünf 五", None),
]


def test_a_parquet_file_is_read_in_order(tmp_path: Path) -> None:
    corpus = CorpusConfig(file=write_parquet(tmp_path / "x.parquet", pairs_table()))
    assert list(read_rows(corpus)) == EXPECTED


def test_both_kinds_of_arrow_files_are_read(tmp_path: Path) -> None:
    write_stream(tmp_path / "stream.arrow", pairs_table())
    with (
        pyarrow.OSFile(str(tmp_path / "file.arrow"), "wb") as file,
        pyarrow.ipc.new_file(file, pairs_table().schema) as writer,
    ):
        writer.write_table(pairs_table())
    for name in ("stream", "file"):
        assert list(read_rows(CorpusConfig(file=tmp_path / f"{name}.arrow"))) == EXPECTED


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    (tmp_path / "parts.v1").mkdir()
    write_parquet(tmp_path / "parts.v1" / "0.parquet", pairs_table(PAIRS[:2]))
    write_parquet(tmp_path / "parts.v1" / "1.parquet", pairs_table(PAIRS[2:]))
    assert list(read_rows(CorpusConfig(file=tmp_path / "parts.v1"))) == EXPECTED


def test_a_saved_dataset_is_read_in_the_order_of_its_state(tmp_path: Path) -> None:
    folder = write_saved_dataset(tmp_path / "set" / "train", [pairs_table(PAIRS[:3]), pairs_table(PAIRS[3:])])
    assert list(read_rows(CorpusConfig(file=folder))) == EXPECTED


def test_a_saved_dataset_with_splits_names_them(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_saved_dataset(tmp_path / "set" / split, [pairs_table()])
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(DataError, check=has_code("table_folder_has_splits", splits="test, train")):
        list(read_rows(CorpusConfig(file=tmp_path / "set")))


def test_a_field_of_a_column_is_found(tmp_path: Path) -> None:
    table = pyarrow.table({"translation": [{"en": "one", "de": "eins"}, None]})
    path = write_parquet(tmp_path / "x.parquet", table)
    corpus = CorpusConfig(file=path, source_field="translation.en", target_field="translation.de")
    assert list(read_rows(corpus)) == [CorpusRow(1, "one", "eins", None), CorpusRow(2, "", "", "field is not text")]
    for name, known in (("translation.fr", "translation, translation.en, translation.de"), ("text", "translation")):
        with pytest.raises(DataError, check=has_code("table_column_not_found", column=name, columns=known)):
            list(read_rows(corpus.replace(source_field=name)))


def test_a_column_of_turns_is_a_conversation(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "x.parquet", pyarrow.table({"talk": [["a", "b", "c"], ["d"]]}))
    assert list(read_rows(CorpusConfig(file=path, turns_field="talk"))) == [
        CorpusRow(1, "a", "b", None),
        CorpusRow(2, "a<turn>b", "c", None),
        CorpusRow(3, "", "", "no answer"),
    ]


@pytest.mark.parametrize("state", ["", "[]", '{"_data_files": [{"filename": "../other.arrow"}]}'])
def test_a_damaged_state_is_an_error(tmp_path: Path, state: str) -> None:
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(DataError, check=has_code("table_state_damaged")):
        list_table_files(tmp_path)


def test_bad_tables_are_errors(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no table")
    (tmp_path / "x.arrow").write_bytes(b"no table")
    for name in ("x.parquet", "x.arrow", "missing.parquet"):
        with pytest.raises(DataError, check=has_code("file_read_failed")):
            list(read_rows(CorpusConfig(file=tmp_path / name)))
    with pytest.raises(DataError, check=has_code("table_folder_unclear")):
        list(read_rows(CorpusConfig(file=tmp_path)))
    with pytest.raises(DataError, check=has_code("file_is_empty")):
        list(read_rows(CorpusConfig(file=write_parquet(tmp_path / "empty.parquet", pairs_table([])))))
    with pytest.raises(UsageError, check=has_code("unsupported_data_file_suffix")):
        CorpusConfig(file=tmp_path / "x.txt")
