"""Reads tables with pyarrow: Parquet and Arrow files, and folders of them, as `datasets.save_to_disk` writes.

A row becomes a line of JSON with the columns that are asked for, so that tables are read like .jsonl files. A column
inside another one has both names: `translation.en`.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attendo.errors import DataError, list_names, require_package

SUFFIXES = (".parquet", ".arrow")
_BATCH_ROWS = 2048  # rows that are read together
_STATE, _SPLITS = "state.json", "dataset_dict.json"  # files of `datasets`


def read_table(path: Path, columns: Sequence[str]) -> Iterator[bytes]:
    """Yield every row as an object of JSON with these columns. Memory does not depend on the size of the table."""
    require_package("pyarrow", "corpora", "a Parquet or Arrow file")
    empty = True
    for file in list_table_files(path):
        for batch in _read_batches(file, columns):
            for row in batch:
                empty = False
                # A value that JSON does not have is not text: the line is bad.
                yield json.dumps(row, ensure_ascii=False, default=lambda _: None).encode()
    if empty:
        raise DataError("file_is_empty", path=path)


def list_table_files(path: Path) -> list[Path]:
    """Return the file itself, or the files of a folder in the order of the table."""
    if not path.is_dir():
        return [path]
    if (path / _SPLITS).is_file():
        splits = sorted(each.name for each in path.iterdir() if (each / _STATE).is_file())
        raise DataError("table_folder_has_splits", path=path, splits=list_names(splits))
    if (state := path / _STATE).is_file():
        try:
            names = [str(each["filename"]) for each in json.loads(state.read_bytes())["_data_files"]]
        except (OSError, ValueError, KeyError, TypeError):
            raise DataError("table_state_damaged", path=state) from None
        if any(Path(name).name != name for name in names):
            raise DataError("table_state_damaged", path=state)
        return [path / name for name in names]
    found = sorted(each for each in path.iterdir() if each.suffix in SUFFIXES and not each.name.startswith("."))
    if len({each.suffix for each in found}) != 1:
        raise DataError("table_folder_unclear", path=path, suffixes=list_names(SUFFIXES))
    return found


def _read_batches(path: Path, columns: Sequence[str]) -> Iterator[list[dict[str, Any]]]:
    from pyarrow import ArrowException

    try:
        with _open(path) as (schema, batches):
            found = {name: _find_column(path, schema, name) for name in columns}
            for batch in batches({path_of[0] for path_of in found.values()}):
                values = {name: _select(batch.column(at[0]), at[1:]) for name, at in found.items()}
                yield [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
    except (OSError, ArrowException) as error:
        raise DataError("file_read_failed", path=path, reason=" ".join(str(error).split())) from None


def _find_column(path: Path, schema: Any, name: str) -> list[str]:
    """Return the names of a column and of the field in it. A column whose own name has a dot comes first."""
    at = [name] if name in schema.names else name.split(".", 1)
    inner = schema.field(at[0]).type if at[0] in schema.names else None
    fields = [] if inner is None else [inner.field(number).name for number in range(inner.num_fields)]
    if inner is None or (len(at) == 2 and at[1] not in fields):
        known = [*schema.names, *(f"{at[0]}.{field}" for field in fields)]
        raise DataError("table_column_not_found", path=path, column=name, columns=list_names(known))
    return at


def _select(column: Any, fields: Sequence[str]) -> list[Any]:
    values = column.to_pylist()
    return [None if each is None else each[fields[0]] for each in values] if fields else values


@contextmanager
def _open(path: Path) -> Iterator[tuple[Any, Any]]:
    """Yield the schema of a file and a function that reads its batches."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    if path.suffix == ".parquet":
        with ParquetFile(path) as table:
            yield (
                table.schema_arrow,
                lambda names: table.iter_batches(_BATCH_ROWS, columns=sorted(names), use_threads=False),
            )
        return
    with pyarrow.memory_map(str(path)) as file:
        with path.open("rb") as raw:
            is_file = raw.read(6) == b"ARROW1"  # else a stream, as `datasets` writes
        reader = pyarrow.ipc.open_file(file) if is_file else pyarrow.ipc.open_stream(file)
        batches = (reader.get_batch(n) for n in range(reader.num_record_batches)) if is_file else reader
        yield (
            reader.schema,
            lambda _: (
                batch.slice(first, _BATCH_ROWS) for batch in batches for first in range(0, batch.num_rows, _BATCH_ROWS)
            ),
        )
